"""`kappaform learn`, `path`, `encode`, `decode` and `info`."""

import contextlib
import json
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
from cli.command import ended, noisy, put, rejected
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import kappaform as kf


def test_learning_from_signals_saves_what_the_library_learns(signals, capsys):
    words = ["learn", "signals.npy", "-o", "m.kf", "--max-condition", 3, "--n-nonzero", 4]
    code, out, err = ended(capsys, *words, "--tol", 1e-3, "--json")
    assert (code, err) == (0, "")
    expected = kf.learn(signals, kf.Conditioned(3.0), n_nonzero_coefs=4, tol=1e-3)
    model = kf.load("m.kf")
    assert_array_equal(model.result_.transform, expected.transform)
    assert (model.patch_shape_, model.patch_mean_) == (None, "kept")
    document = json.loads(out)
    assert document["n_signals"] == 200
    assert_allclose(document["condition_number"], expected.condition_number)


def test_every_option_of_the_conditioned_method_can_be_given(signals, capsys):
    words = ["--objective", "relative", "--norm", 2, "--n-rounds", 2, "--max-iter", 5]
    learning = ["learn", "signals.npy", "-o", "m.kf", *words, "--init", "least-squares"]
    assert ended(capsys, *learning)[0] == 0
    method = kf.Conditioned(2.0, norm=2.0, objective="relative", n_rounds=2)
    expected = kf.learn(signals, method, init="least-squares", max_iter=5)
    assert_array_equal(kf.load("m.kf").result_.transform, expected.transform)
    out = ended(capsys, "path", "signals.npy", "--bounds", 1.5, 3, *words, "--json")[1]
    options = {"validation": signals[1::2], "max_iter": 5, "tol": 1e-3}
    path = kf.condition_path(signals[::2], (1.5, 3.0), method=method, **options)
    assert_allclose(json.loads(out)["table"]["relative"], path["relative"], rtol=1e-12)
    words = ["learn", "signals.npy", "-o", "p.kf", "--variant", "paper", "--max-iter", 5]
    assert ended(capsys, *words)[0] == 0
    assert kf.load("p.kf").result_.method == kf.Conditioned(2.0, variant="paper")


def test_a_norm_may_be_free(signals, capsys):
    words = ["learn", "signals.npy", "-o", "m.kf", "--norm", "none", "--max-iter", 5]
    assert ended(capsys, *words)[0] == 0
    expected = kf.learn(signals, kf.Conditioned(2.0, norm=None), max_iter=5)
    assert_array_equal(kf.load("m.kf").result_.transform, expected.transform)
    words = ["path", "signals.npy", "--bounds", 1.5, 3, "--norm", "none", "--tol", 0.1]
    assert ended(capsys, *words, "--choose", "--folds", 2, "-o", "p.kf")[0] == 0
    assert kf.load("p.kf").norm is None
    line = rejected(capsys, "learn", "signals.npy", "-o", "n.kf", "--norm", "large")
    assert "argument --norm: large: give a number, auto or none" in line


def test_learning_resumes_from_a_model(signals, capsys):
    words = ["learn", "signals.npy", "--method", "orthonormal", "--tol", 0, "--max-iter", 4]
    assert ended(capsys, *words, "-o", "half.kf")[0] == 0
    assert ended(capsys, *words, "-o", "whole.kf", "--init", "half.kf")[0] == 0
    expected = kf.learn(signals, kf.Orthonormal(), tol=0, max_iter=8)
    assert_array_equal(kf.load("whole.kf").result_.transform, expected.transform)
    assert kf.load("whole.kf").n_iter_ == 8


def test_a_model_of_other_patches_is_no_start(capsys):
    put("a.png", noisy())
    words = ["learn", "a.png", "--max-iter", 1]
    assert ended(capsys, *words, "--patch-size", 4, "-o", "m.kf")[0] == 0
    line = rejected(capsys, *words, "--patch-size", 6, "--init", "m.kf", "-o", "n.kf")
    text = "--init m.kf is a transform of 16 features (patches of 4 × 4 pixels), and the signals"
    assert text in line
    assert "--patch-size" in line


