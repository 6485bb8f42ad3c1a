"""Learning needs little memory beyond its signals."""

import numpy as np
import pytest
from helpers import Store, peak_bytes

import kappaform as kf

N_FEATURES = 8


def signals_of(n_signals):
    return np.random.default_rng(0).standard_normal((n_signals, N_FEATURES), np.float32)


def learn(signals):
    kf.learn(signals, n_nonzero_coefs=2, max_iter=3)


def measure(signals):
    kf.evaluate(signals, np.eye(N_FEATURES), 2)


@pytest.mark.parametrize("call", [learn, measure])
def test_learning_from_an_array_needs_a_few_megabytes_and_8_bytes_a_signal(call, monkeypatch):
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", "2")
    call(signals_of(1000))  # compiled and imported: that is not counted
    for n_signals in (50_000, 400_000):
        signals = signals_of(n_signals)
        assert peak_bytes(lambda signals=signals: call(signals)) < 8 * n_signals + 8e6


@pytest.mark.parametrize("call", [learn, measure])
def test_memory_of_learning_does_not_grow_with_signals_on_disk(call, monkeypatch):
    # One thread: whether the blocks of two are in memory at the same moment is a matter of timing.
    monkeypatch.setenv("KAPPAFORM_NUM_THREADS", "1")
    monkeypatch.setattr("kappaform.engines.blocks.MOST_THRESHOLD_BYTES", 2**18)
    monkeypatch.setattr("kappaform.engines.stores._PIECE_BYTES", 2**17)
    stores = [Store(signals_of(n_signals)) for n_signals in (4000, 200_000, 600_000)]
    _, small, large = (peak_bytes(lambda store=store: call(store)) for store in stores)
    assert large - small < 400_000  # less than a byte for each signal more
    assert large < 2e7
