"""The base class of the estimators: everything except the method.

If an estimator is stopped, by a rejected array or Ctrl-C, it is afterwards as it was before, or it
has everything that was learned: attributes are set in one step, at the end.
"""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, fields
from functools import partial
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_array
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from kappaform.checks import Coding, checked_coding, is_store, library_of
from kappaform.engines import Engine, NumpyEngine, SignalsUnreadable, engine_for
from kappaform.engines.rows import DenseRows
from kappaform.learning import (
    LearningInterrupted,
    LearnResult,
    Method,
    MethodFailed,
    StopReason,
    evaluate,
)
from kappaform.learning.learn import (
    MAX_ITER,
    Options,
    checked_options,
    learn_on,
    single_sparsity,
    warn_of_little,
)
from kappaform.learning.race import Race, result_of
from kappaform.learning.stream import (
    Forgetting,
    Stream,
    as_stream,
    begin_stream,
    check_forgetting,
    follow,
)
from kappaform.threads import single_threaded_blas


@dataclass(eq=False, repr=False)
class SparsifyingTransform(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A learned transform of signals, one per row, and their codes.

    The fields of an estimator are its parameters, which `__init__` stores as they are.
    """

    n_nonzero_coefs: int | None = None
    _: KW_ONLY
    init: Any = "auto"
    max_iter: int = MAX_ITER
    tol: float = 1e-4
    forgetting: Forgetting = "auto"
    coding: Coding = field(default="largest", init=False)  # where all codings are the same
    sparse_output: bool = False
    callback: Any = None
    verbose: int = 0

    _specification: ClassVar[type]  #: of the method; its fields are parameters here
    _streams: ClassVar[bool] = True  #: whether it can learn batch by batch
    _prints_iterations: ClassVar[int] = 1  #: least `verbose` that prints every iteration

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Learn the transform of signals, one per row; what was learned before is discarded.

        Ctrl-C raises LearningInterrupted; what was learned until then is kept.
        """
        options = self._fit_options()
        signals, features = self._received(X, reset=True)
        engine = engine_for(signals)
        warn_of_little(engine, options.n_nonzero)
        return self._learn(engine, options, features)

    def _learn(self, engine: Engine, options: Options, learned: dict[str, Any]) -> Self:
        """Learn, and take what was learned, together with what is `learned` already."""
        state: Race | None = None
        try:
            state, reason = learn_on(engine, options)
            result = result_of(state, reason)
            found = self._found_in(engine, result)
            self._take(result, state, engine.dtype, learned | found)
            if self.verbose:
                self._say(f"stopped after {state.n_iter} iterations: {reason}")
            self._warn_if_not_converged()
            return self
        except (KeyboardInterrupt, SignalsUnreadable, MethodFailed) as error:
            kept: LearnResult | None = getattr(error, "result", None)
            if state is not None:  # after the last iteration
                kept = result_of(state, StopReason.INTERRUPTED)
            if kept is None or (isinstance(error, MethodFailed) and kept.n_iter == 0):
                raise
            self._take(kept, state or kept.state, engine.dtype, learned)
            if state is None:
                raise
            if not isinstance(error, KeyboardInterrupt):
                vars(error)["result"] = kept
                raise
            raise LearningInterrupted(kept) from None

    def _found_in(self, engine: Engine, result: LearnResult) -> dict[str, Any]:  # noqa: ARG002
        """Attributes that have an entry for each signal."""
        return {}

    def _warn_if_not_converged(self) -> None:
        if self.result_.stop_reason is StopReason.MAX_ITER:
            warnings.warn(_convergence_message(self), ConvergenceWarning, stacklevel=4)

    @available_if(lambda self: self._streams)
    def partial_fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002
        """Learn from one more batch of signals: one call, one iteration.

        Resumes from what was learned before; signals of an earlier `fit` count as one batch. If a
        parameter of the method or the sparsity has changed since, only the transform is kept. See
        :func:`kappaform.learn_stream` for the meaning of `forgetting` and for what to expect. A
        batch that is rejected or interrupted changes nothing. `max_iter` and `tol` have no effect.
        """
        options = self._stream_options()
        signals, features = self._received(X, reset=not hasattr(self, "_state"))
        engine = engine_for(signals)
        with single_threaded_blas():
            before = begin_stream(options, engine)
            state = follow(before, engine, self.forgetting)
        result = result_of(state, StopReason.RUNNING)
        self._take(
            result,
            state,
            engine.dtype,
            features | self._found_in(engine, result),
            patch_shape=getattr(self, "patch_shape_", None),
            patch_mean=getattr(self, "patch_mean_", "kept"),
        )
        if options.callback is not None:
            options.callback(self.result_)
        return self

    def transform(self, X: Any) -> Any:
        """Codes of signals: a few coefficients for each row, the others zero.

        The parameter `coding` selects them. Codes of a Dask array are a Dask array, those of a
        tensor a tensor; all others are arrays in memory.
        """
        check_is_fitted(self, "result_")
        signals, _ = self._received(X, reset=False)
        engine = engine_for(signals)
        if not self.sparse_output:
            return self._encoded(engine)
        if not isinstance(engine, NumpyEngine):
            raise ValueError(
                f"sparse_output=True: codes of {library_of(signals)} signals are as dense as these "
                "and stay where they are; set sparse_output=False, or give arrays of NumPy."
            )
        return self._encoded(engine, sparse=True)

    def _encoded(self, engine: Engine, **options: Any) -> Any:
        how = self.result_.transform, self.n_nonzero_coefs_, self._refit()
        return engine.encode(*how, **options)

    def _refit(self) -> Any:
        """The refit of the transform; None, if codes are the largest coefficients or all."""
        if checked_coding(self.coding) == "largest" or self.n_nonzero_coefs_ == self.n_features_in_:
            return None
        try:
            return self.result_.refit
        except ValueError as error:
            raise ValueError(f"coding='refit': {error} Or set coding='largest'.") from error

    def inverse_transform(self, X: Any) -> Any:
        r"""Signals that have the given coefficients: :math:`X W^{-T}`.

        `X` are codes, dense or sparse, one per row; the signals are dense and of the same dtype.
        """
        check_is_fitted(self, "result_")
        codes = X if _lives_elsewhere(X) else _checked(X, check_array, accept_sparse="csr")
        if len(codes.shape) == 2 and codes.shape[1] != self._n_features_out:
            raise ValueError(
                f"X has {codes.shape[1]} features: the codes of this transform have "
                f"{self._n_features_out}."
            )
        rows = DenseRows(codes) if sparse.issparse(codes) else codes
        return engine_for(rows, "X").decode(self.result_.inverse)

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002
        r"""Minus the relative error of signals reconstructed from their codes; 0 is perfect.

        .. math:: -\|Y - X W^{-T}\|_F / \|Y\|_F
        """
        check_is_fitted(self, "result_")
        signals, _ = self._received(X, reset=False)
        errors = evaluate(signals, self.result_, self.n_nonzero_coefs_, coding=self.coding)
        return -errors.reconstruction

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return math.prod(self.components_.shape[:-1])  # of a union, those of all transforms

    def _fit_options(self) -> Options:
        return self._options(self.init, max_iter=self.max_iter, tol=self.tol)

    @property
    def _stream(self) -> Stream:
        """What `partial_fit` resumes."""
        return as_stream(self._state)

    def _stream_options(self) -> Options:
        is_new = not hasattr(self, "_state")
        init = self.init if is_new else result_of(self._stream, StopReason.RUNNING)
        check_forgetting(self.forgetting)
        return self._options(init)

    def _options(self, init: Any, **others: Any) -> Options:
        sparsity = single_sparsity(self.n_nonzero_coefs, "an estimator")
        checked_coding(self.coding)
        options = checked_options(self._method(), sparsity, init, self.callback, **others)
        prints = self.verbose >= self._prints_iterations
        return options._replace(callback=self._printing_callback) if prints else options

    def _method(self) -> Method:
        names = (field.name for field in fields(self._specification))
        return self._specification(**{name: getattr(self, name) for name in names})

    def _printing_callback(self, result: LearnResult) -> bool:
        self._say(f"iteration {result.n_iter}, loss {result.records[-1].loss:.6g}")
        return self.callback is not None and bool(self.callback(result))

    def _say(self, text: str) -> None:
        """Print a line, as estimators of scikit-learn do if they are verbose."""
        print(f"[{type(self).__name__}] {text}")  # noqa: T201

    def _received(self, X: Any, *, reset: bool) -> tuple[Any, dict[str, Any]]:
        """Signals as an engine takes them, and what scikit-learn remembers of their features.

        They have the features that were fitted, unless these are reset. Signals that live elsewhere
        are not gathered: scikit-learn sees their shape only.
        """
        stand_in = copy.copy(self)  # scikit-learn writes on it, and may then reject the signals
        check = partial(validate_data, stand_in, reset=reset)
        if not _lives_elsewhere(X):
            signals = _checked(X, check)
        else:
            signals = X
            if len(X.shape) == 2:  # else the engine rejects it
                check(X, skip_check_array=True)
        names = ("n_features_in_", "feature_names_in_")
        return signals, {name: vars(stand_in)[name] for name in names if name in vars(stand_in)}

    def _take(
        self,
        result: LearnResult,
        state: Race,
        dtype: DTypeLike,
        features: dict[str, Any],
        *,
        patch_shape: tuple[int, ...] | None = None,
        patch_mean: Literal["kept", "removed"] = "kept",
    ) -> None:
        """Take over a result and its state; nothing of what was learned before is left."""
        learned = {
            **features,
            **self._described(result),
            "result_": result,
            "_state": state,  # with statistics, which those of the result lack
            "components_": result.transform.astype(dtype),
            "singular_values_": result.spectrum,
            "loss_curve_": result.loss,
            "n_iter_": result.n_iter,
            "n_nonzero_coefs_": int(result.n_nonzero_coefs),
            # What `save` was given about the signals, and `load` restores.
            "patch_shape_": patch_shape,
            "patch_mean_": patch_mean,
        }
        kept = {name: value for name, value in vars(self).items() if not name.endswith("_")}
        self.__dict__ = kept | learned  # in one step, which Ctrl-C cannot divide

    def _described(self, result: Any) -> dict[str, Any]:
        """Attributes about the condition of what was learned."""
        return {"condition_number_": result.condition_number}


def _convergence_message(estimator: SparsifyingTransform) -> str:
    result: LearnResult = estimator.result_
    old, new = result.loss[-2:] if len(result.loss) > 1 else (0.0, 0.0)
    change = abs(old - new) / abs(old) if old else 0.0
    begin = (
        f"{type(estimator).__name__} stopped after {result.n_iter} iterations, with "
        f"max_iter={estimator.max_iter}"
    )
    if change <= estimator.tol:  # else it would have stopped before
        return f"{begin}, when the best start had only begun: increase max_iter."
    return (
        f"{begin}. The last relative change of the loss is {change:.1e}, tol={estimator.tol:g}: "
        "increase max_iter or tol."
    )


def _checked(X: Any, check: Callable[..., Any], **options: Any) -> Any:
    """Numeric data unchanged, also big-endian memory-maps, if scikit-learn's `check` accepts them.

    The engine reads them block by block, and names the row that is not finite.
    """
    if np.ma.is_masked(X):  # of which scikit-learn would see the hidden values
        raise TypeError("X is a masked array with masked entries: fill or drop these first.")
    return check(X, dtype="numeric", ensure_all_finite=False, **options)


def _lives_elsewhere(X: Any) -> bool:
    """Whether rows are on a device, on a cluster or in a store, where an engine reads them."""
    is_stored = is_store(X) and not hasattr(X, "columns")  # which data frames have
    return library_of(X) in ("dask", "torch") or is_stored
