"""The campaigns of the soak run, a handful of cases each, so that the script cannot rot."""

from types import SimpleNamespace

import numpy as np
import pytest
import soak

# Some compile kernels or see large pictures: one cheap case of each of these.
SEEDS = {"cold-and-warm": [11], "other-processors": [3], "many-channels": [9]}


# An interrupt may come while an object is destroyed: Python tells that and goes on.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("campaign", soak.CAMPAIGNS)
def test_a_few_cases_of_each_campaign_hold(campaign):
    for seed in SEEDS.get(campaign, range(2)):
        assert soak.failure(campaign, seed) == ""


def test_a_failure_reports_its_case_and_how_to_see_it_again(monkeypatch, capsys):
    def broken(rng, facts):
        facts["number"] = rng.integers(100)
        assert facts["number"] < 0

    monkeypatch.setitem(soak.CAMPAIGNS, "resume", broken)
    assert soak.main(["--campaign", "resume", "--seed", "17"]) == 1
    told = capsys.readouterr().out
    assert "python tests/soak.py --campaign resume --seed 17" in told
    assert "\n  number: " in told
    summary = "from seed 17 on: 1 failed; passed: resume 0"
    assert told == f"{soak.failure('resume', 17)}\n{summary}\n"


@pytest.mark.parametrize("more", [[], ["--keep-going"]])
def test_the_summary_counts_the_cases_of_each_campaign_that_passed(more, monkeypatch, capsys):
    seen = []

    def often(*_):
        seen.append("resume")
        assert len(seen) % 4

    monkeypatch.setitem(soak.CAMPAIGNS, "resume", often)
    monkeypatch.setitem(soak.CAMPAIGNS, "stores", lambda *_: None)
    monkeypatch.setattr(soak, "time", SimpleNamespace(monotonic=iter(range(100)).__next__))
    words = ["--campaign", "resume", "--campaign", "stores", "--seed", "5", "--minutes", "0.1"]
    assert soak.main([*words, *more]) == 1
    n_failed, n_resume, n_stores = (1, 5, 6) if more else (1, 3, 3)
    summary = f"from seed 5 on: {n_failed} failed; passed: resume {n_resume}, stores {n_stores}"
    assert capsys.readouterr().out.splitlines()[-1] == summary


def test_a_run_without_failures_says_how_many_cases_it_saw(monkeypatch, capsys):
    seen = []
    monkeypatch.setitem(soak.CAMPAIGNS, "resume", lambda rng, _: seen.append(rng.random()))
    assert soak.main(["--campaign", "resume", "--seed", "3", "--minutes", "0.001"]) == 0
    assert capsys.readouterr().out == f"from seed 3 on: 0 failed; passed: resume {len(seen)}\n"
    assert len(np.unique(seen)) == len(seen)
