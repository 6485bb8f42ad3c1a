"""Errors over the number of transforms of a union, and the choice of the number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import Coding, check_count, checked_coding
from kappaform.engines import engine_for
from kappaform.learning.learn import MAX_ITER, Callback, checked_options, single_sparsity
from kappaform.learning.learn_union import N_STARTS, union_of
from kappaform.learning.method import Method
from kappaform.learning.path import (
    ErrorName,
    Path,
    check_ascending,
    checked_error,
    values_of,
    watched_path,
)


@dataclass(frozen=True, eq=False)
class UnionPath(Path):
    """Unions of more and more transforms, and their errors.

    Attributes
    ----------
    results : tuple of UnionResult
        One for each number of transforms, in ascending order.
    table : dict of arrays
        ``n_transforms``, ``condition_number`` (the largest), ``n_iter``; ``absolute``,
        ``relative``, ``reconstruction`` and ``sparsification`` errors on the signals (the last is
        the absolute one divided by the norm of the signals); the same with the prefix
        ``validation_`` on the validation signals. ``pandas.DataFrame(path.table)`` makes a data
        frame of it; ``print(path)`` shows it without the absolute errors, which grow with the
        number of signals.
    choose_by : {"reconstruction", "relative", "sparsification"}
        The error that chooses a number of transforms.
    chosen : int or None
        The number with the least such error on the validation signals; of several the smallest.
        None without validation.
    """

    parameter = "n_transforms"


def union_path(
    signals: Any,
    n_transforms: Sequence[int] | NDArray,
    *,
    n_nonzero_coefs: int | None = None,
    validation: Any = None,
    method: Method | None = None,
    coding: Coding = "refit",
    choose_by: ErrorName = "reconstruction",
    n_starts: int = N_STARTS,
    max_iter: int = MAX_ITER,
    tol: float = 1e-4,
    rng: int | np.random.Generator | None = None,
    callback: Callback | None = None,
) -> UnionPath:
    """Learn unions of more and more transforms, to choose their number.

    More transforms always allow a lower error on the signals they were learned from; what they are
    worth shows on held-out signals. Each union starts from the previous one, to which transforms
    are added for the signals that fit worst, and from random bases, and the best is kept: with the
    built-in methods the loss never rises along the path.

    Parameters
    ----------
    signals : array of shape (m, n)
        As for :func:`learn_union`.
    n_transforms : sequence of ints >= 1, ascending
    n_nonzero_coefs : int, optional
        By default a tenth of n.
    validation : array of shape (m', n), optional
        Held-out signals. Their errors choose a number of transforms, ``path.chosen``.
    method : Conditioned, Orthonormal or custom method, optional
        As for `learn_union`.
    coding : {"refit", "largest"}
        Codes whose reconstruction error is measured, as for :func:`condition_path`. Either way a
        signal is in the transform that its largest coefficients fit best.
    choose_by : {"reconstruction", "relative", "sparsification"}
        The error of the validation signals by which a number is chosen.
    n_starts : int
        Starts that race for each number: the previous union, and random bases.
    max_iter, tol, rng, callback
        As for `learn_union`, for each number; a callback that returns True ends the path after
        this number.

    Returns
    -------
    UnionPath
        ``path.results`` are the results, ``path.table`` is a dict of arrays, ``print(path)`` shows
        it. With validation signals, ``path.chosen`` is the number with the least error, of several
        the smallest, and ``path.best`` its result. :func:`plots.plot_path` draws it.

    Raises
    ------
    LearningInterrupted, SignalsUnreadable, MethodFailed
        As for :func:`condition_path`: with what was learned as ``.result``, and the completed
        results as ``.finished``.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> rng = np.random.default_rng(0)
    >>> smooth = rng.standard_normal((500, 16)).cumsum(axis=1)
    >>> peaks = rng.standard_normal((500, 16)) * (rng.random((500, 16)) < 0.1)
    >>> signals = rng.permutation(np.concatenate([smooth, peaks]))
    >>> train, validation = signals[::2], signals[1::2]
    >>> path = kf.union_path(train, [1, 2, 3], n_nonzero_coefs=3, validation=validation)
    >>> bool((np.diff(path["absolute"]) <= 0).all())
    True
    >>> path.chosen > 1, path.best.transforms.shape[0] == path.chosen
    (True, True)
    """
    numbers = _numbers(n_transforms)
    sparsity = single_sparsity(n_nonzero_coefs, "a path")
    union = union_of(method, numbers[0], n_starts, rng)
    options = checked_options(union, sparsity, "auto", callback, max_iter, tol)
    measured = checked_coding(coding), checked_error(choose_by)
    engine = engine_for(signals)
    if numbers[-1] > engine.n_signals:
        raise ValueError(
            f"n_transforms has {numbers[-1]}, but there are {engine.n_signals} signals: each "
            "transform needs a signal, give fewer transforms."
        )
    methods = [replace(union, n_transforms=number) for number in numbers]
    return watched_path(engine, validation, methods, options, *measured, UnionPath)


def _numbers(given: Any) -> list[int]:
    """The numbers of transforms, checked."""
    numbers = values_of(given, "n_transforms", "number")
    for number in numbers.tolist():
        check_count("n_transforms", number, "transforms")
    check_ascending(numbers, "n_transforms", "number")
    return numbers.tolist()
