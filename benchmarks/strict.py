"""Frozen dataclasses to JSON and back, refusing whatever does not fit.

A file of figures is read by other versions, other programs and people: an unknown field, a missing
one, a number that is text, or a NaN is an error that says where it is, and never a default.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from pathlib import Path
from typing import Any, TypeVar

from hierring.errors import HierringError

__all__ = ["BadFileError", "from_json", "read_text", "schema_of", "to_json"]

T = TypeVar("T")


class BadFileError(HierringError):
    """A file of figures that can't be used; the message says where it is wrong."""


def to_json(value: Any) -> str:
    """Strict JSON of a dataclass: no NaN, no Infinity, names as they are in the class."""
    return json.dumps(dataclasses.asdict(value), allow_nan=False, indent=1) + "\n"


def read_text(path: Path | str) -> str:
    """The text of a file of figures.

    Raises:
        BadFileError: it can't be read.
    """
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadFileError(f"{path} can't be read: {error}") from None


def from_json(kind: type[T], text: str, name: str) -> T:
    """Read a dataclass.

    Args:
        kind: the dataclass.
        text: JSON.
        name: of the file, for messages.

    Raises:
        BadFileError: it is not JSON, or not this dataclass.
    """
    tree = _parse(text, name)
    try:
        return typing.cast("T", _value(kind, tree, "$"))
    except BadFileError as error:
        raise BadFileError(f"{name}: {error}") from None


def schema_of(text: str, name: str) -> Any:
    """What the field `schema` says: asked first, as another schema has other fields."""
    tree = _parse(text, name)
    if not isinstance(tree, dict) or "schema" not in tree:
        raise BadFileError(f"{name} has no field 'schema': it is not from hierring bench")
    return tree["schema"]


def _parse(text: str, name: str) -> Any:
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        raise BadFileError(f"{name} is no JSON: {error}") from None


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is no number in strict JSON")


def _value(kind: Any, value: Any, where: str) -> Any:
    """`value` as a `kind`: a dataclass, a tuple, a dictionary, a scalar, None, or anything."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass(kind, value, where)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        return _tuple(inner, value, where)
    if origin is dict:
        if not isinstance(value, dict):
            raise _wrong(where, "an object", value)
        return {key: _value(inner[1], item, f"{where}.{key}") for key, item in value.items()}
    if origin in (types.UnionType, typing.Union):
        (present,) = (option for option in inner if option is not type(None))
        return None if value is None else _value(present, value, where)
    return value if kind is Any else _scalar(kind, value, where)


def _dataclass(kind: type, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise _wrong(where, "an object", value)
    hints = typing.get_type_hints(kind)
    names = {field.name for field in dataclasses.fields(kind)}
    for fault, found in (("unknown", value.keys() - names), ("missing", names - value.keys())):
        if found:
            raise BadFileError(f"{where}: {fault} field {', '.join(sorted(map(repr, found)))}")
    return kind(**{name: _value(hints[name], value[name], f"{where}.{name}") for name in names})


def _tuple(inner: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, list):
        raise _wrong(where, "a list", value)
    if inner[-1] is Ellipsis:
        inner = (inner[0],) * len(value)
    if len(inner) != len(value):
        raise BadFileError(f"{where}: expected {len(inner)} items, not {len(value)}")
    return tuple(
        _value(kind, item, f"{where}[{index}]")
        for index, (kind, item) in enumerate(zip(inner, value, strict=True))
    )


def _scalar(kind: Any, value: Any, where: str) -> Any:
    # bool is an int to Python, and an int is a float to people.
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise _wrong(where, _WORDS[kind], value)
    if kind is float:
        value = float(value)
        if not math.isfinite(value):  # such as 1e999
            raise _wrong(where, "a finite number", value)
    return value


_WORDS = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def _wrong(where: str, expected: str, value: Any) -> BadFileError:
    text = json.dumps(value)
    return BadFileError(f"{where}: expected {expected}, not {text[:60]}")
