"""Engines: one pass over the data, wherever they live."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from kappaform.arrays import as_real_array, as_sparsity, library_of, working_dtype
from kappaform.engines.blocks import BITS, aligned_zeros, block_rows, padded, split_rows
from kappaform.engines.engine import Engine, Statistics
from kappaform.engines.kernels import mark_largest
from kappaform.engines.numpy_engine import NumpyEngine
from kappaform.engines.stores import SignalsUnreadable

__all__ = [
    "Engine",
    "NumpyEngine",
    "SignalsUnreadable",
    "Statistics",
    "engine_for",
    "hard_threshold",
]


def engine_for(signals: Any, name: str = "signals") -> Engine:
    """Return the engine that performs the pass where `signals` live; errors call them `name`.

    Torch tensors and Dask arrays have engines of their own. Arrays, memory-maps, stores whose rows
    can be sliced and whatever `numpy.asarray` understands are passed over by `NumpyEngine`.
    """
    library = library_of(signals)
    if library == "torch":
        from kappaform.engines.torch_engine import TorchEngine

        return TorchEngine(signals, name)
    if library == "dask":
        from kappaform.engines.dask_engine import DaskEngine

        return DaskEngine(signals, name)
    return NumpyEngine(signals, name)


def hard_threshold(coefs: npt.ArrayLike, n_nonzero: int | npt.ArrayLike) -> npt.NDArray[Any]:
    """Keep the entries of largest magnitude of each row and set the others to zero.

    .. math:: H_s(z) = \\arg\\min_x \\|x - z\\|  \\quad \\text{s.t.} \\quad \\|x\\|_0 \\le s

    Parameters
    ----------
    coefs : array of shape (n_signals, n_features) or (n_features,)
        Real numbers without NaN. Integers are compared as float64.
    n_nonzero : int or integers of shape (n_signals,)
        How many to keep; all, where it exceeds n_features. Among equal magnitudes the first
        are kept.

    Returns
    -------
    ndarray
        Codes, of the shape and dtype of `coefs`.
    """
    coefs = as_real_array(coefs, "coefs")
    if coefs.ndim == 1:
        return hard_threshold(coefs[np.newaxis], n_nonzero)[0]
    if coefs.ndim != 2:
        raise ValueError(
            f"coefs has shape {coefs.shape}: it must be 2-D, one signal per row, or 1-D."
        )
    n_signals, n_features = coefs.shape
    sparsity = as_sparsity(n_nonzero, n_signals)
    codes = np.zeros(coefs.shape, coefs.dtype)
    if codes.size == 0:
        return codes
    dtype = working_dtype(coefs.dtype)
    length = block_rows(n_features, dtype)
    buffer = aligned_zeros((length, padded(n_features)), dtype)
    for rows in split_rows(0, n_signals, length):
        block = coefs[rows]
        if np.isnan(block).any():
            bad = rows.start + int(np.isnan(block).any(axis=1).argmax())
            raise ValueError(f"coefs contains NaN, first in row {bad}: magnitudes must be ordered.")
        buffer[: len(block), :n_features] = block
        kept = np.empty(block.shape, np.bool_)
        wanted = np.minimum(sparsity[rows], n_features).astype(np.int64)
        mark_largest(buffer.view(BITS[buffer.dtype]), wanted, kept)
        np.copyto(codes[rows], block, where=kept)
    return codes
