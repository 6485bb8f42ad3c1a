"""The estimator of a union of transforms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from kappaform.checks import Coding, is_seed
from kappaform.engines import Engine, engine_for
from kappaform.engines.engine import reading
from kappaform.estimators.base import SparsifyingTransform
from kappaform.learning import Conditioned, LearnResult, Method
from kappaform.learning.learn import Options
from kappaform.learning.learn_union import N_STARTS, union_of
from kappaform.learning.methods import Objective
from kappaform.learning.union import UnionOf


@dataclass(eq=False, repr=False, kw_only=True)
class UnionTransform(SparsifyingTransform):
    r"""Several transforms with bounded condition numbers: each signal is coded in one of them.

    Learns K square transforms :math:`W_1, \dots, W_K`. Every signal y belongs to the one under
    which its code, the s largest coefficients, discards least:

    .. math:: \min_{W_1, \dots, W_K} \sum_i \min_k \|x_i - W_k y_i\|^2
              \quad \text{s.t.} \quad \kappa(W_k) \le \kappa, \; \|W_k\|_F = \tau

    This also sorts signals into K kinds, without labels. See :func:`kappaform.learn_union`.

    Parameters
    ----------
    n_nonzero_coefs : int, optional
        Nonzero coefficients of a code. By default a tenth of the features, at least 1.
    n_transforms : int
        Number K of transforms.
    max_condition : float >= 1
        Bound on the condition number of each transform.
    norm : "auto" or float from 1e-6 to 1e6
        Frobenius norm of each transform: that of an orthonormal one, or a given one. It is common
        to all, so that their errors can be compared.
    objective : {"absolute", "relative"}
        The error to minimise: absolute, or divided by the norm of all coefficients.
    n_rounds : int >= 1
        Rounds of the updates per iteration.
    method : Method, optional
        Any other method, such as ``kf.Orthonormal()`` or a custom one, in place of
        :class:`Conditioned` with the four parameters above, which then have no effect.
    init : "auto", array of shape (K, n_features, n_features) or UnionResult
        Where to start; a UnionResult of the same method, sparsity and number of transforms, such as
        the `result_` of a fitted estimator, is resumed.
    n_starts : int
        Starts that race with ``init="auto"``: a union that grows from a single transform, and
        random bases.
    max_iter, tol, forgetting
        As for :class:`ConditionedTransform`.
    coding : {"refit", "largest"}
        Codes that `transform` returns: refitted ones, which reconstruct signals best, or the
        largest coefficients. Both are of the transform that the signal belongs to.
    sparse_output : bool
        Whether codes are a sparse CSR array.
    random_state : int or numpy.random.RandomState, optional
        Seed of the random starts; None is 0. From a RandomState, `fit` and the first `partial_fit`
        draw a seed, so that the next fit has other starts.
    callback, verbose
        As for :class:`ConditionedTransform`.

    Attributes
    ----------
    components_ : array of shape (K, n_features, n_features)
        The transforms in the dtype of the codes.
    labels_ : array of shape (n_samples,)
        Number of the transform of each signal of the last call of `fit` or `partial_fit`. It is
        missing after Ctrl-C and after :func:`kappaform.load`: call `predict`.
    singular_values_ : float64 array of shape (K, n_features)
        Those of each transform, largest first.
    condition_numbers_ : float64 array of shape (K,)
    condition_number_ : float
        The largest of them.
    loss_curve_, n_iter_, n_nonzero_coefs_, patch_shape_, patch_mean_, ...
        As of :class:`ConditionedTransform`.
    result_ : UnionResult
        All about how the transforms were reached.

    Notes
    -----
    Which signals belong together is found by many passes over the same signals, of which
    `partial_fit` makes a few over each batch. Therefore call `fit` with a first sample of all kinds
    of signals, and then `partial_fit`: batches alone often end in a worse union.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> rng = np.random.default_rng(0)
    >>> smooth = rng.standard_normal((500, 16)).cumsum(axis=1)
    >>> peaks = rng.standard_normal((500, 16)) * (rng.random((500, 16)) < 0.1)
    >>> signals = np.concatenate([smooth, peaks])
    >>> union = kf.UnionTransform(3, n_transforms=2).fit(signals)
    >>> union.components_.shape, bool(union.condition_number_ <= 2)
    ((2, 16, 16), True)

    The code of a signal is in the columns of its transform, and all others are zero:

    >>> codes = union.transform(signals)
    >>> codes.shape
    (1000, 32)
    >>> bool((codes[union.labels_ == 0, 16:] == 0).all())
    True
    >>> approximations = union.inverse_transform(codes)
    >>> error = np.linalg.norm(signals - approximations) / np.linalg.norm(signals)
    >>> bool(np.isclose(union.score(signals), -error))
    True
    """

    n_transforms: int = 4
    max_condition: float = 2.0
    norm: float | Literal["auto"] = "auto"
    objective: Objective = "absolute"
    n_rounds: int = 5
    method: Method | None = None
    n_starts: int = N_STARTS
    coding: Coding = "refit"
    random_state: Any = None

    def predict(self, X: Any) -> Any:
        """Number of the transform that each signal belongs to, from 0.

        For a Dask array a Dask array, for a tensor a tensor, else an array in memory.
        """
        check_is_fitted(self, "result_")
        signals, _ = self._received(X, reset=False)
        return engine_for(signals).assign(self.result_.union, self.n_nonzero_coefs_)

    def fit_predict(self, X: Any, y: Any = None) -> NDArray:
        """Learn, and return the number of the transform of each signal: `labels_`."""
        return self.fit(X, y).labels_

    def _found_in(self, engine: Engine, result: Any) -> dict[str, Any]:
        labels = engine.assign(result.union, int(result.n_nonzero_coefs))
        with reading(f"{engine.name} could not be read"):
            labels = labels.compute() if hasattr(labels, "compute") else labels
        return {"labels_": np.asarray(labels.cpu() if hasattr(labels, "cpu") else labels)}

    def _encoded(self, engine: Engine, **options: Any) -> Any:
        refits = self._refit() or [None] * len(self.components_)
        how = self.result_.union, self.n_nonzero_coefs_, refits
        return engine.encode_union(*how, **options)

    def _described(self, result: Any) -> dict[str, Any]:
        return super()._described(result) | {"condition_numbers_": result.condition_numbers}

    def _options(self, init: Any, **others: Any) -> Options:
        options, state = super()._options(init, **others), self.random_state
        if not isinstance(state, np.random.RandomState) or isinstance(init, LearnResult):
            return options
        return options._replace(method=self._method(int(state.randint(2**31))))

    def _method(self, seed: int | None = None) -> UnionOf:
        """The method; `seed` is the one that was drawn from a RandomState."""
        state = self.random_state
        if is_seed(state):
            seed = int(state)
        elif state is not None and not isinstance(state, np.random.RandomState):
            raise ValueError(
                f"random_state={state!r}: give a seed, an integer >= 0, a RandomState of NumPy, or "
                "None, which is the seed 0."
            )
        method, conditioned = self.method, ("max_condition", "norm", "objective", "n_rounds")
        if method is None:
            method = Conditioned(**{name: getattr(self, name) for name in conditioned})
        return union_of(method, self.n_transforms, self.n_starts, seed)
