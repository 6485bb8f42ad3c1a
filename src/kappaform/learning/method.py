"""The class that custom methods derive from, and the checks of what they return.

The three methods of this package (`methods.py`) derive from it, too: nothing else in learning
depends on which methods there are.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import as_real_array
from kappaform.engines import Statistics
from kappaform.learning.updates import Steps, Transform, as_matrix

if TYPE_CHECKING:
    from kappaform.learning.result import LearnResult, Record
    from kappaform.learning.starts import Start, StartContext

BOUND_SLACK = 1e-9  #: by which rounding may exceed a bound, relative to it
_EPS = float(np.finfo(np.float64).eps)
# Range of the largest singular value: squares of coefficients neither vanish nor overflow.
_LEAST_SCALE, _LARGEST_SCALE = 1e-100, 1e100

Updater = Callable[[Any, Any, Steps], Any]  #: (statistics, transform, steps) -> transform


class MethodFailed(RuntimeError):  # noqa: N818 - says what happened, as LearningInterrupted does
    """A custom method raised an error, or returned what cannot be a transform or a loss.

    Attributes
    ----------
    result : LearnResult or None
        What was learned until then; resume with ``init=result``.
    finished : tuple of LearnResult
        Results of the bounds of a `condition_path` that were completed.

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

    result: LearnResult | None = None
    finished: tuple[LearnResult, ...] = ()


class Method:
    r"""Base class of methods: derive from it to learn by a custom method.

    `learn`, `learn_stream`, `condition_path`, `save` and :class:`LearnedTransform` accept it, on
    every engine. Define at least `update`. A frozen dataclass is best: its fields are the
    parameters, and results can be resumed with any method that is equal. A field `max_condition` is
    a bound on the condition number: it is checked after every update, and `condition_path` can
    vary it; None is no bound.
    A file keeps the matrix and the name of the method: to resume after `load`, give it again.

    The statistics of a pass have `gram` :math:`Y^T Y`, `cross` :math:`X^T Y`, `code_energy`
    :math:`\|X\|^2` and `discarded_energy` :math:`\|Y W^T - X\|^2`, where Y are the signals times
    `scale`, a power of two (1 for ordinary signals), and X the codes of the transform W before the
    update. All arrays are float64 and read-only.

    Attributes
    ----------
    monotone : bool
        Whether no update raises the loss. If one does, it is rejected and learning stops.
    momentum : bool
        Whether steps may extrapolate beyond an update. `admissible` receives the extrapolated
        matrix; define it for any matrix, so that it returns one that `update` could return. A step
        that raises the loss is rejected, and an update follows; a matrix that violates the bound,
        or is singular, is not used. Learning then takes fewer passes.

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
        """A feasible transform near a regular matrix: by default the matrix itself."""
        return transform

    # --- What learning calls. Here the hooks above are called and checked; the methods of this
    # package override it, because they keep factors, prepare their updates or need no checks.

    steps: Any = "exact"  #: kind of steps, of methods that have several
    in_factors: ClassVar[bool] = False  #: whether transforms are kept as singular factors
    union_shape: ClassVar[tuple[int, ...]] = ()  #: of the array of the transforms of a union
    loss_power: ClassVar[int] = 1  #: rounding adds to this power of the loss, over its scale

    def loss_scale(self, record: Record) -> float:
        """Scale of the loss, of which rounding is a fraction."""
        return max(abs(record.loss), record.coef_norm)

    def checked_loss(self, statistics: Any, transform: Any) -> float:
        value = self._call("loss", _seen(statistics), _read_only(transform))
        if not isinstance(value, numbers.Real) or math.isnan(value):
            raise MethodFailed(f"{_title(self)}.loss gave {value!r}: give a number.")
        return float(value)

    def updater(self, gram: NDArray) -> Updater:  # noqa: ARG002
        """The update for signals with this gram matrix."""
        return lambda statistics, transform, _: self._regular(
            "update", _seen(statistics), _read_only(transform)
        )

    def to_feasible(self, transform: Transform) -> Any:
        """A feasible transform near a given one that is not zero, as learning keeps it."""
        return self._regular("admissible", _read_only(as_matrix(transform)))

    def extrapolate(self, last: Any, updated: Any, factor: float) -> Any:
        """The transform beyond `updated`, by `factor` times its difference to the last update.

        `updated` itself, if what `admissible` makes of that cannot be a transform.
        """
        further = _read_only(updated + factor * (updated - last))
        matrix = self._matrix("admissible", further)
        return updated if self._defect(matrix) else matrix

    def starts(self, context: StartContext) -> Sequence[Start] | None:  # noqa: ARG002
        """Starts that race by default; None: the DCT basis alone."""
        return None

    def as_array(self, transform: Any) -> NDArray:
        """The transform as learning returns it."""
        return transform

    def violation(self, spectrum: NDArray) -> str | None:
        """Why a transform with these singular values cannot come from this method."""
        condition, bound = float(spectrum[0] / spectrum[-1]), getattr(self, "max_condition", None)
        if bound is None or condition <= float(bound) * (1 + BOUND_SLACK):
            return None
        return f"the transform has condition number {condition}, beyond max_condition={bound}."

    def _regular(self, name: str, *arguments: Any) -> NDArray:
        """What a hook returns, if it can be a transform."""
        matrix = self._matrix(name, *arguments)
        defect = self._defect(matrix)
        if defect:
            raise MethodFailed(f"{_title(self)}.{name} {defect}")
        return matrix

    def _matrix(self, name: str, *arguments: Any) -> NDArray:
        """The matrix that a hook returns; the last argument is the transform before."""
        found, what = self._call(name, *arguments), f"{_title(self)}.{name}"
        shape = arguments[-1].shape
        try:
            matrix = as_real_array(found, what).astype(np.float64)  # a copy: it may keep its own
        except (TypeError, ValueError) as error:
            kind = getattr(found, "dtype", type(found).__name__)
            raise MethodFailed(f"{what} gave {kind}: give an array of real numbers.") from error
        if matrix.shape != shape:
            raise MethodFailed(f"{what} gave shape {matrix.shape}: a transform here has {shape}.")
        return matrix

    def _call(self, name: str, *arguments: Any) -> Any:
        try:
            return getattr(self, name)(*arguments)
        except Exception as error:  # whatever it is: what was learned before must not be lost
            raise MethodFailed(
                f"{_title(self)}.{name} raised {type(error).__name__}: {error}"
            ) from error

    def _defect(self, matrix: NDArray) -> str | None:
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
        violation = self.violation(spectrum)
        return f"broke its bound: {violation}" if violation else None


def parameters_of(method: Method) -> dict[str, Any]:
    """The fields of a method that is a dataclass; those of any other are unknown."""
    if not is_dataclass(method):
        return {}
    return {field.name: getattr(method, field.name) for field in fields(method)}


def same_method(one: Method, other: Method) -> bool:
    """Whether two methods are equal; fields that are arrays are compared entry by entry.

    Methods that cannot be compared count as different.
    """
    with suppress(Exception):  # the truth of an array is ambiguous
        return bool(one == other)
    with suppress(Exception):
        if is_dataclass(one) and type(one) is type(other):
            names = (each.name for each in fields(one) if each.compare)
            return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)
    return False


def _title(method: Method) -> str:
    return type(method).__name__


def _seen(statistics: Statistics) -> Statistics:
    """Statistics as a custom method receives them."""
    return replace(statistics, gram=_read_only(statistics.gram), cross=_read_only(statistics.cross))


def _read_only(array: NDArray) -> NDArray:
    view = array.view()
    view.flags.writeable = False
    return view
