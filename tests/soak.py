"""Random campaigns, for as long as one likes.

    python tests/soak.py --minutes 5                     all campaigns, in turns
    python tests/soak.py --campaign resume --minutes 60  one of them
    python tests/soak.py --campaign resume --seed 17     a single case again, as a failure says

A case is drawn from a seed, and a failure prints it. Moments of interruption are drawn as well, but
where they fall depends on the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
import os
import pickle
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import naive
import numpy as np
import tifffile
from linalg import test_spectrum
from PIL import Image
from threadpoolctl import threadpool_info, threadpool_limits

import kappaform as kf
from kappaform.image_files import Picture, check_target, read_image, write_image
from kappaform.learning import StopReason

Facts = dict[str, Any]  #: what a failure tells of its case
MOST_SECONDS, MOST_MEGABYTES = 20.0, 400.0  # for a file of a few kilobytes


# --- what is drawn


def draw_signals(rng: np.random.Generator, most: int = 300) -> np.ndarray:
    """Signals of a random kind, number and size, some of them hardly signals at all."""
    n_features = int(rng.integers(2, 17))
    n_signals = int(rng.integers(n_features, most))
    signals = rng.standard_normal((n_signals, n_features))
    kind = rng.integers(7)
    if kind == 1:
        signals = signals.cumsum(axis=1)
    elif kind == 2:
        signals = signals @ (signals[:n_features] * np.geomspace(1, 1e-6, n_features))
    elif kind == 3:
        signals = signals[:, :1] * signals[:1]  # rank one
    elif kind == 4:
        signals = rng.integers(-1, 2, signals.shape).astype(np.float64)  # ties and zeros
    elif kind == 5:
        signals = np.where(rng.random(signals.shape) < 0.1, signals, 0.0)
    elif kind == 6:
        signals = signals - signals.mean(axis=1, keepdims=True)
    return signals * 2.0 ** rng.integers(-30, 30)


def draw_method(rng: np.random.Generator) -> Any:
    kappa = float(rng.choice([1.0, 1.0 + rng.random(), 1 + 10 ** rng.uniform(-2, 4)]))
    norm = rng.choice(["auto", "given", "free"], p=[0.6, 0.3, 0.1])
    norms = {"auto": "auto", "given": float(10 ** rng.uniform(-3, 3)), "free": None}
    n_rounds = int(rng.integers(1, 7))
    kind = rng.integers(8)
    if kind == 0:
        return kf.Orthonormal()
    if kind == 1:
        return kf.LogDet(10 ** rng.uniform(-4, 0))
    if kind in (2, 3):
        variant = str(rng.choice(["paper", "reference", "public"]))
        return kf.Conditioned(kappa, norm=norms[norm], variant=variant)
    objective = str(rng.choice(["absolute", "relative"]))
    return kf.Conditioned(kappa, norm=norms[norm], objective=objective, n_rounds=n_rounds)


def draw_start(rng: np.random.Generator, n_features: int) -> Any:
    names = ("auto", "dct", "identity", "least-squares", "procrustes")
    one = [*names, rng.standard_normal((n_features, n_features))]
    if rng.random() < 0.2:
        return tuple(one[i] for i in rng.choice(len(one), 2, replace=False))
    return one[rng.integers(len(one))] if rng.random() < 0.5 else "auto"


def draw_problem(rng: np.random.Generator, facts: Facts) -> tuple[np.ndarray, Any, dict[str, Any]]:
    """Signals, method and options of `learn`."""
    signals, method = draw_signals(rng), draw_method(rng)
    n_features = signals.shape[1]
    options = {
        "n_nonzero_coefs": int(rng.integers(1, n_features + 1)),
        "init": draw_start(rng, n_features),
        "max_iter": int(rng.integers(1, 60)),
        "tol": float(rng.choice([0.0, 1e-4])),
    }
    facts.update(shape=signals.shape, dtype=str(signals.dtype), method=method, **options)
    return signals, method, options


# --- what is checked


def check_result(result: Any) -> None:
    """Bound and norm, as they hold for whatever leaves learning."""
    transform, method = result.transform, result.method
    assert np.isfinite(transform).all(), "the transform is not finite"
    singular = np.linalg.svd(transform, compute_uv=False)
    assert singular[-1] > 0, "the transform is singular"
    condition, norm = float(singular[0] / singular[-1]), float(np.linalg.norm(singular))
    if isinstance(method, kf.Orthonormal):
        assert condition <= 1 + 1e-9, f"condition number {condition} of an orthonormal transform"
    if isinstance(method, kf.Conditioned):
        bound = method.max_condition
        assert condition <= bound * (1 + 1e-9), f"condition number {condition}, bound {bound}"
        if method.norm is not None:
            wanted = len(transform) ** 0.5 if method.norm == "auto" else method.norm
            assert abs(norm - wanted) <= 1e-9 * wanted, f"norm {norm}, asked for {wanted}"


def check_descent(result: Any, signals: np.ndarray) -> None:
    """No iteration of a monotone method raises its loss by more than rounding."""
    method, loss = result.method, result.loss
    if isinstance(method, kf.Conditioned) and method.variant != "monotone":
        return
    if isinstance(method, kf.LogDet):
        rise = np.diff(loss) / np.maximum(1, np.abs(loss[1:]))
    elif isinstance(method, kf.Conditioned) and method.objective == "relative":
        rise = np.diff(loss**2)
    else:
        with np.errstate(invalid="ignore", divide="ignore"):
            norms = result.errors.absolute / result.errors.relative
        rise = np.diff((loss / np.nanmax(np.append(norms, np.linalg.norm(signals)))) ** 2)
    assert np.all(rise <= 1e-12), f"the loss rises by {rise.max()}"
    assert result.stop_reason is not StopReason.ROSE or len(loss) > 1


def same(one: Any, other: Any) -> None:
    """Two results, bit by bit."""
    np.testing.assert_array_equal(one.transform, other.transform)
    np.testing.assert_array_equal(one.loss, other.loss)
    np.testing.assert_array_equal(one.errors, other.errors)
    assert one.n_iter == other.n_iter


def blas_threads() -> list[tuple[str, int]]:
    return sorted(
        (pool["filepath"], pool["num_threads"])
        for pool in threadpool_info()
        if pool["user_api"] == "blas"
    )


def bounded(call: Callable[[], Any], *refusals: type[BaseException]) -> Any:
    """What the call returns, or None where it refuses; neither long nor in much memory."""
    started, before = time.perf_counter(), _peak_megabytes()
    try:
        return call()
    except refusals:
        return None
    finally:
        elapsed, grown = time.perf_counter() - started, _peak_megabytes() - before
        assert elapsed <= MOST_SECONDS, f"it took {elapsed:.1f} s"
        assert grown <= MOST_MEGABYTES, f"it took {grown:.0f} MB"


def _peak_megabytes() -> float:
    unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, kilobytes elsewhere
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


# --- campaigns


def bound_and_descent(rng: np.random.Generator, facts: Facts) -> None:
    """Bound and norm hold at every iteration, and monotone methods never raise their loss."""
    signals, method, options = draw_problem(rng, facts)
    result = kf.learn(signals, method, callback=check_result, **options)
    check_result(result)
    check_descent(result, signals)


def spectra(rng: np.random.Generator, facts: Facts) -> None:
    """A thousand projected spectra, each against the oracle, with a norm and without."""
    facts["problems"] = seed = int(rng.integers(2**31))
    test_spectrum.test_no_other_bounded_spectrum_is_closer(seed)
    test_spectrum.test_no_other_bounded_spectrum_of_the_norm_is_closer(seed)


def naive_sums(rng: np.random.Generator, facts: Facts) -> None:
    """Reported errors are those of sums written out."""
    signals, method, options = draw_problem(rng, facts)
    signals = signals[:40]
    facts["shape"] = signals.shape
    n_nonzero = options["n_nonzero_coefs"]
    result = kf.learn(signals, method, **options)
    _, _, kept, discarded = naive.pass_statistics(signals, result.transform, n_nonzero)
    scale = (kept + discarded) ** 0.5
    assert abs(result.errors.absolute[-1] - discarded**0.5) <= 1e-7 * scale
    assert abs(result.errors.relative[-1] * scale - discarded**0.5) <= 1e-7 * scale
    found = kf.evaluate(signals, result, n_nonzero)
    assert abs(found.absolute - discarded**0.5) <= 1e-7 * scale
    codes = naive.hard_threshold(signals @ result.transform.T, n_nonzero)
    lost = np.linalg.norm(signals - np.linalg.solve(result.transform, codes.T).T)
    precision = 1e-7 + 1e-14 * result.condition_number
    assert abs(found.reconstruction * np.linalg.norm(signals) - lost) <= precision * np.linalg.norm(
        signals
    )


def resume(rng: np.random.Generator, facts: Facts) -> None:
    """Learning that stops and goes on gives the bits of learning that never stopped."""
    signals, method, options = draw_problem(rng, facts)
    signals = signals.astype(rng.choice(["f4", "f8"]))
    options["max_iter"] += int(rng.choice([0, 100]))  # races may take that many
    facts.update(dtype=str(signals.dtype), max_iter=options["max_iter"])
    whole = kf.learn(signals, method, **options)
    facts["stop"] = stop = int(rng.integers(1, options["max_iter"] + 1))
    part = kf.learn(signals, method, **options | {"max_iter": stop})
    if whole.n_iter <= part.n_iter:
        return same(whole, part)
    more = {"max_iter": options["max_iter"] - stop}
    for copied in (pickle.loads(pickle.dumps(part)), _from_file(part)):
        same(whole, kf.learn(signals, method, **options | more | {"init": copied}))
    return None


def _from_file(result: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        kf.save(Path(folder) / "result", result)
        return kf.load(Path(folder) / "result").result_


def streams(rng: np.random.Generator, facts: Facts) -> None:
    """A stream keeps the bound after every batch, and goes on bitwise where it stopped."""
    signals, method, options = draw_problem(rng, facts)
    cuts = np.unique(rng.integers(1, len(signals), rng.integers(1, 8)))
    batches = np.split(signals, cuts)
    options = {
        "n_nonzero_coefs": options["n_nonzero_coefs"],
        "init": options["init"],
        "forgetting": rng.choice([None, 0.5, 1.0]) or "auto",
        "n_updates": int(rng.integers(1, 6)),
    }
    facts.update(options, cuts=cuts.tolist())
    whole = kf.learn_stream(batches, method, callback=check_result, **options)
    facts["stop"] = stop = int(rng.integers(1, len(batches)))
    part = kf.learn_stream(batches[:stop], method, **options)
    for copied in (pickle.loads(pickle.dumps(part)), _from_file(part)):
        same(whole, kf.learn_stream(batches[stop:], method, **options | {"init": copied}))


class Store:
    """Rows that can be sliced, as those of a file."""

    def __init__(self, signals: np.ndarray) -> None:
        self._signals, self.shape, self.dtype = signals, signals.shape, signals.dtype

    def __getitem__(self, key: Any) -> np.ndarray:
        return self._signals[key].copy()


def stores(rng: np.random.Generator, facts: Facts) -> None:
    """Wherever signals lie, and however many threads there are, the same is learned from them."""
    import dask.array as da

    signals, method, options = draw_problem(rng, facts)
    signals = signals.astype(rng.choice(["f4", "f8"]))
    options["max_iter"] = min(options["max_iter"], 10)
    whole = kf.learn(signals, method, **options)
    with _threads(int(rng.integers(1, 5))):
        same(whole, kf.learn(Store(signals), method, **options))
        same(whole, kf.learn(np.asfortranarray(signals), method, **options))
    facts["rows"] = rows = int(rng.integers(1, len(signals) + 1))
    blocks = da.from_array(signals, chunks=(rows, signals.shape[1]))
    found, expected = (
        np.array(kf.evaluate(each, whole, options["n_nonzero_coefs"])) for each in (blocks, signals)
    )
    # Rounding is that of all coefficients, however little of them is left in an error.
    scale = np.array([np.linalg.norm(signals) * np.linalg.norm(whole.transform, 2), 1.0, 1.0])
    np.testing.assert_allclose(found / scale, expected / scale, rtol=1e-5, atol=1e-6)
    check_result(kf.learn(blocks, method, **options))


@contextlib.contextmanager
def _threads(number: int) -> Any:
    name = "KAPPAFORM_NUM_THREADS"
    before = os.environ.get(name)
    os.environ[name] = str(number)
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def interrupts(rng: np.random.Generator, facts: Facts) -> None:
    """Ctrl-C at any moment: results are valid, estimators usable, BLAS as it was."""
    signals = rng.standard_normal((int(rng.integers(200, 2000)), 16)).cumsum(axis=1)
    fitted = kf.ConditionedTransform(2, init="dct", max_iter=5).fit(signals[:, :9])
    fitted.partial_fit(signals[:50, :9])
    method, options = kf.Conditioned(3.0), {"n_nonzero_coefs": 3}
    calls: dict[str, Callable[[Any], Any]] = {
        "learn": lambda _: kf.learn(signals, method, max_iter=20, tol=0, **options),
        "learn_stream": lambda _: kf.learn_stream(np.array_split(signals, 9), method, **options),
        "condition_path": lambda _: kf.condition_path(signals, [2.0, 3.0], max_iter=5, **options),
        "fit": lambda estimator: estimator.fit(signals),
        "partial_fit": lambda estimator: [estimator.partial_fit(signals[:200, :9]) for _ in "123"],
    }
    facts["what"] = what = str(rng.choice(sorted(calls)))
    started = time.perf_counter()
    calls[what](copy.deepcopy(fitted))
    elapsed = time.perf_counter() - started
    with threadpool_limits(2, user_api="blas"):  # so that a limit of 1 that stays is seen
        _interrupt_often(lambda each: calls[what](each), fitted, signals, elapsed, rng, facts)


def _interrupt_often(
    call: Callable[[Any], Any],
    fitted: Any,
    signals: np.ndarray,
    elapsed: float,
    rng: np.random.Generator,
    facts: Facts,
) -> None:
    threads = blas_threads()
    for _ in range(10):
        estimator = copy.deepcopy(fitted)
        facts["delay"] = delay = rng.uniform(1e-4, 1.05 * elapsed + 1e-4)
        error = _interrupted(lambda each=estimator: call(each), delay)
        facts["error"] = repr(error)
        if isinstance(error, kf.LearningInterrupted):
            for result in (error.result, *error.finished):
                check_result(result)
        del error  # its frames may hold a block that was left by the interrupt itself
        assert blas_threads() == threads, f"BLAS threads {blas_threads()}, before {threads}"
        _check_usable(estimator, fitted, signals)


def _check_usable(estimator: Any, before: Any, signals: np.ndarray) -> None:
    """An interrupted estimator is the one before or one that has learned, never half of each."""
    n_features = estimator.n_features_in_
    assert estimator.components_.shape == (n_features, n_features)
    assert estimator.result_.transform.shape == (n_features, n_features)
    check_result(estimator.result_)
    signals = signals[:, :n_features]
    codes = estimator.transform(signals)
    if n_features == before.n_features_in_ and estimator.n_iter_ == before.n_iter_:
        np.testing.assert_array_equal(codes, before.transform(signals))
    estimator.partial_fit(signals[:50])


def _interrupted(call: Callable[[], Any], delay: float) -> BaseException | None:
    """What Ctrl-C after so many seconds makes of a call; None if it was done before."""
    armed = True

    def ring(*_: Any) -> None:
        if armed:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        call()
        armed = False
    except KeyboardInterrupt as error:
        return error
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return None


def model_files(rng: np.random.Generator, facts: Facts) -> None:
    """A damaged file of a transform is refused, or it gives the transform that was saved."""
    whole = _model(int(rng.integers(4)))
    crafted = rng.random() < 0.5
    facts["bytes"] = "changed inside the archive" if crafted else "changed"
    damaged = _crafted(rng, whole, facts) if crafted else _damaged(rng, whole, facts)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.npz"
        path.write_bytes(whole)
        saved = kf.load(path)
        path.write_bytes(damaged)
        loaded = bounded(lambda: kf.load(path), ValueError, OSError)
    if loaded is None:
        return
    check_result(loaded.result_)
    signals = np.random.default_rng(0).standard_normal((50, loaded.n_features_in_))
    assert np.isfinite(loaded.transform(signals)).all()
    if not crafted:
        np.testing.assert_array_equal(loaded.components_, saved.components_)
        np.testing.assert_array_equal(loaded.transform(signals), saved.transform(signals))


def _model(number: int) -> bytes:
    """A saved transform: of a race, of a race over batches, penalised, or of another bound."""
    signals = np.random.default_rng(number).standard_normal((60, 6)).cumsum(axis=1)
    methods = (kf.Conditioned(2.0), kf.Conditioned(4.0), kf.LogDet(), kf.Conditioned(3.0))
    if number == 1:
        result = kf.learn_stream(np.split(signals, 3), methods[1], n_nonzero_coefs=2)
    else:
        result = kf.learn(signals, methods[number], n_nonzero_coefs=2, max_iter=4)
    with tempfile.TemporaryDirectory() as folder:
        kf.save(Path(folder) / "model.npz", result)
        return (Path(folder) / "model.npz").read_bytes()


def _damaged(rng: np.random.Generator, whole: bytes, facts: Facts) -> bytes:
    """Bytes changed, lost, repeated or cut off."""
    facts["damage"] = kind = str(rng.choice(["flip", "set", "cut", "lose", "repeat"]))
    data = np.frombuffer(whole, np.uint8).copy()
    i, j = np.sort(rng.integers(0, len(data) + 1, 2))
    if kind == "cut":
        return bytes(data[:i])
    if kind == "lose":
        return bytes(data[:i]) + bytes(data[min(j, i + 40) :])
    if kind == "repeat":
        return bytes(data[:j]) + bytes(data[i:])
    # Headers are short, and damage there is the most interesting.
    most = len(data) if rng.random() < 0.5 else min(len(data), 200)
    places = rng.integers(0, most, rng.integers(1, 5))
    if kind == "flip":
        data[places] ^= np.uint8(1) << rng.integers(0, 8, len(places)).astype(np.uint8)
    else:
        data[places] = rng.choice([0, 1, 127, 128, 255], len(places))
    return bytes(data)


def _crafted(rng: np.random.Generator, whole: bytes, facts: Facts) -> bytes:
    """An archive whose sums are right and whose contents are not."""
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    facts["entry"] = name = str(rng.choice(sorted(entries)))
    array = np.load(io.BytesIO(entries[name]))
    if array.dtype.kind == "f" and array.size and rng.random() < 0.7:
        array = array.copy()
        array.flat[rng.integers(array.size)] = rng.choice(
            [0.0, 1e300, -1.0, np.nan, 1e-300, np.inf]
        )
        entries[name] = _as_npy(array)
    elif array.dtype.kind == "U" and rng.random() < 0.7:
        header = json.loads(str(array))
        facts["key"] = key = str(rng.choice(sorted(header)))
        header[key] = [None, -1, 1e308, 10**12, "x", [], {}][rng.integers(7)]
        entries[name] = _as_npy(np.array(json.dumps(header)))
    else:
        entries[name] = _damaged(rng, entries[name], facts)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, data in entries.items():
            archive.writestr(entry, data)
    return file.getvalue()


def _as_npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def picture_files(rng: np.random.Generator, facts: Facts) -> None:
    """A damaged picture is refused in a sentence, or it is a picture that can be written."""
    facts["kind"] = kind = str(rng.choice(sorted(PICTURES)))
    shape = (int(rng.integers(2, 40)), int(rng.integers(2, 40)))
    file = io.BytesIO()
    PICTURES[kind](rng, shape, file)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"picture.{kind.split()[-1]}"
        path.write_bytes(file.getvalue())
        assert isinstance(read_image(path), Picture)
        path.write_bytes(_damaged(rng, file.getvalue(), facts))
        picture = bounded(lambda: read_image(path), ValueError, OSError)
        if picture is None:
            return
        assert isinstance(picture, Picture)
        assert picture.pixels.dtype.kind in "uif"
        assert picture.pixels.size > 0
        path = path.with_suffix(".tif") if picture.has_pages else path
        if check_target(path, picture) is None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of what is left out
                write_image(path, picture)
            assert read_image(path).colours.shape == picture.colours.shape


def _pixels(rng: np.random.Generator, shape: tuple[int, ...], dtype: str = "u1") -> np.ndarray:
    return rng.integers(0, np.iinfo(dtype).max, shape, dtype)


def _pillow(kind: str, *channels: int, dtype: str = "u1", **options: Any) -> Callable[..., None]:
    def write(rng: np.random.Generator, shape: tuple[int, int], file: Any) -> None:
        Image.fromarray(_pixels(rng, (*shape, *channels), dtype)).save(file, kind, **options)

    return write


def _tiff(*channels: int, dtype: str = "u1", **options: Any) -> Callable[..., None]:
    def write(rng: np.random.Generator, shape: tuple[int, int], file: Any) -> None:
        tifffile.imwrite(file, _pixels(rng, (*shape, *channels), dtype), **options)

    return write


def _palette(rng: np.random.Generator, shape: tuple[int, int], file: Any) -> None:
    Image.fromarray(_pixels(rng, shape)).convert("P").save(file, "PNG")


def _npy(rng: np.random.Generator, shape: tuple[int, int], file: Any) -> None:
    np.save(file, _pixels(rng, shape, str(rng.choice(["u1", "u2", "i4"]))))


EXIF = Image.Exif()
EXIF[0x0112], EXIF[0x010F], EXIF[0x011A] = 6, "maker", 72.0  # orientation, maker, resolution

PICTURES: dict[str, Callable[..., None]] = {
    "grey png": _pillow("PNG"),
    "colour png": _pillow("PNG", 3),
    "16-bit png": _pillow("PNG", dtype="u2"),
    "palette png": _palette,
    "grey jpg": _pillow("JPEG", dpi=(300, 300)),
    "colour jpg": _pillow("JPEG", 3, progressive=True, exif=EXIF),
    "grey tif": _tiff(dtype="u2"),
    "deflated tif": _tiff(3, compression="zlib", photometric="rgb"),
    "tiled tif": _tiff(tile=(16, 16)),
    "pages tif": _tiff(3, photometric="minisblack"),
    "imagej tif": _tiff(dtype="u2", imagej=True, metadata={"spacing": 2.0, "unit": "um"}),
    "ome tif": _tiff(ome=True, metadata={"PhysicalSizeX": 2.0}),
    "lossy webp": _pillow("WEBP", 3, exif=EXIF),
    "lossless webp": _pillow("WEBP", 4, lossless=True),
    "grey bmp": _pillow("BMP"),
    "npy": _npy,
}

CAMPAIGNS: dict[str, Callable[[np.random.Generator, Facts], None]] = {
    "bound-and-descent": bound_and_descent,
    "spectra": spectra,
    "naive-sums": naive_sums,
    "resume": resume,
    "streams": streams,
    "stores": stores,
    "interrupts": interrupts,
    "model-files": model_files,
    "picture-files": picture_files,
}


# --- running them


def failure(campaign: str, seed: int) -> str:
    """What is wrong with a case, and how to see it again; nothing if all is well."""
    facts: Facts = {}
    rng = np.random.default_rng([zlib.crc32(campaign.encode()), seed])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            CAMPAIGNS[campaign](rng, facts)
    except Exception:
        told = "".join(f"\n  {name}: {value}" for name, value in facts.items())
        again = f"python tests/soak.py --campaign {campaign} --seed {seed}"
        return f"{traceback.format_exc()}\n{campaign} failed on{told}\nagain: {again}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--campaign", choices=CAMPAIGNS, action="append")
    parser.add_argument("--minutes", type=float, help="how long, by default 5")
    parser.add_argument("--seed", type=int, help="of the first case; alone, of the only one")
    parser.add_argument("--keep-going", action="store_true", help="do not end at a failure")
    chosen = parser.parse_args(arguments)
    once = chosen.seed is not None and chosen.minutes is None
    first = int(time.time()) if chosen.seed is None else chosen.seed
    minutes = 5.0 if chosen.minutes is None else chosen.minutes
    names, ends = chosen.campaign or list(CAMPAIGNS), time.monotonic() + 60 * minutes
    n_cases, n_failures, seed = 0, 0, first
    while seed == first or (not once and time.monotonic() < ends):
        for name in names:
            told = failure(name, seed)
            n_cases, n_failures = n_cases + 1, n_failures + bool(told)
            if told:
                print(told, flush=True)
                if not chosen.keep_going:
                    return 1
        seed += 1
    print(f"{n_cases} cases of {', '.join(names)} from seed {first} on: {n_failures} failed")
    return 1 if n_failures else 0


if __name__ == "__main__":
    sys.exit(main())
