"""scikit-learn estimators: thin shells over `kappaform.learn`."""

from __future__ import annotations

import logging
import math
import numbers
import warnings
from collections.abc import Iterator
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from kappaform.engines import engine_for
from kappaform.engines.blocks import block_rows, split_rows, working_dtype
from kappaform.learning import (
    Conditioned,
    LearningInterrupted,
    LearnResult,
    LogDet,
    Method,
    Orthonormal,
    StopReason,
    evaluate,
    learn,
)

_logger = logging.getLogger("kappaform")

# The engine refuses what is not finite, and names the row. Numbers that it reads block by block are
# left as they are, whole memory-mapped files of them too; all others become the first type.
_READ_AS_GIVEN = [np.dtype(code) for code in ("f8", "f4", "f2", "?", *"bBhHiIlLqQ")]
_VALIDATION: dict[str, Any] = {"dtype": _READ_AS_GIVEN, "ensure_all_finite": False}
# Rows of a chunk, in blocks of the engine: enough for every core, and a few dozen megabytes.
_CHUNK_BLOCKS = 64


class _SparsifyingTransform(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What the estimators share: all but the method."""

    def __init__(
        self,
        n_nonzero_coefs: int | None = None,
        *,
        init: Any = "auto",
        max_iter: int = 100,
        tol: float = 1e-4,
        sparse_output: bool = False,
        callback: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_nonzero_coefs = n_nonzero_coefs
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.sparse_output = sparse_output
        self.callback = callback
        self.verbose = verbose

    def _method(self) -> Method:
        raise NotImplementedError

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Learn the transform of signals, one per row.

        Ctrl-C raises LearningInterrupted; what was learned until then is kept.
        """
        method, sparsity = self._method(), _one_sparsity(self.n_nonzero_coefs)
        signals = validate_data(self, X, **_VALIDATION)
        # What cannot be called is passed on: `learn` refuses it.
        logged = self.verbose and (self.callback is None or callable(self.callback))
        try:
            result = learn(
                signals,
                method,
                n_nonzero_coefs=sparsity,
                init=self.init,
                max_iter=self.max_iter,
                tol=self.tol,
                callback=self._logged_callback if logged else self.callback,
            )
        except LearningInterrupted as interrupt:
            self._set_fitted(interrupt.result, working_dtype(signals.dtype))
            raise
        self._set_fitted(result, working_dtype(signals.dtype))
        if logged:
            _logger.info("%s: %s", type(self).__name__, result.stop_reason)
        if result.stop_reason is StopReason.MAX_ITER:
            message = _convergence_message(self, result)
            warnings.warn(message, ConvergenceWarning, stacklevel=2)
        return self

    def transform(self, X: Any) -> NDArray | sparse.csr_array:
        """Codes of signals: the largest coefficients of each row, the others zero."""
        signals = self._validated(X)
        if not self.sparse_output:
            return self._encoded(signals)
        # Chunks are whole blocks of the engine, so the bits are those of dense codes.
        chunks = (signals[rows] for rows in _chunks(signals))
        return sparse.vstack([sparse.csr_array(self._encoded(chunk)) for chunk in chunks], "csr")

    def inverse_transform(self, X: Any) -> NDArray:
        r"""Signals that have the given coefficients: :math:`X W^{-T}`.

        `X` are codes, dense or sparse, one per row; the signals are dense and of the same dtype.
        """
        check_is_fitted(self)
        codes = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
        if codes.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {codes.shape[1]} features: the codes of this transform have "
                f"{self.n_features_in_}."
            )
        inverse = np.linalg.inv(self.result_.transform)
        if not sparse.issparse(codes):
            return engine_for(codes, "X").apply(inverse)
        signals = np.empty(codes.shape, codes.dtype)
        for rows in _chunks(codes):
            signals[rows] = codes[rows] @ inverse.T
        return signals

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002
        r"""Minus the relative error of signals rebuilt from their codes; 0 is perfect.

        .. math:: -\|Y - H_s(Y W^T) W^{-T}\|_F / \|Y\|_F
        """
        signals = self._validated(X)
        return -evaluate(signals, self.result_, self.n_nonzero_coefs_).reconstruction

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _set_fitted(self, result: LearnResult, dtype: DTypeLike) -> None:
        self.result_ = result
        self.components_ = result.transform.astype(dtype)
        self.singular_values_ = result.spectrum
        self.condition_number_ = result.condition_number
        self.loss_curve_ = result.loss
        self.n_iter_ = result.n_iter
        self.n_nonzero_coefs_ = int(result.n_nonzero_coefs)
        self.n_features_in_ = len(result.transform)
        # What `save` was told about the signals, and `load` tells again.
        self.patch_shape_: tuple[int, ...] | None = None
        self.patch_mean_: Literal["kept", "removed"] = "kept"

    def _logged_callback(self, state: LearnResult) -> bool:
        loss = state.records[-1].loss
        _logger.info("%s: iteration %d, loss %.6g", type(self).__name__, state.n_iter, loss)
        return self.callback is not None and bool(self.callback(state))

    def _validated(self, X: Any) -> NDArray:
        check_is_fitted(self)
        return validate_data(self, X, **_VALIDATION, reset=False)

    def _encoded(self, signals: NDArray) -> NDArray:
        return engine_for(signals).encode(self.result_.transform, self.n_nonzero_coefs_)


