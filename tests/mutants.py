"""Deliberate breakages of the package, each of which some test must catch.

    python tests/mutants.py               all, two at a time
    python tests/mutants.py ties norm     those whose description contains one of the words
    python tests/mutants.py --part 3/12   a twelfth of them: the third, fifteenth, ...

For every mutant the sources are copied, one text is replaced, and the tests that must catch it are
run with the copy. A mutant that they do not catch is a survivor: the tests miss something. A text
that is not found exactly once is stale: the entry must follow the code, whether it is one of those
that run or not. Both end with an error.
"""

from __future__ import annotations

import argparse
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
SECONDS = 120  # a mutant may hang: that is caught as well. On a slow machine there is more time
AT_A_TIME = 2
FAILED = 1  # exit code of pytest when tests ran and some failed; others mean that none ran


class Mutant(NamedTuple):
    what: str
    file: str  #: below src/kappaform
    old: str
    new: str
    tests: tuple[str, ...]  #: below tests; any of them must fail


SPECTRUM = "linalg/test_spectrum.py"
MOMENTUM = "learning/test_momentum.py"
POLAR = "linalg/test_polar.py"
PASS = "engines/test_numpy_engine.py"
UNION, UNION_PASS = "learning/test_union.py", "engines/test_union.py"
UNIONS, UNION_FILES = "estimators/test_union.py", "persistence/test_unions.py"
LEARN = "learning/test_learn.py"
RESUMING = "persistence/test_resuming.py"
REFUSED = "persistence/test_validation.py"
OWN = "learning/test_own_methods.py"
QUALITY = "imaging/test_quality_of_denoising.py"
GROUPS = "imaging/test_groups.py"
INPAINT = "imaging/test_inpaint.py"
CHOICE = "estimators/test_choice.py"
UNION_PATH = "learning/test_union_path.py"