@pytest.mark.parametrize("method", ["conditioned", "log-det", "orthonormal"])
def test_learning_from_images_takes_mean_free_patches(capsys, method):
    put("a.png", noisy())
    put("b.png", np.stack([noisy(seed) for seed in range(3)], axis=-1), has_channels=True)
    words = ["learn", "a.png", "b.png", "-o", "m.kf", "--patch-size", 4, "--method", method]
    assert ended(capsys, *words, "--max-iter", 3, "--n-patches", 301)[0] == 0
    model = kf.load("m.kf")
    assert (model.patch_shape_, model.patch_mean_) == ((4, 4), "removed")
    assert json.loads(_info(capsys, "m.kf"))["patch_mean"] == "removed"


def _info(capsys, name):
    code, out, err = ended(capsys, "info", name, "--json")
    assert (code, err) == (0, "")
    return out


def test_encoding_and_decoding_are_those_of_the_estimator(signals, capsys):
    result = kf.learn(signals, n_nonzero_coefs=4, max_iter=5)
    kf.save("m.kf", result)
    assert ended(capsys, "encode", "m.kf", "signals.npy", "-o", "codes.npz")[0] == 0
    codes = sparse.load_npz("codes.npz")
    model = kf.load("m.kf")
    assert_array_equal(codes.toarray(), model.transform(signals))
    assert ended(capsys, "decode", "m.kf", "codes.npz", "-o", "back.npy")[0] == 0
    assert_allclose(np.load("back.npy"), model.inverse_transform(codes), rtol=1e-12, atol=1e-12)


def test_means_that_a_model_removes_come_back_with_decoding(signals, capsys):
    shifted = signals + 1000
    np.save("signals.npy", shifted)
    centred = shifted - shifted.mean(axis=1, keepdims=True)
    kf.save("m.kf", kf.learn(centred, n_nonzero_coefs=16, max_iter=2), patch_mean="removed")
    assert ended(capsys, "encode", "m.kf", "signals.npy", "-o", "codes.npz")[0] == 0
    assert ended(capsys, "decode", "m.kf", "codes.npz", "-o", "back.npy")[0] == 0
    assert_allclose(np.load("back.npy"), shifted, rtol=1e-10)


def test_info_computes_the_condition_number(signals, capsys):
    result = kf.learn(signals, kf.Conditioned(1.7), max_iter=5)
    kf.save("m.kf", result)
    document = json.loads(_info(capsys, "m.kf"))
    assert_allclose(document["condition_number"], np.linalg.cond(result.transform), rtol=1e-12)
    assert document["max_condition"] == 1.7
    code, out, _ = ended(capsys, "info", "m.kf")
    assert code == 0
    assert re.search(r"^condition number +1\.7$", out, re.MULTILINE)


def test_info_rejects_a_file_whose_condition_number_is_not_what_it_says(signals, capsys):
    kf.save("m.kf", kf.learn(signals, kf.LogDet(), max_iter=5))
    with np.load("m.kf") as archive:
        entries = dict(archive)
    entries["transform"] = entries["transform"] * np.linspace(1, 9, 16)
    np.savez("forged.npz", **entries)
    assert "the header says" in rejected(capsys, "info", "forged.npz")


def test_path_shows_every_bound_and_draws(folder, signals, capsys):
    words = ["path", "signals.npy", "--bounds", 1, 2, 4, "--max-iter", 5, "--plot", "p.png"]
    code, out, err = ended(capsys, *words)
    assert (code, err) == (0, "")
    assert re.findall(r"^ +(\d+) ", out, re.MULTILINE) == ["1", "2", "4"]
    assert (folder / "p.png").read_bytes().startswith(b"\x89PNG")
    table = json.loads(ended(capsys, *words, "--overwrite", "--json")[1])["table"]
    expected = kf.condition_path(
        signals[::2], [1, 2, 4], validation=signals[1::2], max_iter=5, tol=1e-3
    )
    assert_allclose(table["validation_reconstruction"], expected["validation_reconstruction"])


