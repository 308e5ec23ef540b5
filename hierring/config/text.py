"""The texts settings are written in: sizes, seconds, algorithm rules, pretended nodes.

Everything here refuses with ConfigurationError, naming the setting and the good values.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from datetime import timedelta

from hierring.errors import ConfigurationError

ALGORITHMS = ("auto", "hierarchical", "ring", "tree", "naive")

RANGE_FORMS = f'one of {", ".join(ALGORITHMS)}, or ranges like "tree:0-4K;hierarchical:4K-max"'
NODE_FORMS = (
    '"2x3" (2 nodes of 3 ranks), "3,1" (ranks of each node) or "cyclic:2" (dealt to 2 nodes)'
)
_SIZE_FORMS = 'bytes as a number, or text like "4096", "4K", "1M", "2GiB" (powers of 1024)'
_SIZE = re.compile(r"(\d+)\s*(?:([KMGT])(?:iB)?|B)?", re.IGNORECASE)
_SHIFT = {"K": 10, "M": 20, "G": 30, "T": 40}


def refuse(name: str, value: object, good: str) -> ConfigurationError:
    """Make the error for a bad value of a setting, with the good ones."""
    return ConfigurationError(f"{name}={value!r} is not valid: give {good}")


def parse_size(value: object, name: str = "size") -> int:
    """Bytes from a whole number or a text such as "4K" or "2GiB".

    Raises:
        ConfigurationError: not a size; negative numbers and bools included.
    """
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is None:
            raise refuse(name, value, _SIZE_FORMS)
        return int(match[1]) << _SHIFT.get((match[2] or "").upper(), 0)
    number = whole_number(value)
    if number is None or number < 0:
        raise refuse(name, value, _SIZE_FORMS)
    return number


def parse_seconds(value: object, name: str = "timeout") -> float:
    """Seconds from a number, a text or a timedelta.

    Raises:
        ConfigurationError: not a finite number above zero.
    """
    good = "a finite number of seconds above 0, or a timedelta"
    if isinstance(value, timedelta):
        seconds = value.total_seconds()
    elif isinstance(value, bool):
        raise refuse(name, value, good)
    else:
        try:
            seconds = float(value)  # type: ignore[arg-type]  # anything with __float__, or text
        except (TypeError, ValueError, OverflowError):
            raise refuse(name, value, good) from None
    if not (0.0 < seconds < math.inf):
        raise refuse(name, value, good)
    return seconds


def parse_algorithm(text: object, setting: str = "algorithm") -> tuple[tuple[int, str], ...]:
    """Return the rule an `algorithm` text stands for, as ascending (first nbytes, name).

    Ranges are half-open, `tree:0-4K` holds 0 to 4095 bytes; together they must run from 0 to max
    without a gap or an overlap, in ascending order.

    Raises:
        ConfigurationError: an unknown name, a malformed range, a gap or an overlap.
    """
    if not isinstance(text, str):
        raise refuse(setting, text, RANGE_FORMS)
    return _parse_ranges(text, setting)


@functools.lru_cache(maxsize=64)
def _parse_ranges(text: str, setting: str) -> tuple[tuple[int, str], ...]:
    if text in ALGORITHMS:
        return ((0, text),)
    rule: list[tuple[int, str]] = []
    border: int | None = 0
    for part in text.split(";"):
        name, colon, span = (word.strip() for word in part.partition(":"))
        low, dash, high = (word.strip() for word in span.partition("-"))
        if name not in ALGORITHMS or not colon or not dash:
            raise refuse(setting, text, RANGE_FORMS)
        first = parse_size(low, f"{setting} range start")
        last = None if high == "max" else parse_size(high, f"{setting} range end")
        if border is None or first != border or (last is not None and last <= first):
            raise refuse(
                setting, text, "ranges that follow each other from 0 to max, without a gap"
            )
        rule.append((first, name))
        border = last
    if border is not None:
        raise refuse(setting, text, 'ranges whose last one ends in "max"')
    return tuple(rule)


def algorithm_for(text: object, nbytes: int) -> str:
    """Return the algorithm name that the rule `text` gives to a tensor of `nbytes`."""
    rule = parse_algorithm(text)
    chosen = rule[0][1]
    for first, name in rule[1:]:
        if nbytes < first:
            break
        chosen = name
    return chosen


def parse_nodes(text: str, size: int) -> list[int]:
    """Return the pretended node of each rank, from a `simulate_nodes` text.

    Args:
        text: "2x3", "3,1" or "cyclic:2".
        size: number of ranks in the world, which the text must name exactly.

    Raises:
        ConfigurationError: malformed, or naming another number of ranks than `size`.
    """
    cyclic, counts = parse_node_text(text)
    if cyclic:
        if cyclic > size:
            raise ConfigurationError(
                f"simulate_nodes={text!r} deals to {cyclic} nodes, but the world has {size} ranks: "
                "every node needs at least one"
            )
        return [rank % cyclic for rank in range(size)]
    if sum(counts) != size:
        raise ConfigurationError(
            f"simulate_nodes={text!r} names {sum(counts)} ranks, but the world has {size}: "
            f"start {sum(counts)} ranks or change it"
        )
    return [node for node, count in enumerate(counts) for _ in range(count)]


def parse_node_text(text: str, setting: str = "simulate_nodes") -> tuple[int, list[int]]:
    """(nodes dealt to, []) for "cyclic:2", else (0, ranks of each node)."""
    compact = text.replace(" ", "")
    if match := re.fullmatch(r"cyclic:(\d{1,6})", compact):
        cyclic, counts = int(match[1]), [int(match[1])]
    elif match := re.fullmatch(r"(\d{1,6})x(\d{1,6})", compact):
        cyclic, counts = 0, [int(match[2])] * int(match[1])
    elif re.fullmatch(r"\d{1,6}(,\d{1,6})*", compact):
        cyclic, counts = 0, [int(count) for count in compact.split(",")]
    else:
        raise refuse(setting, text, NODE_FORMS)
    if not counts or min(counts) < 1:
        raise refuse(setting, text, f"{NODE_FORMS}, with counts of at least 1")
    return cyclic, [] if cyclic else counts


def whole_number(value: object) -> int | None:
    """Return the int a value stands for, or None; bools are no numbers here."""
    if isinstance(value, bool):
        return None
    try:
        return int(value, 10) if isinstance(value, str) else operator.index(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None