MUTANTS = [
    # --- the path over the number of transforms
    Mutant(
        "a union on the path forgets the ratio of the one before",
        "learning/union.py",
        "replace(members, each=each, trials=0)",
        "Members(each)",
        (f"{UNION_PATH}::test_a_union_that_grows_begins_no_higher_and_assigns_as_before",),
    ),
    Mutant(
        "a union on the path starts afresh",
        "learning/union.py",
        "if context.warm is None:\n            return grown",
        "if True:\n            return grown",
        (f"{UNION_PATH}::test_a_union_that_grows_begins_no_higher_and_assigns_as_before",),
    ),
    Mutant(
        "errors of a union are those of its first transform for all signals",
        "learning/evaluate.py",
        "union_energies(transform.union, ",
        "union_energies(transform.union._replace(weights=0 * transform.union.weights), ",
        (f"{UNION_PATH}::test_table_holds_the_errors_of_the_definition",),
    ),
    Mutant(
        "every atom of a union is of the first transform",
        "plots/pictures.py",
        "for matrix in matrices]",
        "for matrix in matrices[:1].repeat(len(matrices), 0)]",
        ("plots/test_plots.py::test_atoms_of_a_union_are_those_of_each_transform",),
    ),
    # --- the same bits in every process
    Mutant(
        "what kernels call is compiled on its own",
        "jit.py",
        "forceinline=True",
        "forceinline=False",
        ("engines/test_jit.py::test_what_a_kernel_calls_becomes_a_part_of_it",),
    ),
    Mutant(
        "kernels count references to arrays in what they call",
        "jit.py",
        '{"_nrt": allocates}',
        '{"_nrt": True}',
        (
            "engines/test_jit.py"
            "::test_what_a_kernel_calls_counts_references_only_if_it_allocates[largest_sum-False]",
        ),
    ),
    # --- a union of transforms
    Mutant(
        "a union that grows is lost on Ctrl-C",
        "learning/growth.py",
        "race = latest.race = step(race, problem)",
        "race = step(race, problem)",
        (f"{UNION}::test_ctrl_c_while_a_union_grows_loses_nothing",),
    ),
    Mutant(
        "a union whose growth was interrupted goes on from its transforms alone",
        "learning/union.py",
        "if going_on is not None:",
        "if going_on is not None and self.is_single:",
        (f"{UNION}::test_ctrl_c_while_a_union_grows_loses_nothing",),
    ),
    Mutant(
        "of equal scores the last transform wins",
        "engines/union_kernels.py",
        "if score >= best[i, 0]:",
        "if score > best[i, 0]:",
        (f"{UNION_PASS}::test_of_equal_scores_the_first_transform_wins",),
    ),
    Mutant(
        "signals count for the gram matrix of another transform",
        "engines/union_kernels.py",
        "flush(partials[1], grams[k])",
        "flush(partials[1], grams[0])",
        (f"{UNION_PASS}::test_a_pass_agrees_with_its_definition",),
    ),
    Mutant(
        "only the first part of the products of a block is computed",
        "engines/blocks.py",
        "for rows in split_rows(0, len(signals), small if",
        "for rows in split_rows(0, min(244, len(signals)), small if",
        (f"{PASS}::test_products_of_a_block_that_are_computed_in_parts_cover_all_of_it",),
    ),
    Mutant(
        "rounds end after the first one, whatever the bound",
        "learning/updates.py",
        "if constraints.kappa <= 1:",
        "if constraints.kappa <= 1e9:",
        ("learning/test_updates.py::test_more_rounds_lower_the_error_where_the_bound_is_not_one",),
    ),
    Mutant(
        "rows that are gathered last count twice",
        "engines/union_kernels.py",
        "n_rows = min(GATHERED, ends[k] - first)",
        "n_rows = min(GATHERED, ends[-1] - first)",
        (f"{UNION_PASS}::test_sums_of_more_signals_than_are_gathered_agree_with_their_definition",),
    ),
    Mutant(
        "gram matrices of a union keep their lower triangle empty",
        "engines/union.py",
        "np.triu(total.grams, 1).transpose(0, 2, 1)",
        "0",
        (f"{UNION_PASS}::test_a_pass_agrees_with_its_definition",),
    ),
    Mutant(
        "the constant of a score is not scaled with the transforms",
        "engines/union.py",
        "np.ldexp(weights[:, 2], 2 * exponent)",
        "weights[:, 2]",
        (f"{UNION_PASS}::test_a_transform_with_a_constant_score_takes_what_others_fit_worse",),
    ),
    Mutant(
        "the relative objective is updated as the absolute one",
        "learning/union.py",
        "cross=part.cross / (1 - ratio)",
        "cross=part.cross",
        (f"{UNION}::test_no_iteration_raises_the_loss_and_every_transform_obeys_the_bound",),
    ),
    Mutant(
        "transforms without signals stay where they are",
        "learning/union.py",
        "transform.trials >= _MOST_TRIALS",
        "transform.trials >= 0",
        (f"{UNION}::test_a_transform_without_signals_moves_at_once",),
    ),
    Mutant(
        "a transform moves although that raises the loss",
        "learning/union.py",
        "self.checked_loss(new, moved) < self.checked_loss(statistics, transform)",
        "self.checked_loss(new, moved) < math.inf",
        (f"{UNION}::test_signals_that_are_hardly_signals_are_learned_from", "test_soak.py"),
    ),
    Mutant(
        "random starts ignore the seed",
        "learning/union.py",
        "np.random.default_rng(self.seed)",
        "np.random.default_rng(0)",
        (f"{UNION}::test_the_seed_decides_the_random_starts",),
    ),
    Mutant(
        "a transform for each signal is one too many",
        "learning/union.py",
        "if self.n_transforms > n_signals:",
        "if self.n_transforms >= n_signals:",
        (f"{UNIONS}::test_strange_signals_give_transforms_within_the_bound",),
    ),
    Mutant(
        "empty codes are divided by nothing",
        "learning/union.py",
        "if ratio >= 1:",
        "if ratio > 1:",
        (f"{UNIONS}::test_empty_codes_teach_nothing",),
    ),
    Mutant(
        "labels of an earlier fit stay",
        "estimators/base.py",
        'if not name.endswith("_")}',
        'if name != "feature_names_in_"}',
        (f"{UNIONS}::test_ctrl_c_keeps_what_was_learned",),
    ),
    Mutant(
        "a file forgets what assigns the signals of a relative union",
        "learning/archive.py",
        '"ratio": transform.ratio',
        '"ratio": 0.0',
        (f"{UNION_FILES}::test_how_often_a_transform_was_tried_elsewhere_and_the_ratio_are_kept",),
    ),
    Mutant(
        "the transforms of a union in a file share a gram matrix",
        "learning/archive.py",
        "own = _gram(arrays, number) if",
        "own = _gram(arrays, 0) if",
        (f"{UNION_FILES}::test_batches_of_a_union_resume_from_a_file",),
    ),
    Mutant(
        "the last updates of a union are those of its first transform",
        "learning/archive.py",
        '"last_", number) for number in numbers)',
        '"last_", numbers[0]) for number in numbers)',
        (f"{UNION_FILES}::test_a_union_resumes_from_a_file_of_any_iteration",),
    ),
    Mutant(
        "a file may claim any number of transforms",
        "learning/archive.py",
        "not 1 <= n_transforms <= len(names) // len(candidates)",
        "not 1 <= n_transforms <= 10**6",
        (f"{UNION_FILES}::test_a_header_cannot_claim_more_transforms_than_the_file_has",),
    ),
    Mutant(
        "a method that was given is saved with other parameters",
        "persistence.py",
        'in shared - {"method", *method_parameters(method)}:',
        "in shared:",
        (f"{UNION_FILES}::test_a_loaded_union_is_the_saved_one",),
    ),
    # --- custom methods, resuming, rounding, kernels
    Mutant(
        "codes of rows that keep every entry stay scaled",
        "engines/blocks.py",
        "codes[whole] = np.ldexp(coefs[whole, :n], -transform.exponent)",
        "codes[whole] = coefs[whole, :n]",
        ("engines/test_refit.py::test_signals_that_keep_every_entry_are_reconstructed_exactly",),
    ),
    Mutant(
        "the cache of a kernel looks at its own file only",
        "jit.py",
        "index._source_stamp = (index._source_stamp, _contents())",
        "_contents()",
        ("engines/test_jit.py",),
    ),
    Mutant(
        "a float32 loss may rise by a tenth of the norm",
        "learning/race.py",
        "np.dtype(np.float32): 1e-7}",
        "np.dtype(np.float32): 1e-2}",
        (
            f"{LEARN}::test_a_rise_of_a_tenth_is_reported_though_errors_are_small_and_signals_float32",
        ),
    ),
    Mutant(
        "a loss that rose counts as converged",
        "learning/race.py",
        "StopReason.TOLERANCE if is_within_tol else problem.why_rejected(old, record)",
        "StopReason.TOLERANCE",
        (f"{OWN}::test_a_monotone_method_stops_where_its_loss_rises",),
    ),
    Mutant(
        "rounding is thought to explain less than it does where coefficients cancel",
        "learning/race.py",
        "cancelled = float(norm.max()) * (signals / (old.records[-1].coef_norm or 1.0))",
        "cancelled = 1.0",
        (f"{OWN}::test_rounding_explains_a_rise_where_coefficients_cancel",),
    ),
    Mutant(
        "rounding is thought to explain any rise",
        "learning/race.py",
        "return StopReason.ROUNDING if is_rounding else StopReason.ROSE",
        "return StopReason.ROUNDING",
        (f"{OWN}::test_rounding_explains_a_rise_where_coefficients_cancel",),
    ),
    Mutant(
        "signals in another unit are taken for the same",
        "learning/race.py",
        "pairs = (old.loss, new.loss), (old.coef_norm, new.coef_norm)",
        "pairs = ((old.loss, new.loss),)",
        (f"{LEARN}::test_signals_in_another_unit_are_other_signals",),
    ),
    Mutant(
        "an extrapolation that breaks the bound is used",
        "learning/method.py",
        "return updated if self._defect(matrix) else matrix",
        "return matrix",
        (f"{OWN}::test_momentum_never_used_changes_nothing_but_the_factor",),
    ),
    Mutant(
        "an extrapolation that was rejected is tried further out",
        "learning/race.py",
        "_LONGER if extrapolated else _SHORTER",
        "_LONGER",
        (f"{OWN}::test_momentum_never_used_changes_nothing_but_the_factor",),
    ),
    Mutant(
        "methods with unequal arrays are the same",
        "learning/method.py",
        "all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)",
        "any(names)",
        (f"{OWN}::test_methods_with_equal_arrays_resume_from_each_other",),
    ),
    Mutant(
        "a transform whose squares vanish is accepted",
        "learning/method.py",
        "if not _LEAST_SCALE <= largest <= _LARGEST_SCALE:",
        "if not largest <= _LARGEST_SCALE:",
        (f"{OWN}::test_a_failing_method_is_named_and_what_was_learned_is_kept",),
    ),
    Mutant(
        "a published variant with nothing to learn keeps its start",
        "learning/published.py",
        "factors = project_condition(transform, constraints.kappa).scaled_to(constraints.norm)",
        "return transform",
        ("learning/test_edges.py::test_where_there_is_nothing_to_learn_bound_and_norm_hold",),
    ),
    Mutant(
        "a start is the user's own array",
        "learning/starts.py",
        'as_transform(init, n_features, "init").copy()',
        'as_transform(init, n_features, "init")',
        ("learning/test_edges.py::test_a_start_that_changes_after_learning_changes_no_result",),
    ),
    # --- codes that rebuild best, the choice of a bound, methods of one's own
    Mutant(
        "the second choice of entries is taken even where it is worse",
        "engines/blocks.py",
        "better = explained_by_others > explained",
        "better = explained_by_others > 0",
        ("engines/test_refit.py::test_the_second_choice_is_taken_only_where_it_is_better",),
    ),
    Mutant(
        "columns are chosen by coefficients of W, whatever their norm",
        "engines/codes.py",
        "rows = np.ldexp(transform, -exponent) * norms[:, np.newaxis]",
        "rows = np.ldexp(transform, -exponent)",
        ("engines/test_refit.py::test_codes_reconstruct_as_their_definition_does",),
    ),
    Mutant(
        "the bound is chosen by signals that were learned from",
        "learning/path.py",
        'errors = self.table.get(f"validation_{self.choose_by}")',
        "errors = self.table.get(self.choose_by)",
        ("estimators/test_choice.py::test_bounds_of_a_path_have_the_same_rules",),
    ),
    Mutant(
        "the former name of an error is not translated",
        "learning/path.py",
        'return "sparsification"',
        "return choose_by",
        ("estimators/test_choice.py::test_the_former_name_of_an_error_warns_and_chooses_the_same",),
    ),
    Mutant(
        "kernels of SciPy's BLAS count, too",
        "threads.py",
        "if not _is_in_wheel_of_scipy(Path(each.filepath))]",
        "if each.filepath]",
        ("engines/test_threads.py::test_kernels_of_blas_are_those_that_numpy_uses",),
    ),
    Mutant(
        "a union in a file may have unknown parameters",
        "learning/archived_method.py",
        "if unknown := parameters.keys() - set(known):",
        "if not is_union and (unknown := parameters.keys() - set(known)):",
        ("persistence/test_unions.py::test_headers_that_contradict_the_union_are_rejected",),
    ),
    Mutant(
        "rows of a store begin with those of the first run",
        "engines/rows.py",
        "shift = run.start - begin",
        "shift = self._runs[0].start",
        ("estimators/test_choice.py::test_rows_of_a_store_are_those_of_the_array",),
    ),
    Mutant(
        "bounds of folds are averaged",
        "learning/path.py",
        'table["max_condition"] = paths[0]["max_condition"]',
        "pass",
        (f"{CHOICE}::test_the_bound_is_one_of_those_given_and_a_file_keeps_its_statistics",),
    ),
    Mutant(
        "scattered rows of a Dask array are a chunk each",
        "engines/rows.py",
        "return _rows_of_chunks(signals, rows)",
        "import dask.array as da; return da.concatenate([signals[i : i + 1] for i in rows])",
        (f"{CHOICE}::test_rows_of_a_dask_array_stay_in_their_chunks",),
    ),
    Mutant(
        "a path measures other codes than the estimators make",
        "learning/path.py",
        'coding: Coding = "refit",',
        'coding: Coding = "largest",',
        ("learning/test_path.py::test_path_and_estimators_agree_which_bound_reconstructs_best",),
    ),
    Mutant(
        "folds are learned one after the other, whatever n_jobs",
        "estimators/choice.py",
        "with ThreadPoolExecutor(n_jobs,",
        "with ThreadPoolExecutor(1,",
        (f"{CHOICE}::test_jobs_learn_at_the_same_time",),
    ),
    Mutant(
        "folds go on after one of them failed",
        "estimators/choice.py",
        "is_over.set()",
        "pass",
        (f"{CHOICE}::test_an_error_in_one_fold_ends_the_others",),
    ),
    Mutant(
        "every strong start races next to a warm one",
        "learning/starts.py",
        "for start in strong if start is lowest]",
        "for start in strong]",
        ("learning/test_path.py::test_a_path_leaves_out_no_start_that_would_win",),
    ),
    Mutant(
        "no strong start races next to a warm one",
        "learning/starts.py",
        "for start in strong if start is lowest]",
        "for start in strong if start is weak]",
        ("learning/test_path.py::test_a_path_leaves_out_no_start_that_would_win",),
    ),
    Mutant(
        "a logarithmic axis of a short range has no minor ticks",
        "plots/curves.py",
        "axis.set_minor_locator(many if is_short",
        "axis.set_minor_locator(few if is_short",
        ("plots/test_plots.py::test_minor_ticks_of_a_logarithmic_axis_stand_closer_and_closer",),
    ),
    Mutant(
        "what was learned before a method failed is lost",
        "learning/race.py",
        'vars(error)["result"] = result',
        "pass",
        (
            "learning/test_own_methods.py::test_a_failing_method_is_named_and_what_was_learned_is_kept",
        ),
    ),
    Mutant(
        "a singular transform of a custom method is accepted",
        "learning/method.py",
        "if spectrum[-1] <= len(matrix) * _EPS * largest:",
        "if spectrum[-1] < 0:",
        (
            "learning/test_own_methods.py::test_a_failing_method_is_named_and_what_was_learned_is_kept",
        ),
    ),
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
        "problem.n_passes += race.n_passes",
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
        "the products that give a polar factor end a step early",
        "linalg/orthogonal.py",
        "= 2.0, 1e-8, 8",
        "= 2.0, 1e-4, 8",
        (f"{POLAR}::test_polar_factor_of_nearly_orthonormal_matrices_is_that_of_the_svd",),
    ),
    Mutant(
        "products give a polar factor of reflected signs",
        "linalg/orthogonal.py",
        "        if not error < _SAME_SIGNS:\n            return None\n",
        "",
        (f"{POLAR}::test_products_do_not_reflect_what_is_far_from_orthonormal",),
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
        "statistics from other processes are used where they lie",
        "engines/dask.py",
        "return deepcopy(total)",
        "return total",
        ("engines/test_dask_engine.py::test_statistics_from_other_processes_are_aligned",),
    ),
    Mutant(
        "a cache of kernels that could be stale is used",
        "jit.py",
        "        except AttributeError:  # a cache that could be stale\n"
        "            return njit(**options)(function)\n",
        "        except AttributeError:\n            return found\n",
        ("engines/test_jit.py::test_a_cache_that_could_be_stale_is_not_used",),
    ),
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
        "if n_marked != n_nonzero:\n        step",
        "if n_marked != n_nonzero and n_marked != n_nonzero + 1:\n        step",
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
        (
            "engines/test_statistics.py::test_at_another_exponent_they_are_those_of_signals_times_that_power_of_two",
        ),
    ),
    Mutant(
        "forgetting fades the gram matrix and not the cross matrix",
        "engines/engine.py",
        "cross=factor * self.cross,",
        "cross=self.cross,",
        ("engines/test_statistics.py::test_decay_lets_every_signal_count_less",),
    ),
    Mutant(
        "how rows are cut depends on the number of threads",
        "engines/blocks.py",
        "return list(split_rows(0, n_signals, -(-length // FLUSH_ROWS) * FLUSH_ROWS))",
        "from kappaform.threads import n_threads\n\n"
        "    return list(split_rows(0, n_signals, -(-n_signals // n_threads())))",
        (f"{PASS}::test_any_number_of_threads_gives_the_same_bits",),
    ),
    Mutant(
        "ten thousand patches are the work of one thread",
        "engines/blocks.py",
        "_PART_ENTRIES, _SUM_ENTRIES = 400_000, 2**22",
        "_PART_ENTRIES, _SUM_ENTRIES = 2**20, 2**22",
        (f"{PASS}::test_half_of_the_parts_are_half_of_the_rows",),
    ),
    Mutant(
        "BLAS keeps its threads inside our blocks",
        "threads.py",
        "_set_blas_threads([1] * len(_numbers_outside))",
        "_set_blas_threads(_numbers_outside)",
        ("engines/test_threads.py::test_blas_is_limited_inside_and_only_inside",),
    ),
    Mutant(
        "BLAS keeps one thread after our blocks",
        "threads.py",
        "        _set_blas_threads(_numbers_outside)\n        _numbers_outside = None",
        "        _numbers_outside = None",
        ("engines/test_threads.py::test_blas_is_limited_inside_and_only_inside",),
    ),
    # --- learning
    Mutant(
        "a condition number below 1 is accepted as a bound",
        "learning/methods.py",
        "not 1 <= kappa < math.inf",
        "not 0 < kappa < math.inf",
        ("test_bad_input.py::test_bounds_that_no_transform_can_keep_are_rejected",),
    ),
    Mutant(
        "learning ends after one iteration",
        "learning/learn.py",
        "for _ in range(options.max_iter):",
        "for _ in range(min(options.max_iter, 1)):",
        (f"{LEARN}::test_callback_can_stop_and_sees_every_iteration",),
    ),
    Mutant(
        "no starts race",
        "learning/starts.py",
        'several = method.starts(context) if init == "auto" else None',
        "several = None",
        ("learning/test_race.py::test_strong_directions_win_at_large_bounds",),
    ),
    Mutant(
        "no strong start races",
        "learning/starts.py",
        "strong = [Start(strong_start(method, context, number)) for number in numbers]",
        "strong = [Start(weak_start(method, context)) for number in numbers]",
        ("learning/test_race.py::test_strong_directions_win_at_large_bounds",),
    ),
    Mutant(
        "no weak start races",
        "learning/starts.py",
        'return [weak, *strong, Start(dct, "rescale")]',
        'return [*strong, Start(dct, "rescale")]',
        ("learning/test_race.py::test_weak_directions_or_the_dct_basis_win_at_small_bounds",),
    ),
    Mutant(
        "the leader of a race is dropped when its loss no longer decreases",
        "learning/race.py",
        "kept = tuple(each for each in race.candidates if each is leader or each in hopeful)",
        "kept = tuple(each for each in race.candidates if each in hopeful) or (leader,)",
        (
            "learning/test_race.py::test_a_leader_that_gains_less_than_a_hundredth_waits_while_others_gain",
        ),
    ),
    Mutant(
        "a start far behind has its turn",
        "learning/race.py",
        "if race.candidate.loss <= _FAR * race.best.loss or",
        "if True or",
        ("learning/test_race.py::test_a_start_more_than_a_hundred_times_behind_is_not_tried",),
    ),
    Mutant(
        "no step has momentum",
        "learning/race.py",
        "return Momentum(updated, min(change * self.factor, LARGEST_FACTOR))",
        "return self",
        (f"{MOMENTUM}::test_momentum_takes_fewer_passes_to_as_low_a_loss[10.0-relative]",),
    ),
    Mutant(
        "an extrapolation that raises the loss is kept, if it looks like rounding",
        "learning/race.py",
        "record.loss > old.loss if extrapolated else problem.rises(old.records[-1], record)",
        "problem.rises(old.records[-1], record)",
        (f"{MOMENTUM}::test_bound_and_norm_hold_wherever_a_step_ends[1000000.0-absolute]",),
    ),
    Mutant(
        "a vector that changed its sign is extrapolated",
        "learning/updates.py",
        "last_right = last.right * np.sign(",
        "last_right = last.right * np.abs(",
        (f"{MOMENTUM}::test_a_change_of_sign_is_not_extrapolated",),
    ),
    Mutant(
        "rounding of float32 signals decides where they have no energy",
        "learning/updates.py",
        "_LARGEST_PROXIMITY = 1e-8",
        "_LARGEST_PROXIMITY = PROXIMITY",
        (f"{MOMENTUM}::test_rounding_decides_nothing_where_signals_have_no_energy[100.0]",),
    ),
    Mutant(
        "Ctrl-C while learning ends loses what was learned",
        "learning/learn.py",
        "latest.race, reason = learn_on(engine, options)",
        "race, reason = learn_on(engine, options)\n        latest.race = race",
        (
            "estimators/test_all_or_nothing.py::"
            "test_ctrl_c_at_any_line_after_the_last_iteration_carries_the_result",
        ),
    ),
    Mutant(
        "a file forgets the momentum",
        "learning/archive.py",
        "momentum=_momentum(method, header, arrays, numbers)",
        "momentum=Momentum()",
        ("persistence/test_resuming.py::test_learning_resumes_from_a_file_after_exploration",),
    ),
    Mutant(
        "the leader of a race continues, whether or not its loss decreases",
        "learning/race.py",
        "following = min(hopeful or [leader], key=Candidate.forecast)",
        "following = min([*hopeful, leader], key=Candidate.forecast)",
        (
            "learning/test_race.py::test_a_leader_that_gains_less_than_a_hundredth_waits_while_others_gain",
        ),
    ),
    Mutant(
        "no candidate of a race is beyond hope",
        "learning/race.py",
        "if candidate.decreases and candidate.forecast(_MOST_DOUBLINGS) <= leader.loss",
        "if candidate.decreases",
        (
            "learning/test_race.py::test_a_candidate_that_cannot_be_expected_to_win_is_dropped_and_the_leader_never",
        ),
    ),
    Mutant(
        "a race whose leader has converged has not",
        "learning/learn.py",
        "return race, race.best.converged or StopReason.MAX_ITER",
        "return race, StopReason.MAX_ITER",
        ("estimators/test_estimators.py::test_a_warning_never_contradicts_the_race_of_starts",),
    ),
    Mutant(
        "an estimator forgets the variant",
        "estimators/base.py",
        "names = (field.name for field in fields(self._specification))",
        'names = (field.name for field in fields(self._specification) if field.name != "variant")',
        ("estimators/test_estimators.py::test_every_option_of_the_method_is_a_parameter",),
    ),
    Mutant(
        "a race shows its last candidate, not the best",
        "learning/race.py",
        "return min(self.candidates, key=self.loss_of) if self.races",
        "return self.candidates[-1] if self.races",
        (f"{LEARN}::test_a_race_shows_the_best_of_its_candidates_at_any_time",),
    ),
    Mutant(
        "exact steps forget the norm",
        "learning/updates.py",
        "project = partial(closest_spectrum, norm=constraints.norm)",
        "project = closest_spectrum",
        (f"{LEARN}::test_norm_of_the_transform_is_the_one_asked_for",),
    ),
    Mutant(
        "the right vectors turn with the wrong slack",
        "learning/updates.py",
        "slack = spectrum.max() ** 2 - spectrum**2",
        "slack = spectrum**2 - spectrum.min() ** 2",
        ("learning/test_updates.py::test_turning_the_right_vectors_never_increases_the_error",),
    ),
    Mutant(
        "the right vectors turn the other way: steps that rise are dropped",
        "learning/updates.py",
        "* spectrum + (gram @ right - least * right) * slack",
        "* spectrum - (gram @ right - least * right) * slack",
        (f"{LEARN}::test_objective_never_increases_on_real_patches",),
    ),
    Mutant(
        "the log-det update has half its penalty",
        "learning/updates.py",
        "np.sqrt(singular**2 + 2 * weight)",
        "np.sqrt(singular**2 + weight)",
        (
            "learning/test_updates.py::test_log_det_update_is_a_stationary_point_of_the_penalised_error",
        ),
    ),
    Mutant(
        "the relative error is over the codes alone",
        "engines/codes.py",
        "energy = self.codes + self.discarded",
        "energy = self.codes",
        ("learning/test_path.py::test_table_holds_the_errors_of_the_definition",),
    ),
    Mutant(
        "a result that is resumed begins a new history",
        "learning/race.py",
        "evaluated = replace(candidate, statistics=evaluated.statistics)",
        "evaluated = replace(evaluated, converged=candidate.converged)",
        (f"{LEARN}::test_resuming_continues_as_if_never_stopped",),
    ),
    Mutant(
        "a stream forgets nothing",
        "learning/stream.py",
        "_RECENCY = 4",
        "_RECENCY = 0",
        ("learning/test_stream.py::test_old_codes_hold_back_a_stream_that_never_forgets",),
    ),
    Mutant(
        "the state of a stream grows with its length",
        "learning/stream.py",
        "records = (*candidate.records[1 - _MOST_RECORDS :], record)",
        "records = (*candidate.records, record)",
        ("learning/test_stream.py::test_a_long_stream_keeps_a_bounded_history",),
    ),
    # --- estimators and files
    Mutant(
        "an interrupt of several folds loses what they have learned",
        "estimators/choice.py",
        "raise _carrying(error, map(_outcome, running)) from None",
        "raise",
        (f"{CHOICE}::test_ctrl_c_while_jobs_learn_carries_what_a_fold_has_learned",),
    ),
    Mutant(
        "an interrupt between folds loses what they have learned",
        "estimators/choice.py",
        "raise _carrying(interrupt, paths) from None",
        "raise",
        (f"{CHOICE}::test_ctrl_c_between_the_folds_carries_the_one_that_is_done",),
    ),
    Mutant(
        "a custom method cannot be given again after load",
        "persistence.py",
        "if not isinstance(learned, UnknownMethod) or",
        "if isinstance(learned, UnknownMethod) or",
        (
            "persistence/test_files.py::"
            "test_a_loaded_estimator_can_be_saved_with_its_custom_method_given_again",
        ),
    ),
    Mutant(
        "a header claims any number of candidates",
        "learning/archive.py",
        "len(candidates) > max(1, n_recorded)",
        "False",
        (f"{REFUSED}::test_a_header_cannot_claim_more_candidates_than_the_file_has",),
    ),
    Mutant(
        "a loaded transform may exceed its bound",
        "learning/method.py",
        "condition <= float(bound) * (1 + BOUND_SLACK):",
        "condition <= 1e6 * float(bound):",
        (
            "persistence/test_validation.py::test_headers_that_contradict_the_transform_are_rejected",
        ),
    ),
    Mutant(
        "files are written in place",
        "files.py",
        'temporary = file.with_name(f".{secrets.token_hex(6)}.part")',
        "temporary = file\n    file.unlink(missing_ok=True)",
        (
            "persistence/test_files.py::test_an_interrupted_save_leaves_the_old_file_and_nothing_else",
        ),
    ),
    # --- files from which learning goes on
    Mutant(
        "of a race a file has the best candidate only",
        "learning/archive.py",
        "    race = result.state\n",
        "    race = replace(result.state, candidates=(result.state.best,), active=0)\n",
        (f"{RESUMING}::test_a_fit_that_ends_within_a_race_resumes_from_its_file",),
    ),
    Mutant(
        "a file forgets which candidate explores",
        "learning/archive.py",
        "        explore,\n        _records(",
        "        None,\n        _records(",
        (f"{RESUMING}::test_a_race_over_batches_resumes_from_a_file",),
    ),
    Mutant(
        "a file forgets how long the turn has been",
        "learning/archive.py",
        'turn=count_in(header, "turn")',
        "turn=0",
        (f"{RESUMING}::test_a_race_resumes_from_a_file_of_any_iteration[absolute-float64]",),
    ),
    Mutant(
        "factors in a file may break the bound if they are not those of the result",
        "learning/archive.py",
        "    check_spectrum(method, np.sort(factors.spectrum)[::-1], names[1])\n",
        "",
        (f"{REFUSED}::test_a_candidate_that_does_not_lead_is_checked_as_the_result_is",),
    ),
    Mutant(
        "errors in a file may be negative",
        "learning/archive.py",
        "not min(errors) >= 0 or",
        "",
        (f"{REFUSED}::test_a_candidate_that_does_not_lead_is_checked_as_the_result_is",),
    ),
    Mutant(
        "a file may have another bound for what is to come",
        "persistence.py",
        "if not _agree(others[name], value):",
        "if False:",
        (f"{REFUSED}::test_headers_that_contradict_the_transform_are_rejected",),
    ),
    Mutant(
        "a file that cannot be read is called damaged",
        "persistence.py",
        "        _check_readable(file, path)\n",
        "",
        (f"{REFUSED}::test_a_file_that_cannot_be_read_is_not_called_damaged",),
    ),
    Mutant(
        "a file replaces the link to another",
        "files.py",
        "file = Path(os.path.realpath(path)) if path.is_symlink() else path",
        "file = path",
        ("persistence/test_files.py::test_saving_through_a_link_replaces_what_it_leads_to",),
    ),
    Mutant(
        "learning from empty codes is not worth a word",
        "learning/learn.py",
        "if n_nonzero == 0:",
        "if False:",
        ("learning/test_edges.py::test_codes_without_an_entry_are_pointed_out",),
    ),
    Mutant(
        "estimators do not warn of few signals",
        "estimators/base.py",
        "        warn_of_little(engine, options.n_nonzero)\n",
        "",
        ("learning/test_edges.py::test_signals_that_are_few_or_given_as_columns_are_pointed_out",),
    ),
    Mutant(
        "photographs are not turned upright",
        "image_files/picture.py",
        "SIDEWAYS = (5, 6, 7, 8)",
        "SIDEWAYS = (5, 7)",
        ("image_files/test_files.py",),
    ),
    Mutant(
        "EXIF says that the upright image is to be turned",
        "image_files/exif.py",
        "_SHORT, 1, 1, 0)",
        "_SHORT, 1, 6, 0)",
        (
            "image_files/test_metadata.py::test_exif_stays_and_the_orientation_is_that_of_the_upright_image",
        ),
    ),
    Mutant(
        "channels of a microscope are slices of a volume",
        "image_files/picture.py",
        'VOLUME, MOVIE = "ZQIT", ',
        'VOLUME, MOVIE = "ZQITC", ',
        ("image_files/test_tiff.py",),
    ),
    Mutant(
        "a promise of planes that are not in the file is believed",
        "image_files/descriptions.py",
        "if max(counts) > n_planes:",
        "if max(counts) > 1e12:",
        ("image_files/test_tiff.py::test_pixels_outlive_a_description_that_is_not_true",),
    ),
    Mutant(
        "the unit of a resolution of EXIF is ignored",
        "image_files/flat.py",
        "resolution_of(x, y, unit or INCH, orientation, omitted)",
        "resolution_of(x, y, INCH, orientation, omitted)",
        (
            "image_files/test_metadata.py::test_a_resolution_of_exif_alone_has_the_unit_that_exif_says",
        ),
    ),
    Mutant(
        "the padding of odd chunks of WebP is forgotten",
        "image_files/flat.py",
        "position += 8 + length + length % 2",
        "position += 8 + length",
        (
            "image_files/test_metadata.py::test_webp_stays_lossless_whatever_stands_before_its_pixels",
        ),
    ),
    Mutant(
        "a resolution of EXIF is believed before that of the file",
        "image_files/flat.py",
        'if "dpi" in image.info and is_given:',
        'if "dpi" in image.info and is_given and resolution is None:',
        (
            "image_files/test_metadata.py::test_where_exif_differs_the_resolution_is_that_of_the_file",
        ),
    ),
    Mutant(
        "the resolution of a turned image is that from before",
        "image_files/picture.py",
        "            if orientation in SIDEWAYS:\n                across, down = down, across\n",
        "",
        ("image_files/test_metadata.py::test_resolution_and_size_are_those_of_the_upright_image",),
    ),
    Mutant(
        "EXIF keeps the resolution from before a turn",
        "image_files/exif.py",
        "data[x], data[y] = data[y], data[x]",
        "pass",
        ("image_files/test_metadata.py::test_resolution_and_size_are_those_of_the_upright_image",),
    ),
    Mutant(
        "EXIF keeps the width from before a turn",
        "image_files/exif.py",
        ", 0x0100: 0, 0x0101: 1}",
        "}",
        ("image_files/test_metadata.py::test_resolution_and_size_are_those_of_the_upright_image",),
    ),
    Mutant(
        "chunks of PNG vanish without a word",
        "image_files/flat.py",
        'omitted += [f"the chunk {name} of PNG" for name in chunks]',
        "pass",
        (
            "image_files/test_metadata.py::test_chunks_of_png_that_may_not_be_true_are_left_out_and_named",
        ),
    ),
    Mutant(
        "a background of other colours is kept",
        "image_files/flat.py",
        "if is_same or name in _OF_COLOURS:",
        "if True:",
        (
            "image_files/test_metadata.py::test_colours_of_png_that_change_their_type_lose_what_refers_to_it",
        ),
    ),
    Mutant(
        "a size of OME that no page has is believed",
        "image_files/descriptions.py",
        "if (width, height) not in sizes:",
        "if False:",
        ("image_files/test_tiff_checks.py::test_a_size_that_no_page_has_reserves_no_memory",),
    ),
    Mutant(
        "a damaged text tag costs the pixels",
        "image_files/tiff_checks.py",
        "if tag and int(tag[1]) not in _OF_PIXELS:",
        "if False:",
        ("image_files/test_tiff_checks.py::test_pixels_outlive_a_damaged_text",),
    ),
    Mutant(
        "a wrong text of ImageJ costs the pixels",
        "image_files/tiff_checks.py",
        "(is_damage and not _OF_DESCRIPTION.search(complaint))",
        "is_damage",
        ("image_files/test_tiff_checks.py::test_pixels_outlive_a_text_of_imagej_that_is_not_true",),
    ),
    Mutant(
        "a stack of ImageJ that is cut is read as its first plane",
        "image_files/tiff_checks.py",
        "        _check_rest(file)\n",
        "        pass\n",
        ("image_files/test_tiff.py::test_a_stack_with_one_header_must_have_all_its_pixels",),
    ),
    Mutant(
        "pages may have any number of sizes",
        "image_files/tiff_checks.py",
        "if len(layouts) > _MAX_LAYOUTS:",
        "if False:",
        ("image_files/test_tiff_checks.py::test_pages_of_too_many_sizes_are_rejected",),
    ),
    # --- imaging
    # --- strength
    Mutant(
        "luminance has the strength of colours",
        "imaging/strength.py",
        "strengths.luminance - strengths.colour",
        "strengths.colour - strengths.colour",
        ("imaging/test_strength.py::test_without_colour_strength_only_luminance_changes",),
    ),
    Mutant(
        "missing pixels are blended with what is not known",
        "imaging/strength.py",
        "return result if known is None else np.where(known, result, denoised)",
        "return result",
        ("imaging/test_strength.py::test_missing_pixels_are_filled_whatever_the_strength",),
    ),
    Mutant(
        "a blend may leave the range of values",
        "imaging/strength.py",
        "within(before + change, value_range, dtype)",
        "within(before + change, (-np.inf, np.inf), dtype)",
        ("imaging/test_strength.py::test_a_range_of_values_holds_at_every_strength",),
    ),
    Mutant(
        "a range of values in other units clips in silence",
        "imaging/denoise.py",
        "        warn_about_range(options.value_range, stack, known)\n",
        "",
        ("imaging/test_mistakes.py::test_a_range_in_other_units_is_warned_about",),
    ),
    Mutant(
        "settings of learning are warned about where nothing is learned",
        "imaging/denoise.py",
        "if options.transform is None and ((levels > 0) & (lowest < highest)).any():",
        "if options.transform is None:",
        ("imaging/test_mistakes.py::test_bounds_that_amplify_noise_are_warned_about",),
    ),
    Mutant(
        "settings of learning are warned about for every file",
        "cli/messages.py",
        "        shown.add(text)\n",
        "",
        (
            "cli/test_denoise.py::"
            "test_settings_of_learning_are_warned_about_once_and_only_if_learning",
        ),
    ),
    # --- files and measurement of noise
    Mutant(
        "noise in compact JSON is taken for a damaged transform",
        "persistence.py",
        'if file.read(_PIECE).lstrip().startswith(b"{"):',
        'if b\'"format": "kappaform\' in file.read(_PIECE):',
        ("persistence/test_files.py::test_a_noise_file_is_recognised_however_its_json_is_written",),
    ),
    Mutant(
        "a field of a noise file may be given twice",
        "imaging/noise/files.py",
        "if len(given) < len(pairs):",
        "if False:",
        ("imaging/test_noise_files.py::test_other_files_are_rejected",),
    ),
    Mutant(
        "a noise file may hold a covariance that is none",
        "imaging/noise/files.py",
        "noise.mixed(np.ones(channels[:1] or 1), patch)",
        "pass",
        ("imaging/test_noise_files.py::test_what_cannot_be_noise_is_rejected",),
    ),
    Mutant(
        "unknown fields of a noise file are ignored",
        "imaging/noise/files.py",
        "for unknown in sorted(given.keys() - required - optional):",
        "for unknown in ():",
        ("imaging/test_noise_files.py::test_fields_that_no_noise_has_are_rejected",),
    ),
    Mutant(
        "frames of a burst have less noise than they have",
        "imaging/noise/frames.py",
        "math.sqrt(n_frames / (n_frames - 1))",
        "1.0",
        ("imaging/test_measure_noise.py::test_white_noise_of_a_burst",),
    ),
    Mutant(
        "clipped values lower the measured noise",
        "imaging/noise/measured.py",
        "sums = sums * usable",
        "pass",
        ("imaging/test_measure_noise.py::test_clipped_values_do_not_lower_the_noise",),
    ),
    Mutant(
        "a delay between channels is turned round",
        "imaging/noise/correlated.py",
        "covariance_of(each, patch_shape).T for each in pairs",
        "covariance_of(each, patch_shape) for each in pairs",
        ("imaging/test_measure_noise.py::test_a_delay_between_channels_has_its_direction",),
    ),
    Mutant(
        "noise of another ISO is used in silence",
        "cli/noise.py",
        "if None not in (measured, found) and measured != found:",
        "if False:",
        ("cli/test_camera.py::test_another_iso_camera_or_type_is_warned_about",),
    ),
    Mutant(
        "the time left does not learn from images that are done",
        "cli/durations.py",
        "correction = self._spent / self._expected if self._expected else 1.0",
        "correction = 1.0",
        ("cli/test_durations.py::test_the_forecast_is_right_within_30_percent_on_every_machine",),
    ),
    # --- noise: flat areas, many channels, extremes, what is said of it
    Mutant(
        "flat areas count in small images",
        "imaging/noise/estimate.py",
        "return deviation(coefs[clear] if is_noisy else coefs)",
        "return deviation(coefs)",
        ("imaging/test_noise.py::test_a_flat_half_does_not_hide_the_noise_of_a_small_image",),
    ),
    Mutant(
        "a doubt is not told by the command",
        "cli/messages.py",
        "        logger.addHandler(handler)\n",
        "",
        ("cli/test_noise.py::test_a_doubtful_estimate_is_one_line_with_the_option_to_give",),
    ),
    Mutant(
        "the offset of counts has the wrong sign",
        "imaging/noise/shot.py",
        "zero = sample.lowest - step * max(",
        "zero = step - sample.lowest * max(",
        ("imaging/test_estimate_edges.py::test_the_offset_of_counts_is_where_no_photon_falls",),
    ),
    Mutant(
        "texture that grows with brightness is shot noise",
        "imaging/noise/shot.py",
        "if not all(_LEAST_QUIET <= ratio <= _LARGEST_QUIET for ratio in ratios):",
        "if False:",
        ("imaging/test_small_shot.py::test_texture_of_bright_places_is_not_shot_noise",),
    ),
    Mutant(
        "many channels that share their structure have correlated noise",
        "imaging/noise/quiet_patches.py",
        "and (self.covariance.ndim == 4 or self.has_own_colours)",
        "and True",
        (
            "imaging/test_no_noise.py::test_channels_that_share_their_structure_have_no_correlated_noise",
        ),
    ),
    Mutant(
        "a colour in doubt is measured in its lines",
        "imaging/noise/estimate.py",
        "return [min(pair) for pair in zip(sigmas, limits, strict=True)]",
        "return sigmas",
        ("imaging/test_no_noise.py::test_a_colour_in_doubt_has_no_more_noise_than_the_others",),
    ),
    Mutant(
        "counts with many levels are not counted",
        "imaging/noise/shot.py",
        "return math.ldexp(divisor, -exponent) if divisor > 1 else 0.0",
        "return 0.0",
        ("imaging/test_small_shot.py::test_counts_are_counted_however_many_levels_they_have",),
    ),
    Mutant(
        "of a large image the first half is looked at",
        "imaging/noise/wavelets.py",
        "np.linspace(0, max(0, length - thickness), _N_SLABS)",
        "np.linspace(0, max(0, length - thickness) // 2, _N_SLABS)",
        ("imaging/test_noise.py::test_the_parts_of_a_large_image_are_evenly_spread",),
    ),
    Mutant(
        "beyond what was seen, noise that varies turns round",
        "imaging/noise/quiet_patches.py",
        "beyond = np.clip(slopes * ",
        "beyond = np.clip(-slopes * ",
        (
            "imaging/test_estimate_edges.py::test_noise_that_varies_goes_on_beyond_the_brightness_that_was_seen",
        ),
    ),
    Mutant(
        "many channels have one covariance together",
        "imaging/noise/quiet_patches.py",
        "size = len(samples) if len(samples) <= MOST_TOGETHER else 1",
        "size = len(samples)",
        (
            "imaging/test_many_channels.py::test_memory_of_an_estimate_grows_in_proportion_to_the_channels",
            "imaging/test_many_channels.py::test_no_matrix_of_all_channels_is_decomposed_to_estimate_noise",
        ),
    ),
    Mutant(
        "each of many components learns a transform",
        "imaging/denoise.py",
        "_MOST_LEARNED = 4",
        "_MOST_LEARNED = 40",
        ("imaging/test_many_channels.py::test_components_beyond_the_strongest_share_a_transform",),
    ),
    Mutant(
        "beyond its table varying noise is a constant",
        "imaging/noise/stabilise.py",
        "np.interp(values, points, heights) + below * first + above * last",
        "np.interp(values, points, heights)",
        (
            "imaging/test_stabilise.py::test_far_beyond_its_curve_varying_noise_is_that_of_the_nearest_end",
        ),
    ),
    Mutant(
        "components of an image are those of its first rows",
        "imaging/components.py",
        "sum(products) - sum(numbers) * np.outer(means, means)",
        "products[0] - numbers[0] * np.outer(means, means)",
        (
            "imaging/test_noise_kinds.py"
            "::test_components_of_a_large_image_are_those_of_its_blocks_of_rows",
        ),
    ),
    Mutant(
        "stabilised chunks have more digits than an array",
        "imaging/components.py",
        "values = values.astype(np.result_type(low, high), copy=False)",
        "values = values * 1",
        ("imaging/test_denoise_noise.py::test_dask_images_are_denoised_when_they_are_asked_for",),
    ),
    Mutant(
        "the noise of a movie is that of its noisiest frame",
        "imaging/components.py",
        "(len(levels) - 1) // 2",
        "-1",
        ("imaging/test_movies.py::test_one_bad_frame_does_not_change_the_noise_of_a_movie",),
    ),
    Mutant(
        "a range of values does not hold for constant images",
        "imaging/masked.py",
        "return within(values.astype(dtype), part.value_range, dtype)",
        "return values.astype(dtype)",
        ("imaging/test_denoise.py::test_a_range_of_values_holds_where_there_is_nothing_to_remove",),
    ),
    Mutant(
        "sigma of channels or images is guessed",
        "imaging/components.py",
        "elif values.shape == (n_channels,) and n_images == n_channels > 1:",
        "elif values.shape == (n_channels,) and n_images == n_channels > 100:",
        ("imaging/test_denoise.py::test_one_sigma_for_each_channel_or_image_is_not_guessed",),
    ),
    Mutant(
        "next to no noise is found in silence",
        "imaging/noise/estimate.py",
        "if np.all(levels <= _NEXT_TO_NONE * ranges) and np.any(ranges > 0):",
        "if False:",
        ("imaging/test_estimate_edges.py::test_next_to_no_noise_is_logged_as_a_warning",),
    ),
    Mutant(
        "large integers are stored as floats hold them",
        "cli/denoise.py",
        "np.copyto(denoised, noisy, where=found == image)",
        "pass",
        ("cli/test_noise.py::test_integers_beyond_the_digits_of_floats_stay_as_they_are",),
    ),
    Mutant(
        "coefficients count as signal above 2.0 deviations of the noise",
        "imaging/cleaning/patchwise.py",
        "THRESHOLD = 2.7",
        "THRESHOLD = 2.0",
        (
            "imaging/test_quality_of_denoising.py::test_learning_beats_a_fixed_basis_and_a_single_iteration",
        ),
    ),
    Mutant(
        "all patches count alike",
        "imaging/cleaning/patchwise.py",
        "weights = 1 / (1 + left)",
        "weights = np.ones_like(left)",
        ("imaging/test_sweep.py::test_thresholds_clean_as_the_loop_does",),
    ),
    Mutant(
        "Wiener's rule assumes twice the noise",
        "imaging/cleaning/kernels.py",
        "np.divide(power, power + variance)",
        "np.divide(power, power + 2 * variance)",
        ("imaging/test_sweep.py::test_wieners_rule_denoises_as_the_loop_does",),
    ),
    Mutant(
        "a denoiser that hardly learns",
        "imaging/training.py",
        "max_iter=amount.n_iter,",
        "max_iter=1,",
        (
            "imaging/test_quality_of_denoising.py::test_learning_beats_a_fixed_basis_and_a_single_iteration",
        ),
    ),
    Mutant(
        "texture is taken for noise",
        "imaging/noise/wavelets.py",
        "_QUIET_FRACTION = 0.2",
        "_QUIET_FRACTION = 1.0",
        ("imaging/test_noise.py::test_texture_is_not_taken_for_noise",),
    ),
    Mutant(
        "every seed gives the same noise",
        "imaging/simulate.py",
        "random = generator(rng)",
        "random = generator(0)",
        ("imaging/test_noise.py::test_the_same_seed_gives_the_same_noise",),
    ),
    Mutant(
        "the noise of a coefficient is that of white noise",
        "imaging/cleaning/patchwise.py",
        'variances = np.einsum("ij,jk,ik->i", transform, covariance, transform)',
        "variances = np.sum(transform**2, axis=1)",
        ("imaging/test_sweep.py::test_thresholds_clean_as_the_loop_does",),
    ),
    Mutant(
        "the way back from photons is the square, which has a bias",
        "imaging/noise/stabilise.py",
        "return means, poisson.pmf(counts, means[:, np.newaxis]) @ stabilised",
        "return means, 2 * np.sqrt(means + _SHIFT + read**2)",
        (
            "imaging/test_stabilise.py::test_the_way_back_from_the_mean_of_stabilised_photons_is_their_mean",
        ),
    ),
    Mutant(
        "the way back from levels forgets their slope",
        "imaging/noise/stabilise.py",
        "np.maximum.accumulate(stabilised - slopes / 2)",
        "np.maximum.accumulate(stabilised)",
        (
            "imaging/test_stabilise.py::test_the_way_back_from_the_mean_of_stabilised_levels_is_their_mean",
        ),
    ),
    Mutant(
        "noise that channels share is taken for independent noise",
        "imaging/noise/kinds.py",
        "between = np.eye(len(parts)) if self.correlation is None else self.correlation",
        "between = np.eye(len(parts))",
        (
            "imaging/test_noise_kinds.py::test_mixed_white_noise_has_the_standard_deviation_of_samples",
        ),
    ),
    Mutant(
        "a stabiliser may be for another number of channels",
        "imaging/noise/correlated.py",
        "self.stabiliser.check_channels(n_channels)",
        "pass",
        (
            "imaging/test_noise_kinds.py::test_parameters_for_another_number_of_channels_are_rejected",
        ),
    ),
    Mutant(
        "a shared transform is learned, and each image learns its own all the same",
        "imaging/denoise.py",
        "options = replace(options, transform=shared[-1].transform if shared else None)",
        "options = replace(options, transform=None)",
        ("imaging/test_denoise_noise.py::test_images_of_a_stack_may_share_one_transform",),
    ),
    Mutant(
        "a constant channel is moved by the bias of noise that it does not have",
        "imaging/components.py",
        "means = np.where(is_constant, image, means) if is_constant.any() else means",
        "means = means * 1",
        ("imaging/test_estimate_edges.py::test_a_constant_channel_stays_as_it_is",),
    ),
    Mutant(
        "slabs of a large image are turned",
        "imaging/noise/wavelets.py",
        "yield image[(slice(None),) * axis + (slice(start, start + thickness),)]",
        "yield np.moveaxis(image, axis, 0)[start : start + thickness]",
        (
            "imaging/test_estimate_edges.py::test_noise_that_neighbours_of_a_row_share_is_that_of_rows",
        ),
    ),
    Mutant(
        "texture in the quietest places counts as noise",
        "imaging/noise/wavelets.py",
        "return math.sqrt(max(sigma**2 - excess, 0.0))",
        "return sigma",
        ("imaging/test_no_noise.py::test_texture_everywhere_is_not_removed",),
    ),
    Mutant(
        "the level of noise is not measured where some of it is clipped",
        "imaging/noise/photographs.py",
        "_MOST_CLIPPED = 0.5",
        "_MOST_CLIPPED = 0.0",
        ("imaging/test_scale_mixture.py::test_noise_is_also_measured_where_some_of_it_is_clipped",),
    ),
    Mutant(
        "texture is taken for correlated noise of photographs",
        "imaging/noise/photographs.py",
        "return self.gain >= self.needed",
        "return True",
        ("imaging/test_scale_mixture.py::test_texture_is_no_noise",),
    ),
    Mutant(
        "fur is taken for correlated noise of photographs",
        "imaging/noise/photographs.py",
        "needed *= direction**_POWER",
        "needed *= 1.0",
        ("imaging/test_scale_mixture.py::test_fur_behind_little_noise_is_not_removed",),
    ),
    Mutant(
        "only windows without any clipped pixel have a direction",
        "imaging/noise/direction.py",
        "_MOST_CLIPPED = 0.05",
        "_MOST_CLIPPED = 0.5 / _SIDE**2",
        (
            "imaging/test_noise_direction.py::test_texture_that_is_clipped_here_and_there_has_a_direction",
        ),
    ),
    Mutant(
        "noise that is clipped nearly everywhere is certain",
        "imaging/noise/photographs.py",
        "of_kind * of_level * (1 + seen) / 2",
        "of_kind * of_level",
        (
            "imaging/test_scale_mixture.py::test_a_level_in_an_image_that_is_mostly_clipped_is_unsure",
        ),
    ),
    Mutant(
        "rare photons are dead pixels",
        "imaging/dead_pixels.py",
        "noise == 0 and others.size",
        "noise < 0 and others.size",
        ("cli/test_inpaint.py::test_rare_photons_are_no_dead_pixels",),
    ),
    Mutant(
        "noise of images of any scale is measured in their units",
        "imaging/noise/frames.py",
        "exponent = int(np.frexp(largest)[1])",
        "exponent = 0",
        ("imaging/test_measure_noise.py::test_noise_of_scaled_images_is_scaled",),
    ),
    Mutant(
        "an inverted mask of scratches passes silently",
        "cli/holes.py",
        " or _is_thin(~marked)",
        "",
        ("cli/test_inpaint.py::test_an_inverted_mask_of_scratches_is_reported",),
    ),
    Mutant(
        "where colours show the noise, brightness keeps its texture in the estimate",
        "imaging/noise/photographs.py",
        "lowered = found - max(excess, 0.0)",
        "lowered = found",
        ("imaging/test_scale_mixture.py::test_noise_in_fur_is_as_strong_as_in_its_colours",),
    ),
    Mutant(
        "red and blue may have any noise where green has little",
        "imaging/noise/photographs.py",
        "colours[1] + math.log(3)",
        "colours[0]",
        ("imaging/test_scale_mixture.py::test_a_texture_whose_green_hardly_differs_is_no_noise",),
    ),
    Mutant(
        "texture that is uneven in colours is noise of colours",
        "imaging/noise/photographs.py",
        "not judged.is_noise or judged.spectrum.spread > FIRST_SPREAD",
        "not judged.is_noise",
        ("imaging/test_scale_mixture.py::test_colours_that_demosaicing_makes_are_no_noise",),
    ),
    Mutant(
        "the direction of texture that is stronger than the noise counts",
        "imaging/noise/direction.py",
        "limit = max(_NEAR, float(np.quantile(distances, _LEAST_SHARE)))",
        "limit = math.inf",
        ("imaging/test_noise_direction.py::test_stronger_texture_does_not_count",),
    ),
    Mutant(
        "edges out of focus are a direction of noise",
        "imaging/noise/direction.py",
        "fine = slab - gaussian_filter(slab, _SMOOTH)",
        "fine = slab",
        ("imaging/test_noise_direction.py::test_what_is_out_of_focus_is_no_direction_of_noise",),
    ),
    Mutant(
        "the noise of photographs has one level everywhere",
        "imaging/noise/scale_mixture.py",
        "np.exp(2 * spread * _LEVELS)[:, None, None]",
        "np.ones((len(_LEVELS), 1, 1))",
        (
            "imaging/test_scale_mixture.py::test_a_level_that_differs_from_place_to_place_is_a_spread",
        ),
    ),
    Mutant(
        "the noise of photographs depends on brightness by chance",
        "imaging/noise/photographs.py",
        "return centres, np.exp((1 - by_chance / ratio) * curve)",
        "return centres, np.exp(curve)",
        ("imaging/test_scale_mixture.py::test_a_curve_is_as_steep_as_there_is_evidence_for",),
    ),
    Mutant(
        "few details are as certain as many",
        "imaging/noise/estimate.py",
        "within_a_fifth(_MAD_ERROR / math.sqrt(max(n, 1)))",
        "1.0",
        (
            "imaging/test_estimate_edges.py::test_more_details_make_an_estimate_more_certain",
            "cli/test_noise.py::test_an_estimate_that_is_uncertain_says_why_and_what_to_try",
        ),
    ),
    Mutant(
        "channels are as certain as the most certain of them",
        "imaging/noise/kinds.py",
        "least = min(noises, key=lambda each: each.confidence)",
        "least = max(noises, key=lambda each: each.confidence)",
        ("imaging/test_noise_kinds.py::test_channels_are_as_certain_as_the_least_certain_of_them",),
    ),
    Mutant(
        "the texture of magnified images is taken for noise",
        "imaging/noise/photographs.py",
        "if judged.spectrum.is_magnified or not judged.is_noise:",
        "if not judged.is_noise:",
        ("imaging/test_scale_mixture.py::test_a_magnified_image_has_no_noise",),
    ),
    Mutant(
        "signal energies imitate the level of the noise",
        "imaging/noise/scale_mixture.py",
        "grid = np.concatenate([[0.0], np.geomspace(*ends, _N_ENERGIES)])",
        "grid = np.zeros(_N_ENERGIES + 1)",
        ("imaging/test_scale_mixture.py::test_signal_of_any_energy_does_not_raise_the_noise",),
    ),
    Mutant(
        "salt and pepper is taken in silence",
        "imaging/noise/estimate.py",
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
        "imaging/metrics.py",
        "window = min(7, ",
        "window = min(5, ",
        ("imaging/test_quality.py::test_the_measures_are_relative_to_the_span",),
    ),
    Mutant(
        "12 bit in a file of 16 are taken for 16",
        "imaging/metrics.py",
        "n_bits = max(high, -1 - low).bit_length() + (low < 0)",
        "n_bits = 8 * reference.itemsize",
        ("imaging/test_quality.py::test_integers_span_the_fewest_bits_that_hold_them",),
    ),
    Mutant(
        "progress stands still while learning",
        "imaging/training.py",
        "progress(next(iterations) / n_iter)",
        "next(iterations)",
        ("imaging/test_progress.py::test_it_moves_while_learning_and_while_denoising_every_part",),
    ),
    # --- groups of similar patches
    Mutant(
        "groups are looked for without the guide",
        "imaging/cleaning/groups.py",
        "groups.find((1 - rounds.guided) * partial[0] + rounds.guided * guides[0], of_search)",
        "groups.find(partial[0], of_search)",
        (f"{GROUPS}::test_all_rounds_are_those_of_the_rule",),
    ),
    Mutant(
        "first estimates stay in memory",
        "imaging/cleaning/groups.py",
        "guides = estimates\n",
        "guides = list(estimates)\n",
        (f"{GROUPS}::test_an_estimate_is_released_when_there_is_a_better_one",),
    ),
    Mutant(
        "a search trusts the members of groups that were not found",
        "imaging/cleaning/groups.py",
        "seen = wanted & self.found & enough",
        "seen = wanted & enough",
        (f"{GROUPS}::test_groups_about_holes_are_the_same_whatever_was_found_before",),
    ),
    Mutant(
        "a search trusts fewer members than it looks for",
        "imaging/cleaning/groups.py",
        "members[0].shape[1] >= n_members",
        "members[0].shape[1] >= 0",
        (f"{GROUPS}::test_groups_about_holes_are_the_same_whatever_was_found_before",),
    ),
    Mutant(
        "only the holes of the last component count in a search",
        "imaging/cleaning/groups.py",
        "return np.any(numbers, axis=0)",
        "return numbers[-1] > 0",
        (f"{GROUPS}::test_groups_about_holes_are_the_same_whatever_was_found_before",),
    ),
    Mutant(
        "nothing around a patch is compared",
        "imaging/cleaning/groups.py",
        "context = tuple(search.context if side > 1 else 0 for side in search.patch_shape)",
        "context = tuple(0 for side in search.patch_shape)",
        (f"{GROUPS}::test_members_are_the_nearest_patches_at_borders_and_in_corners_too",),
    ),
    Mutant(
        "all members of a group count alike",
        "imaging/cleaning/kernels.py",
        "weight = trust / (norms[i] + 1 / k)",
        "weight = trust",
        (f"{GROUPS}::test_a_round_is_that_of_the_rule",),
    ),
    Mutant(
        "groups take all noise for white",
        "imaging/cleaning/group_kernels.py",
        "row[j] += variance * noise[j]",
        "row[j] += variance * (i == j)",
        (f"{GROUPS}::test_a_round_is_that_of_the_rule",),
    ),
    Mutant(
        "groups do not see how much noise was taken off before",
        "imaging/cleaning/kernels.py",
        "left = max(1 - removed, fraction, LEAST_LEFT)",
        "left = max(1 - 0 * removed, fraction, LEAST_LEFT)",
        (f"{GROUPS}::test_a_round_is_that_of_the_rule",),
    ),
    Mutant(
        "groups with a huge value count as much as others",
        "imaging/cleaning/kernels.py",
        "trust = max(n / max(n, hidden), LEAST_TRUST)",
        "trust = 1.0",
        (f"{GROUPS}::test_one_huge_value_leaves_the_rest_as_it_was",),
    ),
    Mutant(
        "sums over colours are rounded as the image lies in memory",
        "imaging/components.py",
        'np.subtract(pixels.reshape(-1, n_channels), centres, order="C")',
        "np.subtract(pixels.reshape(-1, n_channels), centres)",
        ("imaging/test_denoise.py::test_the_layout_of_an_image_in_memory_changes_no_bit",),
    ),
    Mutant(
        "groups that show twice as much of the power of the noise are means, too",
        "imaging/cleaning/kernels.py",
        "FLAT = 0.3",
        "FLAT = 0.6",
        (f"{GROUPS}::test_groups_that_show_little_next_to_the_noise_are_means",),
    ),
    Mutant(
        "weak noise counts like strong noise where groups are flat",
        "imaging/cleaning/groups.py",
        "return max(float(np.linalg.eigvalsh(covariance)[0]), 0.0)",
        "return 1.0",
        (f"{GROUPS}::test_groups_that_show_little_next_to_the_noise_are_means",),
    ),
    Mutant(
        "means of a group begin with what memory held before",
        "imaging/cleaning/group_kernels.py",
        "mean[:] = 0\n",
        "pass\n",
        (f"{GROUPS}::test_what_memory_held_before_does_not_matter",),
    ),
    Mutant(
        "pixels beyond a patch count as its own",
        "imaging/cleaning/group_kernels.py",
        "for j in range(n, n + RUN - width):",
        "for j in range(0):",
        (f"{GROUPS}::test_a_round_is_that_of_the_rule",),
    ),
    Mutant(
        "rows of a system are solved tile by tile, each as if it were the first",
        "imaging/cleaning/group_kernels.py",
        "subtract_tile(matrix, i, 1, width, columns, j, length, i, columns, other + j, length)",
        "pass",
        (f"{GROUPS}::test_a_round_is_that_of_the_rule",),
    ),
    Mutant(
        "references see patches beyond the image",
        "imaging/cleaning/matching_kernels.py",
        "if low <= ref < high:",
        "if True:",
        (f"{GROUPS}::test_members_are_the_nearest_patches_at_borders_and_in_corners_too",),
    ),
    Mutant(
        "of equally near patches the last are taken",
        "imaging/cleaning/matching_kernels.py",
        "place += distance < high or (distance == high and n_equal > 0)",
        "place += distance < high or (distance == high and n_equal <= 0)",
        (f"{GROUPS}::test_of_equal_patches_the_first_shifts_are_taken",),
    ),
    Mutant(
        "heads of blocks are not compared",
        "imaging/cleaning/matching_kernels.py",
        "for i in range(n_ring if has_head else n_ring - 1):",
        "for i in range(n_ring - 1):",
        (f"{GROUPS}::test_members_are_the_nearest_patches_at_borders_and_in_corners_too",),
    ),
    Mutant(
        "references of halved images are as near as those of the image",
        "imaging/cleaning/stages.py",
        "effort.stride if scale == 0 else _APART",
        "effort.stride",
        ("imaging/test_scales.py::test_references_are_a_patch_apart_in_halves",),
    ),
    Mutant(
        "a search begins from less than the distance of the last members",
        "imaging/cleaning/kernels.py",
        "farthest[group] = largest * BEYOND_ROUNDING",
        "farthest[group] = 0.9 * largest * BEYOND_ROUNDING",
        (f"{GROUPS}::test_a_search_finds_the_same_whatever_was_found_before",),
    ),
    Mutant(
        "the last strip of groups is forgotten",
        "imaging/cleaning/groups.py",
        "for i in range(0, n, size)]",
        "for i in range(0, max(n - size, 1), size)]",
        (f"{GROUPS}::test_members_are_the_nearest_patches_at_borders_and_in_corners_too",),
    ),
    # --- missing pixels
    Mutant(
        "a patch with few known pixels is the mean of its group",
        "imaging/cleaning/fill_kernels.py",
        "_multiply_rows(left, n_many, n_rows, covariance, n, product)",
        "_multiply_rows(left, n_many, n_many, covariance, n, product)",
        (f"{INPAINT}::test_a_patch_is_its_conditional_mean_given_its_known_pixels",),
    ),
    Mutant(
        "the noise of known pixels is not removed",
        "imaging/cleaning/fill_kernels.py",
        "_subtract(product, variance, left, n_many, n_rows, n)",
        "_subtract(product, 0 * variance, left, n_many, n_rows, n)",
        (f"{INPAINT}::test_a_patch_is_its_conditional_mean_given_its_known_pixels",),
    ),
    Mutant(
        "estimates count however much they differ",
        "imaging/cleaning/holes.py",
        "(1 - ratio / most).clip(min=0)",
        "(1 - 0 * ratio / most).clip(min=0)",
        (f"{INPAINT}::test_estimates_count_unless_they_differ_by_as_much_as_patches_of_a_group",),
    ),
    Mutant(
        "filled values are not replaced by denoised ones",
        "imaging/masked.py",
        "zip(known, sources, found.images, strict=True)",
        "zip(known, sources, images, strict=True)",
        (f"{INPAINT}::test_where_much_is_missing_denoised_values_replace_the_filled_ones",),
    ),
    Mutant(
        "a command overwrites its mask",
        "cli/files.py",
        "for name in (arguments.model, arguments.mask) if name",
        "for name in (arguments.model,) if name",
        (
            "cli/test_inpaint.py::test_a_mask_is_not_overwritten_and_one_that_marks_nothing_is_reported",
        ),
    ),
    Mutant(
        "NaN are not missing",
        "imaging/masks.py",
        'if nan and pixels.dtype.kind == "f":',
        "if False:",
        (f"{INPAINT}::test_masks_nan_and_masked_arrays_are_the_same",),
    ),
    Mutant(
        "a pixel counts in its own left-out average",
        "imaging/cleaning/first_guess.py",
        "(sums[counted] - own * values[counted]) / others[counted]",
        "sums[counted] / totals[counted]",
        (f"{INPAINT}::test_the_error_of_a_first_guess_is_that_of_pixels_left_out_in_turn",),
    ),
    Mutant(
        "as many pixels are held out where few are missing",
        "imaging/cleaning/holes.py",
        "fraction = min(HELD_OUT, HELD_OUT_OF_MISSING * n_missing / number)",
        "fraction = HELD_OUT",
        (f"{INPAINT}::test_where_few_pixels_are_missing_few_are_held_out",),
    ),
    Mutant(
        "held-out pixels are in the first guess",
        "imaging/cleaning/first_guess.py",
        "used = known & ~held",
        "used = known",
        (f"{INPAINT}::test_held_out_pixels_have_no_part_in_where_rounds_start",),
    ),
    Mutant(
        "estimates around holes lose an offset's digits",
        "imaging/cleaning/holes.py",
        "values.reshape(shape) * sigmas[c] + centre",
        "np.float32(values.reshape(shape) * sigmas[c] + centre)",
        (f"{INPAINT}::test_denoising_around_holes_commutes_with_scaling_and_shifting",),
    ),
    Mutant(
        "rounds go on whatever the held-out pixels show",
        "imaging/cleaning/fill_rounds.py",
        "return self.n_worse < self.patience or self.n_rounds < self.least_rounds",
        "return True",
        (f"{INPAINT}::test_rounds_end_when_held_out_pixels_get_worse",),
    ),
    Mutant(
        "the last rounds are repeated whatever the trial shows",
        "imaging/cleaning/fill_rounds.py",
        "if watch.squared_error(mean) <= MOST_LOSS * watch.least:",
        "if True:",
        (f"{INPAINT}::test_last_rounds_are_repeated_if_a_trial_does_no_harm",),
    ),
    Mutant(
        "all noise is assumed in a filled image",
        "imaging/masked.py",
        "math.sqrt(1 - lost * fraction) for",
        "1.0 for",
        (f"{INPAINT}::test_filled_images_are_denoised_with_less_noise",),
    ),
    Mutant(
        "less noise is assumed wherever a hole is",
        "imaging/masked.py",
        "float(its[k].mean())",
        "float(its[~k].mean())",
        (f"{INPAINT}::test_a_hole_makes_no_difference_far_away",),
    ),
    Mutant(
        "rounds end while the assumed error is still large",
        "imaging/cleaning/fill_plan.py",
        "least = max(least, _LEAST_ROUNDS)",
        "least = _LEAST_ROUNDS",
        (f"{INPAINT}::test_rounds_do_not_end_before_the_assumed_error_is_a_quarter",),
    ),
    Mutant(
        "large holes of a movie are guessed from their own frame",
        "imaging/cleaning/holes.py",
        "guesses[i] = np.where(deep[i] & found, values, guesses[i])",
        "found[:] = False",
        (
            f"{INPAINT}::test_a_large_hole_in_a_movie_is_guessed_from_the_nearest_frame_that_knows_it",
        ),
    ),
    Mutant(
        "a callback cannot end the rounds",
        "imaging/cleaning/fill_rounds.py",
        "if callback and callback(_told(i, plan, watch)):",
        "if callback and callback(_told(i, plan, watch)) and False:",
        (f"{INPAINT}::test_a_callback_sees_every_round_in_units_of_the_image_and_may_end_them",),
    ),
    Mutant(
        "patches with holes are extracted",
        "imaging/patches.py",
        "numbers = None if missing is None else complete_patches(~missing, grid)",
        "numbers = None",
        ("imaging/test_patches.py::test_patches_with_missing_pixels_are_left_out",),
    ),
    Mutant(
        "patches with holes are learned from",
        "imaging/training.py",
        "among = complete if len(complete) >= source.least else among",
        "among = among",
        (
            f"{INPAINT}::test_patches_with_holes_are_not_learned_from",
            "imaging/test_shared.py::test_patches_with_missing_pixels_are_not_learned_from",
        ),
    ),
    Mutant(
        "known pixels are clipped",
        "imaging/inpaint.py",
        "result[missing] = values[missing].clip(low, high)",
        "result = np.where(missing, values, result).clip(low, high).astype(result.dtype)",
        (f"{INPAINT}::test_only_filled_pixels_are_clipped",),
    ),
    Mutant(
        "nothing is taken from the halves of an image",
        "imaging/cleaning/stages.py",
        "    if half is None:\n",
        "    if True:\n",
        ("imaging/test_scales.py::test_scales_find_what_is_smooth_in_strong_noise",),
    ),
    Mutant(
        "the guide of Wiener's rule has nothing of the halves",
        "imaging/cleaning/stages.py",
        "rule, bounds, kernels, half, first)",
        "rule, bounds, kernels, None, first)",
        ("imaging/test_scales.py::test_both_estimates_take_what_is_smooth_from_the_half",),
    ),
    Mutant(
        "groups follow a Wiener filter, in which texture fades",
        "imaging/cleaning/stages.py",
        "estimate = two_sweeps if noise else thresholded",
        "estimate = two_sweeps",
        (
            "imaging/test_scales.py::test_groups_of_white_noise_follow_thresholding",
            "imaging/test_kept.py::test_groups_follow_a_filter_where_noise_is_strong",
        ),
    ),
    Mutant(
        "groups follow no Wiener filter in strong noise either",
        "imaging/cleaning/stages.py",
        "NOISE if kept.noise > _NOISY else None",
        "None",
        ("imaging/test_kept.py::test_groups_follow_a_filter_where_noise_is_strong",),
    ),
    Mutant(
        "the Wiener filter takes the first estimate for the whole signal",
        "imaging/cleaning/stages.py",
        "return kept.wiener_noise if is_last",
        "return NOISE if is_last",
        ("imaging/test_kept.py::test_texture_that_thresholding_loses_is_kept_by_the_filter",),
    ),
    Mutant(
        "noise that is kept by chance counts as signal",
        "imaging/training.py",
        "    signal -= n_noisy * THRESHOLD",
        "    signal += 0 * THRESHOLD",
        ("imaging/test_kept.py::test_what_is_kept_of_a_signal_is_known_without_the_signal",),
    ),
    Mutant(
        "tiles have no margin",
        "imaging/cleaning/tiles.py",
        "first, last = max(start - margin, 0), min(stop + margin, size)",
        "first, last = start, stop",
        ("imaging/test_tiles.py::test_no_seam_can_be_seen",),
    ),
    Mutant(
        "frames of a movie do not see each other",
        "imaging/cleaning/stages.py",
        "_FRAMES = 2",
        "_FRAMES = 0",
        ("imaging/test_movies.py::test_a_movie_is_denoised_better_than_its_frames",),
    ),
    Mutant(
        "rounds of learning go on where the loss has settled",
        "imaging/training.py",
        "        if _has_settled(result, amount.settled):\n            break\n",
        "",
        ("imaging/test_training.py::test_no_round_follows_one_whose_loss_has_settled",),
    ),
    Mutant(
        "where groups clean, next to nothing is learned",
        "imaging/training.py",
        "Amount(3, 10_000, ",
        "Amount(1, 300, ",
        ("imaging/test_quality_of_denoising.py::test_each_quality_is_better_than_the_one_before",),
    ),
    Mutant(
        "the paper's preset takes a quality and ignores it",
        "paper/denoiser.py",
        "if quality in get_args(Quality):",
        "if False:",
        ("imaging/test_denoise.py::test_bad_input_is_named",),
    ),
    Mutant(
        "the patches of each scale are gathered from Dask on their own",
        "imaging/training.py",
        "coarse = list(islice(drawn, n_scales - 1))",
        "coarse = [list(drawn_rounds(sources[0], [draw], options, rng)) for draw in draws[:2]]",
        ("imaging/test_denoise_dask.py::test_an_image_is_computed_three_times_to_learn_from_it",),
    ),
    # --- cli
    Mutant(
        "a result that is there is replaced without being asked",
        "cli/files.py",
        "return exists and not job.is_named and not overwrite",
        "return False",
        ("cli/test_denoise_files.py::test_results_in_a_folder_are_not_denoised_again",),
    ),
    Mutant(
        "a file that the user names is taken for a result",
        "cli/files.py",
        "return exists and not job.is_named and not overwrite",
        "return exists and not overwrite",
        ("cli/test_names.py::test_a_file_that_the_user_names_is_not_taken_for_a_result",),
    ),
    Mutant(
        "folders stay that were made for nothing",
        "cli/files.py",
        "                folder.rmdir()\n",
        "                pass\n",
        ("cli/test_names.py::test_what_is_rejected_leaves_no_folder",),
    ),
    Mutant(
        "names of files are taken for parameters",
        "cli/messages.py",
        '        text = f"{error.filename}: {error.strerror}"\n',
        '        text = in_options(f"{error.filename}: {error.strerror}")\n',
        ("cli/test_names.py::test_a_name_that_looks_like_a_parameter_stays_as_it_is",),
    ),
    Mutant(
        "the suffix of OME files is cut in two",
        "cli/files.py",
        'stem.lower().endswith(".ome")',
        "False",
        ("cli/test_names.py::test_the_suffix_of_ome_files_is_a_whole",),
    ),
    Mutant(
        "noise of black and white is estimated",
        "cli/files.py",
        "if picture.metadata.is_bilevel and ",
        "if False and ",
        ("cli/test_names.py::test_noise_of_black_and_white_is_not_estimated",),
    ),
    Mutant(
        "values without data are taken for data without a word",
        "cli/files.py",
        "if (n_pixels := picture.n_without_data) and not leaves_holes:",
        "if (n_pixels := 0) and not leaves_holes:",
        ("cli/test_names.py::test_values_that_mean_no_data_are_reported_where_they_count",),
    ),
    Mutant(
        "values of big-endian files have no range",
        "image_files/picture.py",
        'dtype.kind == "u" and dtype.itemsize <= 2',
        "dtype in (np.uint8, np.uint16)",
        ("cli/test_names.py::test_the_order_of_bytes_changes_no_result",),
    ),
    Mutant(
        "names of files steer the terminal",
        "cli/messages.py",
        'return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)',
        "return text",
        ("cli/test_command.py::test_names_do_not_steer_the_terminal",),
    ),
    Mutant(
        "a closed stream ends the command",
        "cli/parser.py",
        "    messages.open_closed_streams()\n",
        "",
        ("cli/test_command.py::test_a_closed_stream_changes_no_result",),
    ),
    Mutant(
        "a full standard output is blamed on the image",
        "cli/messages.py",
        'error.errno, reason, "standard output"',
        "error.errno, reason",
        ("cli/test_command.py::test_a_full_standard_output_is_not_a_failure_of_the_image",),
    ),
    Mutant(
        "the search for similar patches is compiled for slices as well",
        "imaging/cleaning/groups.py",
        "limits = np.ascontiguousarray(limits)  #",
        "pass  #",
        (f"{GROUPS}::test_kernels_are_compiled_for_one_layout_of_their_arrays",),
    ),
    Mutant(
        "matplotlib is imported where nothing is drawn",
        "cli/denoise.py",
        "draw = partial(_drawn, *shown, mask=hidden)",
        "draw = partial(kf.plots.plot_denoising, *shown, mask=hidden)",
        ("cli/test_denoise.py::test_without_a_report_nothing_of_plots_is_imported",),
    ),
    Mutant(
        "what belongs to a kept result is not checked",
        "cli/denoise.py",
        "check_readable(job.reference)",
        "pass",
        ("cli/test_denoise_files.py::test_what_belongs_to_a_kept_result_is_checked",),
    ),
    Mutant(
        "a bound is chosen where all do the same",
        "cli/models.py",
        "    _check_choice(signals)\n",
        "",
        ("cli/test_models.py::test_of_a_constant_image_there_is_nothing_to_choose",),
    ),
    Mutant(
        "NaN in validation signals is found when everything is learned",
        "learning/path.py",
        "    engine.check_in_memory()\n",
        "",
        ("learning/test_path.py::test_nan_in_the_validation_is_found_before_anything_is_learned",),
    ),
    Mutant(
        "a second Ctrl-C ends what the first one saves",
        "cli/messages.py",
        "        if state.are_held:\n",
        "        if False:\n",
        ("cli/test_models.py::test_an_interruption_while_a_model_is_saved_waits",),
    ),
    Mutant(
        "learning ends though the handler of a caller lets it go on",
        "cli/messages.py",
        "        state.are_held = state.is_interrupted = False  # that",
        "        # that",
        ("cli/test_models.py::test_a_handler_of_the_caller_may_let_learning_go_on",),
    ),
    Mutant(
        "a path compares errors that grow with the number of signals",
        "engines/codes.py",
        "math.sqrt(self.discarded / self.signals)",
        "math.sqrt(self.discarded)",
        ("learning/test_path.py::test_printed_errors_do_not_depend_on_the_number_of_signals",),
    ),
    Mutant(
        "a part of the momentum may be missing in a file",
        "learning/archive.py",
        "if not arrays.keys() & set(last):",
        "if last[0] not in arrays:",
        (f"{REFUSED}::test_arrays_that_contradict_the_header_are_rejected",),
    ),
    Mutant(
        "counts of a file may contradict those of its stream",
        "learning/archive.py",
        'if header["is_result"] and counts[name] !=',
        "if False and counts[name] !=",
        ("estimators/test_stream.py::test_files_that_describe_no_stream_are_rejected",),
    ),
    Mutant(
        "the report shows missing pixels as if they were known",
        "plots/pictures.py",
        "        values = np.ma.masked_where(missing, values)\n",
        "        pass\n",
        ("plots/test_denoising.py::test_missing_pixels_are_orange_where_they_are_not_filled",),
    ),
    Mutant(
        "what was learned before Ctrl-C is lost",
        "cli/models.py",
        "        return interruption.result\n",
        "        raise KeyboardInterrupt from None\n",
        ("cli/test_models.py::test_an_interruption_keeps_what_was_learned",),
    ),
    Mutant(
        "an option without effect is taken in silence",
        "cli/options.py",
        "if {name, other} <= given:",
        "if False:",
        ("cli/test_denoise.py::test_what_has_no_effect_or_no_end_is_rejected",),
    ),
    Mutant(
        "the noise that is given to the command is not used",
        "cli/options.py",
        "return kf.Shot(arguments.gain, arguments.read_noise, arguments.offset)",
        "return None",
        ("cli/test_noise.py::test_the_noise_of_the_options_is_the_noise_of_the_library",),
    ),
    Mutant(
        "a warning does not name its file",
        "cli/messages.py",
        'text = first if is_named else f"{files[0]}: {in_options(first)}"',
        "text = in_options(first)",
        ("cli/test_noise.py::test_a_warning_is_one_line_that_names_its_file",),
    ),
    Mutant(
        "pictures that share a transform learn each its own",
        "cli/denoise.py",
        'options["transform"] = settings.transform',
        "pass",
        (
            "cli/test_stacks.py::test_one_transform_is_learned_from_all_files_whatever_their_size_and_colours",
        ),
    ),
    Mutant(
        "slices of a volume are planes of their own",
        "cli/files.py",
        'along = VOLUME if arguments.volume else MOVIE if arguments.movie else ""',
        'along = MOVIE if arguments.movie else ""',
        ("cli/test_stacks.py::test_a_volume_is_along_z_and_never_over_channels_or_times",),
    ),
    Mutant(
        "channels of a movie are frames of one",
        "cli/denoise.py",
        "movies, masks = image, ",
        "movies, masks = image.reshape(1, -1, *image.shape[2:]), ",
        (
            "cli/test_stacks.py::test_frames_of_a_movie_are_along_time_and_never_mix_channels_or_depths",
        ),
    ),
    Mutant(
        "the first of several images gives most of the patches",
        "imaging/shared.py",
        "if len(drawn.patches) <= number:",
        "if True:",
        ("imaging/test_shared.py::test_every_image_gives_equally_many_patches",),
    ),
    # --- explore
    Mutant(
        "the name of an image becomes part of the page",
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
        "places, numbers = linear_sum_assignment(-np.abs(similarity))",
        "places = numbers = np.arange(len(rows))",
        ("explore/test_exploration.py",),
    ),
    Mutant(
        "an image is rebuilt without the means of its patches",
        "explore/exploration.py",
        "codes @ inverse.T + means",
        "codes @ inverse.T",
        ("explore/test_exploration.py",),
    ),
    Mutant(
        "of a large image a corner is taken, not the middle as it is said",
        "cli/explore.py",
        "max(0, (side - MOST_PIXELS) // 2)",
        "0 * max(0, (side - MOST_PIXELS) // 2)",
        ("cli/test_explore.py",),
    ),
]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Break the package on purpose.")
    parser.add_argument("words", nargs="*", help="only mutants whose description has one of them")
    parser.add_argument("--part", type=part, default=(1, 1), help="3/12: every twelfth of them")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    number, parts = options.part
    found = [m for m in MUTANTS if not options.words or any(w in m.what for w in options.words)]
    chosen = found[number - 1 :: parts]
    problems = [f"stale: {m.what}: {stale(m)}" for m in MUTANTS if stale(m)]
    if problems or not chosen:
        print(*problems or [f"no mutant matches {list(arguments)}"], sep="\n")
        return 2
    everything = sorted({test for m in chosen for test in m.tests})
    code, output = tested(everything, None, None)
    if code != 0:
        print(output, "without any mutant the tests above must pass", sep="\n")
        return 2
    print(f"{seconds_since(started)} without any mutant: all {len(everything)} tests pass")
    # Most mutants need a part of these tests, but compile kernels.
    seconds = SECONDS + 2 * (time.perf_counter() - started)
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        verdicts = list(pool.map(lambda mutant: judged(mutant, seconds), chosen))
    survivors = [m.what for m, verdict in zip(chosen, verdicts, strict=True) if verdict]
    print(f"{seconds_since(started)} {len(chosen) - len(survivors)} of {len(chosen)} caught")
    print(*(f"survivor: {what}" for what in survivors), sep="\n", end="\n" if survivors else "")
    return 1 if survivors else 0


