"""A result as a header and arrays, and back: what a file keeps of it.

A file has every candidate that still races, so that learning resumes from it as from memory. What
is read is checked: anything that learning could not have produced is rejected.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from kappaform.checks import sparsity_of
from kappaform.engines import Statistics
from kappaform.learning.method import BOUND_SLACK, Method, parameters_of
from kappaform.learning.methods import SINGLE_SLACK, Conditioned, LogDet, Orthonormal, UnknownMethod
from kappaform.learning.race import LARGEST_FACTOR, Candidate, Momentum, Race
from kappaform.learning.result import LearnResult, Record, StopReason
from kappaform.learning.stream import Stream, as_stream
from kappaform.learning.updates import Factors, Steps, Transform

_METHODS: dict[str, type[Method]] = {"Saved": UnknownMethod}  # the other names are those of classes
_METHODS |= {method.__name__: method for method in (Conditioned, LogDet, Orthonormal)}
_NAMES = {method: name for name, method in _METHODS.items()}
_NEVER_NEGATIVE = (Conditioned, Orthonormal)  # methods whose loss is an error
_LONGEST_DESCRIPTION = 1000
_FACTORS = ("left", "spectrum", "right")
_COUNTS = ("n_signals", "n_updates", "n_iter", "n_passes")  # of a stream
_ENERGIES = ("code_energy", "discarded_energy")  # of a candidate in a stream
_CONVERGED = (None, StopReason.TOLERANCE.name, StopReason.ROSE.name)

# Squares of larger numbers, or of their inverses, would overflow in sums over signals.
_LARGEST = 1e150

Header = dict[str, Any]
Arrays = dict[str, NDArray]


def shapes_of(header: Header, names: Collection[str]) -> dict[str, tuple[int | None, ...]]:
    """The arrays, all float64, that a file with this header may have; None: any length.

    `names` are those of the arrays that it has: a header cannot claim more candidates.
    """
    n_features, candidates = header["n_features"], header["candidates"]
    if type(n_features) is not int or n_features < 1:
        raise ValueError(f"n_features is {n_features!r}, not a number of features.")
    if not isinstance(candidates, list) or not candidates:
        raise ValueError(f"its candidates are {candidates!r}.")
    n_recorded = sum(name.startswith("records") for name in names)
    if len(candidates) > max(1, n_recorded):
        raise ValueError(f"it has {len(candidates)} candidates, but records of {n_recorded}.")
    square = (n_features, n_features)
    each: dict[str, tuple[int | None, ...]] = {
        **dict.fromkeys(("start", "left", "right", "last_left", "last_right", "cross"), square),
        **dict.fromkeys(("spectrum", "last_spectrum"), (n_features,)),
        "records": (None, len(Record._fields)),
    }
    numbered = {
        _numbered(name, number): shape
        for number in range(len(candidates))
        for name, shape in each.items()
    }
    return {"transform": square, "gram": square} | numbered


def to_arrays(result: LearnResult, stream: Stream | None, n_nonzero: int) -> tuple[Header, Arrays]:
    """Header and arrays of a result, and of the stream that continues it, if there is one."""
    race = result.state
    if type(result.method) not in _NAMES:
        # A custom method is not in the file, so its candidates cannot be compared after loading.
        race = replace(race, candidates=(race.best,), active=0, turn=0)
        stream = race if isinstance(race, Stream) else stream
    header: Header = {
        "n_features": len(result.transform),
        "n_nonzero_coefs": n_nonzero,
        "condition_number": result.condition_number,
        "method": _described(result.method),
        "n_iter": result.n_iter,
        "n_passes": result.n_passes,
        "stop_reason": result.stop_reason.name,
        "active": race.active,
        "turn": race.turn,
        "candidates": [
            {
                "explore": candidate.explore,
                "settled": candidate.converged and candidate.converged.name,
                "momentum_factor": candidate.momentum.factor,
            }
            for candidate in race.candidates
        ],
        "stream": None,
    }
    arrays = {"transform": result.transform}
    for number, candidate in enumerate(race.candidates):
        arrays |= _numbered_all(_arrays_of(candidate, result.transform), number)
    if stream is not None:
        nothing = Statistics.empty(stream.n_features)
        sums = [candidate.statistics or nothing for candidate in stream.candidates]
        header["stream"] = {
            "is_result": result.state.is_stream,
            "n_nonzero_coefs": stream.n_nonzero,
            "scale": sums[0].scale,  # all have seen the same signals
            "weight": sums[0].n_signals,
            "energies": [{name: getattr(each, name) for name in _ENERGIES} for each in sums],
            **{name: getattr(stream, name) for name in _COUNTS},
        }
        arrays["gram"] = sums[0].gram
        for number, each in enumerate(sums):
            arrays |= _numbered_all({"cross": each.cross}, number)
    return header, arrays


def _arrays_of(candidate: Candidate, transform: NDArray) -> Arrays:
    """The arrays of one candidate; without factors and `start`, it is the transform itself."""
    kept, last = candidate.transform, candidate.momentum.last
    arrays = {"records": np.array(candidate.records).reshape(-1, len(Record._fields))}
    if isinstance(kept, Factors):
        arrays |= {name: getattr(kept, name) for name in _FACTORS}
    elif kept is not transform:
        arrays["start"] = kept
    if isinstance(last, Factors):
        arrays |= {f"last_{name}": getattr(last, name) for name in _FACTORS}
    return arrays


def _numbered(name: str, number: int) -> str:
    """The name of an array of a candidate: the first has the plain one, as in older files."""
    return f"{name}_{number}" if number else name


def _numbered_all(arrays: Arrays, number: int) -> Arrays:
    return {_numbered(name, number): array for name, array in arrays.items()}


def upgraded(header: Header) -> Header:
    """A header of format 1 or 2, in which there was one candidate, as one of format 3."""
    factor = header.get("momentum_factor", Momentum().factor)
    candidate = {"explore": None, "settled": None, "momentum_factor": factor}
    stream = header["stream"]
    if isinstance(stream, dict):
        stream = stream | {"energies": [{name: stream[name] for name in _ENERGIES}]}
    return header | {"active": 0, "turn": 0, "candidates": [candidate], "stream": stream}


def from_arrays(header: Header, arrays: Arrays) -> tuple[LearnResult, Stream]:
    """The result that `to_arrays` described, and the stream that continues it.

    Arrays have the shapes of `shapes_of`. Raises KeyError for what is missing, TypeError or
    ValueError for what cannot be.
    """
    method = _method(header["method"])
    for name, array in arrays.items():
        if not name.startswith("records") and not np.abs(array).max() <= _LARGEST:
            raise ValueError(f"{name} contains NaN or values beyond {_LARGEST:g}.")
    transform, reason = arrays["transform"], StopReason[header["stop_reason"]]
    candidates = tuple(
        _candidate(method, described, arrays, number)
        for number, described in enumerate(header["candidates"])
    )
    race = Race(
        method,
        _sparsity(header, len(transform)),
        candidates,
        active=_count(header, "active", len(candidates) - 1, "active candidate"),
        n_iter=_count(header, "n_iter"),
        n_passes=_count(header, "n_passes"),
        turn=_count(header, "turn"),
    )
    stream, is_result = _stream(header["stream"], arrays, race)
    result = LearnResult(transform, reason, stream if is_result else race)
    _check_history(result.state)
    _check_close(
        method.as_array(result.state.best.transform),
        transform,
        "the transform is not that of its best candidate, the product of left, spectrum and right.",
    )
    _check_condition(result, _number(header, "condition_number"))  # last: it costs most
    return result, stream


def _described(method: Method) -> dict[str, Any]:
    """A method as a header has it; of a custom method, its description."""
    if type(method) not in _NAMES:
        method = UnknownMethod(saved_name(method))
    return {"name": _NAMES[type(method)], **parameters_of(method)}


def saved_name(method: Method) -> str:
    """What a file calls a custom method."""
    return repr(method)[:_LONGEST_DESCRIPTION]


def _method(described: Any) -> Method:
    if not isinstance(described, dict):
        raise TypeError(f"its method is {described!r}.")
    parameters = dict(described)
    return _METHODS[parameters.pop("name")](**parameters)


# --- candidates ----------------------------------------------------------------------------------


def _candidate(method: Method, described: Any, arrays: Arrays, number: int) -> Candidate:
    """One candidate, whose transform is checked even if another one is the result."""
    if not isinstance(described, dict):
        raise TypeError(f"a candidate is {described!r}.")
    explore, converged = described["explore"], described["settled"]
    if explore not in (None, *get_args(Steps)) or converged not in _CONVERGED:
        raise ValueError(f"a candidate explores by {explore!r} and converged by {converged!r}.")
    return Candidate(
        _kept(method, arrays, number),
        explore,
        _records(method, arrays[_numbered("records", number)]),
        converged=converged and StopReason[converged],
        momentum=_momentum(method, described, arrays, number),
    )


def _kept(method: Method, arrays: Arrays, number: int) -> Transform:
    """The transform that the next update starts from."""
    start = arrays.get(_numbered("start", number))
    if method.in_factors and (start is None or method.monotone):
        return _factors(method, arrays, "", number)
    if start is None:
        return arrays["transform"]
    spectrum = np.linalg.svd(method.as_array(start), compute_uv=False)
    _check_spectrum(method, spectrum, _numbered("start", number))
    return start


def _factors(method: Method, arrays: Arrays, prefix: str, number: int) -> Factors:
    names = [_numbered(prefix + name, number) for name in _FACTORS]
    factors = Factors(*(arrays[name] for name in names))
    for name, vectors in ((names[0], factors.left), (names[2], factors.right)):
        identity = np.eye(len(vectors))
        _check_close(vectors.T @ vectors, identity, f"the columns of {name} are not orthonormal.")
    _check_spectrum(method, np.sort(factors.spectrum)[::-1], names[1])
    return factors


def _records(method: Method, array: NDArray) -> tuple[Record, ...]:
    records = tuple(Record(*row) for row in array.tolist())
    least = 0.0 if isinstance(method, _NEVER_NEGATIVE) else -math.inf
    for record in records:
        before = record.absolute_before, record.relative_before  # NaN, of a start
        errors = record.absolute, record.relative, record.coef_norm
        if not record.loss >= least or not min(errors) >= 0 or any(each < 0 for each in before):
            raise ValueError(f"its records have errors that cannot be: {record}.")
    return records


def _momentum(method: Method, described: Header, arrays: Arrays, number: int) -> Momentum:
    """Momentum of the next step; files up to version 0.2 have none."""
    factor = _number(described, "momentum_factor", LARGEST_FACTOR)
    if not method.momentum:
        return Momentum()
    if _numbered("last_left", number) not in arrays:
        return Momentum(None, factor)
    return Momentum(_factors(method, arrays, "last_", number), factor)


# --- the stream ----------------------------------------------------------------------------------


def _stream(described: Any, arrays: Arrays, race: Race) -> tuple[Stream, bool]:
    """The stream that continues a race, and whether it is the result itself."""
    if described is None:
        return as_stream(race), False
    if not isinstance(described, dict) or not isinstance(described["is_result"], bool):
        raise TypeError(f"its stream is {described!r}.")
    before = race if described["is_result"] else as_stream(race)
    if len(described["energies"]) != len(before.candidates):
        raise ValueError("its stream lacks the energies of some candidates.")
    gram, weight, exponent = _gram(arrays), _number(described, "weight"), _exponent(described)
    candidates = []
    for number, energies in enumerate(described["energies"]):
        cross = arrays[_numbered("cross", number)]
        kept, discarded = (_number(energies, name) for name in _ENERGIES)
        sums = Statistics(gram, cross, kept, discarded, weight, exponent)
        candidates.append(replace(before.candidates[number], statistics=sums))
    counts = {name: _count(described, name) for name in _COUNTS}
    n_nonzero = _sparsity(described, race.n_features)
    return Stream(race.method, n_nonzero, tuple(candidates), **counts), described["is_result"]


def _gram(arrays: Arrays) -> NDArray:
    gram = arrays["gram"]
    largest = np.abs(gram).max()
    if not np.abs(gram - gram.T).max() <= SINGLE_SLACK * largest:
        raise ValueError("gram is not symmetric.")
    if not np.linalg.eigvalsh(gram)[0] >= -SINGLE_SLACK * largest:
        raise ValueError("gram has negative eigenvalues.")
    return gram


def _exponent(described: Header) -> int:
    scale = _number(described, "scale", most=2.0**1023)
    mantissa, exponent = math.frexp(scale)
    if mantissa != 0.5:
        raise ValueError(f"the scale of its stream is {scale}, not a power of two.")
    return exponent - 1


# --- checks --------------------------------------------------------------------------------------


def _check_history(race: Race) -> None:
    """Reject more records than iterations, and a best candidate without any.

    A batch of a stream adds a record to each candidate, any other iteration one in all.
    """
    lengths = [len(candidate.records) for candidate in race.candidates]
    n_records = max(lengths) if race.is_stream else sum(lengths)
    if not n_records <= race.n_iter + 1 or not (race.is_stream or race.best.records):
        raise ValueError(f"it has {n_records} records of {race.n_iter} iterations.")
    if race.is_stream and not min(lengths):
        raise ValueError("a candidate of its stream has no records.")


def _check_condition(result: LearnResult, stated: float) -> None:
    """Reject a transform without the stated condition number, or beyond what its method allows."""
    n_features = len(result.transform)
    _check_spectrum(result.method, result.spectrum, "transform")
    found = result.condition_number
    rounding = BOUND_SLACK + 10 * n_features * float(np.finfo(np.float64).eps) * found
    if not abs(found - stated) <= rounding * found:
        raise ValueError(f"the transform has condition number {found}, the header says {stated}.")


def _check_spectrum(method: Method, spectrum: NDArray, name: str) -> None:
    """Reject singular values, largest first, that the method does not allow."""
    if not spectrum[-1] >= 1 / _LARGEST:
        raise ValueError(f"{name} is singular.")
    violation = method.violation(spectrum)
    if violation:
        raise ValueError(f"its {name} is not feasible: {violation}")


def _check_close(found: NDArray, expected: NDArray, message: str) -> None:
    if not np.abs(found - expected).max() <= BOUND_SLACK * np.abs(expected).max():
        raise ValueError(message)


def _sparsity(header: Header, n_features: int) -> int:
    return int(sparsity_of(_count(header, "n_nonzero_coefs"), 1, n_features))


def _count(header: Header, name: str, most: int = 2**63 - 1, title: str = "") -> int:
    value = header[name]
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"its {title or name} is {value!r}, not an integer from 0 to {most}.")
    return value


def _number(header: Header, name: str, most: float = _LARGEST) -> float:
    value = header[name]
    if type(value) not in (int, float) or not 0 <= value <= most:
        raise ValueError(f"its {name} is {value!r}, not a number from 0 to {most:g}.")
    return float(value)
