"""Files of noise: what was saved is read, and nothing else is."""

import json
from contextlib import suppress

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import kappaform as kf

LAGS = np.exp(-np.add.outer(np.arange(-2, 3) ** 2, np.arange(-2, 3) ** 2) / 2)
COLOURS = np.array([[1.0, 0.5], [0.5, 2.0]])
NOISES = [
    kf.White(7.25),
    kf.White(np.array([1.0, 2.0]), np.array([[1.0, 0.3], [0.3, 1.0]])),
    kf.Shot(2.5, 3.0, 100.0),
    kf.Shot(np.array([0.1, 0.2, 1 / 3])),
    kf.Varying([0, 64, 255], [12, 8, 4.1]),
    kf.Varying(np.array([[0, 1.0], [0, 2.0]]), np.array([[1.0, 2.0], [3.0, 4.0]])),
    kf.Correlated(np.eye(4) + 0.1, confidence=0.5, evidence="a \N{SNOWMAN}\n"),
    kf.Correlated(autocovariance=LAGS, stabiliser=kf.Shot(2.0)),
    kf.Correlated(
        autocovariance=np.multiply.outer(COLOURS, LAGS), stabiliser=kf.Varying([0, 9], [1, 2])
    ),
]


def written(path, **changes):
    """A file of noise, with some of its fields changed; ... removes one."""
    kf.save_noise(path, kf.Shot(2.5, 3.0))
    document = json.loads(path.read_text())
    for name, value in changes.items():
        home, _, field = name.rpartition("__")
        place = document[home] if home else document
        if value is ...:
            del place[field]
        else:
            place[field] = value
    path.write_text(json.dumps(document))
    return path


@pytest.fixture
def path(tmp_path):
    return tmp_path / "camera.json"


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_a_noise_is_read_as_it_was_saved(path, noise):
    kf.save_noise(path, noise)
    found = kf.load_noise(path)
    assert type(found) is type(noise)
    assert (str(found), found.confidence, found.evidence) == (
        str(noise),
        noise.confidence,
        noise.evidence,
    )
    for name, value in noise.parameters.items():
        if isinstance(value, kf.Shot | kf.Varying):
            value, other = value.parameters, getattr(found, name).parameters
            assert all(np.array_equal(value[each], other[each]) for each in value)
        elif value is not None:
            assert_array_equal(getattr(found, name), value)
        else:
            assert getattr(found, name) is None


def test_a_loaded_noise_denoises_like_the_saved_one(path):
    image = kf.add_noise(np.kron(np.eye(4), np.full((10, 10), 90.0)), 15)
    noise = kf.Correlated(autocovariance=225 * LAGS)
    kf.save_noise(path, noise)
    options = {"quality": "fast", "patch_size": 5}
    saved, loaded = (kf.denoise(image, noise=n, **options) for n in (noise, kf.load_noise(path)))
    assert_array_equal(loaded, saved)


