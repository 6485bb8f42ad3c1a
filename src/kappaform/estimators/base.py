"""What the estimators share: all but the method."""

from __future__ import annotations

import logging
import math
import warnings
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_array
from sklearn.utils.validation import check_is_fitted

from kappaform.arrays import library_of
from kappaform.engines import SignalsUnreadable, engine_for
from kappaform.estimators.inputs import chunks, has_own_codes, lives_elsewhere, received
from kappaform.learning import LearningInterrupted, LearnResult, Method, StopReason, evaluate
from kappaform.learning.evaluate import checked_sparsity
from kappaform.learning.learn import check_callback, check_options, learn_on
from kappaform.learning.online import Forgetting, Stream, begin, goes_on, result_of, step
from kappaform.learning.stream import check_forgetting, one_sparsity
from kappaform.linalg import inverse_factors
from kappaform.threads import single_threaded_blas

_logger = logging.getLogger("kappaform")


class SparsifyingTransform(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A learned transform of signals, one per row, and their codes."""

    def __init__(
        self,
        n_nonzero_coefs: int | None = None,
        *,
        init: Any = "auto",
        max_iter: int = 100,
        tol: float = 1e-4,
        forgetting: Forgetting = "auto",
        sparse_output: bool = False,
        callback: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_nonzero_coefs = n_nonzero_coefs
        self.init = init
        self.max_iter = max_iter
        self.tol = tol
        self.forgetting = forgetting
        self.sparse_output = sparse_output
        self.callback = callback
        self.verbose = verbose

    def _method(self) -> Method:
        raise NotImplementedError

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Learn the transform of signals, one per row; whatever was learned before is left.

        Ctrl-C raises LearningInterrupted; what was learned until then is kept.
        """
        method, sparsity = self._method(), one_sparsity(self.n_nonzero_coefs, "an estimator")
        check_options(self.max_iter, self.tol)
        check_callback(self.callback)
        engine = engine_for(received(self, X, reset=True))
        try:
            result, statistics = learn_on(
                engine,
                method,
                n_nonzero_coefs=sparsity,
                init=self.init,
                max_iter=self.max_iter,
                tol=self.tol,
                callback=self._logged_callback if self.verbose else self.callback,
            )
        except (LearningInterrupted, SignalsUnreadable) as error:
            if error.result is not None:
                self._set_fitted(error.result, engine.dtype, goes_on(error.result))
            raise
        self._set_fitted(result, engine.dtype, goes_on(result, statistics, 2.0**engine.exponent))
        if self.verbose:
            _logger.info("%s: %s", type(self).__name__, result.stop_reason)
        if result.stop_reason is StopReason.MAX_ITER:
            message = _convergence_message(self, result)
            warnings.warn(message, ConvergenceWarning, stacklevel=2)
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Learn from one more batch of signals: one call, one iteration.

        Goes on from whatever was learned before; signals of an earlier `fit` count as one batch.
        If a parameter of the method or the sparsity has changed since, only the transform is kept.
        What `forgetting` means, and what to expect, is said by :func:`kappaform.learn_stream`. A
        batch that is refused, or interrupted, changes nothing. `max_iter` and `tol` have no effect.
        """
        method, sparsity = self._method(), one_sparsity(self.n_nonzero_coefs, "an estimator")
        check_forgetting(self.forgetting)
        check_callback(self.callback)
        before: Stream | None = getattr(self, "_stream", None)
        engine = engine_for(received(self, X, reset=before is None))
        with single_threaded_blas():
            n_nonzero = int(checked_sparsity(sparsity, engine))
            init = self.init if before is None else self.result_
            stream = begin(init, method, n_nonzero, engine, before)
            stream = step(stream, engine, self.forgetting)
        self._set_fitted(
            result_of(stream, StopReason.RUNNING),
            engine.dtype,
            stream,
            getattr(self, "patch_shape_", None),
            getattr(self, "patch_mean_", "kept"),
        )
        if self.verbose:
            self._logged_callback(self.result_)
        elif self.callback is not None:
            self.callback(self.result_)
        return self

    def transform(self, X: Any) -> Any:
        """Codes of signals: the largest coefficients of each row, the others zero.

        Codes of a Dask array or a tensor are one too, all others are arrays in memory.
        """
        check_is_fitted(self, "result_")
        signals = received(self, X, reset=False)
        if not self.sparse_output:
            return self._encoded(signals)
        if has_own_codes(signals):
            raise ValueError(
                f"sparse_output=True: codes of {library_of(signals)} signals are as dense as these "
                "and stay where they are; set sparse_output=False, or give arrays of NumPy."
            )
        # Chunks are whole blocks of the engine, so the bits are those of dense codes.
        coded = (self._encoded(signals[rows]) for rows in chunks(signals))
        return sparse.vstack([sparse.csr_array(codes) for codes in coded], "csr")

    def inverse_transform(self, X: Any) -> Any:
        r"""Signals that have the given coefficients: :math:`X W^{-T}`.

        `X` are codes, dense or sparse, one per row; the signals are dense and of the same dtype.
        """
        check_is_fitted(self, "result_")
        codes = X
        if not lives_elsewhere(X):
            codes = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
        if len(codes.shape) == 2 and codes.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {codes.shape[1]} features: the codes of this transform have "
                f"{self.n_features_in_}."
            )
        with single_threaded_blas():
            inverse = inverse_factors(self.result_.transform)
        if not sparse.issparse(codes):
            return engine_for(codes, "X").decode(inverse)
        signals = np.empty(codes.shape, codes.dtype)
        for rows in chunks(codes):
            some = codes[rows].toarray()
            signals[rows] = engine_for(some, "X", first_row=rows.start).decode(inverse)
        return signals

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002
        r"""Minus the relative error of signals rebuilt from their codes; 0 is perfect.

        .. math:: -\|Y - H_s(Y W^T) W^{-T}\|_F / \|Y\|_F
        """
        check_is_fitted(self, "result_")
        signals = received(self, X, reset=False)
        return -evaluate(signals, self.result_, self.n_nonzero_coefs_).reconstruction

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def _set_fitted(
        self,
        result: LearnResult,
        dtype: DTypeLike,
        stream: Stream,
        patch_shape: tuple[int, ...] | None = None,
        patch_mean: Literal["kept", "removed"] = "kept",
    ) -> None:
        self.result_ = result
        self._stream = stream  # where `partial_fit` goes on
        self.components_ = result.transform.astype(dtype)
        self.singular_values_ = result.spectrum
        self.condition_number_ = result.condition_number
        self.loss_curve_ = result.loss
        self.n_iter_ = result.n_iter
        self.n_nonzero_coefs_ = int(result.n_nonzero_coefs)
        self.n_features_in_ = len(result.transform)
        # What `save` was told about the signals, and `load` tells again.
        self.patch_shape_, self.patch_mean_ = patch_shape, patch_mean

    def _logged_callback(self, state: LearnResult) -> bool:
        loss = state.records[-1].loss
        _logger.info("%s: iteration %d, loss %.6g", type(self).__name__, state.n_iter, loss)
        return self.callback is not None and bool(self.callback(state))

    def _encoded(self, signals: Any) -> Any:
        return engine_for(signals).encode(self.result_.transform, self.n_nonzero_coefs_)


def _convergence_message(estimator: SparsifyingTransform, result: LearnResult) -> str:
    old, new = result.loss[-2:] if len(result.loss) > 1 else (math.nan, math.nan)
    change = abs(old - new) / abs(old) if old else 0.0
    if result.search.explores:
        return (
            f"{type(estimator).__name__} stopped after {result.n_iter} iterations, while still "
            f"exploring starts, with max_iter={estimator.max_iter}: increase max_iter (300 are "
            "enough for most bounds), or choose one start by init='least-squares' or 'dct'."
        )
    return (
        f"{type(estimator).__name__} stopped after {result.n_iter} iterations, with "
        f"max_iter={estimator.max_iter}. The last relative change of the loss is {change:.1e}, "
        f"tol={estimator.tol:g}: increase max_iter or tol."
    )
