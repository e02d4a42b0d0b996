"""Types: of answers, of tools, of the API."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta, timezone
from typing import Annotated, Any, Literal, TypedDict

import pytest

import mainspring as m
from mainspring import types
from mainspring._decode import encode, seconds
from mainspring._schema import fit, schema_of
from mainspring.tools import Tool


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Line:
    item: str
    count: int = 1


class Address(TypedDict):
    city: str


@dataclass
class Order:
    id: int
    price: float
    lines: list[Line]
    colour: Colour
    to: Address | None
    kind: Literal["new", "old"]
    note: Annotated[str, "For the driver."] = ""
    tags: dict[str, int] = field(default_factory=dict)
    due: date | None = None


ORDER: dict[str, Any] = {
    "id": 1, "price": 2, "lines": [{"item": "a"}], "colour": "red", "to": {"city": "Potsdam"}, "kind": "new",
    "due": "2026-01-02",
}


def test_a_value_that_fits_becomes_its_type() -> None:
    made = fit(Order, ORDER)
    assert made == Order(1, 2.0, [Line("a")], Colour.RED, {"city": "Potsdam"}, "new", due=date(2026, 1, 2))
    assert type(made.price) is float
    assert fit(tuple[int, str], [1, "a"]) == (1, "a")
    assert fit(datetime, "2026-01-02T03:04:05Z") == datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"id": "1"}, "/id"), ({"id": True}, "/id"), ({"lines": [{"item": "a"}, {}]}, "/lines/1/item"),
        ({"colour": "blue"}, "/colour"), ({"to": {}}, "/to/city"), ({"kind": "odd"}, "/kind"),
        ({"tags": {"a": "b"}}, "/tags/a"), ({"lines": {}}, "/lines"), ({"due": "soon"}, "/due"), ({"price": None}, "/price"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_where(change: dict[str, Any], pointer: str) -> None:
    with pytest.raises(m.Mismatch) as raised:
        fit(Order, ORDER | change)
    assert raised.value.pointer == pointer


def test_a_type_is_its_schema() -> None:
    schema = schema_of(Order)
    assert schema["required"] == ["id", "price", "lines", "colour", "to", "kind"]
    assert schema["properties"]["lines"]["items"]["required"] == ["item"]
    assert schema["properties"]["note"] == {"type": "string", "description": "For the driver."}
    assert schema["properties"]["to"]["anyOf"][1] == {"type": "null"}
    assert schema_of(list[str]) == {"type": "array", "items": {"type": "string"}}
    assert schema_of({"type": "integer"}) == {"type": "integer"}
    with pytest.raises(TypeError, match="use a dataclass"):
        schema_of(object.__subclasses__)


def test_a_pydantic_model_is_known_by_its_methods() -> None:
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("Model", n=(int, ...))
    assert schema_of(model)["required"] == ["n"]
    assert fit(model, {"n": 1}).n == 1
    with pytest.raises(m.Mismatch):
        fit(model, {"n": "x"})
    assert encode(model(n=1)) == '{"n":1}'


def test_what_a_newer_server_says_is_kept() -> None:
    usage = {"input_tokens": 1, "output_tokens": 2, "dreamt_tokens": 3}
    view = types.SendView.from_dict({
        "id": "snd_1", "session_id": "ses_1", "status": "dreaming", "usage": usage, "rounds": 0, "attempts": 0,
        "created_at": "2026-01-01T00:00:00.500Z", "mood": "good",
    })
    assert (view.status, view.extra) == ("dreaming", {"mood": "good"})
    assert view.usage.extra == {"dreamt_tokens": 3}
    assert view.created_at == datetime(2026, 1, 1, 0, 0, 0, 500000, tzinfo=timezone.utc)
    assert view.error is None


def test_entries_of_a_transcript_are_told_apart() -> None:
    from mainspring._decode import converter

    read = converter(types.Entry)
    message = {"seq": 1, "send_id": "s", "role": "user", "content": [], "round": 0, "created_at": "2026-01-01T00:00:00Z"}
    assert isinstance(read(message), types.Message)
    assert isinstance(read({"role": "fold"}), types.FoldEntry)
    assert read({"role": "dream"}) == {"role": "dream"}


def test_python_values_are_written_as_the_api_takes_them() -> None:
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    assert encode({"a": timedelta(seconds=1.5), "b": at}) == '{"a":"1500ms","b":"2026-01-01T00:00:00+00:00"}'
    assert encode(Line("x")) == '{"item":"x","count":1}'
    with pytest.raises(ValueError, match="time zone"):
        encode(datetime(2026, 1, 1))
    assert [seconds(each) for each in ("250ms", "30s", "5m", "2h", "1d", 3, timedelta(hours=1))] == [
        0.25, 30, 300, 7200, 86400, 3, 3600,
    ]
    with pytest.raises(ValueError, match="duration"):
        seconds("soon")


def test_a_tool_is_declared_by_its_signature() -> None:
    def refund(id: int, amount: float = 1.0, *, call: types.CallToMake) -> str:
        """Pays it back."""
        return call.call_id

    tool = Tool(refund, approval=True, deadline="1h")
    assert tool.declaration() == {
        "type": "external", "name": "refund", "description": "Pays it back.", "approval": True, "deadline": "1h",
        "repeat": "once",
        "parameters": {
            "type": "object", "required": ["id"], "additionalProperties": False,
            "properties": {"id": {"type": "integer"}, "amount": {"type": "number"}},
        },
    }
    assert tool.repeat == "once"
    with pytest.raises(TypeError, match="no name"):
        Tool(lambda *values: values, name="odd")
