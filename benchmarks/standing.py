"""Where hierring stands against the fastest of all peers; pure.

Each job yields times of peers over hierring's, taken in the same moments. Absolute times of two
jobs are never compared: of the peers' ratios the smallest is the fastest peer's. Choosing it size
by size, after measuring, favours the peers, since it chooses their luck as well.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hierring.benchmarks.contest import Job
from hierring.benchmarks.jobs import Layout, ratio_text
from hierring.benchmarks.report.document import nbytes_text

__all__ = ["SPANS", "Place", "Row", "Span", "Spread", "Standing", "round_rows", "standing_rows"]

#: By what limits a call: the memory or the wire; the steps and Python.
SPANS = ((2**16, 2**26), (1, 2**13))


@dataclass(frozen=True)
class Place:
    """What a line of the tables is about."""

    layout: Layout
    in_place: bool

    @property
    def names(self) -> tuple[str, str]:
        """The layout and where the result goes, for people."""
        ranks = f"{self.layout.ranks} ranks" if self.layout.nodes == 1 else str(self.layout)
        return ranks, "in place" if self.in_place else "out of place"


@dataclass(frozen=True)
class Row:
    """One size of a place."""

    place: Place
    nbytes: int


@dataclass(frozen=True)
class Spread:
    """A ratio: of several rounds the median of medians, the lowest and the highest quartile."""

    median: float
    low: float
    high: float

    @classmethod
    def over(cls, rounds: Sequence[Spread]) -> Spread:
        """Of several rounds."""
        return cls(
            statistics.median(one.median for one in rounds),
            min(one.low for one in rounds),
            max(one.high for one in rounds),
        )

    @classmethod
    def mean(cls, sizes: Sequence[Spread]) -> Spread:
        """Of several sizes: the geometric mean, so that twice and half cancel out."""

        def geometric(values: Sequence[float]) -> float:
            return math.exp(statistics.fmean(math.log(value) for value in values))

        return cls(
            geometric([one.median for one in sizes]),
            geometric([one.low for one in sizes]),
            geometric([one.high for one in sizes]),
        )

    def __str__(self) -> str:
        return ratio_text(self.median, self.low, self.high)


@dataclass(frozen=True)
class Span:
    """Several sizes of a place together.

    Attributes:
        by_peer: geometric means, of those who ran all sizes.
        fastest: that of the fastest peer at each size.
        worst: the size at which hierring fares worst, who is fastest there, and the ratio.
    """

    sizes: tuple[int, ...]
    by_peer: dict[str, Spread]
    fastest: Spread
    worst: tuple[int, str, Spread]

    @property
    def text(self) -> str:
        """Which sizes."""
        first, last = nbytes_text(self.sizes[0]), nbytes_text(self.sizes[-1])
        return first if len(self.sizes) == 1 else f"{first} to {last}, {len(self.sizes)} sizes"


class Standing:
    """Times of all contenders over those of one way to call hierring.

    Args:
        ours: a contender of hierring, "" for the one that all were compared to in their jobs.
    """

    def __init__(self, jobs: Sequence[Job], ours: str = "") -> None:
        found: dict[Row, dict[str, list[Spread]]] = {}
        for job in jobs:
            for row, who, spread in _ratios(job, ours):
                found.setdefault(row, {}).setdefault(who, []).append(spread)
        self._rows = {
            row: {who: Spread.over(rounds) for who, rounds in by_name.items()}
            for row, by_name in found.items()
        }

    @property
    def places(self) -> list[Place]:
        """As they were measured."""
        return list(dict.fromkeys(row.place for row in self._rows))

    @property
    def peers(self) -> list[str]:
        """Who is not hierring."""
        return [who for who in self.contenders if not who.startswith("hierring")]

    @property
    def contenders(self) -> list[str]:
        """All but the one they are compared to."""
        return list(dict.fromkeys(who for by_name in self._rows.values() for who in by_name))

    def sizes(self, place: Place) -> list[int]:
        """Ascending."""
        return sorted(row.nbytes for row in self._rows if row.place == place)

    def ratio(self, row: Row, who: str) -> Spread | None:
        """None if it was not measured."""
        return self._rows.get(row, {}).get(who)

    def fastest(self, row: Row) -> tuple[str, Spread] | None:
        """The fastest peer; None if none was measured."""
        ratios = {who: self.ratio(row, who) for who in self.peers}
        known = [(who, ratio) for who, ratio in ratios.items() if ratio is not None]
        return min(known, key=lambda one: one[1].median, default=None)

    def span(self, place: Place, least: int, most: int) -> Span | None:
        """The sizes between two; None if no peer was measured there."""
        best: list[tuple[int, str, Spread]] = []
        for nbytes in self.sizes(place):
            one = self.fastest(Row(place, nbytes)) if least <= nbytes <= most else None
            if one is not None:
                best.append((nbytes, *one))
        if not best:
            return None
        sizes = tuple(nbytes for nbytes, _, _ in best)
        by_peer = {}
        for who in self.peers:
            known = [self.ratio(Row(place, nbytes), who) for nbytes in sizes]
            whole = [ratio for ratio in known if ratio is not None]
            if len(whole) == len(sizes):
                by_peer[who] = Spread.mean(whole)
        fastest = Spread.mean([ratio for _, _, ratio in best])
        return Span(sizes, by_peer, fastest, min(best, key=lambda one: one[2].median))


def _ratios(job: Job, ours: str) -> Iterator[tuple[Row, str, Spread]]:
    """Of one job: row, contender, its time over ours."""
    scale: dict[tuple[int, bool], float] = {}
    for case in job.result.cases:
        if case.name == ours and case.ratio is not None:
            scale[case.nbytes, case.in_place] = case.ratio.median
    for case in job.result.cases:
        key = case.nbytes, case.in_place
        if case.ratio is None or case.name == ours or (ours and key not in scale):
            continue
        by, ratio = scale.get(key, 1.0), case.ratio
        row = Row(Place(job.layout, case.in_place), case.nbytes)
        yield row, job.who(case), Spread(ratio.median / by, ratio.low / by, ratio.high / by)


def standing_rows(standing: Standing) -> Iterator[str]:
    """The table that answers where hierring stands, as Markdown."""
    peers = standing.peers
    head = ["job", "result", "sizes", *peers, "**the fastest of all**", "worst size"]
    yield "| " + " | ".join(head) + " |"
    yield "|---|---|---|" + "---:|" * (len(peers) + 1) + "---|"
    for place in standing.places:
        for least, most in SPANS:
            span = standing.span(place, least, most)
            if span is None:
                continue
            nbytes, who, ratio = span.worst
            cells = [*place.names, span.text]
            cells += [str(span.by_peer[peer]) if peer in span.by_peer else "" for peer in peers]
            cells += [f"**{span.fastest}**", f"{nbytes_text(nbytes)}: {ratio.median:.2f} ({who})"]
            yield "| " + " | ".join(cells) + " |"


def round_rows(jobs: Sequence[Job]) -> Iterator[str]:
    """Each round by itself, to show what varies from run to run."""
    turns = sorted({job.turn for job in jobs})
    if len(turns) < 2:
        return
    standings = [Standing([job for job in jobs if job.turn == turn]) for turn in turns]
    yield from ["", "### Each round by itself: against the fastest of all", ""]
    yield "| job | result | sizes | " + " | ".join(f"round {turn + 1}" for turn in turns) + " |"
    yield "|---|---|---|" + "---:|" * len(turns)
    for place in standings[0].places:
        for limits in SPANS:
            spans = [standing.span(place, *limits) for standing in standings]
            known = [span for span in spans if span is not None]
            if known:
                cells = ["" if span is None else str(span.fastest) for span in spans]
                yield "| " + " | ".join([*place.names, known[0].text, *cells]) + " |"
