"""A file that is damaged, foreign or made to harm is rejected."""

import errno
import io
import json
import zipfile
from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
from crafted_files import (
    check_junk_in_arrays,
    check_junk_in_headers,
    entries_of,
    peak_of_refused_load,
    rewrite,
)

import kappaform as kf

N_FEATURES = 16
CANDIDATE = {"explore": None, "settled": None, "momentum_factor": 0.5}


def test_a_file_that_cannot_be_read_is_not_called_damaged(saved, monkeypatch):
    class Failing(io.FileIO):
        def readinto(self, buffer):
            if self.tell() > 0:
                raise OSError(errno.EIO, "Input/output error")
            return super().readinto(buffer)

        def readall(self):
            raise OSError(errno.EIO, "Input/output error")

    def open_failing(path, mode):
        return io.BufferedReader(Failing(path, mode), buffer_size=512)

    monkeypatch.setattr(Path, "open", open_failing)
    with pytest.raises(
        OSError, match=r"cannot be read: Input/output error: .*transform\.npz"
    ) as told:
        kf.load(saved)
    assert told.value.errno == errno.EIO
    assert not isinstance(told.value, ValueError)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing\.npz"):
        kf.load(tmp_path / "missing.npz")


@pytest.mark.parametrize("content", [b"", b"text", b"\x80\x04N.", b"PK\x03\x04", b"\x93NUMPY"])
def test_files_of_another_kind_are_rejected(content, tmp_path):
    (tmp_path / "other").write_bytes(content)
    with pytest.raises(
        ValueError, match=r"other is not a transform that kappaform saved.*not an npz"
    ):
        kf.load(tmp_path / "other")


def test_other_archives_are_rejected(tmp_path):
    message = "is not a transform that kappaform saved"
    np.save(tmp_path / "array.npy", np.eye(3))
    np.savez(tmp_path / "foreign.npz", transform=np.eye(3))
    np.savez(tmp_path / "header.npz", header=np.array("[]"), transform=np.eye(3))
    np.savez(tmp_path / "json.npz", header=np.array("{"), transform=np.eye(3))
    np.savez(tmp_path / "format.npz", header=np.array('{"format": "picture"}'))
    np.savez(tmp_path / "pickle.npz", header=np.array([{}], dtype=object))
    with zipfile.ZipFile(tmp_path / "text.zip", "w") as archive:
        archive.writestr("header", "text")
    for path in tmp_path.iterdir():
        with pytest.raises(ValueError, match=message):
            kf.load(path)
    with pytest.raises(ValueError, match="it is an npz archive of other arrays, without a header"):
        kf.load(tmp_path / "foreign.npz")


def test_strange_archives_are_rejected(saved):
    content = saved.read_bytes()
    name = content.index(b"header.npy")  # 30 bytes after the start of its local entry
    for position, value in {6: 0x21, 8: 0x55}.items():  # encrypted or patched, compressed somehow
        damaged = bytearray(content)
        for entry in (name - 30 + position, content.rindex(b"header.npy") - 46 + position + 2):
            damaged[entry] = value
        saved.write_bytes(damaged)
        with pytest.raises(ValueError, match="or it is damaged: "):
            kf.load(saved)


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.9, 0.999])
def test_truncated_files_are_rejected(fraction, saved):
    content = saved.read_bytes()
    saved.write_bytes(content[: int(fraction * len(content))])
    with pytest.raises(ValueError, match=r"transform\.npz is not a transform .* end is missing"):
        kf.load(saved)


def test_flipped_bits_are_noticed(saved):
    content = saved.read_bytes()
    intact, reasons = kf.load(saved), []
    for position in range(0, len(content), 41):
        damaged = bytearray(content)
        damaged[position] ^= 0xFF
        saved.write_bytes(damaged)
        try:
            loaded = kf.load(saved)
        except ValueError as error:
            reasons.append(str(error))
        else:  # a byte that nobody reads, such as a date
            np.testing.assert_array_equal(loaded.components_, intact.components_)
    assert len(reasons) > len(content) / 41 / 2
    assert all("damaged" in reason for reason in reasons)


