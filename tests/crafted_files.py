"""Files of transforms: compared, and changed for tests that `load` rejects them."""

import json
import tracemalloc
from copy import deepcopy

import numpy as np
import pytest

import kappaform as kf

#: Values that no entry of a header may have, or few
JUNK = [None, True, -1, 10**30, 1e60, float("nan"), float("inf"), "x", [], {"name": 1}]


def rewrite(path, arrays=None, **header_changes):
    """Change a saved file: None removes an array, ... an entry of the header."""
    with np.load(path) as archive:
        entries = dict(archive)
    header = json.loads(str(entries["header"])) | header_changes
    header = {name: value for name, value in header.items() if value is not ...}
    entries = entries | {"header": np.array(json.dumps(header))} | (arrays or {})
    with path.open("wb") as file:
        np.savez(file, **{name: value for name, value in entries.items() if value is not None})


def entries_of(path):
    with np.load(path) as archive:
        entries = dict(archive)
    return json.loads(str(entries.pop("header"))), entries


def assert_same_state(one, other):
    """What goes on from one file goes on from the other: only how they were made may differ.

    A run that goes on needs a pass to begin with, and ended for a reason of its own.
    """
    (header, arrays), (expected, others) = entries_of(one), entries_of(other)
    made = ("n_passes", "stop_reason")
    assert header | dict.fromkeys(made) == expected | dict.fromkeys(made)
    assert arrays.keys() == others.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, others[name], err_msg=name)


def write(path, header, arrays):
    with path.open("wb") as file:
        np.savez(file, header=np.array(json.dumps(header)), **arrays)


def places_in(header, where=()):
    """Places of a header; of candidates those of the first two, the others are like the second."""
    for name, value in header.items() if isinstance(header, dict) else enumerate(header[:2]):
        yield where, name
        if isinstance(value, dict | list):
            yield from places_in(value, (*where, name))


def changed(header, *where, value):
    """A header with another value at a place."""
    header = deepcopy(header)
    inner = header
    for each in where[:-1]:
        inner = inner[each]
    inner[where[-1]] = value
    return header


def is_refused(path, assert_usable):
    """Whether a file is rejected at once, with its name; if not, what it gives can be used."""
    try:
        loaded = kf.load(path)
    except ValueError as error:
        told = str(error)
    else:
        assert_usable(loaded)
        return False
    assert str(path) in told
    assert "damaged" in told or "upgrade" in told
    return True


def check_junk_in_headers(path, assert_usable, step=2):
    """Junk anywhere in a header is refused or harmless; each place sees every `step`-th kind."""
    header, arrays = entries_of(path)
    rejected = []
    for number, (where, name) in enumerate(places_in(header)):
        for junk in JUNK[number % step :: step]:
            write(path, changed(header, *where, name, value=junk), arrays)
            rejected.append(is_refused(path, assert_usable))
    assert np.mean(rejected) > 0.5


def check_junk_in_arrays(path, assert_usable, rng, but=()):
    """Other arrays in place of one are refused or harmless; not those whose names end with `but`.

    Arrays of later candidates are checked like those of the first.
    """
    header, arrays = entries_of(path)
    rejected, names = [], [name for name in arrays if not name.endswith(but)]
    assert {"transform", "records"} <= set(names)
    for name in names:
        array = arrays[name]
        others = [factor * array for factor in (-1, 1e300, 1e-300, 2)]
        others += [array.T, array[:1], array.ravel()]
        others += [np.full_like(array, value) for value in (0, 1, -1, np.nan, np.inf, 1e308)]
        others += [rng.standard_normal(array.shape), array.astype(">f8"), array.astype(complex)]
        for other in others:
            write(path, header, arrays | {name: other})
            rejected.append(is_refused(path, assert_usable))
    assert np.mean(rejected) > 0.5


def peak_of_refused_load(path):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"large\.npz is not a transform .*damaged"):
            kf.load(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
