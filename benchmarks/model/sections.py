"""What `hierring model` says, as sections for Markdown and for a page."""

from __future__ import annotations

from collections.abc import Sequence

from hierring.benchmarks.model.forecast import NODES_AHEAD, Check, Forecast
from hierring.benchmarks.model.parameters import Model
from hierring.benchmarks.model.predict import ALGORITHMS
from hierring.benchmarks.report.document import (
    Alert,
    Block,
    Paragraph,
    Section,
    Table,
    counted,
    duration,
    nbytes_text,
    rate,
)

__all__ = ["EXTRAPOLATED", "long_duration", "sections"]

#: Marks a row in tables.
EXTRAPOLATED = "extrapolated"

_MEANING = {
    "call": "core time of a rank for a call, whatever its size",
    "arrive": "until the ranks of a node have met, and heard the verdict",
    "turn": "until a rank that lost its core to another gets it back",
    "alpha": "of the network, for a message between nodes",
    "beta": "of the network, for a byte each way",
    "step": "core time of a message between nodes",
    "touch": "core time of a byte sent and received between nodes",
    "local_step": "core time of a message inside a node (flat algorithms)",
    "local_touch": "core time of its byte",
    "copy": "core time of copying a byte",
    "gamma": "core time of adding up a byte",
    "burst": "bytes that a link passes before its rate counts",
}
_PER_BYTE = ("beta", "touch", "local_touch", "copy", "gamma")


def sections(model: Model, forecasts: Sequence[Forecast], checks: Sequence[Check]) -> list[Section]:
    """Predictions, checks and the calibration; what is empty is left out."""
    found = []
    if forecasts:
        found.append(Section("predictions", "Predictions", tuple(_predictions(model, forecasts))))
    if checks:
        found.append(Section("checks", "Predicted and measured", tuple(_checks(checks))))
    found.append(Section("calibration", "Calibration", tuple(_calibration(model))))
    return found


def long_duration(seconds: float) -> str:
    """A time that may be beyond all reason."""
    for unit, length in (("years", 365.25 * 86400), ("days", 86400.0), ("h", 3600.0)):
        if seconds >= 2 * length:
            value = seconds / length
            return f"{value:.3g} {unit}" if value < 1e4 else f"{value:.0e} {unit}"
    return duration(seconds)


def _predictions(model: Model, forecasts: Sequence[Forecast]) -> list[Block]:
    blocks: list[Block] = []
    away = [one for one in forecasts if one.beyond]
    if away:
        words = dict.fromkeys(word for one in away for word in one.beyond)
        blocks.append(Alert(
            "warn",
            f"{len(away)} of {counted(len(forecasts), 'row')} are extrapolated, beyond the "
            f"calibration in {', '.join(words)}: {_reach_text(model)}. How far off they are, "
            "nobody knows.",
        ))  # fmt: skip
    unseen = [name for name in ALGORITHMS if name not in model.reach.algorithms]
    if unseen:
        blocks.append(Alert(
            "warn",
            f"The calibration has seen nothing of {', '.join(unseen)}: these times rest on guesses."
            f" `hierring bench --algorithms auto,{','.join(unseen)}` measures them.",
        ))  # fmt: skip
    rows = tuple(
        (
            str(one.nodes), str(one.ranks), nbytes_text(one.nbytes),
            *(long_duration(one.seconds[name]) for name in ALGORITHMS),
            one.best, rate(one.algbw), one.bound[one.best],
            f"{EXTRAPOLATED}: {', '.join(one.beyond)}" if one.beyond else "",
        )
        for one in forecasts
    )  # fmt: skip
    blocks.append(Table(
        "Predicted time of a call; algbw in GB/s, and what most of the time goes to, of the best",
        ("nodes", "ranks a node", "size", *ALGORITHMS, "best", "algbw", "goes to", ""), rows, 0,
    ))  # fmt: skip
    blocks.append(Paragraph(
        "hierring itself chooses hierarchical, whatever is predicted. Time goes to: call, what no "
        "byte is to blame for; steps, messages that wait for each other; cores, copying, adding "
        "and handing bytes to MPI; wire, the rate of the links."
    ))  # fmt: skip
    return blocks


def _reach_text(model: Model) -> str:
    reach = model.reach
    machines = (
        f"all on one machine of {counted(reach.cores, 'core')}"
        if reach.one_machine
        else f"of {counted(reach.cores, 'core')} each"
    )
    return (
        f"it saw {_range(reach.nodes)} nodes {machines}, {_range(reach.ranks)} ranks on each, and "
        f"{nbytes_text(reach.nbytes[0])} to {nbytes_text(reach.nbytes[1])}; up to "
        f"{NODES_AHEAD * reach.nodes[1]} nodes count as within its reach"
    )


def _range(numbers: tuple[int, int]) -> str:
    low, high = numbers
    return str(low) if low == high else f"{low} to {high}"


def _checks(checks: Sequence[Check]) -> list[Block]:
    rows = tuple(
        (
            f"{one.nodes}x{one.ranks}", nbytes_text(one.nbytes), one.algorithm,
            duration(one.predicted), duration(one.measured),
            f"{duration(one.low)} to {duration(one.high)}", f"{one.ratio:.2f}",
            f"{EXTRAPOLATED}: {', '.join(one.beyond)}" if one.beyond else "",
        )
        for one in checks
    )  # fmt: skip
    worst = max(checks, key=lambda one: max(one.ratio, 1 / one.ratio))
    text = (
        f"Of {counted(len(checks), 'case')} the worst is {worst.algorithm} on "
        f"{worst.nodes}x{worst.ranks} at {nbytes_text(worst.nbytes)}, predicted at "
        f"{worst.ratio:.2f} times the measured time. Measured is the median of a run, of several "
        "runs the fastest one's; the spread is that of their medians, of a single run from its "
        "fastest call to its p99."
    )
    head = ("nodes x ranks", "size", "algorithm", "predicted", "measured", "spread",
            "predicted / measured", "")  # fmt: skip
    return [Table("", head, rows, 0), Paragraph(text)]


def _calibration(model: Model) -> list[Block]:
    fit = model.fit
    costs = model.parameters
    rows = tuple(
        (name, _cost_text(name, getattr(costs, name)), meaning)
        for name, meaning in _MEANING.items()
    )
    return [
        Paragraph(
            f"{counted(fit.cases, 'case')}, repeated with an error of {100 * fit.typical:.0f} % "
            f"(median) and {100 * fit.worst:.0f} % (worst): {_reach_text(model)}."
        ),
        *(Paragraph(source) for source in model.sources),
        Table("", ("cost", "value", "of what"), rows, 1),
    ]


def _cost_text(name: str, value: float) -> str:
    if name == "burst":
        return nbytes_text(value)
    if name in _PER_BYTE:
        return f"{value * 1e9:.3g} ns/B" if value >= 1e-14 else "0"
    return duration(value) if value >= 1e-9 else "0"