def test_files_of_a_newer_format_ask_for_an_upgrade(saved):
    rewrite(saved, format_version=4, kappaform_version="9.1", novelty=[1, 2])
    with pytest.raises(ValueError, match=r"written by kappaform 9\.1, in format 4.*upgrade"):
        kf.load(saved)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"n_features": 9}, r"transform is float64 of shape \(16, 16\), not float64 of .*\(9, 9\)"),
        ({"n_features": True}, "n_features is True, not a number of features"),
        ({"n_nonzero_coefs": 17}, "n_nonzero_coefs=17 exceeds n_features=16"),
        ({"n_nonzero_coefs": 1.5}, "n_nonzero_coefs"),
        ({"condition_number": 1.5}, "has condition number .*, the header says 1.5"),
        ({"condition_number": 1e14}, "has condition number .*, the header says 1000"),
        ({"condition_number": float("nan")}, "condition_number is nan"),
        ({"patch_shape": [3, 3]}, r"patch_shape=\[3, 3\]"),
        ({"patch_mean": 1}, "patch_mean=1"),
        ({"stop_reason": "TIRED"}, "its stop_reason is 'TIRED', not one of .*'TOLERANCE'"),
        ({"dtype": "object"}, r"its dtype is 'object', not one of \('float32', 'float64'\)"),
        ({"method": {"name": "Magic"}}, "the name of its method is 'Magic', not one of .*'Conditi"),
        ({"method": {"name": []}}, r"the name of its method is \[\], not one of"),
        ({"method": {"name": "Conditioned", "max_condition": 0.5}}, "max_condition=0.5"),
        ({"method": {"name": "Conditioned", "max_condition": 1.25}}, "beyond max_condition=1.25"),
        (
            {"method": {"name": "Conditioned", "colour": "red"}},
            r"Conditioned has no parameters \['colour'\]",
        ),
        ({"method": ...}, "it has no 'method'"),
        ({"n_iter": ...}, "it has no 'n_iter'"),
        ({"candidates": ...}, "it has no 'candidates'"),
        ({"candidates": []}, r"its candidates are \[\]"),
        ({"candidates": [{}]}, "it has no 'explore'"),
        ({"candidates": ["first"]}, "a candidate is 'first'"),
        ({"candidates": [CANDIDATE | {"explore": "all"}]}, "explores by 'all'"),
        ({"candidates": [CANDIDATE | {"settled": "MAX_ITER"}]}, "converged by 'MAX_ITER'"),
        (
            {"candidates": [CANDIDATE | {"momentum_factor": -1.0}]},
            "momentum_factor is -1.0",
        ),
        ({"candidates": [CANDIDATE] * 2}, "it has 2 candidates, but records of 1"),
        ({"format_version": -1}, "its format_version is -1, not an integer >= 1"),
        ({"format_version": 0}, "its format_version is 0, not an integer >= 1"),
        ({"format_version": 2.5}, "its format_version is 2.5, not an integer >= 1"),
        ({"format_version": True}, "its format_version is True, not an integer >= 1"),
        ({"format_version": "3"}, "its format_version is '3', not an integer >= 1"),
        ({"format_version": ...}, "it has no 'format_version'"),
        ({"kappaform_version": 3}, "its kappaform_version is 3, not a text"),
        ({"n_iter": -1}, "its n_iter is -1, not an integer >= 0"),
        ({"n_iter": 2.0}, "its n_iter is 2.0, not an integer >= 0"),
        ({"n_nonzero_coefs": -1}, "its n_nonzero_coefs is -1, not an integer >= 0"),
        ({"parameters": {"verbose": "yes"}}, "its parameter verbose is 'yes', not a number"),
        ({"parameters": {"sparse_output": []}}, r"its parameter sparse_output is \[\], not a numb"),
        ({"parameters": {"init": 1}}, "its parameter init is 1, not a text"),
        ({"active": 1}, "its active candidate is 1, not an integer from 0 to 0"),
        ({"turn": -1}, "its turn is -1, not an integer"),
        ({"stream": {"is_result": 1}}, "its stream is"),
        (
            {"parameters": {"colour": "red"}},
            r"parameters contain \['colour'\], which ConditionedTransform does not have",
        ),
        (
            {"parameters": {"max_condition": 1e9}},
            r"max_condition=1000000000.0: .*=2.0\. Take another copy",
        ),
        ({"parameters": {"variant": "paper"}}, "variant='paper': .* variant='monotone'"),
        ({"feature_names": "sixteen letters!"}, "feature_names is not a list of 16 texts"),
        ({"feature_names": ["one"]}, "feature_names is not a list of 16 texts"),
    ],
)
def test_headers_that_contradict_the_transform_are_rejected(changes, reason, saved):
    rewrite(saved, **changes)
    with pytest.raises(ValueError, match=rf"transform\.npz is .*damaged: .*{reason}"):
        kf.load(saved)


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({"transform": None}, "it has no 'transform'"),
        (
            {"transform": np.full((16, 16), np.nan)},
            "transform contains NaN or values beyond 1e\\+150",
        ),
        ({"transform": np.eye(16, dtype=np.float32)}, "transform is float32"),
        ({"transform": np.ones((16, 15))}, r"transform is float64 of shape \(16, 15\)"),
        ({"transform": np.eye(16)}, "the transform is not that of its best candidate"),
        ({"left": None}, "it has no 'left'"),
        ({"spectrum": np.ones(15)}, r"spectrum is float64 of shape \(15,\)"),
        ({"last_left": np.ones((16, 16))}, "the columns of last_left are not orthonormal"),
        ({"last_right": None}, "it has no 'last_right'"),
        ({"last_left": None}, "it has no 'last_left'"),
        ({"last_spectrum": None}, "it has no 'last_spectrum'"),
        ({"last_left": None, "last_right": None}, "it has no 'last_left'"),
        ({"last_spectrum": np.zeros(16)}, "last_spectrum is singular"),
        (
            {"last_spectrum": np.arange(1.0, 17)},
            "its last_spectrum is not feasible: .*beyond max_condition=2",
        ),
        (
            {"last_spectrum": np.full(16, 1e140)},
            "its last_spectrum is not feasible: the transform has norm 4e",
        ),
        ({"records": np.ones((3, 2))}, r"records is float64 of shape \(3, 2\)"),
        ({"records": np.ones((0, 6))}, "it has 0 records of 9 iterations"),
        ({"records": np.full((2, 6), "a")}, "records is <U1"),
        ({"records": np.full((2, 6), -1.0)}, "its records have errors that cannot be"),
        ({"records": np.full((2, 6), np.nan)}, "its records have errors that cannot be"),
    ],
)
def test_arrays_that_contradict_the_header_are_rejected(arrays, reason, saved):
    rewrite(saved, arrays)
    with pytest.raises(ValueError, match=f"damaged: .*{reason}"):
        kf.load(saved)


