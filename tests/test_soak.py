"""The campaigns of the soak run, a handful of cases each, so that the script cannot rot."""

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
    assert told == soak.failure("resume", 17) + "\n"


def test_a_run_without_failures_says_how_many_cases_it_saw(monkeypatch, capsys):
    seen = []
    monkeypatch.setitem(soak.CAMPAIGNS, "resume", lambda rng, _: seen.append(rng.random()))
    assert soak.main(["--campaign", "resume", "--seed", "3", "--minutes", "0.001"]) == 0
    assert f"{len(seen)} cases of resume from seed 3 on: 0 failed" in capsys.readouterr().out
    assert len(np.unique(seen)) == len(seen)
