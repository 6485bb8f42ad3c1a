"""What learning a union of transforms returns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kappaform.engines import Refit, refit_of
from kappaform.engines.union import Union
from kappaform.learning.result import LearnResult
from kappaform.linalg import scaled_inverse
from kappaform.threads import single_threaded_blas


@dataclass(frozen=True, eq=False, repr=False)
class UnionResult(LearnResult):
    """Learned transforms, of which each signal uses the one that fits it best.

    Everything that a :class:`LearnResult` has, and the following.

    Attributes
    ----------
    transform : float64 array of shape (K, n, n), read-only
        All transforms.
    transforms : the same
    spectrum : array of shape (K, n)
        Singular values of each transform, largest first.
    condition_numbers : array of shape (K,)
    condition_number : float
        The largest of them.

    Examples
    --------
    >>> import numpy as np
    >>> import kappaform as kf
    >>> signals = np.random.default_rng(0).standard_normal((500, 16)).cumsum(axis=1)
    >>> union = kf.learn_union(signals, n_transforms=2, n_nonzero_coefs=4)
    >>> union.transforms.shape, union.spectrum.shape
    ((2, 16, 16), (2, 16))
    >>> bool((union.condition_numbers <= 2 * (1 + 1e-9)).all())
    True
    """

    def __repr__(self) -> str:
        inner: Any = self.method
        return (
            f"UnionResult({inner.method}, n_transforms={len(self.transform)}, "
            f"n_iter={self.n_iter}, condition_number={self.condition_number:.6g}, "
            f"stop_reason={self.stop_reason.name})"
        )

    @property
    def transforms(self) -> NDArray:
        return self.transform

    @property
    def condition_numbers(self) -> NDArray:
        """Condition number of each transform."""
        return self.spectrum[:, 0] / self.spectrum[:, -1]

    @property
    def condition_number(self) -> float:
        """The largest condition number."""
        return float(self.condition_numbers.max())

    @property
    def union(self) -> Union:
        """The transforms with the rule that assigns signals to them, as engines take them."""
        members: Any = self.state.best.transform
        return Union(self.transform, members.union.weights)

    @cached_property
    def inverse(self) -> tuple[NDArray, int]:
        """The transposed inverses, one below the other, times 2**exponent, and the exponent."""
        exponent = min(own for _, own in self.inverses)
        scaled = [np.ldexp(each, exponent - own) for each, own in self.inverses]
        return np.concatenate(scaled), exponent

    @cached_property
    def inverses(self) -> list[tuple[NDArray, int]]:
        """`LearnResult.inverse` of each transform."""
        with single_threaded_blas():
            return [scaled_inverse(transform) for transform in self.transform]

    @cached_property
    def refit(self) -> list[Refit]:  # type: ignore[override]
        """`LearnResult.refit` of each transform."""
        with single_threaded_blas():
            return [refit_of(transform) for transform in self.transform]
