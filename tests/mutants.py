"""Deliberate breakages of the package, each of which some test must catch.

    python tests/mutants.py             all, two at a time
    python tests/mutants.py ties norm   those whose description contains one of the words

For every mutant the sources are copied, one text is replaced, and the tests that must catch it are
run with the copy. A mutant that they do not catch is a survivor: the tests miss something. A text
that is not found exactly once is stale: the entry must follow the code. Both end with an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
SECONDS = 120  # a mutant may hang: that is caught as well
AT_A_TIME = 2
FAILED = 1  # exit code of pytest when tests ran and some failed; others mean that none ran


class Mutant(NamedTuple):
    what: str
    file: str  #: below src/kappaform
    old: str
    new: str
    tests: tuple[str, ...]  #: below tests; any of them must fail


SPECTRUM = "linalg/test_spectrum.py"
POLAR = "linalg/test_polar.py"
PASS = "engines/test_numpy_engine.py"
LEARN = "learning/test_learn.py"
QUALITY = "imaging/test_quality_of_denoising.py"

MUTANTS = [
    # --- linalg
    Mutant(
        "the inverse is that of the transform, transposed: it loses more digits",
        "linalg/orthogonal.py",
        "return np.linalg.inv(scaled.T), exponent",
        "return np.linalg.inv(scaled).T, exponent",
        (
            "linalg/test_svd.py::test_no_signal_loses_more_than_the_condition_number_when_it_comes_back",
        ),
    ),
    Mutant(
        "passes before a resumed run are forgotten",
        "learning/learn.py",
        "problem.n_passes += state.n_passes",
        "problem.n_passes += 0",
        (f"{LEARN}::test_a_resumed_run_counts_the_passes_before_it_and_one_to_begin",),
    ),
    Mutant(
        "the spectrum is clipped to a bound that is a thousandth too large",
        "linalg/spectrum.py",
        "return np.clip(targets, floor, kappa * floor)",
        "return np.clip(targets, floor, 1.001 * kappa * floor)",
        (f"{SPECTRUM}::test_the_bound_is_shared_between_large_and_small_targets",),
    ),
    Mutant(
        "the floor of a spectrum is a ten-thousandth off",
        "linalg/spectrum.py",
        "floor, count = pull / curvature, i + kappa**2 * (n - j)",
        "floor, count = 1.0001 * pull / curvature, i + kappa**2 * (n - j)",
        (f"{SPECTRUM}::test_no_other_bounded_spectrum_is_closer",),
    ),
    Mutant(
        "a spectrum near the sphere counts as on it, and is not scaled to the norm",
        "linalg/spectrum.py",
        "if abs(length - norm) <= _NORM_ERROR * norm:\n            return norm / length * spectrum",
        "if abs(length - norm) <= 1e-3 * norm:\n            return spectrum",
        (f"{SPECTRUM}::test_bound_and_norm_hold_at_every_scale",),
    ),
    Mutant(
        "no jump of the norm is looked for",
        "linalg/spectrum.py",
        "    if not weights.size:\n        return weights\n    sides =",
        "    if weights.size < 9:\n        return weights[:0]\n    sides =",
        (f"{SPECTRUM}::test_no_other_bounded_spectrum_of_the_norm_is_closer",),
    ),
    Mutant(
        "the polar factor forgets what it shall be near to",
        "linalg/orthogonal.py",
        "    if near is not None:\n        largest",
        "    if near is not None and not matrix.any():\n        largest",
        (f"{POLAR}::test_what_the_matrix_leaves_open_comes_from_near",),
    ),
    Mutant(
        "random bases are not uniform: signs are those of the factorisation",
        "linalg/orthogonal.py",
        "return orthonormal * np.copysign(1.0, np.diag(triangular))",
        "return orthonormal",
        ("linalg/test_bases.py::test_random_basis_is_uniform_on_the_orthogonal_group",),
    ),
    Mutant(
        "the seed of a random basis is ignored",
        "linalg/orthogonal.py",
        "generator(rng).standard_normal((n_features, n_features))",
        "np.random.default_rng().standard_normal((n_features, n_features))",
        ("linalg/test_bases.py::test_same_seed_same_random_basis",),
    ),
    # --- engines
    Mutant(
        "of ties the last ones of a word are kept, not the first",
        "engines/kernels.py",
        "others = ties & (ties - np.uint64(1))\n            marks[w] |= ties ^ others",
        "others = ties & (ties - np.uint64(1))\n            marks[w] |= others or ties",
        (
            "engines/test_hard_threshold.py::test_equal_magnitudes_leave_exactly_the_first_s",
            "engines/test_hard_threshold.py::test_among_ties_the_lowest_indices_survive",
        ),
    ),
    Mutant(
        "one coefficient too many where the guess of an earlier pass nearly fits",
        "engines/kernels.py",
        "if n_marked != n_nonzero[i]:",
        "if n_marked != n_nonzero[i] and n_marked != n_nonzero[i] + 1:",
        (f"{PASS}::test_remembering_earlier_passes_never_changes_a_result",),
    ),
    Mutant(
        "sums that joined the total are added again with the next rows",
        "engines/kernels.py",
        "            partial[j, k] = 0\n",
        "",
        (f"{PASS}::test_float32_signals_have_statistics_of_six_digits",),
    ),
    Mutant(
        "discarded energy is lost",
        "engines/kernels.py",
        "discarded_energy += energy_outside(flat_coefs, start + w, word)",
        "discarded_energy += 0.999 * energy_outside(flat_coefs, start + w, word)",
        (f"{PASS}::test_pass_agrees_with_its_definition",),
    ),
    Mutant(
        "merged statistics keep the cross matrix of one side at its own scale",
        "engines/engine.py",
        "cross=np.ldexp(self.cross, shift),",
        "cross=self.cross,",
        ("engines/test_statistics.py",),
    ),
    Mutant(
        "forgetting fades the gram matrix and not the cross matrix",
        "engines/engine.py",
        "cross=factor * self.cross,",
        "cross=self.cross,",
        ("engines/test_statistics.py",),
    ),
    Mutant(
        "how rows are cut depends on the number of threads",
        "engines/blocks.py",
        "return list(split_rows(0, n_signals, max(shortest, -(-n_blocks // most)) * length))",
        "from kappaform.threads import n_threads\n\n"
        "    return list(split_rows(0, n_signals, -(-n_blocks // n_threads()) * length))",
        (f"{PASS}::test_any_number_of_threads_gives_the_same_bits",),
    ),
    Mutant(
        "BLAS keeps its threads inside our blocks",
        "threads.py",
        "_set_blas_threads([1] * len(numbers))",
        "_set_blas_threads(numbers)",
        ("engines/test_threads.py",),
    ),
    Mutant(
        "BLAS keeps one thread after our blocks",
        "threads.py",
        "        _set_blas_threads(_numbers_outside)\n        _is_limited = False",
        "        _is_limited = False",
        ("engines/test_threads.py",),
    ),
    # --- learning
    Mutant(
        "a condition number below 1 is accepted as a bound",
        "learning/methods.py",
        "not 1 <= kappa < math.inf",
        "not 0 < kappa < math.inf",
        ("test_bad_input.py::test_bounds_that_no_transform_can_keep_are_refused",),
    ),
    Mutant(
        "learning ends after one iteration",
        "learning/learn.py",
        "for _ in range(options.max_iter):",
        "for _ in range(min(options.max_iter, 1)):",
        (f"{LEARN}::test_callback_can_stop_and_sees_every_iteration",),
    ),
    Mutant(
        "no start is explored",
        "learning/starts.py",
        'if init == "auto" and isinstance(method, Conditioned) and _explores(method):',
        'if init == "all" and isinstance(method, Conditioned) and _explores(method):',
        ("learning/test_exploration.py",),
    ),
    Mutant(
        "only the cosine basis is explored",
        "learning/starts.py",
        'return [cosine, Start(fitted, "relative")]',
        "return [cosine]",
        ("learning/test_exploration.py",),
    ),
    Mutant(
        "only least squares are explored",
        "learning/starts.py",
        'return [cosine, Start(fitted, "relative")]',
        'return [Start(fitted, "relative")]',
        ("learning/test_exploration.py",),
    ),
    Mutant(
        "of several lines the last one goes on, not the best",
        "learning/state.py",
        "return min(self.lines, key=lambda line: line.loss)",
        "return self.lines[-1]",
        ("learning/test_exploration.py", f"{LEARN}::test_of_several_starts_the_best_goes_on"),
    ),
    Mutant(
        "exact steps forget the norm",
        "learning/updates.py",
        "project = partial(project_spectrum, norm=constraints.norm)",
        "project = project_spectrum",
        (f"{LEARN}::test_norm_of_the_transform_is_the_one_asked_for",),
    ),
    Mutant(
        "the right vectors turn with the wrong slack",
        "learning/updates.py",
        "slack = spectrum.max() ** 2 - spectrum**2",
        "slack = spectrum**2 - spectrum.min() ** 2",
        ("learning/test_updates.py",),
    ),
    Mutant(
        "the log-det update has half its penalty",
        "learning/updates.py",
        "np.sqrt(singular**2 + 2 * weight)",
        "np.sqrt(singular**2 + weight)",
        ("learning/test_updates.py",),
    ),
    Mutant(
        "the relative error is over the codes alone",
        "engines/engine.py",
        "energy = self.codes + self.discarded",
        "energy = self.codes",
        ("learning/test_path.py",),
    ),
    Mutant(
        "a result that is resumed begins a new history",
        "learning/state.py",
        "measured = replace(line, statistics=measured.statistics)",
        "measured = replace(measured, explored=line.explored, wandering=line.wandering)",
        (f"{LEARN}::test_resuming_continues_as_if_never_stopped",),
    ),
    Mutant(
        "a stream forgets nothing",
        "learning/state.py",
        "_RECENCY = 4",
        "_RECENCY = 0",
        ("learning/test_stream.py::test_old_codes_hold_back_a_stream_that_never_forgets",),
    ),
    Mutant(
        "the state of a stream grows with its length",
        "learning/state.py",
        "records = (*line.records[1 - _MOST_RECORDS :], record)",
        "records = (*line.records, record)",
        ("learning/test_stream.py::test_a_long_stream_keeps_a_bounded_history",),
    ),
    # --- estimators and files
    Mutant(
        "a loaded transform may exceed its bound",
        "learning/archive.py",
        "if found > method.max_condition * (1 + _ROUNDING):",
        "if found > 1e6 * method.max_condition:",
        ("test_persistence.py",),
    ),
    Mutant(
        "files are written in place",
        "files.py",
        'temporary = file.with_name(f".{secrets.token_hex(6)}.part")',
        "temporary = file\n    file.unlink(missing_ok=True)",
        ("test_persistence.py",),
    ),
    Mutant(
        "photographs are not turned upright",
        "image_files/picture.py",
        "if orientation in (5, 6, 7, 8):",
        "if orientation in (5, 7):",
        ("test_image_files.py",),
    ),
    Mutant(
        "EXIF says that the upright picture is to be turned",
        "image_files/exif.py",
        "_SHORT, 1, 1, 0)",
        "_SHORT, 1, 6, 0)",
        ("test_image_metadata.py",),
    ),
    Mutant(
        "channels of a microscope are slices of a volume",
        "image_files/picture.py",
        '_DEPTH = "ZQIT"',
        '_DEPTH = "ZQITC"',
        ("test_tiff_files.py",),
    ),
    Mutant(
        "a promise of planes that are not in the file is believed",
        "image_files/descriptions.py",
        "if max(counts) > n_planes:",
        "if max(counts) > 1e12:",
        ("test_tiff_files.py",),
    ),
    # --- imaging
    Mutant(
        "coefficients count as signal above 2.0 deviations of the noise",
        "imaging/clean.py",
        "THRESHOLD = 2.7",
        "THRESHOLD = 2.0",
        (QUALITY,),
    ),
    Mutant(
        "all patches count alike",
        "imaging/clean.py",
        "return 1 / (1 + left), counts",
        "return np.ones_like(left), counts",
        ("imaging/test_sweep.py",),
    ),
    Mutant(
        "Wiener's rule assumes twice the noise",
        "imaging/kernels.py",
        "share = power / (power + variances[j])",
        "share = power / (power + 2 * variances[j])",
        ("imaging/test_sweep.py",),
    ),
    Mutant(
        "a denoiser that hardly learns",
        "imaging/training.py",
        "max_iter=N_ITER,",
        "max_iter=1,",
        (QUALITY,),
    ),
    Mutant(
        "texture is taken for noise",
        "imaging/details.py",
        "_QUIET_SHARE = 0.2",
        "_QUIET_SHARE = 1.0",
        ("imaging/test_noise.py",),
    ),
    Mutant(
        "every seed gives the same noise",
        "imaging/simulate.py",
        "random = generator(rng)",
        "random = generator(0)",
        ("imaging/test_noise.py",),
    ),
    Mutant(
        "the noise of a coefficient is that of white noise",
        "imaging/clean.py",
        'variances = np.einsum("ij,jk,ik->i", transform, covariance, transform)',
        "variances = np.sum(transform**2, axis=1)",
        ("imaging/test_sweep.py",),
    ),
    Mutant(
        "the way back from photons is the square, which has a bias",
        "imaging/stabilise.py",
        "return means, poisson.pmf(counts, means[:, np.newaxis]) @ stabilised",
        "return means, 2 * np.sqrt(means + _SHIFT + read**2)",
        ("imaging/test_stabilise.py",),
    ),
    Mutant(
        "the way back from levels forgets their slope",
        "imaging/stabilise.py",
        "np.maximum.accumulate(stabilised - slopes / 2)",
        "np.maximum.accumulate(stabilised)",
        ("imaging/test_stabilise.py",),
    ),
    Mutant(
        "noise that channels share is taken for independent noise",
        "imaging/noise.py",
        "between = np.eye(len(parts)) if self.correlation is None else self.correlation",
        "between = np.eye(len(parts))",
        ("imaging/test_noise_kinds.py",),
    ),
    Mutant(
        "a stabiliser may be for another number of channels",
        "imaging/noise.py",
        "self.stabiliser.check_channels(n_channels)",
        "pass",
        ("imaging/test_noise_kinds.py",),
    ),
    Mutant(
        "a shared transform is learned, and each image learns its own all the same",
        "imaging/denoise.py",
        "options = replace(options, transform=history[-1].transform if history else None)",
        "options = replace(options, transform=None)",
        ("imaging/test_denoise_noise.py::test_images_of_a_stack_may_share_one_transform",),
    ),
    Mutant(
        "a constant channel is moved by the bias of noise that it does not have",
        "imaging/components.py",
        "return np.where(is_constant, image, means) if is_constant.any() else means",
        "return means",
        ("imaging/test_estimate_edges.py::test_a_constant_channel_stays_as_it_is",),
    ),
    Mutant(
        "slabs of a large image are turned",
        "imaging/details.py",
        "yield image[(slice(None),) * axis + (slice(start, start + thickness),)]",
        "yield np.moveaxis(image, axis, 0)[start : start + thickness]",
        (
            "imaging/test_estimate_edges.py::test_noise_that_neighbours_of_a_row_share_is_that_of_rows",
        ),
    ),
    Mutant(
        "salt and pepper is taken in silence",
        "imaging/estimate.py",
        "    _warn_of_impulses(samples)\n",
        "",
        ("imaging/test_estimate.py::test_salt_and_pepper_is_warned_of",),
    ),
    Mutant(
        "pixels of a patch are in the order of columns",
        "imaging/patches.py",
        "np.ravel_multi_index(np.indices(patch_shape), shape).ravel()",
        "np.ravel_multi_index(np.indices(patch_shape), shape).T.ravel()",
        ("imaging/test_patches.py",),
    ),
    Mutant(
        "the window of the structural similarity is smaller",
        "imaging/quality.py",
        "window = min(7, ",
        "window = min(5, ",
        ("imaging/test_quality.py",),
    ),
    Mutant(
        "12 bit in a file of 16 are taken for 16",
        "imaging/quality.py",
        "n_bits = max(high, -1 - low).bit_length() + (low < 0)",
        "n_bits = 8 * reference.itemsize",
        ("imaging/test_quality.py",),
    ),
    Mutant(
        "progress stands still while learning",
        "imaging/options.py",
        "progress(next(iterations) / n_iter)",
        "next(iterations)",
        ("imaging/test_progress.py",),
    ),
    # --- cli
    Mutant(
        "a result that is there is replaced without being asked",
        "cli/denoise.py",
        "return is_there and not arguments.overwrite",
        "return False",
        ("cli/test_denoise_files.py",),
    ),
    Mutant(
        "what was learned before Ctrl-C is lost",
        "cli/models.py",
        "kf.save(target, interruption.result, **kept)",
        "pass",
        ("cli/test_models.py",),
    ),
    Mutant(
        "an option without effect is taken in silence",
        "cli/parser.py",
        "if {name, other} <= given:",
        "if False:",
        ("cli/test_denoise.py",),
    ),
    Mutant(
        "the noise that is given to the command is not used",
        "cli/denoise.py",
        'return {"noise": kf.Shot(arguments.gain, arguments.read_noise, arguments.offset)}',
        'return {"sigma": None}',
        ("cli/test_noise.py",),
    ),
    Mutant(
        "a warning does not name its file",
        "cli/io.py",
        'name = "" if is_named else f"{files[0]}: "',
        'name = ""',
        ("cli/test_noise.py",),
    ),
    Mutant(
        "pictures that share a transform learn each its own",
        "cli/denoise.py",
        'options["transform"] = given.transform',
        "pass",
        ("cli/test_stacks.py",),
    ),
    Mutant(
        "slices of a volume are planes of their own",
        "cli/denoise.py",
        "return arguments.volume and picture.has_pages",
        "return False",
        ("cli/test_stacks.py",),
    ),
    Mutant(
        "the first of several images gives most of the patches",
        "imaging/shared.py",
        "if len(drawn.patches) <= number:",
        "if True:",
        ("imaging/test_shared.py",),
    ),
    # --- explore
    Mutant(
        "the name of a picture becomes part of the page",
        "explore/page.py",
        "safe = {name: html.escape(text) for name, text in texts.items()}",
        "safe = texts",
        ("explore/test_page.py::test_a_name_stays_a_name",),
    ),
    Mutant(
        "a name that looks like a place to fill is filled",
        "explore/page.py",
        'return re.sub(r"{{(\\w+)}}", lambda place: filled[place[1]], _read("page.html")), quality',
        """page = _read("page.html")
    for name, text in filled.items():
        page = page.replace("{{" + name + "}}", text)
    return page, quality""",
        ("explore/test_page.py::test_a_name_stays_a_name",),
    ),
    Mutant(
        "atoms change their places as the bound moves",
        "explore/exploration.py",
        "places, numbers = linear_sum_assignment(-np.abs(likeness))",
        "places = numbers = np.arange(len(rows))",
        ("explore/test_exploration.py",),
    ),
    Mutant(
        "a picture is rebuilt without the means of its patches",
        "explore/exploration.py",
        "codes @ inverse.T + means",
        "codes @ inverse.T",
        ("explore/test_exploration.py",),
    ),
    Mutant(
        "of a large picture a corner is taken, not the middle as it is said",
        "cli/explore.py",
        "max(0, (side - MOST_PIXELS) // 2)",
        "0 * max(0, (side - MOST_PIXELS) // 2)",
        ("cli/test_explore.py",),
    ),
]


def main(words: Sequence[str]) -> int:
    started = time.perf_counter()
    chosen = [m for m in MUTANTS if not words or any(word in m.what for word in words)]
    problems = [f"stale: {m.what}: {stale(m)}" for m in chosen if stale(m)]
    if problems or not chosen:
        print(*problems or [f"no mutant matches {list(words)}"], sep="\n")
        return 2
    everything = sorted({test for m in chosen for test in m.tests})
    code, output = tested(everything, None)
    if code != 0:
        print(output, "without any mutant the tests above must pass", sep="\n")
        return 2
    print(f"{seconds_since(started)} without any mutant: all {len(everything)} tests pass")
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        verdicts = list(pool.map(judged, chosen))
    survivors = [m.what for m, verdict in zip(chosen, verdicts, strict=True) if verdict]
    print(f"{seconds_since(started)} {len(chosen) - len(survivors)} of {len(chosen)} caught")
    print(*(f"survivor: {what}" for what in survivors), sep="\n", end="\n" if survivors else "")
    return 1 if survivors else 0


def stale(mutant: Mutant) -> str:
    """Why the text of a mutant cannot be replaced, or nothing."""
    path = ROOT / "src" / "kappaform" / mutant.file
    if not path.exists():
        return f"{mutant.file} does not exist"
    count = path.read_text(encoding="utf-8").count(mutant.old)
    return "" if count == 1 else f"its text is {count} times in {mutant.file}"


def judged(mutant: Mutant) -> str:
    """Why a mutant was not caught, or nothing."""
    started = time.perf_counter()
    code, output = tested(mutant.tests, mutant)
    caught = code in (FAILED, None)
    word = (
        "hangs" if code is None else "caught" if caught else f"SURVIVES (pytest ended with {code})"
    )
    print(f"{seconds_since(started)} {word}: {mutant.what}", flush=True)
    if code not in (0, FAILED, None):
        print(output)
    return "" if caught else word


def tested(tests: Sequence[str], mutant: Mutant | None) -> tuple[int | None, str]:
    """Exit code and output of tests with a copy of the sources; None if they do not end."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy)  # with what numba has compiled of the other files
        if mutant is not None:
            file = copy / "kappaform" / mutant.file
            file.write_text(file.read_text(encoding="utf-8").replace(mutant.old, mutant.new))
        words = ["-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=line"]
        names = [f"tests/{test}" for test in tests]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *words, *names],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
                capture_output=True,
                text=True,
                timeout=None if mutant is None else SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None, ""
    return done.returncode, done.stdout + done.stderr


def seconds_since(started: float) -> str:
    return f"{time.perf_counter() - started:6.1f} s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
