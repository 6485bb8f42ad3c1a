"""`kappaform learn --transforms`, and what other commands do with a union."""

import json
import signal
from functools import cache

import numpy as np
import pytest
from cli.command import ended, noisy, put, rejected
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import kappaform as kf
from kappaform.learning import growth

LEARN = ["learn", "signals.npy", "--n-nonzero", 3, "--tol", 1e-2]


@cache
def learned(signals):
    """What is learned from the bytes of the signals, which all tests share."""
    values = np.frombuffer(signals).reshape(-1, 16)
    return kf.learn_union(values, n_nonzero_coefs=3, n_transforms=2, tol=1e-2)


@pytest.fixture
def union(signals):
    kf.save("u.kf", learned(signals.tobytes()))
    return kf.load("u.kf")


def test_learning_a_union_saves_what_the_library_learns(signals, capsys):
    words = [*LEARN, "--transforms", 3, "--max-condition", 3, "--seed", 5, "-o", "u.kf"]
    code, out, err = ended(capsys, *words, "--json")
    assert (code, err) == (0, "")
    expected = kf.learn_union(
        signals, kf.Conditioned(3.0), n_transforms=3, n_nonzero_coefs=3, tol=1e-2, rng=5
    )
    model = kf.load("u.kf")
    assert_array_equal(model.result_.transforms, expected.transforms)
    document = json.loads(out)
    assert document["n_transforms"] == 3
    assert_allclose(document["condition_numbers"], expected.condition_numbers)
    errors = kf.evaluate(signals, expected, 3, coding="refit")
    assert_allclose(document["reconstruction_error"], errors.reconstruction)


def test_one_transform_is_that_of_learn(signals, capsys):
    assert ended(capsys, *LEARN, "--transforms", 1, "-o", "m.kf")[0] == 0
    expected = kf.learn(signals, n_nonzero_coefs=3, tol=1e-2)
    assert_array_equal(kf.load("m.kf").result_.transform, expected.transform)


def test_a_union_is_learned_from_pictures(capsys):
    put("a.png", noisy())
    words = ["learn", "a.png", "--patch-size", 4, "--n-patches", 300, "--max-iter", 3]
    assert ended(capsys, *words, "--transforms", 2, "-o", "u.kf")[0] == 0
    model = kf.load("u.kf")
    assert (model.patch_shape_, model.patch_mean_) == ((4, 4), "removed")
    assert model.components_.shape == (2, 16, 16)


def test_encoding_and_decoding_are_those_of_the_estimator(union, signals, capsys):
    assert ended(capsys, "encode", "u.kf", "signals.npy", "-o", "codes.npz")[0] == 0
    codes = sparse.load_npz("codes.npz")
    assert codes.shape == (len(signals), 32)
    assert_array_equal(codes.toarray(), union.transform(signals))
    assert ended(capsys, "decode", "u.kf", "codes.npz", "-o", "back.npy")[0] == 0
    assert_allclose(np.load("back.npy"), union.inverse_transform(codes), rtol=1e-12, atol=1e-12)


