"""`hierring demo`: data-parallel training on handwritten digits that checks itself.

Every rank takes its part of each batch, computes a gradient, and `hierring.allreduce` adds the
gradients up. Then four claims are checked, and the exit code says whether all of them hold:

1. the network has learnt: its accuracy on digits it has not seen;
2. the bytes that went between nodes are those of the theory;
3. the weights are, to rounding, those that one process gets from the same batches;
4. the weights are the same bits on all ranks.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, SupportsFloat, TypeAlias

import numpy as np
import numpy.typing as npt

import hierring
from hierring.errors import HierringError
from hierring.launch.output import epochs, printer
from hierring.launch.stop import StoppedError, StopWish

__all__ = ["run"]

Floats: TypeAlias = npt.NDArray[np.float64]

SAMPLES, PIXELS, CLASSES = 1797, 64, 10
HELD_OUT = 450
HIDDEN = 256
#: The parameters of a network with one hidden layer, one after the other in a flat vector.
SHAPES = ((PIXELS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))
WEIGHTS = sum(int(np.prod(shape)) for shape in SHAPES)
#: What one all-reduce carries: the gradient and, riding along, the loss and the wishes to stop.
NBYTES = 8 * (WEIGHTS + 2)

SEED = 1797
EPOCHS, BATCH = 12, 128
RATE, MOMENTUM = 0.1, 0.9

ACCURACY_WANTED = 0.95
#: Of the largest weight. Parts of a batch are added up in another order than in one process, which
#: costs an ulp or so a step; a wrong gradient costs ten orders of magnitude more than this.
DIFFERENCE_ALLOWED = 1e-10


@dataclass(frozen=True)
class Digits:
    """Images (one a row, pixels from 0 to 1) and what they show."""

    images: Floats
    labels: npt.NDArray[np.int64]


def run() -> int:
    """Train, check and report; collective over all ranks of the job.

    Returns:
        The exit status, equal on all ranks: 0 if every check holds, else 1.
    """
    comm = hierring.init()
    say = printer(comm.rank() == 0)
    say(comm.get_topology().describe())
    training, test = split(_receive_digits())
    say(
        f"\ntraining a {PIXELS}-{HIDDEN}-{CLASSES} network on {len(training.labels)} handwritten "
        f"digits, {EPOCHS} epochs; each all-reduce takes {NBYTES} bytes of float64"
    )
    before = comm.statistics()
    started = time.monotonic()
    epoch = epochs(say, comm.rank() == 0, EPOCHS)
    wish = StopWish()
    try:
        weights = train(training, comm.rank(), comm.size(), _allreduce, epoch, wish)
    except StoppedError as stopped:
        wish.grant()
        say(str(stopped))
        return 0
    say(f"trained in {time.monotonic() - started:.1f} s")
    after = comm.statistics()

    results = [
        _check_accuracy(weights, test),
        _check_bytes(
            after.bytes_between_nodes - before.bytes_between_nodes,
            after.operations - before.operations,
        ),
        _check_single_process(weights, training),
        _check_bits(weights),
    ]
    for good, text in results:
        say(f"{'ok    ' if good else 'FAILED'} {text}")
    return 0 if hierring.allreduce(all(good for good, _ in results), "min") else 1


# --- the training --------------------------------------------------------------------------------


def train(
    data: Digits,
    rank: int,
    size: int,
    reduce: Callable[[Floats, float], object],
    epoch: Callable[[int, float], object],
    wish: SupportsFloat,
) -> Floats:
    """Stochastic gradient descent with momentum on this rank's part of every batch.

    Args:
        reduce: replaces a vector by its sum over all ranks, times a factor.
        epoch: is told the number of each finished epoch and its mean loss.
        wish: not 0 once this rank shall stop.

    Returns the weights.

    Raises:
        StoppedError: some rank shall stop; on all ranks.
    """
    weights = _initial_weights()
    velocity = np.zeros_like(weights)
    vector = np.empty(WEIGHTS + 2)  # the gradient, the loss, the wishes to stop
    generator = np.random.default_rng(SEED)
    for number in range(1, EPOCHS + 1):
        order = generator.permutation(len(data.labels))
        total = 0.0
        for first in range(0, len(order), BATCH):
            batch = order[first : first + BATCH]
            mine = batch[rank::size]  # parts may differ by one sample, or be empty
            loss = add_up_gradients(weights, data.images[mine], data.labels[mine], vector[:-2])
            vector[-2:] = loss, float(wish)
            reduce(vector, 1 / len(batch))
            if round(vector[-1] * len(batch)):  # how many ranks wish to stop
                raise StoppedError(f"stopped by SIGTERM in epoch {number}")
            velocity *= MOMENTUM
            velocity -= RATE * vector[:-2]
            weights += velocity
            total += vector[-2] * len(batch)
        epoch(number, total / len(order))
    return weights


def add_up_gradients(
    weights: Floats, images: Floats, labels: npt.NDArray[np.int64], out: Floats
) -> float:
    """Write the sum of the samples' gradients to `out` and return the sum of their losses."""
    into, bias, onward, final_bias = _parameters(weights)
    hidden = np.tanh(images @ into + bias)
    scores = hidden @ onward + final_bias
    scores -= scores.max(axis=1, keepdims=True)
    chances = np.exp(scores)
    chances /= chances.sum(axis=1, keepdims=True)
    right = (np.arange(len(labels)), labels)
    loss = -float(np.log(chances[right]).sum())

    error = chances  # of the scores: chances minus one-hot labels
    error[right] -= 1
    hidden_error = (error @ onward.T) * (1 - hidden**2)
    of_into, of_bias, of_onward, of_final_bias = _parameters(out)
    np.matmul(images.T, hidden_error, out=of_into)
    np.sum(hidden_error, axis=0, out=of_bias)
    np.matmul(hidden.T, error, out=of_onward)
    np.sum(error, axis=0, out=of_final_bias)
    return loss


