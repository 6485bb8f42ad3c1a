"""Errors in reading signals, and warnings to the user."""

from __future__ import annotations

import sys
import warnings
from typing import Any


class SignalsUnreadable(OSError):  # noqa: N818 - as LearningInterrupted says what happened
    """Signals could not be read, or computed, while they were in use.

    Attributes
    ----------
    result : LearnResult or None
        What was learned until then; resume with ``init=result``. None if learning had not begun.
    finished : tuple of LearnResult
        Results of the bounds that a `condition_path` had finished; empty for a single `learn`.

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


class NotFinite(ValueError):  # noqa: N818 - as above
    """Signals contain NaN or inf; `row` is the first such row."""

    def __init__(self, name: str, row: int) -> None:
        super().__init__(name, row)
        self.name, self.row = name, row

    def __str__(self) -> str:
        where = f"first in row {self.row}"
        return f"{self.name} contains NaN or inf, {where}: drop such rows or fill them."


class ArgumentsWarning(UserWarning):
    """A warning about arguments that holds whatever the image: the command shows it once."""


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn the user, at the line outside of kappaform that led here."""
    frame, level = sys._getframe(1), 2
    while frame.f_back and str(frame.f_globals.get("__name__")).startswith("kappaform."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
