"""Checks of what a file of a transform states: entries of its header, and its arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import sparsity_of
from kappaform.learning.archived_method import single
from kappaform.learning.method import BOUND_SLACK, Method
from kappaform.learning.race import Race
from kappaform.learning.result import LearnResult

# Squares of larger numbers, or of their inverses, would overflow in sums over signals.
LARGEST = 1e150
_ANY = 2**63 - 1  # the largest integer of a file

Header = dict[str, Any]


def check_history(race: Race) -> None:
    """Reject more records than iterations, and a best candidate without any.

    A batch of a stream adds a record to each candidate, any other iteration one in all.
    """
    lengths = [len(candidate.records) for candidate in race.candidates]
    n_records = max(lengths) if race.is_stream else sum(lengths)
    if not n_records <= race.n_iter + 1 or not (race.is_stream or race.best.records):
        raise ValueError(f"it has {n_records} records of {race.n_iter} iterations.")
    if race.is_stream and not min(lengths):
        raise ValueError("a candidate of its stream has no records.")


def check_condition(result: LearnResult, stated: float) -> None:
    """Reject a transform without the stated condition number, or beyond what its method allows."""
    n_features = result.transform.shape[-1]
    for spectrum in np.atleast_2d(result.spectrum):
        check_spectrum(single(result.method), spectrum, "transform")
    found = result.condition_number
    rounding = BOUND_SLACK + 10 * n_features * float(np.finfo(np.float64).eps) * found
    if not abs(found - stated) <= rounding * found:
        raise ValueError(f"the transform has condition number {found}, the header says {stated}.")


def check_spectrum(method: Method, spectrum: NDArray, name: str) -> None:
    """Reject singular values, largest first, that the method does not allow."""
    if not spectrum[-1] >= 1 / LARGEST:
        raise ValueError(f"{name} is singular.")
    violation = method.violation(spectrum)
    if violation:
        raise ValueError(f"its {name} is not feasible: {violation}")


def check_close(found: NDArray, expected: NDArray, message: str) -> None:
    if not np.abs(found - expected).max() <= BOUND_SLACK * np.abs(expected).max():
        raise ValueError(message)


def sparsity_in(header: Header, n_features: int) -> int:
    return int(sparsity_of(count_in(header, "n_nonzero_coefs"), 1, n_features))


def count_in(header: Header, name: str, most: int = _ANY, title: str = "") -> int:
    value = header[name]
    if type(value) is not int or not 0 <= value <= most:
        rule = "an integer >= 0" if most == _ANY else f"an integer from 0 to {most}"
        raise ValueError(f"its {title or name} is {value!r}, not {rule}.")
    return value


def number_in(header: Header, name: str, most: float = LARGEST) -> float:
    value = header[name]
    if type(value) not in (int, float) or not 0 <= value <= most:
        raise ValueError(f"its {name} is {value!r}, not a number from 0 to {most:g}.")
    return float(value)


def choice_in(header: Header, name: str, allowed: Iterable[str], title: str = "") -> str:
    value, names = header[name], tuple(allowed)
    if value not in names:
        raise ValueError(f"its {title or name} is {value!r}, not one of {names}.")
    return value


def parts_in(header: Header, name: str) -> list[Header]:
    """A list of headers within a header."""
    value = header[name]
    if not isinstance(value, list):
        raise ValueError(f"its {name} are {value!r}, not a list of JSON objects.")
    for each in value:
        if not isinstance(each, dict):
            raise ValueError(f"its {name} contain {each!r}, which is not a JSON object.")
    return value
