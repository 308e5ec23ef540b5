"""What every test shares: the report header, seeds, hypothesis profiles and the rule about skips.

Random data come from the ``rng`` fixture, which follows the session's seed (``--seed``, or
HIERRING_TEST_SEED), and from hypothesis, which follows the test alone. So the same command makes
the same tests, on every rank.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Generator

import hypothesis
import numpy as np
import pytest

# A skip for one of these is about the machine; any other is about a missing install step.
HARDWARE = ("GPU", "AVX-512")

hypothesis.settings.register_profile(
    "house",
    derandomize=True,  # the examples are a function of the test: equal on all ranks, in all runs
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[
        hypothesis.HealthCheck.too_slow,
        hypothesis.HealthCheck.function_scoped_fixture,
    ],
)
hypothesis.settings.load_profile("house")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that choose seeds and the long tests."""
    default = int(os.environ.get("HIERRING_TEST_SEED", "0"))
    parser.addoption("--seed", type=int, default=default, help="seed of all random test data")
    parser.addoption("--long", action="store_true", help="run the tests marked long, too")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what a failure would have to be reproduced with."""
    import hierring
    from hierring import _core

    return [
        f"hierring {hierring.__version__}, SIMD {_core.simd_level()} of {_core.simd_levels()}",
        f"seed {config.getoption('--seed')}, cores {os.cpu_count()}, uid {os.getuid()}",
    ]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long tests out unless they are asked for."""
    if config.getoption("--long"):
        return
    long_tests = [item for item in items if item.get_closest_marker("long")]
    if long_tests:
        items[:] = [item for item in items if item not in long_tests]
        config.hook.pytest_deselected(items=long_tests)


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip into a failure where everything must run, unless the hardware is to blame."""
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    if os.environ.get("HIERRING_TEST_REQUIRE_ALL") == "1" and not any(
        word in reason for word in HARDWARE
    ):
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: HIERRING_TEST_REQUIRE_ALL=1 refuses this: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Apply the rule about skips to every test."""
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Apply the rule about skips to whole modules."""
    report = yield
    _refuse_skip(report)
    return report


class Rng(np.random.Generator):
    """A NumPy generator that shows its seed in a traceback."""

    def __init__(self, seed: int) -> None:
        super().__init__(np.random.PCG64(seed))
        self.seed = seed

    def __repr__(self) -> str:
        return f"Rng(seed={self.seed})"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A number that depends on the session's seed and on the test, not on the rank."""
    name = request.node.nodeid.rsplit("/", 1)[-1]
    return zlib.crc32(name.encode()) ^ int(request.config.getoption("--seed"))


@pytest.fixture
def rng(seed: int) -> Rng:
    """Random data for this test, the same on every rank; its seed shows in a failure."""
    return Rng(seed)
