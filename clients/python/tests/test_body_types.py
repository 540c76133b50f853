"""Bodies with types: they come back as they were put, and what does not fit is named."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Literal, NewType, Optional, Union
from uuid import UUID

import pydantic
import pytest

from requeue_client._body_types import check_type, reader
from requeue_client.codec import to_json

Sku = NewType("Sku", str)


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


class Urgency(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass(frozen=True)
class Item:
    sku: Sku
    price: Decimal
    size: Size = Size.SMALL


@dataclass
class Order:
    id: UUID
    placed_at: datetime
    items: list[Item]
    day: date | None = None
    wake_at: time = time(9, 30)
    urgency: Urgency = Urgency.LOW
    tags: frozenset[str] = frozenset()
    position: tuple[float, float] = (0.0, 0.0)
    parts: tuple[int, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict[str, Any])
    channel: Literal["mail", "sms"] = "mail"
    parent: Order | None = None
    number: Union[int, str] = 0  # noqa: UP007
    seen: Optional[bool] = None  # noqa: UP045
    derived: str = field(default="", init=False)


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    id: UUID
    placed_at: datetime
    to: str = pydantic.Field(alias="recipient")
    wait: timedelta = timedelta(seconds=90)
    size: Size = Size.SMALL


ORDER = Order(
    UUID(int=42),
    datetime(2030, 1, 2, 3, 4, 5, 678000, timezone(timedelta(hours=2))),
    [Item(Sku("a"), Decimal("1.10")), Item(Sku("b"), Decimal(7), Size.LARGE)],
    day=date(2030, 1, 2),
    urgency=Urgency.HIGH,
    tags=frozenset({"x", "y"}),
    position=(1.5, 2.0),
    parts=(1, 2, 3),
    notes={"n": [1, None]},
    channel="sms",
    parent=Order(UUID(int=1), datetime(2030, 1, 1, tzinfo=UTC), []),
    number="seven",
    seen=True,
)
MODEL = Model(id=UUID(int=7), placed_at=datetime(2030, 1, 1, tzinfo=UTC), recipient="ann")


@dataclass
class Pydantic:
    model: Model
    many: Sequence[Model]


VALUES: list[tuple[Any, Any]] = [
    (ORDER, Order),
    (MODEL, Model),
    (Pydantic(MODEL, [MODEL]), Pydantic),
    ([ORDER.items[0]], list[Item]),
    ({"a": Size.LARGE}, dict[str, Size]),
    (None, Item | None),
    (Size.LARGE, Size),
]


@pytest.mark.parametrize(("value", "hint"), VALUES)
def test_a_value_comes_back_from_json(value: Any, hint: Any) -> None:
    check_type(hint)
    assert reader(hint)(json.loads(to_json(value))) == value


def test_a_field_that_is_missing_has_its_default_and_an_unknown_one_is_ignored() -> None:
    item = reader(Item)({"sku": "a", "price": 1, "added_later": True})
    assert item == Item(Sku("a"), Decimal(1))


MISFITS: list[tuple[Any, Any, str]] = [
    (Order, {"id": "x", "placed_at": "2030-01-01T00:00:00Z", "items": []}, "id: 'x' is not a UUID"),
    (Order, {"id": str(UUID(int=1)), "items": []}, "placed_at: missing"),
    (list[Item], [{"sku": "a", "price": "1"}, {"sku": 7, "price": 1}], "[1].sku: 7 is not text"),
    (Item, {"sku": "a", "price": "cheap"}, "price: 'cheap' is not a decimal number"),
    (
        Item,
        {"sku": "a", "price": 1, "size": "huge"},
        "size: 'huge' is none of 'small', 'large'",
    ),
    (Item, [1], "[1] is not an object with the fields of Item"),
    (Item, None, "None is not an object with the fields of Item"),
    (int, True, "True is not an integer"),
    (int, 1.5, "1.5 is not an integer"),
    (float, False, "False is not a number"),
    (bool, 1, "1 is not true or false"),
    (Urgency, True, "True is none of 1, 2"),
    (int | None, "x", "'x' is not an integer, and 'x' is not null"),
    (Literal["a", "b"], "c", "'c' is none of 'a', 'b'"),
    (tuple[int, int], [1], "a list of 1 items is not one of 2"),
    (dict[str, int], {"a": "b"}, "a: 'b' is not an integer"),
    (dict[str, int], [1], "[1] is not an object"),
    (list[int], "x", "'x' is not a list"),
    (datetime, "soon", "'soon' is not a time in ISO 8601"),
    (
        Model,
        {"recipient": 7},
        "id: Field required; placed_at: Field required; recipient: Input should be a valid string",
    ),
    (Model, None, "Input should be an object"),
    (list[Pydantic], [{"model": {}, "many": []}], "[0].model: id: Field required"),
]


@pytest.mark.parametrize(("hint", "value", "problem"), MISFITS)
def test_a_value_that_does_not_fit_is_named_with_its_place(
    hint: Any, value: Any, problem: str
) -> None:
    with pytest.raises(ValueError, match="^" + re.escape(problem)):
        reader(hint)(value)


@dataclass
class Computed:
    """What `__init__` does not take can be of any type: it is not in the body."""

    name: str
    cache: bytes = field(default=b"", init=False)
    loud: InitVar[bool] = False

    def __post_init__(self, loud: bool) -> None:
        self.cache = self.name.encode()


def test_fields_that_init_does_not_take_are_not_read() -> None:
    check_type(list[Computed])
    (computed,) = reader(list[Computed])([{"name": "a", "cache": "ignored", "loud": True}])
    assert (computed.name, computed.cache) == ("a", b"a")


@dataclass
class NeedsMore:
    name: str
    database: InitVar[object]


@dataclass
class Unreadable:
    callback: object
    items: list[bytes]


@pytest.mark.parametrize(
    ("hint", "problem"),
    [
        (bytes, "bodies cannot be read as bytes"),
        (timedelta, "bodies cannot be read as timedelta"),
        (dict[int, str], r"bodies cannot be read as dict\[int, str\]"),
        (NeedsMore, "NeedsMore.database has no default, and a body does not contain it"),
        (list[NeedsMore], "NeedsMore.database has no default"),
        (Unreadable, "Unreadable.items: bodies cannot be read as bytes"),
        ("Order", "bodies cannot be read as Order"),
        (42, "bodies cannot be read as 42"),
    ],
)
def test_a_type_that_cannot_be_read_is_rejected_when_it_is_registered(
    hint: Any, problem: str
) -> None:
    with pytest.raises(TypeError, match=problem):
        check_type(hint)


def test_a_value_without_json_is_rejected() -> None:
    with pytest.raises(TypeError, match="is not JSON serializable: a body consists of"):
        to_json({"a": [object()]})
    with pytest.raises(TypeError, match="is not JSON serializable"):
        to_json(Item)
