"""The pass of a union over float32 tensors on an NVIDIA GPU, by `triton_union_kernels`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kappaform.checks import Array
from kappaform.engines.blocks import split_rows
from kappaform.engines.triton_pass import MAX_FUSED, FusedPass, Shape, _launch, split_halves
from kappaform.engines.union import ScaledUnion, UnionSums

if TYPE_CHECKING:
    from torch import Tensor

# Rows that are assigned, sorted and summed at a time: about 32 bytes of temporary memory each.
_ROWS_AT_ONCE = 2**25

# By the width of the rows.
_COMPETE_SHAPES = {
    16: Shape(64, 4096, 4),
    32: Shape(64, 4096, 4),
    64: Shape(64, 1024, 4, maxnreg=128),  # four programs to a multiprocessor
    128: Shape(128, 2048, 8),
}
_SUM_SHAPES = {
    16: Shape(64, 4096, 4),
    32: Shape(64, 4096, 4),
    64: Shape(64, 4096, 4, maxnreg=168, ahead=True),
    128: Shape(128, 2048, 8),
}
_GRAM_SHAPES = {
    16: Shape(64, 4096, 4),
    32: Shape(64, 4096, 4),
    64: Shape(64, 4096, 4, ahead=True),
    128: Shape(64, 2048, 8),
}


class _Split(NamedTuple):
    """The transforms of a union, as `SplitTransform`, and the weights of their scores."""

    high: Tensor  #: (K, depth, width)
    low: Tensor
    exponent: int
    weights: Tensor
    has_energy: bool


class FusedUnion(FusedPass):
    """Passes of single transforms, and of unions over signals of at most 128 features.

    A pass of a union needs 4 bytes per signal and transform beyond the data, and about 1 GB.
    """

    def __init__(self, signals: Tensor, peak: float) -> None:
        super().__init__(signals, peak)
        self._guesses: Tensor | None = None  # thresholds, one row for each transform
        self._guess_exponent = 0

    def run_union(self, union: ScaledUnion, sparsity: Tensor, exact: bool) -> UnionSums | None:
        """Sums of the signals of each transform; None if there are no kernels for so many features.

        YᵀY is exact to 22 bits, whatever the products.
        """
        import torch

        (n_signals, n), n_transforms = self._signals.shape, len(union.transforms)
        if n > MAX_FUSED:
            return None
        split = self._split_union(union)
        total: Any = 0.0
        for rows in split_rows(0, n_signals, _ROWS_AT_ONCE):
            numbers, order = self._competed(rows, split, sparsity, exact).sort(stable=True)
            bounds = torch.arange(n_transforms + 1, dtype=numbers.dtype, device=numbers.device)
            ends = torch.searchsorted(numbers, bounds)
            operands = self._operands_of(rows, split, sparsity)
            cross, energies = self._sums(operands, order, ends, exact, gram=False)
            gram, _ = self._sums(operands, order, ends, exact, gram=True)
            counts = ends.diff()[:, None].double()
            total = torch.cat([cross, gram, energies, counts], 1) + total
        sums = total.cpu().numpy()
        exponent = self._signal_exponent + split.exponent
        crosses, grams = sums[:, : 2 * n * n].reshape(n_transforms, 2, n, n).swapaxes(0, 1)
        crosses = np.ldexp(crosses, -(exponent + self._signal_exponent))
        grams = np.ldexp(grams + grams.swapaxes(1, 2), -2 * self._signal_exponent - 1)
        energies = sums[:, 2 * n * n :]
        energies[:, :2] = np.ldexp(energies[:, :2], -2 * exponent)
        return UnionSums(grams, crosses, energies, union.exponent)

    def assign(self, union: ScaledUnion, sparsity: Tensor, exact: bool) -> Tensor | None:
        """The number of the transform of each signal; None as in `run_union`."""
        import torch

        if self._signals.shape[1] > MAX_FUSED:
            return None
        rows = slice(0, len(self._signals))
        return self._competed(rows, self._split_union(union), sparsity, exact).to(torch.int64)

    def _competed(self, rows: slice, union: _Split, sparsity: Tensor, exact: bool) -> Tensor:
        """The number of the transform of each of some signals, in a short dtype."""
        import torch

        from kappaform.engines.triton_union_kernels import compete_kernel

        n_rows, shape = rows.stop - rows.start, _COMPETE_SHAPES[self._left]
        dtype = torch.uint8 if len(union.high) <= 255 else torch.int32
        numbers = self._empty((n_rows,), dtype)
        rows_each = self._rows_each(n_rows, shape)
        _launch(
            compete_kernel,
            (-(-n_rows // rows_each),),
            shape,
            *self._operands_of(rows, union, sparsity),
            union.weights,
            numbers,
            n_rows,
            self._signals.shape[1],
            len(union.high),
            rows_each,
            2.0**self._signal_exponent,
            ROWS=shape.rows,
            WIDTH=self._left,
            DEPTH=union.high.shape[1],
            EXACT=exact,
            ENERGY=union.has_energy,
        )
        return numbers

    def _sums(
        self, operands: tuple[Any, ...], order: Tensor, ends: Tensor, exact: bool, *, gram: bool
    ) -> tuple[Tensor, Tensor]:
        """XᵀY with ‖X‖² and ‖Z − X‖², or what becomes YᵀY: a row for each transform."""
        import torch

        from kappaform.engines.triton_union_kernels import sum_kernel

        n, width, n_transforms = self._signals.shape[1], self._left, len(ends) - 1
        shape = (_GRAM_SHAPES if gram else _SUM_SHAPES)[width]
        rows_each = self._rows_each(len(order), shape)
        n_programs = -(-len(order) // rows_each) + n_transforms  # one more each for what is left
        sums = self._empty((n_programs, width, width))
        energies = self._empty((n_programs, 2), torch.float64)
        numbers = self._empty((n_programs,), torch.int64)
        _launch(
            sum_kernel,
            (n_programs,),
            shape,
            *operands,
            order,
            ends,
            sums,
            energies,
            numbers,
            n,
            n_transforms,
            rows_each,
            2.0**self._signal_exponent,
            ROWS=shape.rows,
            WIDTH=width,
            DEPTH=operands[3].shape[1],
            EXACT=exact,
            GRAM=gram,
            AHEAD=shape.ahead,
        )
        # A product with zeros and ones: sums of the programs of a transform, always in one order.
        whose = torch.nn.functional.one_hot(numbers, n_transforms).double().T
        if gram:
            energies.zero_()
        return whose @ sums[:, :n, :n].reshape(n_programs, -1).double(), whose @ energies

    def _operands_of(self, rows: slice, union: _Split, sparsity: Tensor) -> tuple[Any, ...]:
        """What both kernels begin with."""
        assert self._guesses is not None
        signals, one = self._signals[rows], len(sparsity) == 1
        return (
            signals,
            *signals.stride(),
            union.high,
            union.low,
            self._guesses[:, rows],
            self._guesses.stride(0),
            sparsity if one else sparsity[rows],
            int(not one),
        )

    def _split_union(self, union: ScaledUnion) -> _Split:
        """Split transforms at one scale, and bring the thresholds to its unit."""
        import torch

        device, n_transforms = self._signals.device, len(union.transforms)
        matrices: list[Array] = [each.matrix.T for each in union.transforms]
        high, low, exponent = split_halves(np.stack(matrices), self._left, device)
        if self._guesses is None or len(self._guesses) != n_transforms:
            shape = n_transforms, len(self._signals)
            self._guesses = torch.zeros(shape, dtype=torch.int32, device=device)
        elif exponent != self._guess_exponent:
            self._guesses.view(torch.float32).mul_(2.0 ** (exponent - self._guess_exponent))
        self._guess_exponent = exponent
        weights = union.weights.copy()
        weights[:, 2] = np.ldexp(weights[:, 2], 2 * (self._signal_exponent + exponent))
        on_device = torch.from_numpy(weights).to(device)
        return _Split(high, low, exponent, on_device, bool(weights[:, 1].any()))
