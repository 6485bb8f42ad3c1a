"""What may go wrong while signals are read, and warnings."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from kappaform.checks import Array

# What a mistake in a program raises. It stays as it is: to read again would not help.
_MISTAKES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    NameError,
    NotImplementedError,
    SyntaxError,
    TypeError,
)


_AGAIN = "If learning had begun, `.result` of this error is where to go on (init=...)."


class SignalsUnreadable(OSError):  # noqa: N818 - as LearningInterrupted says what happened
    """Signals that could not be read, or computed, in the middle of the work.

    Attributes
    ----------
    result : LearnResult or None
        What was learned until then; go on with ``init=result``. None if learning had not begun.
    finished : tuple of LearnResult
        Those of the bounds of a `condition_path` that were done; empty for a single `learn`.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> class Store:  # rows that can be sliced are all that is needed
    ...     shape, dtype = signals.shape, signals.dtype
    ...     def __getitem__(self, rows):
    ...         raise OSError("the disk is gone")
    >>> try:
    ...     kf.learn(Store(), n_nonzero_coefs=4)
    ... except kf.SignalsUnreadable as error:
    ...     print("the disk is gone" in str(error), error.result)
    True None
    """

    result: Any = None
    finished: tuple[Any, ...] = ()


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn errors of what signals are read or computed from into `SignalsUnreadable`."""
    try:
        yield
    except (*_MISTAKES, SignalsUnreadable):
        raise
    except Exception as error:
        raise SignalsUnreadable(
            f"{what}: {type(error).__name__}: {error}. Mend that and call again. {_AGAIN}"
        ) from error


def check_sums(name: str, *sums: Array) -> None:
    """Refuse what a pass over signals that were finite gives, if they no longer are."""
    if not all(np.isfinite(values).all() for values in sums):
        raise SignalsUnreadable(
            f"{name} gave NaN or inf in a pass, although they were finite before: mend what they "
            f"are read from and call again. {_AGAIN}"
        )


def warn(message: str) -> None:
    """Warn the user, at the line outside of kappaform that led here."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith("kappaform."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, UserWarning, stacklevel=level)


def not_finite(name: str, row: int) -> str:
    """What errors say of signals that are not finite."""
    return f"{name} contains NaN or inf, first in row {row}: drop such rows or fill them."
