"""Statistics know all that an update may ask about the signals."""

import numpy as np
import pytest
from helpers import STATISTICS

from kappaform.engines import Statistics, hard_threshold


def statistics_of(signals, transform, n_nonzero=3):
    coefs = signals @ transform.T
    codes = hard_threshold(coefs, n_nonzero)
    gram, cross = signals.T @ signals, codes.T @ signals
    return Statistics(
        gram, cross, np.vdot(codes, codes), np.sum((coefs - codes) ** 2), len(signals)
    )


def assert_close(one, other):
    for field in (*STATISTICS, "n_signals"):
        np.testing.assert_allclose(getattr(one, field), getattr(other, field), rtol=1e-12)


def test_they_give_the_objective_of_any_transform(rng):
    signals, transform, other = (rng.standard_normal(shape) for shape in ((40, 6), (6, 6), (6, 6)))
    codes = hard_threshold(signals @ transform.T, 3)
    s = statistics_of(signals, transform)
    value = np.trace(other @ s.gram @ other.T) - 2 * np.vdot(other, s.cross) + s.code_energy
    assert value == pytest.approx(np.linalg.norm(codes - signals @ other.T) ** 2)


def test_discarded_energy_is_that_of_the_transform_itself(rng):
    signals, transform = rng.standard_normal((40, 6)), rng.standard_normal((6, 6))
    coefs = signals @ transform.T
    error = np.linalg.norm(coefs - hard_threshold(coefs, 3))
    assert statistics_of(signals, transform).discarded_energy == pytest.approx(error**2)


def test_merging_is_the_same_as_having_all_signals_at_once(rng):
    signals, transform = rng.standard_normal((40, 6)), rng.standard_normal((6, 6))
    halves = statistics_of(signals[:15], transform).merge(statistics_of(signals[15:], transform))
    assert_close(halves, statistics_of(signals, transform))
    assert halves.n_signals == 40


def test_empty_statistics_are_neutral(rng):
    s = statistics_of(rng.standard_normal((9, 4)), np.eye(4))
    assert_close(Statistics.empty(4).merge(s), s)
    assert_close(s.merge(Statistics.empty(4)), s)


def test_decay_lets_every_signal_count_less(rng):
    s = statistics_of(rng.standard_normal((9, 4)), np.eye(4))
    assert_close(s.decay(0.5).merge(s.decay(0.5)), s)
    assert_close(s.decay(1), s)
    assert s.decay(0.25).n_signals == 9 / 4


def test_sums_of_different_scales_are_merged_at_one_where_both_fit(rng):
    signals, transform = rng.standard_normal((40, 6)), rng.standard_normal((6, 6))
    one, other = statistics_of(signals[:15], transform), statistics_of(signals[15:], transform)
    together = one.at_exponent(-300).merge(other.at_exponent(7))
    assert together.exponent == -300
    assert_close(together.at_exponent(0), one.merge(other))


def test_signals_that_are_all_zero_do_not_decide_the_scale(rng):
    s = statistics_of(rng.standard_normal((9, 4)), np.eye(4)).at_exponent(50)
    assert Statistics.empty(4).merge(s).exponent == 50
    assert s.merge(Statistics.empty(4)).exponent == 50


def test_at_another_exponent_they_are_those_of_signals_times_that_power_of_two(rng):
    signals, transform = rng.standard_normal((40, 6)), rng.standard_normal((6, 6))
    assert_close(
        statistics_of(signals, transform).at_exponent(5), statistics_of(32.0 * signals, transform)
    )