def test_path_chooses_a_bound_by_folds_and_saves_what_it_learns(signals, capsys):
    words = ["path", "signals.npy", "--bounds", 1, 4, "--tol", 0.01, "--choose"]
    words += ["--folds", 2, "-o", "best.kf", "--plot", "p.png"]
    code, out, err = ended(capsys, *words)
    assert (code, err) == (0, "")
    expected = kf.ConditionedTransformCV(max_conditions=(1, 4), cv=2, tol=0.01).fit(signals)
    assert f"--max-condition {expected.max_condition_:g} has the smallest reconstruction" in out
    assert out.endswith("written: p.png\nwritten: best.kf\n")
    loaded = kf.load("best.kf")
    assert loaded.max_condition == expected.max_condition_
    assert_array_equal(loaded.components_, expected.components_)
    told = json.loads(ended(capsys, *words, "--overwrite", "--json")[1])
    assert told["best_max_condition"] == expected.max_condition_
    assert told["output"] == "best.kf"
    by = json.loads(ended(capsys, *words[:-4], "--choose-by", "sparsification", "--json")[1])
    assert by["best_max_condition"] == 4


@pytest.mark.parametrize("words", [[], ["--choose", "-o", "m.kf"]])
def test_of_a_constant_image_there_is_nothing_to_choose(folder, capsys, words):
    put("flat.png", np.full((40, 40), 100, np.uint8))
    np.save("flat.npy", np.full((50, 9), 0.1))
    np.save("rows.npy", np.repeat(np.arange(50.0), 9).reshape(50, 9))
    for name in ("flat.png", "flat.npy", "rows.npy"):
        text = rejected(capsys, "path", name, *words)
        assert "every signal is constant" in text
    assert not (folder / "m.kf").exists()


