"""The pass over torch tensors, on the CPU or on a GPU."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from kappaform.checks import Array, Float64Array, check_rows
from kappaform.engines.blocks import split_rows
from kappaform.engines.codes import Inverse, Refit, Refits
from kappaform.engines.engine import (
    Engine,
    PassSums,
    ScaledSums,
    ScaledTransform,
    Sparsity,
    scale_exponent,
    scaled_transform,
)
from kappaform.engines.torch_codes import Won, competition, keep_largest, refitted
from kappaform.engines.triton_pass import can_pass_over
from kappaform.engines.triton_union import FusedUnion
from kappaform.engines.union import ScaledUnion, Union, UnionSums, scaled_union
from kappaform.errors import NotFinite
from kappaform.gpu import fused_kernels_run_on

if TYPE_CHECKING:
    from torch import Tensor

_logger = logging.getLogger("kappaform")

# Bytes of the coefficients that are in memory at once, a seventh of all temporary memory: on a GPU
# enough to keep it busy, on a CPU what stays in its cache.
_BLOCK_BYTES = {"cpu": 2**20, "cuda": 2**25}


class TorchEngine(Engine):
    """One pass over a tensor of signals on the device where it is, block of rows by block of rows.

    Sums are float64 and come to the host; codes and decoded signals stay on the device, without
    gradients. On an NVIDIA GPU with Triton, fused kernels pass over signals of at most 256 features
    that are float32 or shorter (a union: 128). Beyond the data a pass needs less than 256 MB and,
    with these kernels, 4 bytes per signal (8, where each has a sparsity of its own); with a union
    about 1 GB, and 4 bytes per signal and transform. Float32 products follow
    torch's own setting: TF32 is used if ``torch.set_float32_matmul_precision`` allows it.
    """

    def __init__(self, signals: Tensor, name: str = "signals") -> None:
        import torch

        signals = _as_signals(signals, name)
        double = signals.dtype == torch.float64
        super().__init__(signals, name, np.dtype(np.float64 if double else np.float32))
        self._tensor_dtype = torch.float64 if double else torch.float32
        self._fused: FusedUnion | None = None
        self._may_fuse = not double and _can_be_fused(signals)

    def encode(
        self, transform: Float64Array, n_nonzero: Sparsity, refit: Refit | None = None
    ) -> Tensor:
        """Codes of the signals as given (not scaled), on their device."""
        scaled, sparsity = scaled_transform(transform, self.dtype), self._sparsity(n_nonzero)
        codes = self._by_kernels("encode", _matrix(scaled), sparsity) if refit is None else None
        if codes is not None:
            return _shifted(codes, -scaled.exponent)
        codes = self._empty()
        if refit is not None:
            for rows, block, _, exponent in self._blocks():
                some = self._refitted(rows, block, refit, sparsity)
                codes[rows] = _shifted(some, refit.exponent - exponent)
            return codes
        for rows, _, _, some, _, exponent in self._coded(scaled, sparsity):
            codes[rows] = _shifted(some, -(exponent + scaled.exponent))
        return codes

    def assign(self, union: Union, n_nonzero: Sparsity) -> Tensor:
        """For each signal the number of its transform, on the device."""
        import torch

        sparsity, scaled = self._sparsity(n_nonzero), scaled_union(union, self.dtype)
        numbers = self._by_kernels("assign", scaled, sparsity)
        if numbers is None:
            numbers = torch.cat([won.numbers for *_, won in self._won(scaled, sparsity)])
        return numbers

    def encode_union(self, union: Union, n_nonzero: Sparsity, refits: Refits) -> Tensor:
        """As `encode`, with the transform of each signal."""
        n_features, numbers = self.n_features, self.assign(union, n_nonzero)
        codes = self._zeros(self.n_signals, len(union.transforms) * n_features)
        codes = codes.to(self._tensor_dtype)
        for number, (transform, refit) in enumerate(zip(union.transforms, refits, strict=True)):
            part, sparsity = self._part(numbers, number, n_nonzero)
            if part is not None:
                columns = slice(number * n_features, (number + 1) * n_features)
                codes[numbers == number, columns] = part.encode(transform, sparsity, refit)
        return codes

    def _part(
        self, numbers: Tensor, number: int, n_nonzero: Sparsity
    ) -> tuple[TorchEngine | None, Sparsity]:
        """The engine of the signals of one transform, if there are any, and their sparsity."""
        mine = numbers == number
        if not mine.any():
            return None, 0
        several = np.ndim(n_nonzero) == 1
        sparsity = np.asarray(n_nonzero)[mine.cpu().numpy()] if several else n_nonzero
        return TorchEngine(self.signals[mine], self.name), sparsity

    def decode(self, inverse: Inverse) -> Tensor:
        """Rows times a matrix, on their device."""
        matrix, inverse_exponent = inverse
        signals = self._empty(matrix.shape[1])
        back = self._on_device(matrix)
        for rows in self._rows():
            block = self.signals[rows].double()
            exponent = scale_exponent(self._checked_peak(rows), np.dtype(np.float64))
            product = _shifted(block, exponent) @ back
            signals[rows] = _shifted(product, -(exponent + inverse_exponent)).to(signals.dtype)
        return signals

    def _gram_sums(self) -> ScaledSums:
        total = ScaledSums(np.zeros((self.n_features, self.n_features)), self.dtype)
        peak, gram = self._ordinary_sums()
        if math.isfinite(peak) and scale_exponent(peak, self.dtype) == 0:
            total.add(peak, gram.cpu().numpy(), 0)
            return total
        for _, block, peak, exponent in self._blocks():
            exact = block.double()
            total.add(peak, (exact.T @ exact).cpu().numpy(), exponent)
        return total

    def _ordinary_sums(self) -> tuple[float, Tensor]:
        """Largest magnitude and YᵀY of signals that need no scale: the host waits only once."""
        peak, gram = self._zeros(), self._zeros(self.n_features, self.n_features)
        for rows in self._rows():
            low, high = self.signals[rows].aminmax()
            peak = peak.maximum(-low.double()).maximum(high.double())  # NaN, if one is
            exact = self.signals[rows].double()
            gram += exact.T @ exact
        return float(peak), gram

    def _pass_sums(self, transform: ScaledTransform, n_nonzero: Sparsity) -> PassSums:
        import torch

        sparsity = self._sparsity(n_nonzero)
        fused = self._by_kernels("run", _matrix(transform), sparsity)
        if fused is not None:
            return fused
        cross, energies = self._zeros(self.n_features, self.n_features), self._zeros(2)
        for _, block, coefs, codes, _, _ in self._coded(transform, sparsity, self.exponent):
            cross += codes.double().T @ block.double()
            energies[0] += codes.square().sum(dtype=torch.float64)
            energies[1] += coefs.sub_(codes).square_().sum(dtype=torch.float64)
        return PassSums(cross.cpu().numpy(), energies.cpu().numpy())

    def _union_sums(self, union: Union, n_nonzero: Sparsity) -> UnionSums:
        import torch

        n_features, n_transforms = self.n_features, len(union.transforms)
        scaled, sparsity = scaled_union(union, self.dtype), self._sparsity(n_nonzero)
        fused = self._by_kernels("run_union", scaled, sparsity)
        if fused is not None:
            return fused
        grams = self._zeros(n_transforms, n_features, n_features)
        crosses, energies = torch.zeros_like(grams), self._zeros(n_transforms, 3)
        for _, block, won in self._won(scaled, sparsity, self.exponent):
            for number in range(n_transforms):
                mine = won.numbers == number
                signals, codes = block[mine].double(), won.codes[mine].double()
                grams[number] += signals.T @ signals
                crosses[number] += codes.T @ signals
                energies[number, 0] += codes.square().sum()
                energies[number, 1] += won.discarded[mine].sum(dtype=torch.float64)
                energies[number, 2] += mine.sum()
        sums = grams.cpu().numpy(), crosses.cpu().numpy(), energies.cpu().numpy()
        return UnionSums(*sums, scaled.exponent)

    def _won(
        self, union: ScaledUnion, sparsity: Tensor, exponent: int | None = None
    ) -> Iterator[tuple[slice, Tensor, Won]]:
        """Rows and scaled signals, block by block, with the best transform of each row."""
        matrices = [self._on_device(each.matrix) for each in union.transforms]
        most = int(sparsity.max())
        for rows, block, *_ in self._blocks(exponent):
            wanted = sparsity if len(sparsity) == 1 else sparsity[rows]
            yield rows, block, competition(block, matrices, union.weights, wanted, most)

    def _energy_sums(
        self, transform: ScaledTransform | Union, inverse: Any, n_nonzero: Sparsity, refit: Any
    ) -> ScaledSums:
        import torch

        total = ScaledSums(np.zeros(4), self.dtype)
        if isinstance(transform, Union):
            numbers = self.assign(transform, n_nonzero)
            for number, each in enumerate(scaled_union(transform, self.dtype).transforms):
                part, wanted = self._part(numbers, number, n_nonzero)
                if part is not None:
                    total = total + part._energy_sums(each, inverse[number], wanted, refit[number])
            return total
        matrix, inverse_exponent = inverse
        back = self._on_device(np.ldexp(matrix, -(transform.exponent + inverse_exponent)))
        sparsity = self._sparsity(n_nonzero)
        for rows, block, coefs, codes, peak, exponent in self._coded(transform, sparsity):
            signals, exact = block.double(), codes.double()
            best = exact
            if refit is not None:
                best = self._refitted(rows, block, refit, sparsity).double()
                best = _shifted(best, refit.exponent + transform.exponent)
            lost = signals - best @ back
            squares = (signals, exact, coefs.double().sub_(exact), lost)
            sums = torch.stack([values.square().sum() for values in squares])
            total.add(peak, sums.cpu().numpy(), exponent)
        return total

    def _peak(self) -> float:
        """Largest magnitude: without a survey, which codes do not need."""
        if self._surveyed is not None:
            return self._surveyed.peak
        return max(self._checked_peak(rows) for rows in self._rows())

    def _by_kernels(self, operation: str, transform: Any, sparsity: Tensor) -> Any:
        """Result of an operation of the fused kernels; None if they do not run here."""
        if self._may_fuse and self._fused is None:
            peak = self._peak()
            self._may_fuse = scale_exponent(peak, self.dtype) == 0
            self._fused = FusedUnion(self.signals, peak) if self._may_fuse else None
        if self._fused is None:
            return None
        from triton.runtime.errors import OutOfResources

        try:
            return getattr(self._fused, operation)(transform, sparsity, exact=not allows_tf32())
        except OutOfResources as error:
            _logger.info("the fused pass needs a larger GPU (%s): passes use torch", error)
            self._fused, self._may_fuse = None, False
            return None

    def _coded(
        self, transform: ScaledTransform, sparsity: Tensor, exponent: int | None = None
    ) -> Iterator[tuple[slice, Tensor, Tensor, Tensor, float, int]]:
        """Blocks as of `_blocks`, with their coefficients and codes after the signals."""
        matrix, most = self._on_device(transform.matrix), int(sparsity.max())
        for rows, block, *scale in self._blocks(exponent):
            coefs = block @ matrix
            wanted = sparsity if len(sparsity) == 1 else sparsity[rows]
            yield rows, block, coefs, keep_largest(coefs, wanted, most), *scale

    def _refitted(self, rows: slice, block: Tensor, refit: Refit, sparsity: Tensor) -> Tensor:
        """Refitted codes of a block, divided by 2**refit.exponent."""
        own, gram = scaled_transform(refit.transform, self.dtype), self._on_device(refit.gram)
        columns = self._on_device(refit.columns.T.astype(self.dtype))
        wanted, most = sparsity if len(sparsity) == 1 else sparsity[rows], int(sparsity.max())
        coefs, products = block @ self._on_device(own.matrix), block @ columns
        codes = keep_largest(coefs, wanted, most)
        length = max(1, _BLOCK_BYTES[block.device.type] // (8 * most**2 or 1))
        for some in split_rows(0, len(block), length):
            fewer = wanted if len(wanted) == 1 else wanted[some]
            codes[some] = refitted(codes[some], products[some], gram, fewer, most)
        whole = (wanted >= self.n_features)[:, None]
        codes = codes.where(~whole, _shifted(coefs, -own.exponent))
        return codes * self._on_device(refit.scale).to(codes.dtype)

    def _blocks(self, exponent: int | None = None) -> Iterator[tuple[slice, Tensor, float, int]]:
        """Rows, scaled signals, largest magnitude and exponent of the scale, block by block.

        If an exponent is given, the magnitudes are known and not computed again.
        """
        for rows in self._rows():
            peak = math.nan if exponent is not None else self._checked_peak(rows)
            scale = scale_exponent(peak, self.dtype) if exponent is None else exponent
            yield rows, _shifted(self.signals[rows].to(self._tensor_dtype), scale), peak, scale

    def _rows(self) -> Iterator[slice]:
        """Rows to work on at a time."""
        row_bytes = max(4, self.signals.dtype.itemsize) * self.n_features
        length = max(1, _BLOCK_BYTES[self.signals.device.type] // row_bytes)
        return split_rows(0, self.n_signals, length)

    def _checked_peak(self, rows: slice) -> float:
        """Largest magnitude of some rows. Rejects those that are not finite."""
        block = self.signals[rows]
        low, high = (float(value) for value in block.aminmax())
        if not (math.isfinite(low) and math.isfinite(high)):
            bad = int(block.isfinite().all(1).int().argmin())
            raise NotFinite(self.name, rows.start + bad)
        return max(-low, high)

    def _sparsity(self, n_nonzero: Sparsity) -> Tensor:
        """On the device: one entry, or one for each signal."""
        import torch

        sparsity = np.atleast_1d(n_nonzero).astype(np.int32)
        return torch.from_numpy(sparsity).to(self.signals.device)

    def _on_device(self, values: Array) -> Tensor:
        import torch

        return torch.tensor(np.ascontiguousarray(values), device=self.signals.device)

    def _zeros(self, *shape: int) -> Tensor:
        import torch

        return torch.zeros(shape, dtype=torch.float64, device=self.signals.device)

    def _empty(self, width: int | None = None) -> Tensor:
        import torch

        shape = self.n_signals, self.n_features if width is None else width
        device = self.signals.device
        return torch.empty(shape, dtype=self._tensor_dtype, device=device)


def _matrix(transform: ScaledTransform) -> Array:
    return np.ascontiguousarray(transform.matrix.T)


def check_tensor(values: Tensor, name: str) -> None:
    """Reject sparse tensors and those on other devices."""
    import torch

    if values.layout != torch.strided:
        raise TypeError(f"{name} is sparse: pass a dense tensor, {name}.to_dense().")
    if values.device.type not in ("cpu", "cuda"):
        raise TypeError(
            f"{name} is on the device {str(values.device)!r}: pass a tensor on the CPU or on a "
            "CUDA GPU."
        )


def _as_signals(signals: Tensor, name: str) -> Tensor:
    """Check everything about a tensor that needs no reading. Returns it without its gradient."""
    import torch

    check_tensor(signals, name)
    if not signals.dtype.is_floating_point or signals.dtype.itemsize < 2:
        raise TypeError(
            f"{name} has dtype {signals.dtype}: pass float64, float32, float16 or bfloat16, for "
            f"instance {name}.float()."
        )
    check_rows(signals.shape, name)
    return signals.detach().as_subclass(torch.Tensor)


def allows_tf32() -> bool:
    """Whether torch may round the factors of a float32 product on a GPU to 10 bits."""
    import torch

    matmul: Any = torch.backends.cuda.matmul
    precision = getattr(matmul, "fp32_precision", None)  # where torch has it, the older one warns
    return bool(matmul.allow_tf32 if precision is None else precision == "tf32")


def _shifted(values: Tensor, exponent: int) -> Tensor:
    """Values times a power of two, which itself may be out of range."""
    while exponent:
        step = max(-100, min(exponent, 100))  # 2**step is a float32
        values, exponent = values * 2.0**step, exponent - step
    return values


def _can_be_fused(signals: Tensor) -> bool:
    on_gpu = signals.device.type == "cuda" and can_pass_over(signals)
    return on_gpu and fused_kernels_run_on(signals.device.index)
