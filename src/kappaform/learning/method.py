"""What learning asks of a method: the class that methods of one's own derive from.

The three methods of this package (`methods.py`) are such classes, too: nothing else in learning
knows which methods there are.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import as_real_array
from kappaform.engines import Statistics

if TYPE_CHECKING:
    from collections.abc import Sequence

_EPS = float(np.finfo(np.float64).eps)
_ROUNDING = 1e-9  # by which a condition number may exceed its bound
# Of the largest singular value: squares of coefficients neither vanish nor overflow.
_LEAST_SCALE, _LARGEST_SCALE = 1e-100, 1e100

Updater = Callable[[Statistics, Any, Any], Any]  #: (statistics, transform, steps) -> transform


class MethodFailed(RuntimeError):  # noqa: N818 - says what happened, as LearningInterrupted does
    """A method of one's own raised an error, or gave what cannot be a transform or a loss.

    Attributes
    ----------
    result : LearnResult or None
        What was learned until then; go on with ``init=result``.
    finished : tuple of LearnResult
        Those of the bounds of a `condition_path` that were done.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> class Broken(kf.Method):
    ...     def update(self, statistics, transform):
    ...         return statistics.cross[:10]
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> try:
    ...     kf.learn(signals, Broken(), n_nonzero_coefs=4)
    ... except kf.MethodFailed as error:
    ...     print(error)
    ...     start = error.result.transform
    Broken.update gave shape (10, 16): a transform here has (16, 16).
    """

    def __init__(self, message: str, result: Any = None, finished: tuple[Any, ...] = ()) -> None:
        super().__init__(message)
        self.result, self.finished = result, finished

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.result, self.finished)


class Method:
    r"""What is learned, and how: derive from it to learn by a method of your own.

    `learn`, `learn_stream`, `condition_path`, `save` and :class:`LearnedTransform` take it, on
    every engine. Give at least `update`. A frozen dataclass is best: its fields are the parameters,
    and methods that are equal can go on from each other's results. With a field `max_condition`, a
    bound on the condition number that is checked after every update, `condition_path` can vary it;
    None is no bound.
    A file keeps the matrix and the name of the method: to learn on after `load`, give it again.

    The statistics of a pass have `gram` :math:`Y^T Y`, `cross` :math:`X^T Y`, `code_energy`
    :math:`\|X\|^2` and `discarded_energy` :math:`\|Y W^T - X\|^2`, where Y are the signals times
    `scale`, a power of two (1 for ordinary signals), and X the codes of the transform W before the
    update. All arrays are float64 and read-only.

    Attributes
    ----------
    monotone : bool
        Whether no update raises the loss. If one does, it is dropped and learning stops.
    momentum : bool
        Whether steps may go on beyond an update, to what `admissible` makes of the matrix there
        (write it so that it takes any matrix and gives one that `update` could give). A step that
        raises the loss is dropped, and an update follows; a matrix that breaks the bound, or is
        singular, is not used. Learning then takes fewer passes.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import numpy as np
    >>> import kappaform as kf
    >>> @dataclass(frozen=True)
    ... class Shrunken(kf.Method):
    ...     least: float = 0.5
    ...     def update(self, statistics, transform):
    ...         left, singular, right = np.linalg.svd(statistics.cross)
    ...         return (left * np.maximum(singular / singular.max(), self.least)) @ right
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> result = kf.learn(signals, Shrunken(), n_nonzero_coefs=4, max_iter=20)
    >>> result.condition_number <= 2 * (1 + 1e-9)
    True
    """

    monotone: Any = False
    momentum: Any = False

    def update(self, statistics: Statistics, transform: NDArray) -> NDArray:
        """The next transform, (n, n) and regular."""
        raise NotImplementedError("write it: update(self, statistics, transform)")

    def loss(self, statistics: Statistics, transform: Any) -> float:  # noqa: ARG002
        """The number to minimise, for a transform and its own codes: the absolute error."""
        return math.sqrt(statistics.discarded_energy) / statistics.scale

    def admissible(self, transform: NDArray) -> NDArray:
        """The start that the method makes of a regular matrix: the matrix itself."""
        return transform

    # --- What learning calls. The methods of this package give their own, faster or finer ones.

    steps: Any = "exact"  #: kind of steps, of methods that have several
    in_factors: ClassVar[bool] = False  #: whether transforms are kept as singular factors

    def updater(self, gram: NDArray) -> Updater:  # noqa: ARG002
        """The update for signals with this gram matrix."""
        return lambda statistics, transform, _: self._checked_update(statistics, transform)

    def start_from(self, transform: Any) -> Any:
        """A given transform, not zero, moved to where the method keeps it."""
        matrix = getattr(transform, "matrix", transform)
        return self._checked("admissible", self.admissible, _read_only(matrix))

    def beyond(self, last: Any, reached: Any, factor: float) -> Any:
        """The transform on the way from the last update to the next, and `factor` times further.

        The next one itself, if what `admissible` makes of that cannot be a transform.
        """
        further = _read_only(reached + factor * (reached - last))
        matrix = self._given("admissible", self.admissible, further)
        return reached if self._refusal(matrix) else matrix

    def starts(self, source: Any) -> Sequence[Any] | None:  # noqa: ARG002
        """Starts that race if none is asked for; None: the cosine basis alone."""
        return None

    def shown(self, transform: Any) -> NDArray:
        """The transform as learning returns it."""
        return transform

    def rises(self, old: float, new: float, coef_norm: float, rounding: float) -> bool:
        """Whether a loss rises by more than rounding explains."""
        return new - old > rounding * max(abs(old), coef_norm)

    def broken_promise(self, spectrum: NDArray) -> str | None:
        """Why a transform with these singular values cannot come from this method."""
        condition, bound = float(spectrum[0] / spectrum[-1]), bound_of(self)
        if condition <= bound * (1 + _ROUNDING):
            return None
        return f"the transform has condition number {condition}, beyond max_condition={bound}."

    def _checked_update(self, statistics: Statistics, transform: NDArray) -> NDArray:
        seen = _seen(statistics)
        return self._checked("update", self.update, seen, _read_only(transform))

    def _checked(self, name: str, call: Callable[..., Any], *arguments: Any) -> NDArray:
        """What a custom method gives, if it can be a transform."""
        matrix = self._given(name, call, *arguments)
        refusal = self._refusal(matrix)
        if refusal:
            raise MethodFailed(f"{_title(self)}.{name} {refusal}")
        return matrix

    def _given(self, name: str, call: Callable[..., Any], *arguments: Any) -> NDArray:
        """The matrix that a custom method gives."""
        given, what = _called(self, name, call, *arguments), f"{_title(self)}.{name}"
        shape = arguments[-1].shape
        try:
            matrix = as_real_array(given, what).astype(np.float64)  # a copy: it may keep its own
        except (TypeError, ValueError) as error:
            kind = getattr(given, "dtype", type(given).__name__)
            raise MethodFailed(f"{what} gave {kind}: give an array of real numbers.") from error
        if matrix.shape != shape:
            raise MethodFailed(f"{what} gave shape {matrix.shape}: a transform here has {shape}.")
        return matrix

    def _refusal(self, matrix: NDArray) -> str | None:
        """Why a matrix cannot be a transform of this method."""
        if not np.isfinite(matrix).all():
            return "gave NaN or inf: all entries must be finite."
        spectrum = np.linalg.svd(matrix, compute_uv=False)
        largest = float(spectrum[0])
        if spectrum[-1] <= len(matrix) * _EPS * largest:
            return (
                f"gave a singular transform (singular values from {largest:.3g} to "
                f"{spectrum[-1]:.3g}): codes could not be turned back into signals."
            )
        if not _LEAST_SCALE <= largest <= _LARGEST_SCALE:
            return (
                f"gave a transform with singular values up to {largest:.3g}: scale it, so that the "
                f"largest is between {_LEAST_SCALE:g} and {_LARGEST_SCALE:g}."
            )
        broken = self.broken_promise(spectrum)
        return f"broke its bound: {broken}" if broken else None


def parameters_of(method: Method) -> dict[str, Any]:
    """The fields of a method that is a dataclass; of any other, nothing is known."""
    if not is_dataclass(method):
        return {}
    return {field.name: getattr(method, field.name) for field in fields(method)}


def same_method(one: Method, other: Method) -> bool:
    """Whether two methods are equal; those with fields that are arrays, entry by entry.

    Methods that cannot be compared count as different.
    """
    with suppress(Exception):  # the truth of an array is ambiguous
        return bool(one == other)
    with suppress(Exception):
        if is_dataclass(one) and type(one) is type(other):
            names = (each.name for each in fields(one) if each.compare)
            return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)
    return False


def bound_of(method: Method) -> float:
    """The condition number that a method promises not to exceed; inf if it promises nothing."""
    bound = getattr(method, "max_condition", None)
    return math.inf if bound is None else float(bound)


def loss_of(method: Method, statistics: Statistics, transform: Any) -> float:
    """The loss, if it is a number."""
    shown = _read_only(transform) if isinstance(transform, np.ndarray) else transform
    value = _called(method, "loss", method.loss, _seen(statistics), shown)
    if not isinstance(value, numbers.Real) or math.isnan(value):
        raise MethodFailed(f"{_title(method)}.loss gave {value!r}: give a number.")
    return float(value)


def _called(method: Method, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return call(*arguments)
    except MethodFailed:
        raise
    except Exception as error:  # whatever it is: what was learned before must not be lost
        raise MethodFailed(
            f"{_title(method)}.{name} raised {type(error).__name__}: {error}"
        ) from error


def _title(method: Method) -> str:
    return type(method).__name__


def _seen(statistics: Statistics) -> Statistics:
    """Statistics as a method is given them."""
    return replace(statistics, gram=_read_only(statistics.gram), cross=_read_only(statistics.cross))


def _read_only(array: NDArray) -> NDArray:
    view = array.view()
    view.flags.writeable = False
    return view