def accuracy(weights: Floats, data: Digits) -> float:
    """The share of digits that the network reads correctly."""
    into, bias, onward, final_bias = _parameters(weights)
    scores = np.tanh(data.images @ into + bias) @ onward + final_bias
    return float(np.mean(scores.argmax(axis=1) == data.labels))


def _parameters(flat: Floats) -> list[Floats]:
    """The matrices and vectors that lie in a flat vector of WEIGHTS elements."""
    views, first = [], 0
    for shape in SHAPES:
        count = int(np.prod(shape))
        views.append(flat[first : first + count].reshape(shape))
        first += count
    return views


def _initial_weights() -> Floats:
    """The same on every rank, from one seed."""
    flat = np.zeros(WEIGHTS)
    generator = np.random.default_rng(SEED)
    for view in _parameters(flat):
        if view.ndim == 2:
            view[:] = generator.normal(scale=len(view) ** -0.5, size=view.shape)
    return flat


def _allreduce(vector: Floats, factor: float) -> object:
    # By name, because the bytes of the other algorithms follow other formulas.
    return hierring.allreduce(vector, "sum", scale=factor, algorithm="hierarchical")


# --- the data ------------------------------------------------------------------------------------


def _receive_digits() -> Digits:
    """Rank 0 reads the digits, the others receive them; raises on all ranks if it can't."""
    digits = Digits(np.zeros((SAMPLES, PIXELS)), np.zeros(SAMPLES, np.int64))
    found = hierring.rank() != 0 or _read_digits(digits)
    if not hierring.allreduce(found, "min"):
        if hierring.rank() != 0:
            raise SystemExit(1)  # rank 0 says why
        raise HierringError("the demo reads scikit-learn's digits: pip install 'hierring[demo]'")
    hierring.broadcast(digits.images)
    hierring.broadcast(digits.labels)
    return digits


def _read_digits(into: Digits) -> bool:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        return False
    found: Any = load_digits()
    into.images[:] = found.data / 16
    into.labels[:] = found.target
    return True


def split(digits: Digits) -> tuple[Digits, Digits]:
    """A training set and a held-out test set, the same on every rank."""
    order = np.random.default_rng(SEED).permutation(SAMPLES)
    test, training = order[:HELD_OUT], order[HELD_OUT:]
    return (
        Digits(digits.images[training], digits.labels[training]),
        Digits(digits.images[test], digits.labels[test]),
    )


# --- the checks: (whether it holds, what to print) -----------------------------------------------


def _check_accuracy(weights: Floats, test: Digits) -> tuple[bool, str]:
    share = accuracy(weights, test)
    return share > ACCURACY_WANTED, (
        f"accuracy {share:.1%} on {HELD_OUT} held-out digits (must be above {ACCURACY_WANTED:.0%})"
    )


def _check_bytes(sent: int, operations: int) -> tuple[bool, str]:
    """A ring over M nodes sends 2(M-1) S bytes in all; two nodes that exchange S bytes, as many."""
    nodes = hierring.num_nodes()
    total = hierring.allreduce(sent)
    theory = 2 * (nodes - 1) * NBYTES * operations
    return total == theory, (
        f"{total} bytes sent between nodes; theory: {theory}, which is {operations} all-reduces "
        f"times 2(M-1) S (nodes M = {nodes}, bytes S = {NBYTES})"
    )


def _check_single_process(weights: Floats, training: Digits) -> tuple[bool, str]:
    """Rank 0 trains once more alone; the others wait for what it finds."""
    difference = float("inf")
    if hierring.rank() == 0:
        alone = train(training, 0, 1, np.ndarray.__imul__, lambda number, loss: None, 0)
        difference = float(np.abs(weights - alone).max() / np.abs(alone).max())
    difference = hierring.broadcast(difference)
    return difference <= DIFFERENCE_ALLOWED, (
        f"weights {difference:.1e} (of the largest) from those that one process gets from the same "
        f"batches (at most {DIFFERENCE_ALLOWED:.0e})"
    )


def _check_bits(weights: Floats) -> tuple[bool, str]:
    digest = np.frombuffer(hashlib.sha256(weights.tobytes()).digest(), np.uint8)
    digests = hierring.allgather(digest[np.newaxis])
    different = [rank for rank, other in enumerate(digests) if (other != digests[0]).any()]
    detail = f"; those that differ from rank 0: {different}" if different else ""
    return not different, f"weights bit-identical on every rank{detail}"