def test_a_file_is_short_and_plain_text(path):
    kf.save_noise(path, kf.Correlated(autocovariance=LAGS), camera="D800", iso=3200, dtype="uint8")
    document = json.loads(path.read_text())
    assert document["camera"] == {"model": "D800", "iso": 3200, "dtype": "uint8"}
    assert document["format_version"] == 1
    assert len(path.read_text().splitlines()) < 30  # rows of a matrix are lines


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"[]", "the file is not an object"),
        (b"{}", "the file has no field 'camera'"),
        (b'{"format": NaN}', "contains NaN"),
        (b'{"format": -Infinity}', "contains -Infinity"),
        (b'{"format": 1, "format": 1}', "the field 'format' is given twice"),
        (b'{"format": 12345678901234567890}', "a number of 20 digits"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_other_files_are_rejected(path, content, reason):
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"camera\.json is not a noise that kappaform saved") as e:
        kf.load_noise(path)
    assert reason in str(e.value)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\xff\xfe", b"\x89PNG", b"no", b"{"])
def test_what_is_not_json_is_rejected_with_what_to_give(path, content):
    path.write_bytes(content)
    text = r"camera\.json is not JSON: give a file written by save_noise or kappaform noise\.$"
    with pytest.raises(ValueError, match=text):
        kf.load_noise(path)


def test_a_file_of_noise_is_no_transform(path):
    kf.save_noise(path, kf.White(2.0))
    with pytest.raises(ValueError, match=r"camera\.json is a noise file: use load_noise\.$"):
        kf.load(path)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"format": "kappaform transform"}, "its format is 'kappaform transform'"),
        ({"format_version": "1"}, "its format_version is '1'"),
        ({"format_version": True}, "its format_version is True"),
        ({"format_version": 0}, "its format_version is 0"),
        ({"noise": ...}, "the file has no field 'noise'"),
        ({"noise": 3}, "the kind of noise is None"),
        ({"comment": "mine"}, "the file has the unknown field 'comment'"),
        ({"camera": None}, "camera is not an object"),
        ({"camera__iso": -3}, "iso=-3: give a positive number"),
        ({"camera__iso": True}, "iso=True: give a positive number"),
        ({"camera__model": 5}, "camera=5: give the name"),
        ({"camera__model": "x" * 5000}, "give the name of a model"),
        ({"camera__dtype": "object"}, "dtype='object': give a type of numbers"),
        ({"camera__dtype": [1]}, "give a type of numbers"),
        ({"camera__dtype": ","}, "dtype=',': give a type of numbers"),  # a SyntaxError to NumPy
        ({"camera__dtype": "a"}, "dtype='a': give a type of numbers"),  # deprecated by NumPy
        ({"camera__lens": None}, "camera has the unknown field 'lens'"),
        ({"noise__kind": "salt"}, "the kind of noise is 'salt'"),
        ({"noise__kind": ["shot"]}, "the kind of noise is ['shot']"),
        ({"noise__gain": ...}, "shot has no field 'gain'"),
        ({"noise__sigma": 3}, "shot has the unknown field 'sigma'"),
        ({"noise__gain": -1}, "gain=-1.0: give a finite number > 0"),
        ({"noise__gain": [[1, 2], [3]]}, "gain has lists of different lengths"),
        ({"noise__gain": "2"}, "gain is not a number, or lists of numbers"),
        ({"noise__gain": True}, "gain is not a number, or lists of numbers"),
        ({"noise__gain": None}, "gain is not a number, or lists of numbers"),
        ({"noise__gain": []}, "gain is not a number, or lists of numbers"),
        ({"noise__gain": [[[[[[1]]]]]]}, "gain is not a number, or lists of numbers"),
        ({"noise__confidence": 2}, "confidence is 2"),
        ({"noise__confidence": None}, "confidence is None"),
        ({"noise__evidence": "x" * 5000}, "evidence must be a text of at most 1000"),
        ({"noise__evidence": 3}, "evidence must be a text"),
    ],
)
def test_fields_that_no_noise_has_are_rejected(path, changes, reason):
    written(path, **changes)
    with pytest.raises(ValueError, match=r"is not a noise that kappaform saved: ") as error:
        kf.load_noise(path)
    assert reason in str(error.value)


COMMON = {"confidence": 1.0, "evidence": ""}


