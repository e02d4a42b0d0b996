"""Python types as JSON Schema, and values checked against them. Pydantic models are known by their methods."""

from __future__ import annotations

import collections.abc
import enum
import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from .errors import Mismatch

Schema = dict[str, Any]

PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    NoneType: {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
    date: {"type": "string", "format": "date"},
    dict: {"type": "object"},
    list: {"type": "array"},
    Any: {},
    object: {},
}
LISTS = (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Iterable)
MAPPINGS = (dict, collections.abc.Mapping)


def schema_of(hint: Any) -> Schema:
    """The JSON Schema of a type. A dictionary is taken as a schema that is there already."""
    if isinstance(hint, Mapping):
        return dict(hint)
    if hint in PLAIN:
        return dict(PLAIN[hint])
    if hasattr(hint, "model_json_schema"):
        schema: Schema = hint.model_json_schema()
        return schema
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        words = [each for each in arguments[1:] if isinstance(each, str)]
        return schema_of(arguments[0]) | ({"description": words[0]} if words else {})
    if origin in (Union, UnionType):
        return {"anyOf": [schema_of(each) for each in arguments]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is tuple and not (len(arguments) == 2 and arguments[1] is ...):
        return {
            "type": "array", "prefixItems": [schema_of(each) for each in arguments],
            "minItems": len(arguments), "maxItems": len(arguments),
        }
    if origin in LISTS:
        return {"type": "array", "items": schema_of(arguments[0])}
    if origin in MAPPINGS:
        return {"type": "object", "additionalProperties": schema_of(arguments[1])}
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return {"enum": [member.value for member in hint]}
    members, required = _members(hint)
    return _object({name: schema_of(each) for name, each in members.items()}, required)


def _object(properties: dict[str, Schema], required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _members(hint: Any) -> tuple[dict[str, Any], list[str]]:
    """Members and required ones of a dataclass or a TypedDict."""
    if is_typeddict(hint):
        hints = get_type_hints(hint)
        return hints, [name for name in hints if name in hint.__required_keys__]
    if is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        own = [each for each in fields(hint) if each.init]
        needed = [each.name for each in own if each.default is MISSING and each.default_factory is MISSING]
        return {each.name: hints[each.name] for each in own}, needed
    raise TypeError(f"{hint!r} has no JSON Schema: use a dataclass, a TypedDict, a Pydantic model, or a schema")


def parameters_of(function: Callable[..., Any], without: set[str]) -> Schema:
    """The schema of a function's arguments."""
    hints = get_type_hints(function, include_extras=True)
    properties, required = {}, []
    for name, parameter in inspect.signature(function).parameters.items():
        if name in without:
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"{function.__name__}: {parameter} has no name that a model could give")
        properties[name] = schema_of(hints.get(name, Any))
        if parameter.default is parameter.empty:
            required.append(name)
    return _object(properties, required)


def arguments_of(function: Callable[..., Any], values: Any, without: set[str]) -> dict[str, Any]:
    """A call's arguments as the function's types."""
    hints = get_type_hints(function, include_extras=True)
    names = [name for name in inspect.signature(function).parameters if name not in without]
    if not isinstance(values, dict):
        raise Mismatch("", "is not an object")
    unknown = [name for name in values if name not in names]
    if unknown:
        raise Mismatch(f"/{unknown[0]}", "is no argument")
    return {name: fit(hints.get(name, Any), values[name], f"/{name}") for name in names if name in values}


def fit(hint: Any, value: Any, at: str = "") -> Any:
    """The value as this type, or a `Mismatch` that says where it doesn't fit."""
    if isinstance(hint, Mapping) or hint in (Any, object):
        return value
    if hasattr(hint, "model_validate"):
        try:
            return hint.model_validate(value)
        except ValueError as error:
            raise Mismatch(at, str(error)) from error
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return fit(arguments[0], value, at)
    if origin in (Union, UnionType):
        return _first(arguments, value, at)
    if origin is Literal:
        return value if value in arguments else _refuse(at, f"is none of {', '.join(map(repr, arguments))}")
    if hint in (datetime, date):
        try:
            return hint.fromisoformat(value.replace("Z", "+00:00"))
        except (AttributeError, ValueError):
            _refuse(at, "is not a date")
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        known = {member.value: member for member in hint}
        return known[value] if isinstance(value, (str, int)) and value in known else _refuse(at, "is none of the values")
    if hint in PLAIN and hint not in (dict, list):
        return _plain(hint, value, at)
    if (origin or hint) in LISTS:
        return _items(origin or hint, arguments, value, at)
    if not isinstance(value, dict):
        _refuse(at, "is not an object")
    if (origin or hint) in MAPPINGS:
        return {name: fit(arguments[1], each, f"{at}/{name}") for name, each in value.items()} if arguments else value
    members, required = _members(hint)
    for name in required:
        if name not in value:
            _refuse(f"{at}/{name}", "is missing")
    made = {name: fit(each, value[name], f"{at}/{name}") for name, each in members.items() if name in value}
    return value | made if is_typeddict(hint) else hint(**made)


def _plain(hint: Any, value: Any, at: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, hint) and not (hint is not bool and isinstance(value, bool)):
        return value
    return _refuse(at, f"is not {'null' if hint is NoneType else hint.__name__}")


def _items(kind: Any, arguments: tuple[Any, ...], value: Any, at: str) -> Any:
    if not isinstance(value, list):
        _refuse(at, "is not a list")
    if kind is tuple and arguments and arguments[-1] is not ...:
        if len(value) != len(arguments):
            _refuse(at, f"has not {len(arguments)} items")
        return tuple(fit(hint, each, f"{at}/{n}") for n, (hint, each) in enumerate(zip(arguments, value, strict=True)))
    made = [fit(arguments[0] if arguments else Any, each, f"{at}/{n}") for n, each in enumerate(value)]
    return kind(made) if kind in (tuple, set, frozenset) else made


def _first(hints: tuple[Any, ...], value: Any, at: str) -> Any:
    failed = []
    for hint in hints:
        try:
            return fit(hint, value, at)
        except Mismatch as error:
            failed += [error] if hint is not NoneType else []
    raise failed[0] if len(failed) == 1 else Mismatch(at, "fits none of its types")


def _refuse(at: str, detail: str) -> Any:
    raise Mismatch(at, detail)
