"""The state of a stream in a file: what more batches join."""

from __future__ import annotations

import math
from typing import Any

from numpy.typing import NDArray

from kappaform.engines import Statistics
from kappaform.learning import LearnResult
from kappaform.learning.online import Stream, statistics_of
from kappaform.learning.search import Descent
from kappaform.persistence.checks import checked_array

SUMS = ("gram", "cross")

_COUNTS = ("n_signals", "n_updates", "n_iter", "n_passes")
_ENERGIES = ("code_energy", "discarded_energy")


def described_stream(model: Any) -> tuple[dict[str, Any] | None, dict[str, NDArray]]:
    """Header and arrays of the stream that a model is in the middle of; None and none without.

    A stream that still explores is left with its best line.
    """
    result = getattr(model, "result_", model)
    is_result = isinstance(result.search, Stream)
    stream = result.search if is_result else getattr(model, "_stream", None)
    if stream is None:
        return None, {}
    statistics = statistics_of(stream.best)
    header = {
        "is_result": is_result,
        "n_nonzero_coefs": stream.n_nonzero,
        "scale": stream.scale,
        "weight": statistics.n_signals,
        **{name: getattr(stream, name) for name in _COUNTS},
        **{name: getattr(statistics, name) for name in _ENERGIES},
    }
    return header, {name: getattr(statistics, name) for name in SUMS}


def restored_stream(
    header: dict[str, Any] | None, arrays: dict[str, NDArray], result: LearnResult
) -> Stream | None:
    """The stream that a file describes, at the transform of `result`."""
    if header is None:
        return None
    shape = result.transform.shape
    gram, cross = (checked_array(arrays, name, shape) for name in SUMS)
    weight, kept, discarded, scale = (
        _checked_sum(header, name) for name in ("weight", *_ENERGIES, "scale")
    )
    if math.frexp(scale)[0] != 0.5:
        raise ValueError(f"the scale of its stream is {scale}, no power of two.")
    records = result.records if header["is_result"] else ()
    statistics = Statistics(gram, cross, kept, discarded, weight)
    return Stream(
        result.method,
        int(header["n_nonzero_coefs"]),
        (Descent(result.search.best.transform, None, records, statistics),),
        scale,
        **{name: int(header[name]) for name in _COUNTS},
    )


def _checked_sum(header: dict[str, Any], name: str) -> float:
    value = float(header[name])
    if not 0 <= value < math.inf:
        raise ValueError(f"the {name} of its stream is {value}, not a finite number >= 0.")
    return value
