"""Files of transforms: compared, and changed for tests that `load` rejects them."""

import json
import tracemalloc

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


def peak_of_refused_load(path):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"large\.npz is not a transform .*damaged"):
            kf.load(path)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