@pytest.mark.parametrize(
    ("noise", "reason"),
    [
        ({"kind": "white", "sigma": -1}, "sigma"),
        ({"kind": "white", "sigma": 1, "correlation": [[1, 2], [2, 1]]}, "not positive"),
        ({"kind": "varying", "brightness": [0, 0], "sigma": [1, 1]}, "must increase"),
        ({"kind": "varying", "brightness": [0, 1], "sigma": [1, 0]}, "sigma above 0"),
        ({"kind": "correlated"}, "needs covariance"),
        ({"kind": "correlated", "covariance": [[1, 2], [2, 1]]}, "is not positive"),
        ({"kind": "correlated", "covariance": [[1, 0], [0.5, 1]]}, "is not symmetric"),
        ({"kind": "correlated", "covariance": [[1, 0]]}, "give a square matrix"),
        ({"kind": "correlated", "autocovariance": [[0.9, 1, 0.9]]}, "not positive"),
        ({"kind": "correlated", "autocovariance": [[0.1, 1, 0.2]]}, "not symmetric"),
        ({"kind": "correlated", "autocovariance": [1.0]}, "2 or 3 axes"),
        ({"kind": "correlated", "autocovariance": [[1.0] + [0] * 80]}, "not symmetric"),
        ({"kind": "correlated", "autocovariance": [[[[1.0]], [[2.0]]], [[[2.0]], [[1.0]]]]}, "not"),
        (
            {"kind": "correlated", "autocovariance": [[1.0]], "stabiliser": {"kind": "white"}},
            "kind",
        ),
        (
            {
                "kind": "correlated",
                "autocovariance": [[1.0]],
                "stabiliser": {"kind": "shot", "gain": 0, "read_noise": 0, "offset": 0},
            },
            "gain",
        ),
    ],
)
def test_what_cannot_be_noise_is_rejected(path, noise, reason):
    written(path, noise=noise | COMMON)
    with pytest.raises(ValueError, match=r"is not a noise that kappaform saved: ") as error:
        kf.load_noise(path)
    assert reason in str(error.value)


def test_a_number_beyond_float64_is_rejected(path):
    written(path)
    path.write_text(path.read_text().replace("2.5", "2.5e999"))
    with pytest.raises(ValueError, match="gain contains a number that is not finite"):
        kf.load_noise(path)


def test_long_files_are_not_read(path):
    path.write_bytes(b" " * (32 * 2**20 + 1))
    with pytest.raises(ValueError, match="it has more than 33554432 bytes"):
        kf.load_noise(path)


def test_large_covariances_are_not_decomposed(path, monkeypatch):
    monkeypatch.setattr("kappaform.imaging.noise.files._MOST_ROWS", 3)
    written(path, noise={"kind": "correlated", "covariance": np.eye(4).tolist()} | COMMON)
    with pytest.raises(ValueError, match="covariance has 4 rows, more than the limit of 3"):
        kf.load_noise(path)
    written(path, noise={"kind": "correlated", "autocovariance": [[1.0]]} | COMMON)
    with pytest.raises(ValueError, match="autocovariance has 100 rows, more than the limit of 3"):
        kf.load_noise(path)


def test_newer_files_ask_for_an_upgrade(path):
    written(path, format_version=2, kappaform_version="9.1")
    with pytest.raises(ValueError, match=r"by kappaform 9\.1, in format 2: .* upgrade kappaform"):
        kf.load_noise(path)


def test_damaged_files_are_rejected_or_valid(path):
    kf.save_noise(path, kf.Shot(2.5, 3.0, 100.0))
    content = path.read_bytes()
    for position in range(0, len(content), 3):
        damaged = bytearray(content)
        damaged[position] ^= 0x15
        path.write_bytes(damaged)
        with suppress(ValueError):  # or other digits, which are as valid
            noise = kf.load_noise(path)
            assert np.isfinite([noise.gain, noise.read_noise, noise.offset]).all()
            assert noise.gain > 0


def test_missing_files_and_folders_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.json"):
        kf.load_noise(tmp_path / "nothing.json")
    with pytest.raises(IsADirectoryError):
        kf.load_noise(tmp_path)


def test_only_noise_is_saved(path):
    with pytest.raises(TypeError, match="give White, Shot, Varying or Correlated"):
        kf.save_noise(path, 3.0)
    with pytest.raises(TypeError, match=r"name of the file first, save_noise\(path, noise\)"):
        kf.save_noise(kf.White(3.0), path)
    with pytest.raises(ValueError, match="iso=0: give a positive number"):
        kf.save_noise(path, kf.White(3.0), iso=0)
    with pytest.raises(ValueError, match="iso=100000000000000000000: give a positive number"):
        kf.save_noise(path, kf.White(3.0), iso=10**20)
    assert not path.exists()
