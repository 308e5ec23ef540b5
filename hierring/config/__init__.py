"""Settings: a frozen dataclass whose fields know their variable, unit and good values.

A field `name` is read from `HIERRING_NAME` (an empty variable counts as unset). Unknown names,
unknown `HIERRING_*` variables and bad values are refused with the list of good ones, because a
misspelt setting that is silently ignored costs more than an error at the start.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from typing import Any

from hierring.config.text import (
    ALGORITHMS,
    NODE_FORMS,
    RANGE_FORMS,
    algorithm_for,
    parse_algorithm,
    parse_node_text,
    parse_nodes,
    parse_seconds,
    parse_size,
    refuse,
    whole_number,
)
from hierring.errors import ConfigurationError

__all__ = [
    "ALGORITHMS",
    "WIRE_DTYPES",
    "Config",
    "algorithm_for",
    "parse_algorithm",
    "parse_nodes",
    "parse_seconds",
    "parse_size",
]

ENV_PREFIX = "HIERRING_"
# Variables of the build and the tests, which may well be set where a program runs.
_NO_SETTINGS = ("TEST_", "NATIVE_TESTS", "SANITIZE", "WERROR")
WIRE_DTYPES = ("float32", "bfloat16", "float16")

_TRUE = ("1", "true", "yes", "on")
_FALSE = ("0", "false", "no", "off")


# Converters: (field name, value given) -> the stored value, or ConfigurationError.


def _bytes(
    low: int, high: int, multiple: int = 1, *, zero: str = ""
) -> Callable[[str, object], int]:
    def convert(name: str, value: object) -> int:
        nbytes = parse_size(value, name)
        if zero and nbytes == 0:
            return 0
        if not low <= nbytes <= high or nbytes % multiple:
            form = f"{low} to {high} bytes" + (
                f", a multiple of {multiple}" if multiple > 1 else ""
            )
            raise refuse(name, value, form + (f", or 0 ({zero})" if zero else ""))
        return nbytes

    return convert


def _choice(*good: str) -> Callable[[str, object], str]:
    def convert(name: str, value: object) -> str:
        if not isinstance(value, str) or value not in good:
            raise refuse(name, value, f"one of {', '.join(good)}")
        return value

    return convert


def _flag(name: str, value: object) -> bool:
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower() if isinstance(value, (str, int)) else ""
    if word not in _TRUE + _FALSE:
        raise refuse(name, value, f"one of {', '.join(_TRUE)} or {', '.join(_FALSE)}")
    return word in _TRUE


def _leaders(name: str, value: object) -> int:
    number = 0 if value == "auto" else whole_number(value)
    if number is None or not 0 <= number <= 1024:
        raise refuse(name, value, 'a number of leaders per node from 1 to 1024, or 0 or "auto"')
    return number


def _seconds(name: str, value: object) -> float:
    return parse_seconds(value, name)


def _algorithm(name: str, value: object) -> str:
    parse_algorithm(value, name)
    return str(value)


def _nodes(name: str, value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise refuse(name, value, NODE_FORMS)
    parse_node_text(value, name)
    return value


def _wire(name: str, value: object) -> str | None:
    return None if value is None else _choice(*WIRE_DTYPES)(name, value)


def _field(
    default: Any, convert: Callable[[str, object], Any], doc: str, *, protocol: bool = False
) -> Any:
    """Make a dataclass field; `protocol` marks what all ranks must agree on at init."""
    return dataclasses.field(
        default=default, metadata={"convert": convert, "doc": doc, "protocol": protocol}
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Config:
    """How one communicator behaves; immutable, comparable, picklable.

    Every value may also be given as text, as in the environment; it is stored converted.

    Raises:
        ConfigurationError: an unknown name or a bad value, with the good ones.
    """

    timeout_s: float = _field(1800.0, _seconds, "longest wait of one collective")
    init_timeout_s: float = _field(
        120.0, _seconds, "longest wait for all ranks at init, split or rebuild"
    )
    warn_after_s: float = _field(
        30.0, _seconds, "wait after which a warning names the missing ranks"
    )
    algorithm: str = _field("auto", _algorithm, f"default algorithm: {RANGE_FORMS}", protocol=True)
    wire_dtype: str | None = _field(
        None,
        _wire,
        "type that floats travel in between nodes; unset: the tensor's own",
        protocol=True,
    )
    leaders: int = _field(
        0, _leaders, "rails between nodes; 0: chosen from the topology", protocol=True
    )
    cell_bytes: int = _field(
        131072, _bytes(128, 2**30, 128), "staging cell of one rank in the segment", protocol=True
    )
    slice_bytes: int = _field(
        0,
        _bytes(64, 2**30, 64, zero="chosen by size"),
        "slice between nodes; 0: chosen",
        protocol=True,
    )
    max_message_bytes: int = _field(
        0,
        _bytes(64, 2**30, zero="chosen"),
        "largest single MPI message, longer ones are split; 0: chosen for the MPI library",
        protocol=True,
    )
    small_bytes: int = _field(
        4096, _bytes(64, 2**20, 64), "largest tensor that rides in the opening round", protocol=True
    )
    shared_memory: bool = _field(True, _flag, "off: every rank is a node of its own", protocol=True)
    simulate_nodes: str | None = _field(
        None, _nodes, f"pretended nodes on one machine: {NODE_FORMS}", protocol=True
    )
    intra_schedule: str = _field(
        "direct", _choice("direct", "ring"), "who adds which chunk inside a node", protocol=True
    )
    on_failure: str = _field(
        "raise", _choice("raise", "abort"), "a broken collective raises, or aborts the whole job"
    )
    check_launcher: bool = _field(True, _flag, "compare the launcher's variables with MPI at init")

    def __new__(cls, **values: object) -> Config:  # noqa: PYI034 - Self is of Python 3.11
        # The generated __init__ would answer a misspelt name with a bare TypeError.
        _known(values)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = field.metadata["convert"](field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **overrides: object) -> Config:
        """Read the settings of the environment, with `overrides` (field names) on top.

        Args:
            environ: default os.environ.
            overrides: settings by the names of their fields.

        Raises:
            ConfigurationError: an unknown or bad variable or override; the message names it.
        """
        # Not as the default itself: help() would print the whole environment.
        environ = os.environ if environ is None else environ
        values: dict[str, object] = {}
        for variable in sorted(environ):
            suffix = variable[len(ENV_PREFIX) :]
            if not variable.startswith(ENV_PREFIX) or suffix.startswith(_NO_SETTINGS):
                continue
            name, text = suffix.lower(), environ[variable].strip()
            field = cls.__dataclass_fields__.get(name)
            if field is None or suffix != suffix.upper():
                raise ConfigurationError(f"unknown variable {variable}: known are {_variables()}")
            if text:
                values[name] = field.metadata["convert"](variable, text)
        _known(overrides)
        return cls(**{**values, **overrides})  # type: ignore[arg-type]  # converted in __post_init__

    def protocol_fingerprint(self) -> dict[str, object]:
        """Return the fields that all ranks of a communicator must agree on, by name."""
        fields = dataclasses.fields(self)
        return {f.name: getattr(self, f.name) for f in fields if f.metadata["protocol"]}

    def algorithm_for(self, nbytes: int) -> str:
        """Return the algorithm name configured for `nbytes`; "auto" is left to the engine."""
        return algorithm_for(self.algorithm, nbytes)


# What `help` shows is what docs/settings.md is checked against.
Config.__doc__ = f"{Config.__doc__ or ''}\n    Attributes:\n" + "".join(
    f"        {field.name}: {field.metadata['doc']}.\n" for field in dataclasses.fields(Config)
)


def _known(values: Mapping[str, object]) -> None:
    names = Config.__dataclass_fields__
    for name in values:
        if name not in names:
            raise ConfigurationError(
                f"unknown setting {name!r}: known are {', '.join(sorted(names))}"
            )


def _variables() -> str:
    return ", ".join(sorted(ENV_PREFIX + name.upper() for name in Config.__dataclass_fields__))
