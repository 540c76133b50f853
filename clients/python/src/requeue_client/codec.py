"""Bodies of jobs: JSON by default, or what a `Codec` makes of a value.

| body | sent as | the worker gets |
|---|---|---|
| `None` | an empty body | `None` |
| `str` | text, `text/plain; charset=utf-8` | `str` |
| `bytes` | bytes, `application/octet-stream` | `bytes` |
| any other value | what the codec encodes, JSON by default | what the codec decodes |

In JSON, a dataclass or pydantic model is an object of its fields, `UUID`, `datetime`, `date`,
`time` and `Decimal` are text, an `Enum` is its value, and a set is a list. A worker reads them
again with `@worker.job(kind, body=…)`.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ._body_types import json_problem, to_plain


class Codec(Protocol):
    """Encodes values as bodies and decodes them.

    A codec gets all values but `None`, `str` and `bytes`, and the bodies with its content type.
    """

    @property
    def content_type(self) -> str:
        """The content type of the bodies, such as `application/msgpack`."""
        ...

    def encode(self, value: Any) -> bytes:
        """Returns the body for a value. What it raises is raised by the put."""
        ...

    def decode(self, data: bytes) -> Any:
        """Returns the value of a body. If it raises, the worker buries the job."""
        ...


class JsonCodec:
    """The default: JSON, with dataclasses, pydantic models and the other types of this module."""

    content_type = "application/json"

    def encode(self, value: Any) -> bytes:
        """Returns `value` as JSON. Raises `TypeError` or `ValueError` if JSON cannot express it."""
        return to_json(value)

    def decode(self, data: bytes) -> Any:
        """Returns the value of a JSON text. Raises `ValueError` if it is invalid."""
        return json.loads(data)


class BodyError(ValueError):
    """The body of a job cannot be decoded."""


@dataclass(frozen=True, slots=True)
class Body:
    """A body as the server returned it. It is decoded when you ask for its value."""

    content_type: str
    fields: Mapping[str, Any] = field(repr=False)
    """The object of the response that contains `body`, `body_text` or `body_base64`."""
    codec: Codec = field(repr=False)

    def value(self) -> Any:
        """Returns the decoded body. Raises `BodyError` if that fails."""
        media_type = self.content_type.partition(";")[0].strip().lower()
        try:
            if media_type == self.codec.content_type and type(self.codec) is not JsonCodec:
                return self.codec.decode(self.data())
            if "body" in self.fields:
                return self.fields["body"]
            if media_type == "application/json":
                return json.loads(self.data())
            if media_type.startswith("text/") and "body_text" in self.fields:
                return self.fields["body_text"]
            return self.data() or None
        except Exception as error:
            raise BodyError(
                f"the body cannot be decoded as {self.content_type}: {error}"
            ) from error

    def data(self) -> bytes:
        """Returns the body as bytes. JSON may differ from what was put in its white space."""
        if "body" in self.fields:
            return to_json(self.fields["body"])
        if "body_text" in self.fields:
            return str(self.fields["body_text"]).encode()
        return base64.b64decode(self.fields.get("body_base64", ""))


def body_fields(value: Any, codec: Codec) -> dict[str, Any]:
    """Returns the fields of a request that contain `value` as a body."""
    if value is None:
        return {}
    if isinstance(value, str):
        return {"body_text": value}
    if isinstance(value, (bytes, bytearray)):
        return {"body_base64": base64.b64encode(value).decode()}
    if type(codec) is JsonCodec:
        # Part of the JSON of the request, instead of a text in it that contains JSON.
        return {"body": value}
    data = codec.encode(value)
    try:
        return {"body_text": data.decode(), "content_type": codec.content_type}
    except UnicodeDecodeError:
        encoded = base64.b64encode(data).decode()
        return {"body_base64": encoded, "content_type": codec.content_type}


def to_json(value: Any) -> bytes:
    """Returns compact JSON. Raises `TypeError` or `ValueError` for what JSON cannot express."""
    try:
        text = json.dumps(
            value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=to_plain
        )
    except (TypeError, ValueError, RecursionError) as error:
        if (problem := json_problem(value)) is None:
            raise
        raise (ValueError if isinstance(error, ValueError) else TypeError)(problem) from None
    return text.encode()