def test_the_error_that_the_path_chooses_by_can_be_given(signals, capsys):
    words = ["path", "signals.npy", "--bounds", 1, 2, 4, "--max-iter", 5, "--choose-by"]
    code, out, err = ended(capsys, *words, "sparsification")
    assert (code, err) == (0, "")
    assert "--max-condition 4 has the smallest sparsification error on held-out" in out
    former = ended(capsys, *words, "absolute")
    assert former[:2] == (0, out)
    assert "--choose-by absolute is now called sparsification" in former[2]
    assert len(signals) > 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["path", "signals.npy", "-o", "n.kf"], "--output has no effect without --choose"),
        (["path", "signals.npy", "--folds", "3"], "--folds has no effect without --choose"),
        (
            ["path", "signals.npy", "--choose", "--folds", "9999"],
            "--folds 9999 with 200 sample(s): give at least 2 folds",
        ),
        (["path", "signals.npy", "--bounds", "2", "1"], "--bounds has 1 after 2, which it is not"),
        (["path", "signals.npy", "--bounds", "2", "2"], "--bounds has 2 after 2, which it repeats"),
        (["learn", "missing.npy", "-o", "n.kf"], "missing.npy: No such file"),
        (["learn", "signals.npy", "-o", "signals.npy"], "signals.npy is an input"),
        (["learn", "signals.npy", "a.png", "-o", "n.kf"], "mixed"),
        (["learn", "signals.npy", "wide.npy", "-o", "n.kf"], "wide.npy has signals of 17 features"),
        (
            ["learn", "cube.npy", "-o", "n.kf"],
            "cube.npy has shape (2, 2, 2) and type float64",
        ),
        (["learn", "text.npy", "-o", "n.kf"], "text.npy is not a valid NPY file"),
        (["learn", "signals.npy", "-o", "n.kf", "--n-nonzero", "17"], "--n-nonzero 17 exceeds"),
        (["learn", "a.png", "-o", "n.kf", "--patch-size", "20"], "--patch-size 20 exceeds a.png"),
        (["learn", "a.png", "-o", "n.kf", "--patch-size", "65"], "give at most 64; 8 to 16 are"),
        (["path", "signals.npy", "--bounds", "0.5"], "0.5: give a finite number >= 1"),
        (["path", "one.npy"], "give at least 2"),
        (
            ["path", "signals.npy", "--plot", "p.txt"],
            "give a name that ends with .png or .pdf or .svg",
        ),
        (["encode", "m.kf", "wide.npy", "-o", "c.npz"], "wide.npy has signals of 17 features"),
        (["encode", "m.kf", "signals.npy", "-o", "c.npy"], "give a name that ends with .npz"),
        (
            ["encode", "a.png", "signals.npy", "-o", "c.npz"],
            "a.png is an image, not a transform",
        ),
        (
            ["decode", "m.kf", "missing.npz", "-o", "c.npy"],
            "missing.npz: No such file",
        ),
        (["decode", "m.kf", "m.npz", "-o", "c.npy"], "m.npz is a transform, not sparse codes"),
        (["decode", "m.kf", "a.png", "-o", "c.npy"], "a.png is an image, not sparse codes"),
        (["decode", "wide.npz", "wide.npz", "-o", "c.npy"], "wide.npz is sparse codes, not a tr"),
        (
            ["encode", "signals.npy", "m.kf", "-o", "c.npz"],
            "signals.npy is a NumPy array",
        ),
        (["encode", "m.kf", "m.npz", "-o", "c.npz"], "m.npz is a transform, not signals: give"),
        (["encode", "m.kf", "wide.npz", "-o", "c.npz"], "wide.npz is sparse codes, not signals"),
        (["info", "wide.npz"], "wide.npz is sparse codes, not a transform"),
        (["decode", "m.kf", "text.npz", "-o", "c.npy"], "text.npz is damaged or contains no codes"),
        (["decode", "m.kf", "wide.npz", "-o", "c.npy"], "17 columns"),
        (["decode", "m.kf", "signals.npy", "-o", "c.npy"], "signals.npy is a NumPy array, not"),
        (
            ["encode", "m.kf", "a.png", "-o", "c.npz"],
            "a.png is an image, not signals: give ",
        ),
        (["encode", "m.kf", "complex.npy", "-o", "c.npz"], "of real numbers"),
        (["learn", "header.npy", "-o", "n.kf"], "header.npy is not a valid NPY file"),
        (["encode", "m.kf", "header.npy", "-o", "c.npz"], "header.npy is not a valid NPY"),
        (
            ["learn", "complex.npy", "-o", "n.kf"],
            "complex.npy has shape (3, 16) and type complex128",
        ),
        (["learn", "signals.npy", "-o", "/dev/null"], "/dev/null is a device, a pipe or a socket"),
        (["info", "missing.kf"], "missing.kf: No such file"),
        (["learn", "signals.npy", "-o", "n.kf", "--init", "dtc"], "--init dtc: give auto, dct, "),
        (["learn", "signals.npy", "-o", "n.kf", "--init", "a.png"], "a.png is an image, not a tr"),
        (["learn", "signals.npy", "-o", "n.kf", "--norm", "0"], "--norm 0.0: "),
        (
            ["learn", "signals.npy", "-o", "n.kf", "--objective", "relative", "--variant", "paper"],
            "--objective relative with --variant paper: the published",
        ),
        (["info", "text.npy"], "text.npy is not a transform"),
    ],
)
def test_bad_models_and_signals_are_one_line(files, signals, capsys, arguments, message):
    result = kf.learn(signals, max_iter=1)
    kf.save("m.kf", result)
    kf.save("m.npz", result)
    put("a.png", noisy()[:12])
    np.save("wide.npy", np.ones((3, 17)))
    np.save("one.npy", np.arange(16.0)[np.newaxis])
    np.save("complex.npy", np.ones((3, 16), complex))
    np.save("cube.npy", np.ones((2, 2, 2)))
    sparse.save_npz("wide.npz", sparse.csr_array(np.ones((3, 17))))
    for name in ("text.npy", "text.npz"):
        Path(name).write_text("no array")
    header = Path("signals.npy").read_bytes().replace(b"}", b" ", 1)
    Path("header.npy").write_bytes(header)
    before = files()
    assert message in rejected(capsys, *arguments)
    assert files() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--method", "orthonormal", "--max-condition", "3"],
            "with --method orthonormal: only the",
        ),
        (
            ["--method", "log-det", "--max-condition", "3"],
            "--max-condition has no effect with --me",
        ),
        (
            ["--method", "log-det", "--variant", "paper"],
            "--variant has no effect with --method log-det: only the conditioned",
        ),
        (["--patch-size", "8"], "--patch-size has no effect on signals (.npy): leave it out"),
        (["--n-patches", "100"], "--n-patches has no effect on signals (.npy): leave it out"),
        (["--seed", "0"], "--seed has no effect on signals (.npy): leave it out"),
    ],
)
@pytest.mark.usefixtures("signals")
def test_options_without_effect_on_learning_are_rejected(files, capsys, arguments, message):
    before = files()
    assert message in rejected(capsys, "learn", "signals.npy", "-o", "m.kf", *arguments)
    assert files() == before


