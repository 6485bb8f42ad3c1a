"""The pass over torch tensors, on the CPU or on a GPU."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kappaform.arrays import Array, as_sparsity, as_transform, check_at_most, scale_exponent
from kappaform.engines.blocks import split_rows
from kappaform.engines.engine import Float64Array, Statistics
from kappaform.engines.fused_pass import FusedPass, can_pass_over
from kappaform.engines.torch_tensors import (
    allows_tf32,
    as_signal_tensor,
    chunk_rows,
    keep_largest,
    peak_of,
)

if TYPE_CHECKING:
    from torch import Tensor

Sums = tuple[Float64Array, float, float]  #: XᵀY, ‖X‖² and ‖Z − X‖²

_logger = logging.getLogger("kappaform")
_OLDEST_TRITON = (3, 2)
_OLDEST_GPU = (8, 0)  # compute capability


class TorchEngine:
    """One pass over a tensor of signals on the device where it is, chunk of rows by chunk of rows.

    Sums are float64 and come to the host; codes and products stay on the device, without gradients.
    On an NVIDIA GPU with Triton, fused kernels pass over signals of at most 256 features that are
    float32 or shorter. Beyond the data a pass needs less than 256 MB and, with these kernels, 4
    bytes a signal (8, where each has a sparsity of its own). Float32 products follow torch's own
    setting: TF32 is used if ``torch.set_float32_matmul_precision`` allows it.

    Attributes
    ----------
    signals : Tensor of shape (n_signals, n_features)
        As given, never copied as a whole.
    n_signals, n_features : int
    dtype : dtype
        Of coefficients and codes: float64 for float64 signals, else float32.
    scale : float
        Power of two by which signals are multiplied in `gram` and `run_pass`: 1 unless their
        squares could overflow or vanish.
    """

    def __init__(self, signals: Tensor, name: str = "signals") -> None:
        import torch

        self.signals = as_signal_tensor(signals, name)
        self.n_signals, self.n_features = self.signals.shape
        double = self.signals.dtype == torch.float64
        self.dtype = np.dtype(np.float64 if double else np.float32)
        self._tensor_dtype = torch.float64 if double else torch.float32
        peak = peak_of(self.signals, name)
        self._exponent = scale_exponent(peak, self.dtype)
        self.scale = 2.0**self._exponent
        self._fused = FusedPass(self.signals, peak) if self._can_be_fused() else None

    @cached_property
    def gram(self) -> Float64Array:
        """G = YᵀY of the scaled signals, float64."""
        gram = self._zeros(self.n_features, self.n_features)
        for _, chunk in self._chunks():
            exact = chunk.double()
            gram += exact.T @ exact
        return gram.cpu().numpy()

    def run_pass(self, transform: npt.ArrayLike, n_nonzero: int | npt.ArrayLike) -> Statistics:
        """Statistics of the scaled signals with their codes H_s(Y Wᵀ).

        `n_nonzero` is one integer for all signals or one for each.
        """
        matrix = as_transform(transform, self.n_features, self.dtype)
        sparsity = self._checked(n_nonzero)
        sums: Sums = self._by_kernels("run", matrix, sparsity) or self._plain_sums(matrix, sparsity)
        return Statistics(self.gram, *sums, self.n_signals, self._exponent)

    def lost_energy(
        self, transform: npt.ArrayLike, inverse: Float64Array, n_nonzero: int | npt.ArrayLike
    ) -> float:
        """‖Y − X W⁻ᵀ‖² of the scaled signals: what codes do not give back."""
        matrix = as_transform(transform, self.n_features, self.dtype)
        back = self._on_device(np.asarray(inverse, np.float64).T)
        energy = self._zeros()
        for _, chunk, _, codes in self._coded(matrix, self._checked(n_nonzero)):
            energy += (chunk.double() - codes.double() @ back).square_().sum()
        return float(energy)

    def encode(self, transform: npt.ArrayLike, n_nonzero: int | npt.ArrayLike) -> Tensor:
        """Codes H_s(Y Wᵀ) of the signals as given (not scaled), on their device."""
        matrix = as_transform(transform, self.n_features, self.dtype)
        sparsity = self._checked(n_nonzero)
        codes = self._by_kernels("encode", matrix, sparsity)
        if codes is not None:
            return codes
        codes = self._empty()
        for rows, _, _, some in self._coded(matrix, sparsity):
            codes[rows] = self._shifted(some, -self._exponent)
        return codes

    def apply(self, matrix: npt.ArrayLike) -> Tensor:
        """Product of every signal as given with a matrix: Y Mᵀ, on their device."""
        weights = self._on_device(as_transform(matrix, self.n_features, np.dtype(np.float64)).T)
        products = self._empty()
        for rows in split_rows(0, self.n_signals, chunk_rows(self.signals)):
            products[rows] = self.signals[rows].double() @ weights
        return products

    def _by_kernels(self, operation: str, matrix: Array, sparsity: Tensor) -> Any:
        """What the fused kernels make of it; None if they do not run here."""
        if self._fused is None:
            return None
        from triton.runtime.errors import OutOfResources

        try:
            return getattr(self._fused, operation)(matrix, sparsity, exact=not allows_tf32())
        except OutOfResources as error:
            _logger.info("the fused pass needs a larger GPU (%s): passes use torch", error)
            self._fused = None
            return None

    def _plain_sums(self, matrix: Array, sparsity: Tensor) -> Sums:
        """XᵀY, ‖X‖² and ‖Z − X‖² of the scaled signals by operations of torch."""
        import torch

        cross, energies = self._zeros(self.n_features, self.n_features), self._zeros(2)
        for _, chunk, coefs, codes in self._coded(matrix, sparsity):
            cross += codes.double().T @ chunk.double()
            energies[0] += codes.square().sum(dtype=torch.float64)
            energies[1] += coefs.sub_(codes).square_().sum(dtype=torch.float64)
        return cross.cpu().numpy(), *energies.tolist()

    def _coded(
        self, matrix: Array, sparsity: Tensor
    ) -> Iterator[tuple[slice, Tensor, Tensor, Tensor]]:
        """Rows, scaled signals, their coefficients and their codes, chunk by chunk."""
        weights, most = self._on_device(matrix.T), int(sparsity.max())
        for rows, chunk in self._chunks():
            coefs = chunk @ weights
            wanted = sparsity if len(sparsity) == 1 else sparsity[rows]
            yield rows, chunk, coefs, keep_largest(coefs, wanted, most)

    def _chunks(self) -> Iterator[tuple[slice, Tensor]]:
        """Rows and their scaled signals, chunk by chunk."""
        for rows in split_rows(0, self.n_signals, chunk_rows(self.signals)):
            chunk = self.signals[rows].to(self._tensor_dtype)
            yield rows, self._shifted(chunk, self._exponent)

    def _checked(self, n_nonzero: int | npt.ArrayLike) -> Tensor:
        """Sparsity on the device: one entry, or one for each signal."""
        import torch

        sparsity = as_sparsity(n_nonzero, self.n_signals)
        if np.ndim(n_nonzero) == 0:
            sparsity = sparsity[:1]
        check_at_most(sparsity, self.n_features)
        return torch.from_numpy(sparsity.astype(np.int32)).to(self.signals.device)

    def _can_be_fused(self) -> bool:
        ordinary = self.dtype == np.float32 and self._exponent == 0
        on_gpu = self.signals.device.type == "cuda" and can_pass_over(self.signals)
        return ordinary and on_gpu and _kernels_run_on(self.signals.device.index)

    def _shifted(self, values: Tensor, exponent: int) -> Tensor:
        """Values times a power of two, which itself may be out of range."""

        if exponent == 0:
            return values
        # In two steps: 2**exponent need not be a float32, and both steps are exact.
        half = exponent // 2
        return values.mul(2.0**half).mul_(2.0 ** (exponent - half))

    def _on_device(self, values: Array) -> Tensor:
        import torch

        return torch.tensor(np.ascontiguousarray(values), device=self.signals.device)

    def _zeros(self, *shape: int) -> Tensor:
        import torch

        return torch.zeros(shape, dtype=torch.float64, device=self.signals.device)

    def _empty(self) -> Tensor:
        import torch

        shape, device = self.signals.shape, self.signals.device
        return torch.empty(shape, dtype=self._tensor_dtype, device=device)


@cache
def _kernels_run_on(device: int) -> bool:
    """Whether fused kernels can be compiled for a GPU; if not, says why, once."""
    import torch

    reason = ""
    if torch.version.cuda is None or torch.cuda.get_device_capability(device) < _OLDEST_GPU:
        reason = "needs an NVIDIA GPU of compute capability 8.0 or later"
    else:
        try:
            import triton

            if tuple(map(int, triton.__version__.split(".")[:2])) < _OLDEST_TRITON:
                reason = f"needs Triton 3.2 or later, not {triton.__version__}"
        except ImportError:
            reason = "needs the package triton"
    if reason:
        _logger.info("the fused pass %s: passes use operations of torch, which are slower", reason)
    return not reason
