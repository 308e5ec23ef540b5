"""Private tools of the tests that run on many ranks: data, expected results, checks.

Under pytest's importlib mode test files cannot import each other, hence their home in the package.
"""

from __future__ import annotations

from hierring._testing.checks import Checks, canaries_intact, digest, layouts
from hierring._testing.data import (
    ALGORITHMS,
    COMPLEX,
    DTYPES,
    FLOATS,
    INTEGERS,
    UNIT,
    exact_input,
    exact_sum,
    expected,
    expected_nodes,
    general_input,
    ops_for,
    reduce,
    round_to_bfloat16,
    sum_bound,
)

__all__ = [
    "ALGORITHMS",
    "COMPLEX",
    "DTYPES",
    "FLOATS",
    "INTEGERS",
    "UNIT",
    "Checks",
    "canaries_intact",
    "digest",
    "exact_input",
    "exact_sum",
    "expected",
    "expected_nodes",
    "general_input",
    "layouts",
    "ops_for",
    "reduce",
    "round_to_bfloat16",
    "sum_bound",
]
