"""How many rounds of learning there are."""

from itertools import repeat

import numpy as np
import pytest
from skimage import data

import kappaform as kf
from kappaform.imaging import training
from kappaform.imaging.options import Options
from kappaform.imaging.training import Amount, Drawn, learned_in_rounds

N_ROUNDS = 4


@pytest.fixture(scope="module")
def image():
    return kf.add_noise(data.camera()[100:164, 180:244].astype(np.float64), 20)


def rounds_of(image, settled, asked):
    """Rounds of learning from the same patches, over and over."""
    options = Options.checked(image, patch_size=5)
    patches = kf.extract_patches(image, 5).astype(np.float32) / 20
    patches -= patches.mean(axis=1, keepdims=True)
    rounds = (asked.append(drawn) or [drawn] for drawn in repeat(Drawn(patches, None)))
    amount = Amount(N_ROUNDS, len(patches), settled=settled)
    return learned_in_rounds(rounds, options, amount)


def last_change(result):
    before, after = result.loss[-2:]
    return abs(1 - after / before)


@pytest.mark.parametrize("settled", [0, 1e-4, 1e-3, 1e-2, 1])
def test_no_round_follows_one_whose_loss_has_settled(image, settled):
    asked = []
    history = rounds_of(image, settled, asked)
    *others, last = map(last_change, history)
    assert all(change >= settled for change in others)
    assert last < settled or len(history) == N_ROUNDS
    assert len(asked) == len(history)  # patches of others are not gathered
    assert {0: N_ROUNDS, 1: 1}.get(settled, len(history)) == len(history)


def test_coarser_scales_are_learned_from_however_many_rounds_there_were(image, monkeypatch):
    lengths = []
    for settled in (0, 1):
        monkeypatch.setattr(training, "FOR_PATCHES", Amount(3, 1000, settled=settled))
        found = kf.denoise_with_details(image, 20, quality="fast", patch_size=5)
        lengths.append(len(found.history))
    assert lengths == [3 + 2, 1 + 2]