# --- files that were made to harm ----------------------------------------------------------------

SMALL = np.random.default_rng(0).standard_normal((40, 4)).cumsum(axis=1)
MODELS = {
    "batches": lambda: kf.ConditionedTransform(2, init="dct").partial_fit(SMALL),
    "log-det": lambda: kf.LogDetTransform(2, init="dct").partial_fit(SMALL),
    "race": lambda: kf.learn(SMALL, n_nonzero_coefs=2, max_iter=15),
    "race over batches": lambda: kf.learn_stream([SMALL], n_nonzero_coefs=2),
}
each_model = pytest.mark.parametrize("model", MODELS)


def assert_usable(loaded):
    loaded.coding = "largest"  # the other kind needs an inverse, which some have not
    assert loaded.transform(SMALL).shape == SMALL.shape
    before = deepcopy(loaded)
    assert np.isfinite(loaded.partial_fit(SMALL).components_).all()
    result, n_nonzero = before.result_, before.n_nonzero_coefs_
    more = kf.learn(SMALL, result.method, n_nonzero_coefs=n_nonzero, init=result, max_iter=2)
    bound = getattr(loaded.result_.method, "max_condition", np.inf)
    assert more.condition_number <= bound * (1 + 1e-9)
    assert loaded.condition_number_ <= bound * (1 + 1e-9)


@each_model
@pytest.mark.filterwarnings("ignore:max_condition=1e:UserWarning")
def test_no_header_leads_to_another_error_than_that_the_file_is_damaged(model, tmp_path):
    path = tmp_path / "transform.npz"
    kf.save(path, MODELS[model](), patch_shape=(2, 2))
    # The first model sees all of the junk everywhere, each other one a half of it in turns.
    check_junk_in_headers(path, assert_usable, step=1 if model == "batches" else 2)


@each_model
def test_no_array_leads_to_another_error_than_that_the_file_is_damaged(model, tmp_path, rng):
    path = tmp_path / "transform.npz"
    kf.save(path, MODELS[model]())
    check_junk_in_arrays(path, assert_usable, rng, but=("_2", "_3"))


def test_factors_that_are_no_decomposition_are_rejected(signals, tmp_path, rng):
    result = kf.learn(signals, kf.Conditioned(2.0), n_nonzero_coefs=3, init="dct", max_iter=3)
    kf.save(tmp_path / "t.npz", result)
    mixing = rng.standard_normal((N_FEATURES, N_FEATURES))
    for arrays, reason in (
        ({"left": result.transform, "right": np.eye(16), "spectrum": np.ones(16)}, "left are not"),
        ({"right": result.transform.T, "left": np.eye(16), "spectrum": np.ones(16)}, "right are"),
        ({"left": mixing, "right": np.linalg.solve(mixing, result.transform).T}, "left are not"),
    ):
        rewrite(tmp_path / "t.npz", {"spectrum": np.ones(16)} | arrays)
        with pytest.raises(ValueError, match=f"the columns of {reason}"):
            kf.load(tmp_path / "t.npz")


