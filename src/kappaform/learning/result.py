"""What learning returns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import counted
from kappaform.engines import Refit, refit_of
from kappaform.learning.method import Method
from kappaform.linalg import scaled_inverse
from kappaform.threads import single_threaded_blas

if TYPE_CHECKING:
    from kappaform.learning.race import Race


class StopReason(Enum):
    """Why learning stopped, in words."""

    TOLERANCE = "the relative change of the loss fell to tol"
    MAX_ITER = "max_iter iterations were done before the relative change of the loss fell to tol"
    CALLBACK = "the callback asked to stop"
    INTERRUPTED = "learning was interrupted"
    EXACT = "the codes are exact: nothing but rounding is left of the error"
    ROUNDING = (
        "rounding hides what is left to gain: the loss would have risen by more than tol, so the "
        "last step was rejected"
    )
    ROSE = (
        "the loss would have risen by more than tol and by more than rounding explains, so the "
        "last step was rejected: the update of a custom method is not monotone"
    )
    STREAM_END = "the stream ended: whether another batch would change much is unknown"
    RUNNING = "learning is in progress"

    def __str__(self) -> str:
        return self.value


class Record(NamedTuple):
    """Errors of one iterate and the norm of its coefficients, in units of the signals."""

    loss: float
    absolute: float
    relative: float
    absolute_before: float
    relative_before: float
    coef_norm: float


class Errors(NamedTuple):
    """Errors per accepted step; entry 0 belongs to the start.

    `absolute` is ‖X − YWᵀ‖_F and `relative` the same over ‖YWᵀ‖_F, with the codes X of the
    transform itself; `absolute_before` and `relative_before` are with the codes of the transform
    before it (NaN for the start).
    """

    absolute: NDArray
    relative: NDArray
    absolute_before: NDArray
    relative_before: NDArray


_RECOMPUTED = ("inverse", "inverses", "refit")  # rather than pickled


@dataclass(frozen=True, eq=False, repr=False)
class LearnResult:
    """A learned transform and how it was reached.

    Attributes
    ----------
    transform : float64 array of shape (n, n), read-only
        Coefficients of signals (rows) are ``signals @ transform.T``.
    stop_reason : StopReason
        Reads as a sentence.
    method : Method
    n_nonzero_coefs : int or array of shape (m,)
    n_iter : int
        Iterations of all starts together: updates, and evaluations of the starts except the first.
        `loss` is that of one start, without rejected steps, and so may be shorter.
    n_passes : int
        Passes over the data in total: for the iterations, for the starts and, for the results of
        a `condition_path`, for the errors that it reports.
    errors : Errors
        Errors of the leading start, one entry per accepted step; for a stream, of the last 1000
        batches.
    loss : array
        What the method minimises, per accepted step: the absolute or relative error, or for the
        log-det method the penalised squared error over the squared norm of the signals. Entry 0
        belongs to the start.
    records : tuple of Record
        The same, with the norm of the coefficients, as one record for each of these steps.
    state : object
        Where ``init=result`` resumes; its contents may change from version to version.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> result = kf.learn(signals, n_nonzero_coefs=4)
    >>> result.transform.shape, result.converged
    ((16, 16), True)
    >>> bool(result.condition_number == result.spectrum[0] / result.spectrum[-1])
    True
    >>> bool((np.diff(result.loss) <= 0).all())
    True
    """

    transform: NDArray
    stop_reason: StopReason
    state: Race

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in _RECOMPUTED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        for name in {"transform", "spectrum"} & set(state):
            _read_only(state[name])  # pickles do not keep the flag

    def __repr__(self) -> str:
        return (
            f"LearnResult({self.method}, n_iter={self.n_iter}, "
            f"condition_number={self.condition_number:.6g}, stop_reason={self.stop_reason.name})"
        )

    @property
    def method(self) -> Method:
        return self.state.method

    @property
    def n_nonzero_coefs(self) -> int | NDArray:
        return self.state.n_nonzero

    @property
    def n_iter(self) -> int:
        return self.state.n_iter

    @property
    def n_passes(self) -> int:
        return self.state.n_passes

    @property
    def records(self) -> tuple[Record, ...]:
        return self.state.best.records

    @property
    def converged(self) -> bool:
        """Whether learning stopped because nothing was left to gain."""
        return self.stop_reason in (StopReason.TOLERANCE, StopReason.EXACT)

    @cached_property
    def spectrum(self) -> NDArray:
        """Singular values of the transform, largest first."""
        with single_threaded_blas():
            return _read_only(np.linalg.svd(self.transform, compute_uv=False))

    @cached_property
    def inverse(self) -> tuple[NDArray, int]:
        """The transposed inverse times 2**exponent, and the exponent: signals from codes."""
        with single_threaded_blas():
            return scaled_inverse(self.transform)

    @cached_property
    def refit(self) -> Refit:
        """What `coding="refit"` needs to make codes."""
        with single_threaded_blas():
            return refit_of(self.transform)

    @property
    def condition_number(self) -> float:
        """Condition number of the transform, computed from its singular values."""
        return float(self.spectrum[0] / self.spectrum[-1])

    @property
    def errors(self) -> Errors:
        return Errors(*_read_only(np.array(self.records, dtype=np.float64).T[1:5]))

    @property
    def loss(self) -> NDArray:
        return _read_only(np.array([record.loss for record in self.records]))


class BatchRefused(ValueError):  # noqa: N818 - says what happened, as LearningInterrupted does
    """A batch that cannot be learned from, after others were.

    It is not finite, has another number of features, or is not an array of numbers. For the first
    batch the error is a plain ValueError or TypeError.

    Attributes
    ----------
    result : LearnResult
        What was learned from the batches before; resume with ``init=result``.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> try:
    ...     kf.learn_stream([signals, signals * np.nan], n_nonzero_coefs=4)
    ... except kf.BatchRefused as error:
    ...     result = kf.learn_stream([signals], n_nonzero_coefs=4, init=error.result)
    >>> result.n_iter
    2
    """

    result: LearnResult


class LearningInterrupted(KeyboardInterrupt):
    """Ctrl-C during learning.

    Attributes
    ----------
    result : LearnResult
        What was learned; resume with ``init=result``.
    finished : tuple of LearnResult
        Results of the bounds of a `condition_path` that were completed; empty for `learn`.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> def press_ctrl_c(result):
    ...     if result.n_iter == 3:
    ...         raise KeyboardInterrupt
    >>> try:
    ...     kf.learn(signals, n_nonzero_coefs=4, callback=press_ctrl_c)
    ... except kf.LearningInterrupted as interruption:
    ...     print(interruption)
    ...     result = kf.learn(signals, n_nonzero_coefs=4, init=interruption.result)
    learning interrupted after 3 iterations
    """

    def __init__(self, result: LearnResult, finished: tuple[LearnResult, ...] = ()) -> None:
        super().__init__(f"learning interrupted after {result.n_iter} iterations")
        self.result, self.finished = result, finished

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.result, self.finished)


def _read_only(array: NDArray) -> NDArray:
    array.setflags(write=False)
    return array


def learned(item: Any, name: str) -> Any:
    """The LearnResult of a fitted estimator; a LearnResult or an array as it is."""
    if hasattr(item, "fit") and not hasattr(item, "result_"):
        raise ValueError(
            f"{name} is a {type(item).__name__} that has learned no transform: give a fitted "
            "estimator of kappaform, a LearnResult or an array."
        )
    return getattr(item, "result_", item)


def transform_of(item: Any, name: str) -> Any:
    """The matrix of a fitted estimator or of a LearnResult; an array as it is."""
    found = learned(item, name)
    if not isinstance(found, LearnResult):
        return found
    if found.transform.ndim > 2:
        raise ValueError(
            f"{name} is a union of {counted(len(found.transform), 'transform')}: give one of them, "
            "such as result.transforms[0]."
        )
    return found.transform