OUTPUTS = {
    "learn": ["learn", "signals.npy", "--max-iter", 1, "-o", "n.kf"],
    "encode": ["encode", "m.kf", "signals.npy", "-o", "n.npz"],
    "decode": ["decode", "m.kf", "codes.npz", "-o", "n.npy"],
    "path": ["path", "signals.npy", "--bounds", 1, "--max-iter", 1, "--plot", "n.png"],
}


@pytest.mark.parametrize("name", OUTPUTS)
def test_a_file_that_is_there_is_replaced_only_when_asked_for(signals, files, capsys, name):
    kf.save("m.kf", kf.learn(signals, max_iter=1))
    sparse.save_npz("codes.npz", sparse.csr_array(np.ones((3, 16))))
    words = OUTPUTS[name]
    target = Path(words[-1])
    target.write_text("mine")
    before = files()
    line = rejected(capsys, *words)
    assert f"{target} exists already: give another name, or --overwrite." in line
    assert files() == before
    assert ended(capsys, *words, "--overwrite")[0] == 0
    assert target.read_bytes() != b"mine"


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_an_interruption_keeps_what_was_learned(capsys, monkeypatch, name, code):
    learn, seen = kf.learn, []

    def interrupted_at_the_third(result):
        seen.append(result)
        if len(seen) == 3:
            signal.raise_signal(getattr(signal, name))

    def watched(*arguments, **options):
        return learn(*arguments, **options | {"callback": interrupted_at_the_third})

    monkeypatch.setattr(kf, "learn", watched)
    put("a.png", noisy())
    ending = ended(capsys, "learn", "a.png", "--patch-size", 4, "--tol", 0, "-o", "m.kf")
    text = "kappaform: error: interrupted: the transform after 3 iterations is in m.kf\n"
    assert ending == (code, "", text)
    model = kf.load("m.kf")
    assert_array_equal(model.result_.transform, seen[-1].transform)
    assert (model.patch_shape_, model.patch_mean_) == ((4, 4), "removed")


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("at", [None, 1, 3])  # the iteration that the first one interrupts
@pytest.mark.parametrize(("module", "name"), [(os, "fsync"), (np, "savez")])
def test_an_interruption_while_a_model_is_saved_waits(files, capsys, monkeypatch, at, module, name):
    learn, seen, original = kf.learn, [], getattr(module, name)
    before = files()

    def interrupted(result):
        seen.append(result)
        if len(seen) == at:
            signal.raise_signal(signal.SIGINT)

    def watched(*arguments, **options):
        return learn(*arguments, **options | {"callback": interrupted})

    def again(*arguments, **options):
        signal.raise_signal(signal.SIGINT)
        return original(*arguments, **options)

    monkeypatch.setattr(kf, "learn", watched)
    monkeypatch.setattr(module, name, again)
    ending = ended(capsys, "learn", "signals.npy", "--max-iter", 5, "--tol", 0, "-o", "m.kf")
    text = f"the transform after {at or 5} iteration{'s' * (at != 1)} is in m.kf"
    assert ending == (130, "", f"kappaform: error: interrupted: {text}\n")
    assert_array_equal(kf.load("m.kf").result_.transform, seen[-1].transform)
    assert set(files()) == {*before, "m.kf"}


@pytest.mark.usefixtures("signals")
def test_an_interruption_that_a_library_ignores_ends_learning(capsys, monkeypatch):
    learn = kf.learn

    def ignoring(*arguments, **options):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        return learn(*arguments, **options)

    monkeypatch.setattr(kf, "learn", ignoring)
    ending = ended(capsys, "learn", "signals.npy", "-o", "m.kf")
    text = "the transform after 1 iteration is in m.kf"
    assert ending == (130, "", f"kappaform: error: interrupted: {text}\n")


