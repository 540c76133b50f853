from __future__ import annotations

import math
import pickle
from typing import Any

import pytest

from requeue_client import BodyError, Client, JsonCodec
from requeue_client.codec import Body, body_fields
from requeue_client.testing import Server

BODIES: list[Any] = [
    None,
    "text, ✓",
    "",
    b"\x00\xff",
    b"bytes that are also text",
    {"to": "ann@example.org", "items": [1, 2.5, None, True]},
    [],
    7,
    False,
]


class PickleCodec:
    content_type = "application/x-pickle"

    def encode(self, value: Any) -> bytes:
        return pickle.dumps(value)

    def decode(self, data: bytes) -> Any:
        return pickle.loads(data)


class UpperCaseJson:
    """A codec for the content type that the default codec has, too."""

    content_type = "application/json"

    def encode(self, value: Any) -> bytes:
        return JsonCodec().encode(value).upper()

    def decode(self, data: bytes) -> Any:
        return ("decoded", JsonCodec().decode(data))


@pytest.mark.parametrize("body", BODIES)
def test_a_body_comes_back_as_it_was_put(client: Client, kind: str, body: Any) -> None:
    client.put(kind, "a", body)
    assert client.get(kind, "a").body == body
    assert client.claim(kind).jobs[0].body == body


def test_a_body_of_a_codec_comes_back_through_the_codec(requeue_server: Server, kind: str) -> None:
    with Client(requeue_server.url, codec=PickleCodec()) as client:
        client.put(kind, "a", {1, 2, 3})
        job = client.claim(kind).jobs[0]
        assert job.body == {1, 2, 3}
        assert job.content.content_type == "application/x-pickle"


def test_a_codec_can_replace_json(requeue_server: Server, kind: str) -> None:
    with Client(requeue_server.url, codec=UpperCaseJson()) as client:
        client.put(kind, "a", {"to": "ann"})
        assert client.claim(kind).jobs[0].body == ("decoded", {"TO": "ANN"})


def test_bytes_and_text_do_not_go_through_the_codec(requeue_server: Server, kind: str) -> None:
    with Client(requeue_server.url, codec=PickleCodec()) as client:
        client.put(kind, "a", "text")
        client.put(kind, "b", b"bytes")
        assert client.get(kind, "a").body == "text"
        assert client.get(kind, "b").body == b"bytes"


def test_a_value_that_json_cannot_express_is_rejected(client: Client, kind: str) -> None:
    with pytest.raises(ValueError, match=r"body\.x is nan, which JSON cannot express"):
        client.put(kind, "a", {"x": math.nan})
    with pytest.raises(TypeError, match="not JSON serializable"):
        client.put(kind, "a", {"x": object()})


def test_a_body_that_cannot_be_decoded_fails_only_when_it_is_read() -> None:
    body = Body("application/json", {"body_text": "{"}, JsonCodec())
    assert body.data() == b"{"
    with pytest.raises(BodyError, match="application/json"):
        body.value()


def test_json_is_part_of_the_request() -> None:
    assert body_fields({"a": 1}, JsonCodec()) == {"body": {"a": 1}}
