"""A result as a header and arrays, and back: what a file keeps of it.

A file has every candidate that still races, so that learning resumes from it as from memory. What
is read is checked: anything that learning could not have produced is rejected.

Arrays of transforms are numbered: those of all candidates and, within each, those of a union.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from kappaform.engines import Statistics
from kappaform.learning.archive_checks import (
    LARGEST,
    Header,
    check_close,
    check_condition,
    check_history,
    check_spectrum,
    choice_in,
    count_in,
    number_in,
    parts_in,
    sparsity_in,
)
from kappaform.learning.archived_method import (
    claimed_transforms,
    described,
    is_custom,
    method_of,
    n_members,
    single,
)
from kappaform.learning.members import Members, UnionStatistics, no_statistics
from kappaform.learning.method import Method
from kappaform.learning.methods import SINGLE_SLACK, Conditioned, Orthonormal
from kappaform.learning.race import LARGEST_FACTOR, Candidate, Momentum, Race
from kappaform.learning.result import LearnResult, Record, StopReason
from kappaform.learning.stream import Stream, as_stream
from kappaform.learning.union import UnionOf
from kappaform.learning.union_result import UnionResult
from kappaform.learning.updates import Factors, Steps, Transform

_NEVER_NEGATIVE = (Conditioned, Orthonormal)  # methods whose loss is an error
_FACTORS = ("left", "spectrum", "right")
_COUNTS = ("n_signals", "n_updates", "n_iter", "n_passes")  # of a stream
_ENERGIES = ("code_energy", "discarded_energy")  # of a candidate in a stream
_CONVERGED = (None, "TOLERANCE", "ROUNDING", "ROSE")

Arrays = dict[str, NDArray]


def shapes_of(header: Header, names: Collection[str]) -> dict[str, tuple[int | None, ...]]:
    """The arrays, all float64, that a file with this header may have; None: any length.

    `names` are those of the arrays that it has: a header cannot claim more candidates.
    """
    n_features, candidates = header["n_features"], header["candidates"]
    n_transforms = claimed_transforms(header["method"])
    if type(n_features) is not int or n_features < 1:
        raise ValueError(f"n_features is {n_features!r}, not a number of features.")
    if not isinstance(candidates, list) or not candidates:
        raise ValueError(f"its candidates are {candidates!r}.")
    n_recorded = sum(name.startswith("records") for name in names)
    if len(candidates) > max(1, n_recorded):
        raise ValueError(f"it has {len(candidates)} candidates, but records of {n_recorded}.")
    square = (n_features, n_features)
    whole: tuple[int | None, ...] = square
    if n_transforms is not None:
        if type(n_transforms) is not int or not 1 <= n_transforms <= len(names) // len(candidates):
            raise ValueError(f"n_transforms is {n_transforms!r}, but it has {len(names)} arrays.")
        whole = (n_transforms, *square)
    each: dict[str, tuple[int | None, ...]] = {
        **dict.fromkeys(("start", "left", "right", "last_left", "last_right"), square),
        **dict.fromkeys(("cross", "gram"), square),
        **dict.fromkeys(("spectrum", "last_spectrum"), (n_features,)),
        "records": (None, len(Record._fields)),
    }
    numbered = {
        _numbered(name, number): shape
        for number in range((n_transforms or 1) * len(candidates))
        for name, shape in each.items()
    }
    return {"transform": whole} | numbered


def to_arrays(result: LearnResult, stream: Stream | None, n_nonzero: int) -> tuple[Header, Arrays]:
    """Header and arrays of a result, and of the stream that continues it, if there is one."""
    race = result.state
    if is_custom(result.method):
        # A custom method is not in the file, so its candidates cannot be compared after loading.
        race = replace(race, candidates=(race.best,), active=0, turn=0)
        stream = race if isinstance(race, Stream) else stream
    header: Header = {
        "n_features": race.n_features,
        "n_nonzero_coefs": n_nonzero,
        "condition_number": result.condition_number,
        "method": described(result.method),
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
                **_of_union(candidate.transform),
            }
            for candidate in race.candidates
        ],
        "stream": None,
    }
    arrays = {"transform": result.transform}
    for number, candidate in enumerate(race.candidates):
        arrays |= _arrays_of(candidate, number * n_members(race.method), result.transform)
    if stream is not None:
        described_stream, sums = _stream_to_arrays(stream)
        header["stream"] = {"is_result": result.state.is_stream} | described_stream
        arrays |= sums
    return header, arrays


def _stream_to_arrays(stream: Stream) -> tuple[Header, Arrays]:
    """What a stream remembers of its batches; candidates share the gram matrix, unions do not."""
    sums = [each.statistics or no_statistics(each.transform) for each in stream.candidates]
    is_union = isinstance(stream.method, UnionOf)
    parts = [part for each in sums for part in each.parts] if is_union else sums
    names = (*_ENERGIES, "n_signals") if is_union else _ENERGIES
    header = {
        "n_nonzero_coefs": stream.n_nonzero,
        "scale": parts[0].scale,  # all have seen the same signals
        "energies": [{name: getattr(part, name) for name in names} for part in parts],
        **({} if is_union else {"weight": parts[0].n_signals}),
        **{name: getattr(stream, name) for name in _COUNTS},
    }
    grams = {_numbered("gram", number): part.gram for number, part in enumerate(parts)}
    crosses = {_numbered("cross", number): part.cross for number, part in enumerate(parts)}
    return header, crosses | (grams if is_union else {"gram": grams["gram"]})


def _arrays_of(candidate: Candidate, first: int, transform: NDArray) -> Arrays:
    """The arrays of one candidate; without factors and `start`, it is the transform itself."""
    records = np.array(candidate.records).reshape(-1, len(Record._fields))
    arrays = {_numbered("records", first): records}
    for prefix, kept in (("", candidate.transform), ("last_", candidate.momentum.last)):
        for number, one in enumerate(kept.each if isinstance(kept, Members) else (kept,), first):
            if isinstance(one, Factors):
                factors = {prefix + name: getattr(one, name) for name in _FACTORS}
                arrays |= {_numbered(name, number): array for name, array in factors.items()}
            elif not prefix and one is not transform:
                arrays[_numbered("start", number)] = one
    return arrays


def _of_union(transform: Any) -> dict[str, Any]:
    """What a header has of a union besides its transforms."""
    if not isinstance(transform, Members):
        return {}
    return {"ratio": transform.ratio, "trials": transform.trials}


def _numbered(name: str, number: int) -> str:
    """The name of an array of a transform: the first has the plain one, as in older files."""
    return f"{name}_{number}" if number else name


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
    method = method_of(header["method"])
    for name, array in arrays.items():
        if not name.startswith("records") and not np.abs(array).max() <= LARGEST:
            raise ValueError(f"{name} contains NaN or values beyond {LARGEST:g}.")
    reason = StopReason[choice_in(header, "stop_reason", StopReason.__members__)]
    transform = arrays["transform"]
    candidates = tuple(
        _candidate(method, each, arrays, number) for number, each in enumerate(header["candidates"])
    )
    race = Race(
        method,
        sparsity_in(header, transform.shape[-1]),
        candidates,
        active=count_in(header, "active", len(candidates) - 1, "active candidate"),
        n_iter=count_in(header, "n_iter"),
        n_passes=count_in(header, "n_passes"),
        turn=count_in(header, "turn"),
    )
    stream, is_result = _stream(header["stream"], arrays, race)
    kind = LearnResult if transform.ndim == 2 else UnionResult
    result = kind(transform, reason, stream if is_result else race)
    check_history(result.state)
    check_close(
        method.as_array(result.state.best.transform),
        transform,
        "the transform is not that of its best candidate, the product of left, spectrum and right.",
    )
    check_condition(result, number_in(header, "condition_number"))  # last: it costs most
    return result, stream


# --- candidates ----------------------------------------------------------------------------------


def _candidate(method: Method, header: Any, arrays: Arrays, number: int) -> Candidate:
    """One candidate, whose transform is checked even if another one is the result."""
    if not isinstance(header, dict):
        raise TypeError(f"a candidate is {header!r}.")
    explore, converged = header["explore"], header["settled"]
    if explore not in (None, *get_args(Steps)) or converged not in _CONVERGED:
        raise ValueError(f"a candidate explores by {explore!r} and converged by {converged!r}.")
    first = number * n_members(method)
    numbers = range(first, first + n_members(method))
    return Candidate(
        _kept(method, header, arrays, numbers),
        explore,
        _records(single(method), arrays[_numbered("records", first)]),
        converged=converged and StopReason[converged],
        momentum=_momentum(method, header, arrays, numbers),
    )


def _kept(method: Method, header: Header, arrays: Arrays, numbers: range) -> Any:
    """What the next update starts from: a transform, or those of a union."""
    if not isinstance(method, UnionOf):
        return _kept_one(method, arrays, numbers[0], default=arrays["transform"])
    each = tuple(_kept_one(method.method, arrays, number) for number in numbers)
    return Members(each, number_in(header, "ratio", 1.0), count_in(header, "trials"))


def _kept_one(
    method: Method, arrays: Arrays, number: int, default: NDArray | None = None
) -> Transform:
    name = _numbered("start", number)
    if method.in_factors and (name not in arrays or method.monotone):
        return _factors(method, arrays, "", number)
    if name not in arrays and default is not None:
        return default
    spectrum = np.linalg.svd(method.as_array(arrays[name]), compute_uv=False)
    check_spectrum(method, spectrum, name)
    return arrays[name]


def _factors(method: Method, arrays: Arrays, prefix: str, number: int) -> Factors:
    names = [_numbered(prefix + name, number) for name in _FACTORS]
    factors = Factors(*(arrays[name] for name in names))
    for name, vectors in ((names[0], factors.left), (names[2], factors.right)):
        identity = np.eye(len(vectors))
        check_close(vectors.T @ vectors, identity, f"the columns of {name} are not orthonormal.")
    check_spectrum(method, np.sort(factors.spectrum)[::-1], names[1])
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


def _momentum(method: Method, header: Header, arrays: Arrays, numbers: range) -> Momentum:
    """Momentum of the next step; files up to version 0.2 have none."""
    factor = number_in(header, "momentum_factor", LARGEST_FACTOR)
    if not method.momentum:
        return Momentum()
    last = [_numbered(f"last_{name}", number) for number in numbers for name in _FACTORS]
    if not arrays.keys() & set(last):
        return Momentum(None, factor)
    each = tuple(_factors(single(method), arrays, "last_", number) for number in numbers)
    return Momentum(Members(each) if isinstance(method, UnionOf) else each[0], factor)


# --- the stream ----------------------------------------------------------------------------------


def _stream(header: Any, arrays: Arrays, race: Race) -> tuple[Stream, bool]:
    """The stream that continues a race, and whether it is the result itself."""
    if header is None:
        return as_stream(race), False
    if not isinstance(header, dict) or not isinstance(header["is_result"], bool):
        raise TypeError(f"its stream is {header!r}.")
    before = race if header["is_result"] else as_stream(race)
    n_each, energies = n_members(race.method), parts_in(header, "energies")
    if len(energies) != n_each * len(before.candidates):
        raise ValueError("its stream lacks the energies of some candidates.")
    exponent, is_union = _exponent(header), isinstance(race.method, UnionOf)
    gram = None if is_union else _gram(arrays, 0)  # that of all candidates
    parts = []
    for number, each in enumerate(energies):
        weight = number_in(each, "n_signals") if is_union else number_in(header, "weight")
        own = _gram(arrays, number) if gram is None else gram
        kept, discarded = (number_in(each, name) for name in _ENERGIES)
        cross = arrays[_numbered("cross", number)]
        parts.append(Statistics(own, cross, kept, discarded, weight, exponent))
    candidates = []
    for number, candidate in enumerate(before.candidates):
        mine = tuple(parts[number * n_each : (number + 1) * n_each])
        sums = UnionStatistics(mine) if is_union else mine[0]
        candidates.append(replace(candidate, statistics=sums))
    counts = {name: count_in(header, name) for name in _COUNTS}
    if max(part.n_signals for part in parts) > counts["n_signals"]:
        raise ValueError(f"its stream has {counts['n_signals']} signals, fewer than they weigh.")
    for name in ("n_iter", "n_passes"):
        if header["is_result"] and counts[name] != (stated := getattr(race, name)):
            raise ValueError(f"its {name} is {stated}, not {counts[name]} as that of its stream.")
    n_nonzero = sparsity_in(header, race.n_features)
    return Stream(race.method, n_nonzero, tuple(candidates), **counts), header["is_result"]


def _gram(arrays: Arrays, number: int) -> NDArray:
    name = _numbered("gram", number)
    gram = arrays[name]
    largest = np.abs(gram).max()
    if not np.abs(gram - gram.T).max() <= SINGLE_SLACK * largest:
        raise ValueError(f"{name} is not symmetric.")
    if not np.linalg.eigvalsh(gram)[0] >= -SINGLE_SLACK * largest:
        raise ValueError(f"{name} has negative eigenvalues.")
    return gram


def _exponent(header: Header) -> int:
    scale = number_in(header, "scale", most=2.0**1023)
    mantissa, exponent = math.frexp(scale)
    if mantissa != 0.5:
        raise ValueError(f"the scale of its stream is {scale}, not a power of two.")
    return exponent - 1
