"""The pass over float32 tensors on an NVIDIA GPU by the kernels of `triton_kernels`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from kappaform.checks import Array
from kappaform.engines.blocks import split_rows
from kappaform.engines.engine import PassSums

if TYPE_CHECKING:
    from torch import Tensor

_MAX_FEATURES = 256
MAX_FUSED = 128  #: features; sums of more do not fit into the registers of a multiprocessor

# Halves reach from 2**-24 to 2**16. Signals below 2**11, and transforms whose rows have absolute
# sums below 2**4, leave coefficients below 2**15 and most of the range to what is small.
_SIGNAL_EXPONENT, _ROW_EXPONENT = 11, 4

# Memory: of the sums of all programs that run at once, and of the codes, if they are in memory.
_SUM_BYTES, _SUM_BYTES_BESIDE_CODES, _CODE_BYTES = 3 * 2**26, 2**26, 2**27
_LEAST_PROGRAMS = 512  # as long as there are rows for them


class Shape(NamedTuple):
    """How the work is divided: chosen on an H200 with benchmarks/bench_gpu.py, right on any GPU."""

    rows: int  #: of a block
    most_rows: int  #: of a program
    num_warps: int
    num_stages: int = 1
    maxnreg: int | None = None
    ahead: bool = False  #: whether the next block is loaded before the present one is coded


_SHAPES = {
    16: Shape(64, 4096, 4),
    32: Shape(64, 4096, 4),
    64: Shape(64, 4096, 4, maxnreg=168, ahead=True),  # three programs to a multiprocessor
    128: Shape(128, 2048, 8),
}
_CODE_SHAPE = Shape(64, 64, 4, 3)
_CODE_DEPTH = 32
_CROSS_SHAPES = {  # by the side of a tile
    64: Shape(64, 4096, 4, maxnreg=128),
    128: Shape(64, 4096, 8, 3),
}


def can_pass_over(signals: Tensor) -> bool:
    """Whether there are kernels for so many features, and 32-bit offsets reach all of a program."""
    most_rows = max(shape.most_rows for shape in (*_SHAPES.values(), *_CROSS_SHAPES.values()))
    n_features, (row_stride, column_stride) = signals.shape[1], signals.stride()
    reach = most_rows * row_stride + n_features * column_stride
    return n_features <= _MAX_FEATURES and reach < 2**31


class SplitTransform(NamedTuple):
    """A transposed transform times a power of two, its entries as sums of two halves."""

    high: Tensor
    low: Tensor
    exponent: int


class FusedPass:
    """Passes over finite signals that the kernels can pass over; `peak` is the largest magnitude.

    What a pass returns has the same bits whatever passes came before. Beyond the data it needs 4
    bytes a signal and less than 256 MB.
    """

    def __init__(self, signals: Tensor, peak: float) -> None:
        import torch

        self._signals = signals
        self._left, self._right = _column_blocks(signals.shape[1])
        self._signal_exponent = _SIGNAL_EXPONENT - int(np.frexp(peak)[1])
        # Bits of the magnitude that separated each row in the last pass, in units of the kernels.
        self._thresholds = torch.zeros(len(signals), dtype=torch.int32, device=signals.device)
        self._threshold_exponent = 0

    def run(self, transform: Array, sparsity: Tensor, exact: bool) -> PassSums:
        """XᵀY, ‖X‖² and ‖Z − X‖². `sparsity` has one entry, or one for each signal.

        Unless `exact`, products have the precision of TF32.
        """
        import torch

        n, split = self._signals.shape[1], self._split(transform)
        parts = self._fused_sums if n <= MAX_FUSED else self._sums_by_codes
        total: Any = 0.0
        for cross, energies in parts(split, sparsity, exact):
            total = torch.cat([cross.sum(0)[:n, :n].ravel(), energies.sum(0)]) + total
        sums = total.cpu().numpy()
        exponent = self._signal_exponent + split.exponent
        cross = np.ldexp(sums[:-2].reshape(n, n), -(exponent + self._signal_exponent))
        return PassSums(cross, np.ldexp(sums[-2:], -2 * exponent))

    def encode(self, transform: Array, sparsity: Tensor, exact: bool) -> Tensor:
        """Codes of all signals, float32."""
        import torch

        split = self._split(transform)
        codes = torch.empty(self._signals.shape, dtype=torch.float32, device=self._signals.device)
        unit = 2.0 ** -(self._signal_exponent + split.exponent)
        energies = self._empty((-(-len(codes) // _CODE_SHAPE.rows), 2), torch.float64)
        rows = slice(len(codes))
        self._code(rows, codes, codes, energies, unit, split, sparsity, exact)
        return codes

    def _fused_sums(
        self, transform: SplitTransform, sparsity: Tensor, exact: bool
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Sums of every program, for as many rows at a time as there is memory for."""
        import torch

        from kappaform.engines.triton_kernels import pass_kernel

        width, shape = self._left, _SHAPES[self._left]
        rows_each = self._rows_each(len(self._signals), shape)
        at_once = max(1, _SUM_BYTES // (8 * width**2)) * rows_each
        for rows in split_rows(0, len(self._signals), at_once):
            n_programs = -(-(rows.stop - rows.start) // rows_each)
            cross = self._empty((n_programs, width, width), torch.float64)
            energies = self._empty((n_programs, 2), torch.float64)
            _launch(
                pass_kernel,
                (n_programs,),
                shape,
                *self._operands(rows, transform, sparsity),
                cross,
                energies,
                rows.stop - rows.start,
                self._signals.shape[1],
                rows_each,
                2.0**self._signal_exponent,
                ROWS=shape.rows,
                WIDTH=width,
                EXACT=exact,
                AHEAD=shape.ahead,
            )
            yield cross, energies

    def _sums_by_codes(
        self, transform: SplitTransform, sparsity: Tensor, exact: bool
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """The same, with the codes of some rows at a time in memory, as halves."""
        import torch

        n_signals, n = self._signals.shape
        tile = 64 if n <= 192 else 128
        shape, side = _CROSS_SHAPES[tile], -(-n // tile) * tile
        rows_each, block = shape.most_rows, _CODE_SHAPE.rows
        parts = 2 if exact else 1  # halves of a code
        step = max(1, _CODE_BYTES // (2 * parts * n * rows_each)) * rows_each
        halves = self._empty((parts, min(step, n_signals), n), torch.float16)
        at_once = max(1, _SUM_BYTES_BESIDE_CODES // (8 * side**2) * rows_each // step) * step
        for part in split_rows(0, n_signals, at_once):
            n_rows = part.stop - part.start
            cross = self._empty((-(-n_rows // rows_each), side, side), torch.float64)
            energies = self._empty((-(-n_rows // block), 2), torch.float64)
            for rows in split_rows(part.start, part.stop, step):
                first, last = rows.start - part.start, rows.stop - rows.start
                codes, part_energies = (
                    (halves[0, :last], halves[-1, :last]),
                    energies[first // block :],
                )
                self._code(rows, *codes, part_energies, 1.0, transform, sparsity, exact)
                self._cross(rows, *codes, cross[first // rows_each :], tile, exact)
            yield cross, energies

    def _code(
        self,
        rows: slice,
        codes: Tensor,
        codes_low: Tensor,
        energies: Tensor,
        unit: float,
        transform: SplitTransform,
        sparsity: Tensor,
        exact: bool,
    ) -> None:
        """Write the codes of some rows, and the energies of every program."""
        from kappaform.engines.triton_kernels import code_kernel

        shape, wide = _CODE_SHAPE, exact and self._right == 128
        _launch(
            code_kernel,
            (-(-len(codes) // shape.rows),),
            shape,
            *self._operands(rows, transform, sparsity),
            codes,
            codes_low,
            energies,
            len(codes),
            codes.shape[1],
            2.0**self._signal_exponent,
            unit,
            ROWS=shape.rows,
            LEFT=self._left,
            RIGHT=self._right,
            # Two programs share the memory of a multiprocessor.
            DEPTH=16 if wide else min(_CODE_DEPTH, self._left),
            EXACT=exact,
        )

    def _cross(
        self, rows: slice, high: Tensor, low: Tensor, cross: Tensor, tile: int, exact: bool
    ) -> None:
        """Write XᵀY of every program."""
        from kappaform.engines.triton_kernels import cross_kernel

        signals, shape, n_tiles = self._signals[rows], _CROSS_SHAPES[tile], cross.shape[1] // tile
        _launch(
            cross_kernel,
            (n_tiles, n_tiles, -(-len(high) // shape.most_rows)),
            shape,
            high,
            low,
            signals,
            *signals.stride(),
            cross,
            *high.shape,
            shape.most_rows,
            2.0**self._signal_exponent,
            ROWS=shape.rows,
            TILE=tile,
            EXACT=exact,
        )

    def _operands(
        self, rows: slice, transform: SplitTransform, sparsity: Tensor
    ) -> tuple[Any, ...]:
        """What kernels of the product and the selection begin with."""
        signals, one = self._signals[rows], len(sparsity) == 1
        wanted = sparsity if one else sparsity[rows]
        thresholds = self._thresholds[rows]
        return (
            signals,
            *signals.stride(),
            transform.high,
            transform.low,
            thresholds,
            wanted,
            int(not one),
        )

    def _split(self, transform: Array) -> SplitTransform:
        """Split a transform, and bring the thresholds to its unit."""
        import torch

        high, low, exponent = split_halves(
            transform[np.newaxis], self._left + self._right, self._signals.device
        )
        if exponent != self._threshold_exponent:
            self._thresholds.view(torch.float32).mul_(2.0 ** (exponent - self._threshold_exponent))
            self._threshold_exponent = exponent
        return SplitTransform(high[0], low[0], exponent)

    def _rows_each(self, n_rows: int, shape: Shape) -> int:
        """Rows of a program: whole blocks, many, but not so many that programs get few."""
        blocks = -(-n_rows // (_LEAST_PROGRAMS * shape.rows))
        return min(shape.most_rows, blocks * shape.rows)

    def _empty(self, shape: tuple[int, ...], dtype: Any = None) -> Tensor:
        """Memory on the device of the signals, float32 unless another dtype is given."""
        import torch

        return torch.empty(shape, dtype=dtype or torch.float32, device=self._signals.device)


def _column_blocks(n_features: int) -> tuple[int, int]:
    """Widths of one block of columns or two: powers of two, of at least 16; the second may be 0."""
    left = min(n_features, MAX_FUSED)
    right = n_features - left
    return max(16, _power_of_two(left)), max(16, _power_of_two(right)) if right else 0


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()


def split_halves(transforms: Array, width: int, device: Any) -> tuple[Tensor, Tensor, int]:
    """Transposed transforms times a power of two, as two halves, padded with zeros; its exponent.

    All have the same scale, that of the largest absolute sum of a row.
    """
    import torch

    n = transforms.shape[-1]
    largest = float(np.abs(transforms.astype(np.float64)).sum(axis=-1).max())
    exponent = _ROW_EXPONENT - int(np.frexp(largest)[1])
    depth = -(-width // _CODE_DEPTH) * _CODE_DEPTH
    scaled = np.zeros((len(transforms), depth, width), np.float32)
    scaled[:, :n, :n] = np.ldexp(transforms.swapaxes(1, 2), exponent)
    numbers = torch.from_numpy(scaled).to(device)  # NumPy makes halves slowly
    high = numbers.half()
    return high, (numbers - high.float()).half(), exponent


def _launch(kernel: Any, grid: tuple[int, ...], shape: Shape, *operands: Any, **sizes: Any) -> None:
    import torch
    from triton.runtime.errors import OutOfResources

    options = {"num_warps": shape.num_warps, "num_stages": shape.num_stages}
    if shape.maxnreg is not None:
        options["maxnreg"] = shape.maxnreg
    with torch.cuda.device_of(operands[0]):
        try:
            kernel[grid](*operands, **sizes, **options)
        except OutOfResources:  # fewer stages need less shared memory
            if shape.num_stages == 1:
                raise
            kernel[grid](*operands, **sizes, **options | {"num_stages": 1})