class ConditionedTransform(_SparsifyingTransform):
    r"""Invertible sparse representation with a bounded condition number.

    Learns a square transform W under which signals Y, one per row, have sparse codes
    :math:`X = H_s(Y W^T)`:

    .. math:: \min_W \|X - Y W^T\| \quad \text{s.t.} \quad \kappa(W) \le \kappa, \; \|W\|_F = \tau

    Signals are never centred. See :func:`kappaform.learn`.

    Parameters
    ----------
    n_nonzero_coefs : int, optional
        Nonzero coefficients of a code. By default a tenth of the features, at least 1.
    max_condition : float >= 1
        Bound on the condition number of the transform.
    norm : "auto", float from 1e-6 to 1e6, or None
        Frobenius norm of the transform: that of an orthonormal one, given, or free.
    objective : {"absolute", "relative"}
        The error to minimise: absolute, or divided by the norm of the coefficients.
    init : {"auto", "dct", "identity", "least-squares", "procrustes"}, array or LearnResult
        Where to start; a LearnResult of the same method and sparsity, such as the `result_` of a
        fitted estimator, is resumed.
    max_iter : int
        Iterations at most.
    tol : float
        Stop when the loss changes by no more than this fraction.
    sparse_output : bool
        Whether codes are a sparse CSR array.
    callback : callable, optional
        Called after every iteration with the LearnResult so far; returning True stops.
    verbose : int
        Above 0 every iteration is logged, as INFO of the logger "kappaform".

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
        What is minimised, per iteration; entry 0 belongs to the start.
    n_iter_ : int
    n_nonzero_coefs_ : int
        Nonzero coefficients of a code.
    result_ : LearnResult
        All about how the transform was reached.
    patch_shape_, patch_mean_
        What a file says about the signals, after :func:`kappaform.load`; else None and "kept".
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> import numpy as np
    >>> from kappaform import ConditionedTransform
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> transform = ConditionedTransform(4, max_condition=1.5, tol=1e-3).fit(signals)
    >>> codes = transform.transform(signals)
    >>> approximations = transform.inverse_transform(codes)
    >>> bool(transform.condition_number_ <= 1.5)
    True
    """

    def __init__(
        self,
        n_nonzero_coefs: int | None = None,
        *,
        max_condition: float = 2.0,
        norm: float | Literal["auto"] | None = "auto",
        objective: Literal["absolute", "relative"] = "absolute",
        init: Any = "auto",
        max_iter: int = 100,
        tol: float = 1e-4,
        sparse_output: bool = False,
        callback: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            n_nonzero_coefs,
            init=init,
            max_iter=max_iter,
            tol=tol,
            sparse_output=sparse_output,
            callback=callback,
            verbose=verbose,
        )
        self.max_condition = max_condition
        self.norm = norm
        self.objective = objective

    def _method(self) -> Conditioned:
        return Conditioned(self.max_condition, self.norm, self.objective)


class OrthonormalTransform(_SparsifyingTransform):
    """Sparse representation in a learned orthonormal basis.

    Parameters and attributes are those of :class:`ConditionedTransform`, without a bound.
    """

    def _method(self) -> Orthonormal:
        return Orthonormal()


class LogDetTransform(_SparsifyingTransform):
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
    init, max_iter, tol, sparse_output, callback, verbose
        As for :class:`ConditionedTransform`, and so are the attributes.
    """

    def __init__(
        self,
        n_nonzero_coefs: int | None = None,
        *,
        weight: float = 0.0031,
        frobenius_weight: float | None = None,
        init: Any = "auto",
        max_iter: int = 100,
        tol: float = 1e-4,
        sparse_output: bool = False,
        callback: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            n_nonzero_coefs,
            init=init,
            max_iter=max_iter,
            tol=tol,
            sparse_output=sparse_output,
            callback=callback,
            verbose=verbose,
        )
        self.weight = weight
        self.frobenius_weight = frobenius_weight

    def _method(self) -> LogDet:
        return LogDet(self.weight, self.frobenius_weight)


def _one_sparsity(value: Any) -> int | None:
    """Sparsity of an estimator: codes of signals yet to come can only share one."""
    if value is None or (isinstance(value, numbers.Integral) and not isinstance(value, bool)):
        return value if value is None else int(value)
    many = hasattr(value, "__len__") and not isinstance(value, str)
    what = f" has {len(value)} entries" if many else f"={value!r}"
    raise TypeError(
        f"n_nonzero_coefs{what}: an estimator needs one integer, or None for a tenth of the "
        "features; one for each signal is for `learn`."
    )


def _chunks(signals: NDArray | sparse.csr_array) -> Iterator[slice]:
    n_signals, n_features = signals.shape
    length = block_rows(n_features, working_dtype(signals.dtype))
    return split_rows(0, n_signals, _CHUNK_BLOCKS * length)


def _convergence_message(estimator: _SparsifyingTransform, result: LearnResult) -> str:
    old, new = result.loss[-2:] if len(result.loss) > 1 else (math.nan, math.nan)
    change = abs(old - new) / abs(old) if old else 0.0
    where = "while exploring starts, " if result.search.explores else ""
    return (
        f"{type(estimator).__name__} stopped after {result.n_iter} iterations, {where}with "
        f"max_iter={estimator.max_iter}. The last relative change of the loss is {change:.1e}, "
        f"tol={estimator.tol:g}: increase max_iter or tol."
    )