@pytest.mark.usefixtures("union")
def test_info_describes_a_union(capsys):
    code, out, err = ended(capsys, "info", "u.kf", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["n_transforms"] == len(document["condition_numbers"]) == 2
    assert document["condition_number"] <= document["max_condition"] == 2.0
    assert document["method"].startswith("Conditioned(")
    assert_allclose(document["norm"], 4.0)
    assert "n transforms" in ended(capsys, "info", "u.kf")[1]


def test_learning_a_union_resumes_from_a_model(signals, capsys):
    words = ["learn", "signals.npy", "--transforms", 2, "--tol", 0, "--max-iter", 4]
    assert ended(capsys, *words, "-o", "half.kf")[0] == 0
    assert ended(capsys, *words, "-o", "whole.kf", "--init", "half.kf")[0] == 0
    expected = kf.learn_union(signals, n_transforms=2, tol=0, max_iter=8)
    assert_array_equal(kf.load("whole.kf").result_.transform, expected.transform)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--transforms", 0], "--transforms"),
        (["--transforms", 201], "--transforms 201 exceeds the 200 signals"),
        (["--transforms", 2, "--method", "log-det"], "--transforms 2 with --method log-det: "),
        (["--transforms", 2, "--variant", "paper"], "--transforms 2 with --variant paper: "),
        (["--transforms", 2, "--norm", "none"], "--norm none: errors of such transforms cannot"),
        (["--transforms", 2, "--init", "dct"], "--init dct: give auto, or a model file"),
        (["--transforms", 2, "--init", "no.kf"], "--init no.kf: no such file; give auto, or a m"),
        (["--init", "one.kf"], "one.kf is a union of 1 transform: give --transforms 2 or more"),
        (["--init", "u.kf"], "--init u.kf is a union of 2 transforms: give --transforms 2"),
        (["--transforms", 2, "--init", "m.kf"], "--init m.kf is a single transform: give --tran"),
    ],
)
@pytest.mark.usefixtures("union")
def test_options_that_do_not_fit_a_union_are_one_line(words, told, signals, files, capsys):
    kf.save("m.kf", kf.learn(signals, n_nonzero_coefs=3, max_iter=1))
    kf.save("one.kf", kf.learn_union(signals, n_nonzero_coefs=3, n_transforms=1, max_iter=1))
    before = files()
    assert told in rejected(capsys, "learn", "signals.npy", "-o", "new.kf", *words)
    assert files() == before


@pytest.mark.usefixtures("union")
def test_denoising_with_a_union_is_rejected_in_one_line(files, capsys):
    put("a.png", noisy())
    before = files()
    line = rejected(capsys, "denoise", "a.png", "-o", "b.png", "--model", "u.kf")
    assert "u.kf is a union of 2 transforms: denoising uses a single one" in line
    assert files() == before


def test_an_interruption_keeps_the_union_so_far(capsys, monkeypatch, signals):
    learn, seen = kf.learn_union, []

    def interrupted_at_the_third(result):
        seen.append(result)
        if len(seen) == 3:
            signal.raise_signal(signal.SIGINT)

    def watched(*arguments, **options):
        return learn(*arguments, **options | {"callback": interrupted_at_the_third})

    monkeypatch.setattr(kf, "learn_union", watched)
    ending = ended(capsys, *LEARN, "--transforms", 2, "-o", "u.kf")
    text = "kappaform: error: interrupted: the union after 3 iterations is in u.kf\n"
    assert ending == (130, "", text)
    model = kf.load("u.kf")
    assert_array_equal(model.result_.transform, seen[-1].transform)
    assert model.predict(signals).shape == (200,)


def test_a_union_interrupted_while_it_grows_goes_on_where_it_stopped(capsys, monkeypatch, signals):
    options = {"n_transforms": 3, "n_nonzero_coefs": 3, "tol": 1e-2}
    expected = kf.learn_union(signals, **options)
    step, n_steps = growth.step, []

    def interrupted_at_the_fifth(*arguments):
        n_steps.append(1)
        if len(n_steps) == 5:
            signal.raise_signal(signal.SIGINT)
        return step(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(growth, "step", interrupted_at_the_fifth)
        code, _, err = ended(capsys, *LEARN, "--transforms", 3, "-o", "small.kf")
    assert code == 130
    assert "the union, of 1 transform so far, after 4 iterations is in small.kf" in err
    words = ["--transforms", 3, "--init", "small.kf", "-o", "u.kf"]
    assert ended(capsys, *LEARN, *words)[0] == 0
    assert_array_equal(kf.load("u.kf").result_.transform, expected.transform)


@pytest.mark.usefixtures("union")
def test_a_union_that_was_learned_gets_more_transforms(signals, capsys):
    options = {"n_transforms": 3, "n_nonzero_coefs": 3, "tol": 1e-2}
    words = ["--transforms", 3, "--init", "u.kf", "-o", "more.kf"]
    assert ended(capsys, *LEARN, *words)[0] == 0
    expected = kf.learn_union(signals, init=learned(signals.tobytes()), **options)
    assert_array_equal(kf.load("more.kf").result_.transform, expected.transform)
