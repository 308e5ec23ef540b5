"""The tree of public errors: what each is also an instance of, and that it survives pickling."""

from __future__ import annotations

import inspect
import pickle

import pytest

from hierring import errors

ALL = [getattr(errors, name) for name in errors.__all__]


def test_all_names_every_public_class() -> None:
    public = [n for n, x in vars(errors).items() if inspect.isclass(x) and not n.startswith("_")]
    assert sorted(n for n in public if n.endswith("Error")) == errors.__all__


@pytest.mark.parametrize("error", ALL)
def test_every_error_has_the_root_and_says_what_is_left_and_what_next(error: type) -> None:
    assert issubclass(error, errors.HierringError)
    assert error.__doc__
    if error is not errors.HierringError:
        assert "State:" in error.__doc__
        assert "Next:" in error.__doc__


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (errors.ConfigurationError, ValueError),
        (errors.UnsupportedTypeError, TypeError),
        (errors.CollectiveTimeoutError, TimeoutError),
    ],
)
def test_errors_are_caught_as_the_builtin_they_stand_for(error: type, builtin: type) -> None:
    assert issubclass(error, builtin)


@pytest.mark.parametrize("error", ALL)
def test_message_survives_pickling(error: type[Exception]) -> None:
    again = pickle.loads(pickle.dumps(error("rank 3 on host b")))
    assert type(again) is error
    assert str(again) == "rank 3 on host b"


@pytest.mark.parametrize(
    ("error", "attributes", "defaults"),
    [
        (
            errors.SharedMemoryError,
            {"needed_bytes": 1 << 30, "available_bytes": 64 << 20},
            {"needed_bytes": None, "available_bytes": None},
        ),
        (errors.CollectiveTimeoutError, {"missing_ranks": (1, 5)}, {"missing_ranks": ()}),
        (errors.RankFailedError, {"rank": 7}, {"rank": None}),
    ],
)
def test_attributes_survive_pickling(
    error: type[Exception], attributes: dict[str, object], defaults: dict[str, object]
) -> None:
    first = error("message", **attributes)
    again = pickle.loads(pickle.dumps(first))
    assert {name: getattr(first, name) for name in attributes} == attributes
    assert {name: getattr(again, name) for name in attributes} == attributes
    assert str(again) == "message"
    plain = error("message")
    assert {name: getattr(plain, name) for name in defaults} == defaults


def test_missing_ranks_is_a_tuple_of_any_iterable() -> None:
    error = errors.CollectiveTimeoutError("late", missing_ranks=iter([2, 3]))
    assert error.missing_ranks == (2, 3)
    assert error.errno is None
