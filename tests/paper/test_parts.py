"""Results in parts: kept when finished, the same in any number of processes."""

import os

import pytest

from kappaform.paper.parts import Part, n_finished, open_parts, run_parts
from kappaform.threads import n_threads


def part(name, cost=1.0, source="data", **arguments):
    return Part(name, arguments, source, cost)


def test_results_come_in_the_order_of_the_parts_and_the_dearest_run_first(tmp_path):
    ran = []

    def work(number):
        ran.append(number)
        return {"square": number**2}

    parts = [part(f"n{number}", cost=number, number=number) for number in (1, 3, 2)]
    finished = run_parts(work, parts, tmp_path, 1)
    assert ran == [3, 2, 1]
    assert list(finished.results.items()) == [
        ("n1", {"square": 1}),
        ("n3", {"square": 9}),
        ("n2", {"square": 4}),
    ]
    assert finished.seconds.keys() == finished.results.keys()
    assert run_parts(None, parts, tmp_path, 1) == finished  # all are kept


def test_progress_counts_parts_and_work(tmp_path):
    seen = []
    parts = [part("cheap", cost=1.0), part("dear", cost=3.0), part("kept", cost=8.0)]
    run_parts(dict, parts[2:], tmp_path, 1)
    run_parts(dict, parts, tmp_path, 1, lambda *state: seen.append(state))
    assert seen == [(1, 3, 0.0), (2, 3, 0.75), (3, 3, 1.0)]


def test_every_part_has_one_thread_and_others_get_theirs_back(tmp_path, monkeypatch):
    for outside in ("3", None):
        if outside is None:
            monkeypatch.delenv("KAPPAFORM_NUM_THREADS", raising=False)
        else:
            monkeypatch.setenv("KAPPAFORM_NUM_THREADS", outside)
        before = n_threads()
        folder = open_parts(tmp_path / f"out{outside}", "threads", {})
        assert run_parts(n_threads, [part("a")], folder, 1).results == {"a": 1}
        assert n_threads() == before


def test_bad_input_costs_its_own_part_and_a_defect_is_raised(tmp_path):
    def work(error):
        raise error

    finished = run_parts(work, [part("a", error=ValueError("bad\nshape"))], tmp_path, 1)
    assert finished == ({}, {}, {"a": "bad shape"})
    with pytest.raises(ZeroDivisionError):
        run_parts(work, [part("a", error=ZeroDivisionError())], tmp_path, 1)
    assert not list(tmp_path.iterdir())


def test_settings_may_be_repeated_but_not_changed(tmp_path):
    out = tmp_path / "new" / "out"
    folder = open_parts(out, "table", {"seed": 0, "images": ("a", "b")})
    assert n_finished(out, "table") == 0
    run_parts(dict, [part("a")], folder, 1)
    assert n_finished(out, "table") == 1
    assert open_parts(out, "table", {"seed": 0, "images": ("a", "b")}) == folder
    open_parts(out, "figures", {"seed": 1})  # another thing in the same folder
    with pytest.raises(ValueError, match="results with images=a,b, not a,c: give another folder"):
        open_parts(out, "table", {"seed": 0, "images": ("a", "c")})
    (folder / "settings.json").write_text("{")
    with pytest.raises(ValueError, match=r"settings\.json is damaged: remove the folder"):
        open_parts(out, "table", {"seed": 0})


def test_a_process_that_dies_is_reported_with_the_remedy(tmp_path):
    with pytest.raises(ChildProcessError, match="run the same command with fewer --workers"):
        run_parts(os._exit, [part("a", status=3), part("b", status=3)], tmp_path, 2)