@pytest.mark.parametrize(
    ("method", "arrays", "reason"),
    [
        (kf.Conditioned(), {"spectrum_1": np.r_[3.0, np.ones(15)]}, "beyond max_condition=2"),
        (kf.Conditioned(), {"spectrum_1": np.full(16, 2.0)}, "has norm 8.0, not 4.0"),
        (kf.Conditioned(), {"left_1": np.ones((16, 16))}, "columns of left_1 are not orthonormal"),
        (
            kf.Orthonormal(),
            {"start_1": np.diag(np.arange(1.0, 17))},
            "its start_1 is not feasible: .*not ortho",
        ),
        (kf.LogDet(), {"start_1": np.ones((16, 16))}, "start_1 is singular"),
        (
            kf.LogDet(),
            {"records_1": np.array([[1, -1, 1, np.nan, np.nan, 1]])},
            "cannot be: Record",
        ),
        (kf.LogDet(), {"records_1": np.ones((9, 6))}, "records of 3 iterations"),
    ],
)
def test_a_candidate_that_does_not_lead_is_checked_as_the_result_is(
    method, arrays, reason, signals, tmp_path
):
    result = kf.learn(signals, method, n_nonzero_coefs=3, init=("dct", "identity"), max_iter=3)
    assert result.state.candidates[0] is result.state.best
    assert len(result.state.candidates) == 2
    kf.save(tmp_path / "t.npz", result)
    rewrite(tmp_path / "t.npz", arrays)
    with pytest.raises(ValueError, match=f"damaged: .*{reason}"):
        kf.load(tmp_path / "t.npz")


@pytest.mark.parametrize("scale", [0.5, 2.0, 1e100])
def test_transforms_of_another_norm_than_the_method_keeps_are_rejected(scale, signals, tmp_path):
    for method, told in ((kf.Conditioned(), "norm"), (kf.Orthonormal(), "not orthonormal")):
        result = kf.learn(signals, method, n_nonzero_coefs=3, init="dct", max_iter=3)
        kf.save(tmp_path / "t.npz", result)
        scaled = {"transform": scale * result.transform}
        if isinstance(method, kf.Conditioned):
            scaled["spectrum"] = scale * result.state.best.transform.spectrum
        rewrite(tmp_path / "t.npz", scaled)
        with pytest.raises(ValueError, match=told):
            kf.load(tmp_path / "t.npz")


def test_compressed_arrays_are_rejected_before_they_are_unpacked(saved, tmp_path):
    header, arrays = entries_of(saved)
    path = tmp_path / "large.npz"
    arrays |= {"records": np.zeros((10**6, 6))}
    np.savez_compressed(path, header=np.array(json.dumps(header)), **arrays)
    assert path.stat().st_size < 10**5
    assert peak_of_refused_load(path) < 10**6


@pytest.mark.parametrize("n_features", [10**9, 2**62, 5000])
def test_sizes_that_a_file_only_claims_are_rejected_before_memory_is_taken(
    n_features, saved, tmp_path
):
    header, _ = entries_of(saved)
    path = tmp_path / "large.npz"
    header["n_features"] = n_features
    square = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({n_features}, {n_features})}}"
    with zipfile.ZipFile(path, "w") as archive, archive.open("header.npy", "w") as file:
        np.save(file, np.array(json.dumps(header)))
    with zipfile.ZipFile(path, "a") as archive:
        text = square.encode().ljust(117) + b"\n"
        archive.writestr("transform.npy", b"\x93NUMPY\x01\x00\x76\x00" + text + bytes(100))
    assert peak_of_refused_load(path) < 10**6


def test_a_header_cannot_claim_more_candidates_than_the_file_has(saved, tmp_path):
    header, arrays = entries_of(saved)
    path = tmp_path / "large.npz"
    header["candidates"] = [0] * 300_000
    np.savez(path, header=np.array(json.dumps(header)), **arrays)
    assert peak_of_refused_load(path) < 10 * path.stat().st_size


def test_a_patch_of_very_many_sides_is_rejected(saved):
    rewrite(saved, patch_shape=[2**40] * 10**5)
    with pytest.raises(ValueError, match="give the sides of a patch"):
        kf.load(saved)
