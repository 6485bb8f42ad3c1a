"""Results in parts: kept when finished, the same in any number of processes."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from kappaform.paper.run import Part, run_parts
from kappaform.threads import n_threads


def part(name, work, arrays=(), **settings):
    return Part(name, work, arrays, settings)


def run(parts, out, n_workers=1, watch=None):
    return run_parts(parts, out, "things", n_workers, watch)


def no_work(**_):
    raise AssertionError("there was work")


def test_results_come_in_the_order_of_the_parts_and_are_kept(tmp_path):
    def work(number):
        return {"square": number**2}

    parts = [part(f"n{number}", work, number=number) for number in (1, 3, 2)]
    run(parts[1:2], tmp_path)
    results, seconds = run(parts, tmp_path)
    assert results == [{"square": 1}, {"square": 9}, {"square": 4}]
    assert list(seconds) == ["n1", "n3", "n2"]
    kept = [one._replace(work=no_work) for one in parts]
    assert run(kept, tmp_path) == (results, seconds)


def test_progress_is_the_fraction_of_the_work_that_was_left(tmp_path):
    seen = []
    parts = [part(name, dict) for name in "abc"]
    run(parts[2:], tmp_path)
    run(parts, tmp_path, watch=seen.append)
    assert seen == [0.5, 1.0]


def test_every_part_has_one_thread_and_others_get_theirs_back(tmp_path, monkeypatch):
    for outside in ("3", None):
        if outside is None:
            monkeypatch.delenv("KAPPAFORM_NUM_THREADS", raising=False)
        else:
            monkeypatch.setenv("KAPPAFORM_NUM_THREADS", outside)
        before = n_threads()
        results, _ = run([part("a", n_threads)], tmp_path / f"out{outside}")
        assert results == [1]
        assert n_threads() == before


def test_processes_that_started_in_another_folder_write_to_this_one(tmp_path, monkeypatch):
    parts = [part(name, dict) for name in "ab"]
    for folder in (tmp_path / "one", tmp_path / "two"):  # the same two processes
        folder.mkdir()
        monkeypatch.chdir(folder)
        run(parts, Path("out"), n_workers=2)
        assert len(list((folder / "out" / "things.parts").iterdir())) == 2


def test_a_defect_is_raised_and_leaves_nothing_behind(tmp_path):
    def work():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run([part("a", work)], tmp_path)
    assert not list((tmp_path / "things.parts").iterdir())


def test_results_of_other_settings_or_other_data_are_rejected_by_name(tmp_path):
    def work(*arrays, seed, bounds):
        return len(arrays) + seed + len(bounds)

    pixels = np.arange(6.0)
    first = part("a", work, arrays=(pixels,), seed=1, bounds=(1.0, 2.0))
    assert run([first], tmp_path)[0] == [4]
    assert run([first], tmp_path)[0] == [4]
    for other, message in [
        (part("a", work, arrays=(pixels,), seed=2, bounds=(1.0, 2.0)), "seed = 1, not 2: give ano"),
        (part("a", work, arrays=(pixels,), seed=1, bounds=(1.0,)), r"bounds = \[1.0, 2.0\], not"),
        (
            part("a", work, arrays=(pixels + 1,), seed=1, bounds=(1.0, 2.0)),
            "digest of the images = ",
        ),
        (part("a", work, arrays=(pixels.reshape(2, 3),), seed=1, bounds=(1.0, 2.0)), "digest of"),
    ]:
        with pytest.raises(ValueError, match=message):
            run([other], tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"sources": {}, "seconds": 1}'])
def test_a_damaged_part_is_computed_again(tmp_path, content):
    run([part("a", dict, number=3)], tmp_path)
    file = tmp_path / "things.parts" / "a.json"
    before = json.loads(file.read_bytes())
    file.write_text(content)
    assert run([part("a", dict, number=3)], tmp_path)[0] == [{"number": 3}]
    after = json.loads(file.read_bytes())
    assert (after["sources"], after["result"]) == (before["sources"], before["result"])


def test_a_process_that_dies_is_reported_with_the_remedy(tmp_path):
    parts = [part(name, os._exit, status=3) for name in ("a", "b")]
    with pytest.raises(ChildProcessError, match="run the same command with fewer --workers"):
        run(parts, tmp_path, n_workers=2)
