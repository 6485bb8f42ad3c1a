"""Learning a union of transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import check_count, generator, is_number
from kappaform.learning.learn import (
    MAX_ITER,
    Callback,
    checked_method,
    checked_options,
    learn_with,
)
from kappaform.learning.method import Method
from kappaform.learning.methods import Conditioned, LogDet
from kappaform.learning.union import UnionOf
from kappaform.learning.union_result import UnionResult

N_STARTS = 3  #: that race by default


def learn_union(
    signals: Any,
    method: Method | None = None,
    *,
    n_transforms: int = 4,
    n_nonzero_coefs: int | NDArray | None = None,
    init: Any = "auto",
    n_starts: int = N_STARTS,
    max_iter: int = MAX_ITER,
    tol: float = 1e-4,
    rng: int | np.random.Generator | None = None,
    callback: Callback | None = None,
) -> UnionResult:
    r"""Learn several square transforms; each signal is sparse under one of them.

    .. math:: \min_{W_1, \dots, W_K} \sum_i \min_k \|x_i - W_k y_i\|^2
              \quad \text{s.t.} \quad \kappa(W_k) \le \kappa, \; \|W_k\|_F = \tau

    Alternates between the assignment of signals to transforms, with their codes, and the
    transforms. With the built-in methods the loss never rises, and every transform obeys the bound
    after every iteration. See section 15 of docs/mathematics.md.

    Parameters
    ----------
    signals : array of shape (m, n)
        As for :func:`learn`: in memory, on disk, on Dask or in a torch tensor.
    method : Conditioned, Orthonormal or custom method
        By default ``Conditioned()``. All transforms have the same norm, which makes their errors
        comparable: a free norm (``norm=None``) and :class:`LogDet` are rejected.
    n_transforms : int
        Number K of transforms. With 1 the result is that of `learn`.
    n_nonzero_coefs : int or array of shape (m,), optional
        Number of nonzero coefficients of a code, for all signals or for each. By default a tenth
        of n.
    init : "auto", array of shape (K, n, n), UnionResult, or tuple of these
        Initialisation. "auto" races `n_starts` starts: a union that grows from the DCT basis, each
        new transform made for the signals that fit worst, and random bases. A result of the same
        method, sparsity and number of transforms is resumed, bitwise as if it had never stopped.
        A result of fewer transforms grows further. The entries of a tuple race.
    n_starts : int
        Starts of "auto", the first of which is the one that grows. All of them share `max_iter`.
    max_iter, tol, callback
        As for `learn`. With "auto", the union that grows takes up to 60 + 10 (K - 1) passes before
        the first iteration; `max_iter` does not count them. If it is interrupted there, the result
        that the error carries has fewer transforms; as `init` it continues, with the same bits as
        if it had never stopped.
    rng : int, Generator or None
        Seed or generator of the random starts; None is 0.

    Returns
    -------
    UnionResult
        Its ``transforms`` are (K, n, n).

    Raises
    ------
    LearningInterrupted, SignalsUnreadable, MethodFailed
        As for `learn`, with what was learned as ``.result``.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> rng = np.random.default_rng(0)
    >>> smooth = rng.standard_normal((500, 16)).cumsum(axis=1)
    >>> peaks = rng.standard_normal((500, 16)) * (rng.random((500, 16)) < 0.1)
    >>> signals = np.concatenate([smooth, peaks])
    >>> union = kf.learn_union(signals, kf.Conditioned(2.0), n_transforms=2, n_nonzero_coefs=3)
    >>> union.transforms.shape
    (2, 16, 16)
    >>> bool((union.condition_numbers <= 2.0 * (1 + 1e-9)).all())
    True
    >>> one = kf.learn(signals, kf.Conditioned(2.0), n_nonzero_coefs=3)
    >>> bool(union.loss[-1] < one.loss[-1])
    True
    """
    union = union_of(method, n_transforms, n_starts, rng)
    options = checked_options(union, n_nonzero_coefs, init, callback, max_iter, tol)
    result = learn_with(signals, options)
    assert isinstance(result, UnionResult)
    return result


def union_of(method: Any, n_transforms: Any, n_starts: Any, rng: Any) -> UnionOf:
    """The method that learns a union by another method."""
    check_count("n_transforms", n_transforms, "transforms")
    check_count("n_starts", n_starts, "starts")
    if is_number(method):
        raise TypeError(
            f"method={method!r} is a number: give a number of transforms as n_transforms=, the "
            f"bound as Conditioned({method})."
        )
    seed = int(generator(rng).integers(2**32))
    return UnionOf(comparable(checked_method(method)), int(n_transforms), int(n_starts), seed)


def comparable(method: Method) -> Method:
    """The method, if the errors of its transforms can be compared."""
    if isinstance(method, UnionOf):
        raise ValueError(
            "method is that of a union already: give the method of its transforms, "
            f"{method.method!r}."
        )
    if isinstance(method, LogDet):
        raise ValueError(
            "method=LogDet(...): its transforms have no common norm, so that their errors cannot "
            "be compared; use Conditioned or Orthonormal."
        )
    if isinstance(method, Conditioned) and (method.norm is None or method.variant != "monotone"):
        raise ValueError(
            f"method={method!r}: the transforms of a union need a common norm and the monotone "
            "variant, so that their errors can be compared; set norm='auto', variant='monotone'."
        )
    return method
