"""A result as a header and arrays, and back: what a file keeps of it.

Of several lines only the best is kept. What comes back has been checked: it is a result that
learning could have given, or it is refused.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kappaform.arrays import sparsity_of
from kappaform.engines import Statistics
from kappaform.learning.method import Method, parameters_of
from kappaform.learning.methods import Conditioned, LogDet, Orthonormal, Saved
from kappaform.learning.result import LearnResult, Record, StopReason
from kappaform.learning.state import LARGEST_FACTOR, Line, Momentum, State, as_stream
from kappaform.learning.updates import Factors, Transform, decompose

_METHODS = {method.__name__: method for method in (Conditioned, LogDet, Orthonormal, Saved)}
_LONGEST_DESCRIPTION = 1000
_FACTORS = ("left", "spectrum", "right")
_COUNTS = ("n_signals", "n_updates", "n_iter", "n_passes")  # of a stream
_SUMS = ("code_energy", "discarded_energy")

# Squares of larger numbers, or of their inverses, would overflow in sums over signals.
_LARGEST = 1e150
# Beyond what rounding explains, relative to 1: of vectors, of their product, of bound and norm.
_ROUNDING = 1e-9
# The same in single precision: of sums of float32 signals, of a norm that was given as float32.
_ROUNDING_OF_SINGLE = 1e-6

Header = dict[str, Any]


def shapes_of(n_features: int) -> dict[str, tuple[int | None, ...]]:
    """The arrays, all float64, that a result of so many features may have; None: any length."""
    square = (n_features, n_features)
    squares = ("transform", "start", "left", "right", "gram", "cross")
    return {
        **dict.fromkeys((*squares, "last_left", "last_right"), square),
        **dict.fromkeys(("spectrum", "last_spectrum"), (n_features,)),
        "records": (None, len(Record._fields)),
    }


def to_arrays(
    result: LearnResult, stream: State | None, n_nonzero: int
) -> tuple[Header, dict[str, NDArray]]:
    """Header and arrays of a result, and of the stream that goes on from it, if there is one."""
    kept, momentum = result.state.best.transform, result.state.best.momentum
    header: Header = {
        "n_features": len(result.transform),
        "n_nonzero_coefs": n_nonzero,
        "condition_number": result.condition_number,
        "method": _described(result.method),
        "n_iter": result.n_iter,
        "n_passes": result.n_passes,
        "stop_reason": result.stop_reason.name,
        "momentum_factor": momentum.factor,
        "stream": None,
    }
    arrays = {"transform": result.transform, "records": np.array(result.records)}
    if result.method.in_factors:
        factors = kept if isinstance(kept, Factors) else decompose(result.transform)
        arrays |= {name: getattr(factors, name) for name in _FACTORS}
        if not isinstance(kept, Factors):  # a published variant before its first update
            arrays["start"] = kept
    if isinstance(momentum.last, Factors):
        arrays |= {f"last_{name}": getattr(momentum.last, name) for name in _FACTORS}
    if stream is not None:
        statistics = stream.best.statistics or Statistics.empty(stream.n_features)
        header["stream"] = {
            "is_result": result.state.is_stream,
            "n_nonzero_coefs": stream.n_nonzero,
            "scale": statistics.scale,
            "weight": statistics.n_signals,
            **{name: getattr(stream, name) for name in _COUNTS},
            **{name: getattr(statistics, name) for name in _SUMS},
        }
        arrays |= {"gram": statistics.gram, "cross": statistics.cross}
    return header, arrays


def from_arrays(header: Header, arrays: dict[str, NDArray]) -> tuple[LearnResult, State]:
    """The result that `to_arrays` described, and the stream that goes on from it.

    Arrays have the shapes of `shapes_of`. Raises KeyError for what is missing, TypeError or
    ValueError for what cannot be.
    """
    method = _method(header["method"])
    for name, array in arrays.items():
        if name != "records" and not np.abs(array).max() <= _LARGEST:
            raise ValueError(f"{name} contains NaN or values beyond {_LARGEST:g}.")
    transform = arrays["transform"]
    records = tuple(Record(*row) for row in arrays["records"].tolist())
    n_iter, n_passes = _count(header, "n_iter"), _count(header, "n_passes")
    if not 1 <= len(records) <= n_iter + 1:
        raise ValueError(f"it has {len(records)} records of {n_iter} iterations.")
    n_nonzero = _sparsity(header, len(transform))
    reason = StopReason[header["stop_reason"]]
    line = Line(
        _kept(method, transform, arrays),
        records=records,
        momentum=_momentum(method, header, arrays),
    )
    state = State(method, n_nonzero, (line,), n_iter=n_iter, n_passes=n_passes)
    described = header["stream"]
    stream = as_stream(state) if described is None else _stream(described, arrays, state)
    is_stream = described is not None and described["is_result"]
    result = LearnResult(transform, reason, stream if is_stream else state)
    _check_promises(result, _number(header, "condition_number"))  # last: it costs most
    return result, stream


def _described(method: Method) -> dict[str, Any]:
    """A method as a header has it; of one that this package does not know, what it is called."""
    if type(method) not in _METHODS.values():
        method = Saved(repr(method)[:_LONGEST_DESCRIPTION])
    return {"name": type(method).__name__, **parameters_of(method)}


def _method(described: Any) -> Method:
    if not isinstance(described, dict):
        raise TypeError(f"its method is {described!r}.")
    parameters = dict(described)
    return _METHODS[parameters.pop("name")](**parameters)


def _kept(method: Method, transform: NDArray, arrays: dict[str, NDArray]) -> Transform:
    """What the next update goes on from."""
    if not method.in_factors:
        return transform
    if "start" in arrays and not method.monotone:
        start = arrays["start"]
        _check_close(method.shown(start), transform, "the transform does not belong to its start.")
        return start
    factors = _factors(arrays)
    _check_close(
        factors.matrix, transform, "the transform is not the product of left, spectrum and right."
    )
    return factors


def _factors(arrays: dict[str, NDArray], prefix: str = "") -> Factors:
    left, spectrum, right = (arrays[prefix + name] for name in _FACTORS)
    for name, vectors in ((prefix + "left", left), (prefix + "right", right)):
        identity = np.eye(len(vectors))
        _check_close(vectors.T @ vectors, identity, f"the columns of {name} are not orthonormal.")
    if not spectrum.min() > 0:
        raise ValueError(f"its {prefix}spectrum has values that are not positive.")
    return Factors(left, spectrum, right)


def _momentum(method: Method, header: Header, arrays: dict[str, NDArray]) -> Momentum:
    """What carries the next step on; files up to version 0.2 have none."""
    if "momentum_factor" not in header or not method.momentum:
        return Momentum()
    factor = _number(header, "momentum_factor", LARGEST_FACTOR)
    if "last_left" not in arrays:
        return Momentum(None, factor)
    last = _factors(arrays, "last_")
    broken = method.broken_promise(np.sort(last.spectrum)[::-1])
    if broken:
        raise ValueError(f"of its last update, {broken}")
    return Momentum(last, factor)


def _stream(described: Any, arrays: dict[str, NDArray], state: State) -> State:
    """The stream that goes on from a state; if it is the result itself, with its records."""
    if not isinstance(described, dict):
        raise TypeError(f"its stream is {described!r}.")
    weight, code_energy, discarded_energy = (
        _number(described, name) for name in ("weight", *_SUMS)
    )
    scale = _number(described, "scale", most=2.0**1023)
    mantissa, exponent = math.frexp(scale)
    if mantissa != 0.5:
        raise ValueError(f"the scale of its stream is {scale}, not a power of two.")
    gram, cross = arrays["gram"], arrays["cross"]
    largest = np.abs(gram).max()
    if not np.abs(gram - gram.T).max() <= _ROUNDING_OF_SINGLE * largest:
        raise ValueError("gram is not symmetric.")
    if not np.linalg.eigvalsh(gram)[0] >= -_ROUNDING_OF_SINGLE * largest:
        raise ValueError("gram has negative eigenvalues.")
    sums = Statistics(gram, cross, code_energy, discarded_energy, weight, exponent - 1)
    line = replace(state.line, statistics=sums)
    counts: dict[str, Any] = {name: _count(described, name) for name in _COUNTS}
    return replace(
        state,
        lines=(line if described["is_result"] else replace(line, records=()),),
        n_nonzero=_sparsity(described, state.n_features),
        **counts,
    )


def _check_promises(result: LearnResult, stated: float) -> None:
    """Refuse a transform without the condition number stated, or beyond what its method allows."""
    spectrum, method, n_features = result.spectrum, result.method, len(result.transform)
    if not spectrum[-1] >= 1 / _LARGEST:
        raise ValueError("the transform is singular.")
    found = result.condition_number
    rounding = _ROUNDING + 10 * n_features * float(np.finfo(np.float64).eps) * found
    if not abs(found - stated) <= rounding * found:
        raise ValueError(f"the transform has condition number {found}, the header says {stated}.")
    broken = method.broken_promise(spectrum)
    if broken:
        raise ValueError(broken)


def _check_close(found: NDArray, expected: NDArray, message: str) -> None:
    if not np.abs(found - expected).max() <= _ROUNDING * np.abs(expected).max():
        raise ValueError(message)


def _sparsity(header: Header, n_features: int) -> int:
    return int(sparsity_of(_count(header, "n_nonzero_coefs"), 1, n_features))


def _count(header: Header, name: str) -> int:
    value = header[name]
    if type(value) is not int or not 0 <= value < 2**63:
        raise ValueError(f"its {name} is {value!r}, not an integer >= 0.")
    return value


def _number(header: Header, name: str, most: float = _LARGEST) -> float:
    value = header[name]
    if type(value) not in (int, float) or not 0 <= value <= most:
        raise ValueError(f"its {name} is {value!r}, not a number from 0 to {most:g}.")
    return float(value)
