"""From JSON to the types of the API, and back."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import date, datetime, timedelta
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

Duration = str | timedelta
"""`"250ms"`, `"30s"`, `"5m"`, `"2h"`, `"1d"`, or a timedelta."""

M = TypeVar("M", bound="Model")


@dataclass(frozen=True)
class By:
    """The member that tells the types of a union apart."""

    member: str
    types: dict[str, type[Model]]


@dataclass(frozen=True, kw_only=True)
class Model:
    """What the server shows. Members that this release does not know are in `extra`."""

    extra: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_dict(cls: type[M], data: Mapping[str, Any], **beside: Any) -> M:
        """Never refuses: values of tomorrow pass, and what is missing is None. `beside` are members that are no data."""
        converters = _members(cls)
        known = {name: convert(data.get(member)) for name, (member, convert) in converters.items()}
        members = {member for member, _ in converters.values()}
        return cls(**known, **beside, extra={name: value for name, value in data.items() if name not in members})


def _read_members(cls: Any) -> dict[str, tuple[str, Callable[[Any], Any]]]:
    hints = get_type_hints(cls, include_extras=True)
    names = {each.name for each in fields(cls)} - {"extra"}
    # An event's type and cursor come beside its data.
    names -= {"type", "cursor"} if "cursor" in names else set()
    return {name: (name.rstrip("_"), converter(hints[name])) for name in names}


_members: Callable[[Any], dict[str, tuple[str, Callable[[Any], Any]]]] = cache(_read_members)


def converter(hint: Any) -> Callable[[Any], Any]:
    """Values of another shape than announced are left as they are."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        by = next(each for each in arguments[1:] if isinstance(each, By))
        return lambda value: _chosen(by, value)
    if origin in (Union, UnionType):
        candidates = [converter(each) for each in arguments if each is not type(None)]
        return next((each for each in candidates if each is not _same), _same)
    if origin is list:
        item = converter(arguments[0])
        return _same if item is _same else lambda value: [item(each) for each in value] if isinstance(value, list) else value
    if origin is dict:
        item = converter(arguments[1])
        return _same if item is _same else (
            lambda value: {name: item(each) for name, each in value.items()} if isinstance(value, dict) else value
        )
    if hint is datetime:
        return lambda value: datetime.fromisoformat(value.replace("Z", "+00:00")) if isinstance(value, str) else value
    if is_dataclass(hint) and isinstance(hint, type) and issubclass(hint, Model):
        model = hint
        return lambda value: model.from_dict(value) if isinstance(value, dict) else value
    return _same


def _chosen(by: By, value: Any) -> Any:
    model = by.types.get(str(value.get(by.member))) if isinstance(value, dict) else None
    return model.from_dict(value) if model else value


def _same(value: Any) -> Any:
    return value


def encode(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=plain, allow_nan=False)


def plain(value: Any) -> Any:
    """What JSON has no form for, as the API writes it."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, timedelta):
        return f"{round(value.total_seconds() * 1000)}ms"
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone")
        return value.isoformat()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    if isinstance(value, (set, frozenset)):
        return list(value)
    if isinstance(value, enum.Enum):
        return value.value
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(duration: Duration | float) -> float:
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if isinstance(duration, (int, float)):
        return float(duration)
    number = duration.rstrip("msdh")
    if not number.isdigit() or duration[len(number) :] not in UNITS:
        raise ValueError(f"{duration!r} is not a duration such as 30s")
    return int(number) * UNITS[duration[len(number) :]]