def part(text: str) -> tuple[int, int]:
    """Which part of how many, as in "3/12"."""
    number, parts = map(int, text.split("/"))
    if not 1 <= number <= parts:
        raise ValueError(text)
    return number, parts


def stale(mutant: Mutant) -> str:
    """Why the text of a mutant cannot be replaced, or nothing."""
    path = ROOT / "src" / "kappaform" / mutant.file
    if not path.exists():
        return f"{mutant.file} does not exist"
    count = path.read_text(encoding="utf-8").count(mutant.old)
    return "" if count == 1 else f"its text is {count} times in {mutant.file}"


def judged(mutant: Mutant, seconds: float) -> str:
    """Why a mutant was not caught, or nothing."""
    started = time.perf_counter()
    code, output = tested(mutant.tests, mutant, seconds)
    caught = code in (FAILED, None)
    word = (
        "hangs" if code is None else "caught" if caught else f"SURVIVES (pytest ended with {code})"
    )
    print(f"{seconds_since(started)} {word}: {mutant.what}", flush=True)
    if code not in (0, FAILED, None):
        print(output)
    return "" if caught else word


def tested(
    tests: Sequence[str], mutant: Mutant | None, seconds: float | None
) -> tuple[int | None, str]:
    """Exit code and output of tests with a copy of the sources; None if they do not end."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy)  # with what numba has compiled of the other files
        if mutant is not None:
            file = copy / "kappaform" / mutant.file
            file.write_text(file.read_text(encoding="utf-8").replace(mutant.old, mutant.new))
        words = ["-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=line"]
        if mutant is None:
            words += ["-n", str(AT_A_TIME)]
        names = [f"tests/{test}" for test in tests]
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *words, *names],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"},
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return None, ""
    return done.returncode, done.stdout + done.stderr


def seconds_since(started: float) -> str:
    return f"{time.perf_counter() - started:6.1f} s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