@pytest.mark.usefixtures("signals")
def test_a_handler_of_the_caller_may_let_learning_go_on(capsys, monkeypatch):
    learn, calls = kf.learn, []

    def hung_up(result):
        if result.n_iter == 2:
            signal.raise_signal(signal.SIGHUP)

    def watched(*arguments, **options):
        callback = options["callback"]
        both = lambda result: [hung_up(result), callback(result)][1]  # noqa: E731
        return learn(*arguments, **options | {"callback": both})

    monkeypatch.setattr(kf, "learn", watched)
    before = signal.signal(signal.SIGHUP, lambda *_: calls.append(1))
    try:
        ending = ended(capsys, "learn", "signals.npy", "--max-iter", 5, "--tol", 0, "-o", "m.kf")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (ending[0], calls) == (0, [1])
    assert kf.load("m.kf").result_.n_iter == 5


@pytest.mark.usefixtures("signals")
def test_an_interruption_before_anything_is_learned_leaves_no_file(files, capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(kf, "learn", interrupted)
    before = files()
    ending = ended(capsys, "learn", "signals.npy", "-o", "m.kf")
    assert ending == (130, "", "kappaform: error: interrupted\n")
    assert files() == before


def test_encode_says_that_it_removes_means_where_there_are_any(signals, capsys):
    centred = signals - signals.mean(axis=1, keepdims=True)
    kf.save("m.kf", kf.learn(centred, max_iter=2), patch_mean="removed")
    kf.save("kept.kf", kf.learn(signals, max_iter=2))
    np.save("centred.npy", centred.astype(np.float32))
    said = {}
    for model, source in (("m.kf", "signals"), ("m.kf", "centred"), ("kept.kf", "signals")):
        words = ["encode", model, f"{source}.npy", "-o", "c.npz", "--overwrite", "--json"]
        said[model, source] = json.loads(ended(capsys, *words)[1]).get("means")
    assert said["m.kf", "signals"].startswith("removed")
    assert said["m.kf", "centred"] is None
    assert said["kept.kf", "signals"] is None


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("a.png", "is an image, not a transform"),
        ("noise.json", "is a text, such as a file of noise .* not a transform"),
        ("signals.npy", "is a NumPy array, not a transform"),
        ("notes.txt", "is not a transform that kappaform saved"),
    ],
)
def test_a_file_that_is_no_model_is_rejected_with_what_to_give(capsys, name, what):
    put("a.png", noisy())
    kf.save_noise("noise.json", kf.White(20.0))
    Path("notes.txt").write_text("text")
    for words in (
        ["encode", name, "signals.npy", "-o", "c.npz"],
        ["denoise", "a.png", "--model", name],
    ):
        line = rejected(capsys, *words)
        assert re.search(f"{name} {what}.* give a file saved by learn, such as by kappaform", line)


def test_an_option_without_a_norm_is_named_as_the_command_does(capsys, signals):
    line = rejected(capsys, "learn", "signals.npy", "-o", "m.kf", "--norm", 0)
    assert "or none to leave it free" in line
    assert (
        ended(capsys, "learn", "signals.npy", "-o", "m.kf", "--norm", "none", "--max-iter", 2)[0]
        == 0
    )
    assert kf.load("m.kf").norm is None
    assert len(signals) > 2


def test_codes_of_another_model_are_named_with_their_columns(signals, files, capsys):
    kf.save("m.kf", kf.learn(signals, n_nonzero_coefs=3, max_iter=1))
    kf.save("u.kf", kf.learn_union(signals, n_transforms=2, n_nonzero_coefs=3, max_iter=1))
    sparse.save_npz("codes.npz", sparse.csr_array(np.eye(9)))
    before = files()
    for name, number in (("m.kf", 16), ("u.kf", 32)):
        line = rejected(capsys, "decode", name, "codes.npz", "-o", "new.npy")
        assert f"codes.npz has codes of 9 columns: the transform in {name} expects {number}" in line
    assert files() == before
