"""The estimators: each is a method with its parameters, and the last one takes any method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from kappaform.checks import Coding
from kappaform.estimators.base import SparsifyingTransform
from kappaform.estimators.union import UnionTransform
from kappaform.learning import Conditioned, LogDet, Method, Orthonormal
from kappaform.learning.learn import checked_method
from kappaform.learning.method import parameters_of
from kappaform.learning.methods import Objective, Variant
from kappaform.learning.union import UnionOf


@dataclass(eq=False, repr=False, kw_only=True)
class ConditionedTransform(SparsifyingTransform):
    r"""Invertible sparse representation with a bounded condition number.

    Learns a square transform W under which signals Y, one per row, have sparse codes
    :math:`X = H_s(Y W^T)`, the s largest coefficients of each:

    .. math:: \min_W \|X - Y W^T\| \quad \text{s.t.} \quad \kappa(W) \le \kappa, \; \|W\|_F = \tau

    Signals are never centred. See :func:`kappaform.learn`.

    Parameters
    ----------
    n_nonzero_coefs : int, optional
        Nonzero coefficients of a code. By default a tenth of the features, at least 1.
    max_condition : float >= 1
        Bound on the condition number of the transform.
    norm : "auto", float from 1e-6 to 1e6, or None
        Frobenius norm of the transform: that of an orthonormal one, a given one, or free.
    objective : {"absolute", "relative"}
        The error to minimise: absolute, or divided by the norm of the coefficients.
    variant : {"monotone", "paper", "reference", "public"}
        Steps that never increase the loss, or published ones; see :class:`kappaform.Conditioned`.
    n_rounds : int >= 1
        Rounds of the monotone updates per iteration.
    init : {"auto", "dct", "identity", "least-squares", "procrustes"}, array or LearnResult
        Where to start; a LearnResult of the same method and sparsity, such as the `result_` of a
        fitted estimator, is resumed.
    max_iter : int
        Iterations at most.
    tol : float
        Stop when the loss changes by no more than this fraction.
    forgetting : "auto" or float from 0 to 1
        Factor by which each batch of `partial_fit` multiplies the weight of earlier signals: 1
        never forgets any. See :func:`kappaform.learn_stream`.
    coding : {"refit", "largest"}
        Codes that `transform` returns: refitted ones, which reconstruct signals best, or the
        largest coefficients, with which the transform was learned.
    sparse_output : bool
        Whether codes are a sparse CSR array.
    callback : callable, optional
        Called after every iteration with the LearnResult so far; returning True stops `fit`.
    verbose : int
        Above 0 every iteration is printed, and why learning stopped.

    Attributes
    ----------
    components_ : array of shape (n_features, n_features)
        The transform in the dtype of the codes: float32, a rounded copy, for float32 and float16
        signals, else float64.
    singular_values_ : float64 array of shape (n_features,)
        Largest first.
    condition_number_ : float
        Of the transform in double precision, for which the bound is promised.
    loss_curve_ : array
        What is minimised, per step that was kept; entry 0 belongs to the start.
    n_iter_ : int
    n_nonzero_coefs_ : int
        Nonzero coefficients of a code.
    result_ : LearnResult
        All about how the transform was reached.
    patch_shape_, patch_mean_
        What a file holds about the signals, after :func:`kappaform.load`; else None and "kept".
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> estimator = kf.ConditionedTransform(4, max_condition=1.5, tol=1e-3).fit(signals)
    >>> codes = estimator.transform(signals)  # 4 nonzeros in each row
    >>> approximations = estimator.inverse_transform(codes)
    >>> error = np.linalg.norm(signals - approximations) / np.linalg.norm(signals)
    >>> bool(np.isclose(estimator.score(signals), -error))
    True

    Signals may come in batches:

    >>> for batch in np.array_split(signals, 5):
    ...     estimator = estimator.partial_fit(batch)
    >>> estimator.condition_number_ <= 1.5
    True
    """

    max_condition: float = 2.0
    norm: float | Literal["auto"] | None = "auto"
    objective: Objective = "absolute"
    variant: Variant = "monotone"
    n_rounds: int = 5
    coding: Coding = "refit"

    _specification = Conditioned


class OrthonormalTransform(SparsifyingTransform):
    """Sparse representation in a learned orthonormal basis.

    Parameters and attributes are those of :class:`ConditionedTransform`, without a bound. There is
    no `coding`: in an orthonormal basis the largest coefficients reconstruct best.

    Parameters
    ----------
    n_nonzero_coefs, init, max_iter, tol, forgetting, sparse_output, callback, verbose
        As for :class:`ConditionedTransform`, and so are the attributes.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> estimator = kf.OrthonormalTransform(4).fit(signals)
    >>> bool(np.isclose(estimator.condition_number_, 1.0))
    True
    """

    _specification = Orthonormal


@dataclass(eq=False, repr=False, kw_only=True)
class LogDetTransform(SparsifyingTransform):
    r"""Invertible sparse representation kept regular by a log-determinant penalty.

    .. math:: \min_W \|X - Y W^T\|^2 + \rho \|W\|_F^2 - \mu \log |\det W|

    with :math:`\mu` and :math:`\rho` the two weights below, times :math:`\|Y\|_F^2`.

    Parameters
    ----------
    n_nonzero_coefs : int, optional
        Nonzero coefficients of a code. By default a tenth of the features, at least 1.
    weight : float > 0
        The larger, the lower the condition number; no bound on it is promised.
    frobenius_weight : float > 0, optional
        By default the same as `weight`.
    init, max_iter, tol, forgetting, coding, sparse_output, callback, verbose
        As for :class:`ConditionedTransform`, and so are the attributes.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> codes = kf.LogDetTransform(4, weight=0.01, sparse_output=True).fit_transform(signals)
    >>> codes.shape, codes.nnz
    ((500, 16), 2000)
    """

    weight: float = 0.0031
    frobenius_weight: float | None = None
    coding: Coding = "refit"

    _specification = LogDet


@dataclass(eq=False, repr=False, kw_only=True)
class LearnedTransform(SparsifyingTransform):
    """Invertible sparse representation learned by any method, for instance a custom one.

    Parameters
    ----------
    n_nonzero_coefs : int, optional
        Nonzero coefficients of a code. By default a tenth of the features, at least 1.
    method : Method, optional
        By default ``Conditioned()``. See :class:`kappaform.Method` for a custom one.
    init, max_iter, tol, forgetting, coding, sparse_output, callback, verbose
        As for :class:`ConditionedTransform`, and so are the attributes.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> estimator = kf.LearnedTransform(4, method=kf.LogDet(0.01), tol=1e-3).fit(signals)
    >>> same = kf.LogDetTransform(4, weight=0.01, tol=1e-3).fit(signals)
    >>> np.array_equal(estimator.components_, same.components_)
    True
    """

    method: Method | None = None
    coding: Coding = "refit"

    def _method(self) -> Method:
        return checked_method(self.method)


#: The estimator of each method of this package.
ESTIMATORS: dict[type[Method], type[SparsifyingTransform]] = {
    Conditioned: ConditionedTransform,
    LogDet: LogDetTransform,
    Orthonormal: OrthonormalTransform,
}


def estimator_of(method: Method, /, **parameters: Any) -> SparsifyingTransform:
    """The estimator that learns by a method, not fitted."""
    own = method_parameters(method)
    if isinstance(method, UnionOf):
        return UnionTransform(**own | parameters)
    kind = ESTIMATORS.get(type(method), LearnedTransform)
    return kind(**own | parameters)


def method_parameters(method: Method) -> dict[str, Any]:
    """The parameters of `estimator_of(method)` that the method decides."""
    if isinstance(method, UnionOf):
        of_each = method.method
        is_default = type(of_each) is Conditioned
        own = parameters_of(of_each) if is_default else {"method": of_each}
        own.pop("variant", None)  # that of a union is "monotone"
        return own | {"n_transforms": method.n_transforms}
    return parameters_of(method) if type(method) in ESTIMATORS else {"method": method}
