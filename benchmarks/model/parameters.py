"""What the model knows about a cluster: a few costs, where they were measured, and how well.

The costs extend R. W. Hockney's alpha-beta model ("The communication challenge for MPP: Intel
Paragon and Meiko CS-2", Parallel Computing 20(3), 1994) by gamma, the cost of a reduction, as in
Thakur, Rabenseifner and Gropp (IJHPCA 19(1), 2005), and part what the network takes from what a
core takes: the first passes while a rank waits, the second stretches as ranks outnumber cores.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hierring.benchmarks import strict

__all__ = ["SCHEMA", "Engine", "Fit", "Model", "Parameters", "Reach", "load_model", "save_model"]

SCHEMA = "hierring.model/1"


@dataclass(frozen=True)
class Parameters:
    """Costs in seconds, and in seconds per byte; none is negative.

    Attributes:
        call: core time of a rank for a call whatever its size: Python, checks, claims.
        arrive: until the ranks of a node have seen each other come and heard the verdict.
        turn: until a rank that lost its core to another has it again, where ranks outnumber cores.
        alpha: of the network for a message between nodes; beta: of it per byte, each way.
        step: core time of sending and receiving one message between nodes.
        touch: of it per byte.
        local_step, local_touch: the same between ranks of a node, which only flat algorithms do.
        copy: core time of copying a byte; gamma: of adding one up.
        burst: bytes of a call that a link passes at once, before its rate counts: the bucket of a
            shaped link.
    """

    call: float
    arrive: float
    turn: float
    alpha: float
    beta: float
    step: float
    touch: float
    local_step: float
    local_touch: float
    copy: float
    gamma: float
    burst: float

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not (math.isfinite(value) and value >= 0):
                raise strict.BadFileError(f"{name} is {value}: a cost is finite and not negative")


@dataclass(frozen=True)
class Engine:
    """Settings of hierring that decide how a tensor is cut; see `hierring.Config`."""

    cell_bytes: int = 128 * 1024
    slice_bytes: int = 0
    small_bytes: int = 4096
    leaders: int = 0


@dataclass(frozen=True)
class Reach:
    """Where the calibration was measured; beyond it a prediction is an extrapolation.

    Attributes:
        nodes, ranks, nbytes: (least, most) nodes, ranks on a node, and bytes of tensor.
        algorithms: whose times it saw.
        cores: usable on a machine.
        one_machine: whether all nodes were on one machine, whose cores they share.
        rates: (least, most) GB/s that the link probe found; None without a probe.
    """

    nodes: tuple[int, int]
    ranks: tuple[int, int]
    nbytes: tuple[int, int]
    algorithms: tuple[str, ...]
    cores: int
    one_machine: bool
    rates: tuple[float, float] | None


@dataclass(frozen=True)
class Fit:
    """How well the model repeats the cases it was calibrated with.

    Attributes:
        cases: how many. typical, worst: median and largest of max(p/m, m/p) - 1, where p is
            predicted and m is measured.
    """

    cases: int
    typical: float
    worst: float


@dataclass(frozen=True)
class Model:
    """A calibration, as it is saved.

    Attributes:
        sources: the runs it came from, in words.
    """

    schema: str
    parameters: Parameters
    engine: Engine
    reach: Reach
    fit: Fit
    sources: tuple[str, ...]


def save_model(model: Model, path: Path | str) -> None:
    """Write strict JSON."""
    Path(path).write_text(strict.to_json(model), encoding="utf-8")


def load_model(path: Path | str) -> Model:
    """Read what `save_model` wrote.

    Raises:
        BadFileError: it can't be read, is of another schema, or holds what the schema does not.
    """
    text = strict.read_text(path)
    found: Any = strict.schema_of(text, str(path))
    if found != SCHEMA:
        raise strict.BadFileError(
            f"{path}: schema {found!r}, but this hierring reads {SCHEMA!r}: calibrate again with "
            "`hierring model --calibrate RESULT.json --save PARAMS.json`"
        )
    return strict.from_json(Model, text, str(path))
