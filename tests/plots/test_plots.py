"""Figures are checked by what they show: the data of their curves, their texts, their pixels."""

from dataclasses import dataclass
from io import BytesIO
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure
from numpy.testing import assert_allclose, assert_array_equal

from kappaform import (
    OrthonormalTransform,
    dct_basis,
    denoise_with_details,
    learn_union,
    plots,
    random_basis,
)
from kappaform.learning import ConditionPath, UnionPath
from kappaform.plots.curves import log_scale


@dataclass
class Bounded:
    max_condition: float | None


@dataclass
class Free:
    pass


def result(method, spectrum=(2.0, 1.5, 1.2, 1.0), errors=(5.0, 3.0, 2.0)):
    """What `plots` reads of a LearnResult."""
    spectrum, absolute = np.array(spectrum), np.array(errors)
    transform = random_basis(spectrum.size, 0) * spectrum @ random_basis(spectrum.size, 1)
    return SimpleNamespace(
        method=method,
        transform=transform,
        errors=SimpleNamespace(absolute=absolute, relative=absolute / 10),
    )


def path(validation, **given):
    names = ("sparsification", "relative", "reconstruction")
    table = {name: np.geomspace(1.0, 0.1, 4) * (i + 1) for i, name in enumerate(names)}
    if validation:
        table |= {f"validation_{name}": 1.1 * table[name] for name in names}
    bounds = np.array([1.0, 2.0, 10.0, 70.0])
    table |= {"max_condition": bounds, "condition_number": bounds}
    return ConditionPath(table, (), **given)


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for axes in figure.axes for text in axes.texts]


def shown(figure: Figure) -> np.ma.MaskedArray:
    (image,) = figure.axes[0].images
    return image.get_array()


FIGURES = {
    "convergence": lambda: plots.plot_convergence([result(Bounded(2.0)), result(Free())]),
    "many curves": lambda: plots.plot_convergence([result(Free()) for _ in range(12)]),
    "errors end at zero": lambda: plots.plot_convergence(result(Free(), errors=(1.0, 0.0, 0.0))),
    "errors all zero": lambda: plots.plot_convergence(result(Free(), errors=(0.0, 0.0))),
    "only the start": lambda: plots.plot_convergence(result(Free(), errors=(1.0,))),
    "spectrum": lambda: plots.plot_spectrum([result(Bounded(2.0)), dct_basis(3)]),
    "singular": lambda: plots.plot_spectrum(np.diag([2.0, 1.0, 0.0])),
    "zero matrix": lambda: plots.plot_spectrum(np.zeros((3, 3))),
    "atoms": lambda: plots.plot_atoms(dct_basis((3, 3))),
    "atoms 1x1": lambda: plots.plot_atoms(np.eye(1)),
    "atoms zero": lambda: plots.plot_atoms(np.zeros((4, 4))),
    "atoms of a union": lambda: plots.plot_atoms(np.stack([dct_basis((3, 3))] * 3)),
    "path": lambda: plots.plot_path(path(validation=True)),
    "path, training only": lambda: plots.plot_path(path(validation=False)),
}


@pytest.mark.parametrize("name", FIGURES)
def test_every_figure_can_be_written_without_a_warning_or_a_window(name):
    figure = FIGURES[name]()
    assert isinstance(figure, Figure)
    assert getattr(figure, "number", None) is None  # pyplot does not know it
    stream = BytesIO()
    figure.savefig(stream, dpi=30)
    assert stream.getvalue().startswith(b"\x89PNG")


@pytest.mark.parametrize("error", ["absolute", "relative"])
def test_convergence_shows_the_errors_of_each_result(error):
    results = [result(Free()), result(Bounded(3.0), errors=(5.0, 4.5, 4.0, 3.9))]
    figure = plots.plot_convergence(results, error=error)
    (axes,) = figure.axes
    curves = [line for line in axes.lines if line.get_linestyle() == "-"]
    for curve, expected in zip(curves, results, strict=True):
        values = getattr(expected.errors, error)
        assert_array_equal(curve.get_xdata(), np.arange(values.size))
        assert_array_equal(curve.get_ydata(), values)
    assert axes.get_yscale() == "log"
    assert axes.get_ylabel().startswith(error)
    assert texts(figure) == ["Free", r"Bounded, $\kappa \leq$ 3"]


def test_labels_come_from_the_argument_then_the_mapping_then_the_method():
    one = result(Free())
    assert texts(plots.plot_convergence({"a": one, "b": one})) == ["a", "b"]
    assert texts(plots.plot_convergence({"a": one, "b": one}, labels=["c", "d"])) == ["c", "d"]
    assert texts(plots.plot_convergence([one, one])) == ["Free", "Free (2)"]


def test_labels_of_curves_that_end_together_do_not_overlap():
    figure = plots.plot_convergence([result(Free()) for _ in range(6)])
    heights = np.sort([text.get_position()[1] for text in figure.axes[0].texts])
    assert np.diff(heights).min() > 0.06
    assert heights[0] >= 0
    assert heights[-1] <= 1


def test_spectrum_shows_singular_values_and_the_floor_that_the_bound_leaves():
    spectrum = (3.0, 2.5, 2.0, 1.0)
    figure = plots.plot_spectrum([result(Bounded(4.0), spectrum), np.diag([1.0, 5.0])])
    bounded, floor, plain = figure.axes[0].lines
    assert_allclose(bounded.get_ydata(), spectrum, rtol=1e-13)
    assert_allclose(floor.get_ydata(), 3.0 / 4.0, rtol=1e-13)
    assert_allclose(plain.get_ydata(), [5.0, 1.0])
    note, *ends = texts(figure)
    assert note == "largest / 4"
    assert [end.splitlines()[1] for end in ends] == ["condition 3", "condition 5"]


def test_a_union_has_a_spectrum_for_each_transform(rng):
    union = learn_union(rng.standard_normal((60, 4)), n_transforms=2, max_iter=2)
    figure = plots.plot_spectrum(union)
    curves, floors = figure.axes[0].lines[::2], figure.axes[0].lines[1::2]
    for number, (curve, floor) in enumerate(zip(curves, floors, strict=True)):
        assert_allclose(curve.get_ydata(), union.spectrum[number], rtol=1e-12)
        assert_allclose(floor.get_ydata(), union.spectrum[number, 0] / 2)
    names = [text.splitlines()[0] for text in texts(figure) if "\n" in text]
    assert names == [rf"Conditioned, $\kappa \leq$ 2, {number}" for number in (0, 1)]


def test_an_unbounded_spectrum_has_no_floor():
    unbounded = [result(Bounded(np.inf)), result(Bounded(None)), result(Free())]
    figure = plots.plot_spectrum(unbounded)
    assert len(figure.axes[0].lines) == 3


def test_atoms_are_the_rows_scaled_symmetrically_and_sorted_by_frequency():
    basis = dct_basis((2, 2))
    shuffled = basis[[3, 0, 2, 1]] * np.array([[1.0], [20.0], [3.0], [0.1]])
    pixels = shown(plots.plot_atoms(shuffled))
    assert pixels.shape == (5, 5)
    assert_allclose(pixels[:2, :2], 1.0)  # the constant atom comes first
    assert_allclose(pixels[3:, 3:], 2 * basis[3].reshape(2, 2))  # the checkerboard last
    assert pixels.mask[2].all()  # the margin between atoms
    assert pixels.mask[:, 2].all()


def test_zero_is_mid_grey_in_every_atom(rng):
    (image,) = plots.plot_atoms(rng.standard_normal((9, 9)) + 5).axes[0].images
    assert image.get_clim() == (-1, 1)
    assert_allclose(np.abs(image.get_array()).max(), 1.0)


def test_atoms_of_volumes_are_their_slices_side_by_side():
    atom = np.arange(1.0, 13.0)
    pixels = shown(plots.plot_atoms(np.tile(atom, (12, 1)), (2, 2, 3)))
    slices = atom.reshape(2, 2, 3) / 12
    assert_allclose(pixels[:2, :3], slices[0])
    assert pixels.mask[:2, 3].all()
    assert_allclose(pixels[:2, 4:7], slices[1])


@pytest.mark.parametrize("shape", [6, (6,), (2, 3), (3, 2), (1, 2, 3)])
def test_every_atom_is_shown_once_whatever_its_shape(shape):
    height = 2 if shape in (6, (6,)) else 1  # of a bar
    pixels = shown(plots.plot_atoms(np.eye(6), shape))
    assert (pixels == 1).sum() == 6 * height
    assert (~np.ma.getmaskarray(pixels)).sum() == 36 * height


def test_atoms_of_one_dimension_are_bars_with_narrow_gaps():
    pixels = shown(plots.plot_atoms(dct_basis((16,)), 16))
    assert (pixels[:4, :16] == pixels[0, :16]).all()
    assert np.ma.getmaskarray(pixels).mean() < 0.3


def test_path_shows_training_and_validation_in_three_panels():
    data = path(validation=True)
    figure = plots.plot_path(data)
    errors = ("sparsification", "relative", "reconstruction")
    for axes, error in zip(figure.axes, errors, strict=True):
        training, validation, choice, *ring = axes.lines
        assert_array_equal(choice.get_xdata(), [data.chosen, data.chosen])
        assert len(ring) == (error == "reconstruction")
        name = f", chosen: {data.chosen:g}" * len(ring)
        assert axes.get_xlabel() == f"max_condition{name}"  # below the lines, wherever these are
        assert not axes.texts
        for mark in ring:
            assert mark.get_xydata().tolist() == [[data.chosen, min(validation.get_ydata())]]
        assert_array_equal(training.get_xdata(), [1.0, 2.0, 10.0, 70.0])
        assert_array_equal(training.get_ydata(), data.table[error])
        assert_array_equal(validation.get_ydata(), data.table[f"validation_{error}"])
        assert axes.get_ylabel().startswith(f"{error} error")
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_a_choice_is_marked_at_the_error_that_chose():
    data = path(validation=True, choose_by="sparsification")
    data.table["validation_sparsification"] = np.array([3.0, 2.0, 4.0, 5.0])
    first, *others = plots.plot_path(data).axes
    ring = first.lines[-1]
    assert ring.get_xydata().tolist() == [[2.0, data["validation_sparsification"][1]]]
    assert first.get_xlabel() == "max_condition, chosen: 2"
    assert [axes.get_xlabel() for axes in others] == ["max_condition"] * 2


def test_a_path_over_numbers_of_transforms_has_a_tick_for_each():
    table = path(validation=True).table | {"n_transforms": np.array([1, 2, 4, 8])}
    data = UnionPath(table, ())
    for axes in plots.plot_path(data).axes:
        assert axes.get_xlabel().startswith("n_transforms")
        assert_array_equal(axes.lines[0].get_xdata(), [1, 2, 4, 8])
        assert_array_equal(axes.get_xticks(), [1, 2, 4, 8])
        assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "2", "4", "8"]
        assert not len(axes.get_xticks(minor=True))


def test_atoms_of_a_union_are_those_of_each_transform(rng):
    union = rng.standard_normal((3, 4, 4))
    figure = plots.plot_atoms(union)
    panels = [axes for axes in figure.axes if axes.images]
    assert len(panels) == 3
    for number, (axes, transform) in enumerate(zip(panels, union, strict=True)):
        assert axes.get_title(loc="left") == f"transform {number}"
        assert_array_equal(axes.images[0].get_array(), shown(plots.plot_atoms(transform)))
    assert_array_equal(shown(plots.plot_atoms(union[:1])), shown(plots.plot_atoms(union[0])))


@pytest.mark.parametrize("span", [1.2, 1.9, 4.0, 6.0, 40.0, 900.0])
def test_minor_ticks_of_a_logarithmic_axis_stand_closer_and_closer(span):
    figure = Figure()
    axes = figure.subplots()
    axes.plot([1, 2], [0.3, 0.3 * span])
    log_scale(axes, "y")
    figure.draw_without_rendering()
    low, high = axes.get_ylim()
    major, minor = (np.asarray(axes.yaxis.get_ticklocs(minor=each)) for each in (False, True))
    labelled = major[(major >= low) & (major <= high)]
    all_ticks = np.union1d(labelled, minor[(minor >= low) & (minor <= high)])
    assert len(all_ticks) >= 2 * len(labelled) >= 4
    # Within one step of the labels ticks are evenly spaced values: on the axis, ever closer.
    gaps = np.diff(all_ticks)
    alike = np.isclose(gaps[1:], gaps[:-1])
    heights = np.diff(np.log(all_ticks))
    assert alike.any()
    assert (heights[1:][alike] < heights[:-1][alike]).all()


def test_a_fitted_estimator_is_drawn_as_its_result(rng):
    estimator = OrthonormalTransform(2, tol=1e-2).fit(rng.standard_normal((50, 9)))
    for draw in (plots.plot_convergence, plots.plot_spectrum):
        of_estimator, of_result = draw([estimator]), draw(estimator.result_)
        assert texts(of_estimator) == texts(of_result)
        lines = zip(of_estimator.axes[0].lines, of_result.axes[0].lines, strict=True)
        for one, other in lines:
            assert_array_equal(one.get_xydata(), other.get_xydata())
    assert_array_equal(
        shown(plots.plot_atoms(estimator)), shown(plots.plot_atoms(estimator.result_))
    )
    with pytest.raises(ValueError, match="is a OrthonormalTransform that has learned no transform"):
        plots.plot_atoms(OrthonormalTransform())


def test_what_has_no_errors_has_no_convergence(rng):
    details = denoise_with_details(rng.standard_normal((32, 32)), 1.0, quality="fast")
    found = "results has a DenoiseResult, which has no errors to plot: give its history"
    with pytest.raises(TypeError, match=found):
        plots.plot_convergence(details)
    with pytest.raises(TypeError, match=found):
        plots.plot_convergence({"a": details})
    with pytest.raises(TypeError, match=r"a ndarray, which .*: give a LearnResult or an estimator"):
        plots.plot_convergence([result(Free()), np.eye(3)])
    curves = plots.plot_convergence(details.history).axes[0].lines[::2]
    assert [curve.get_ydata().tolist() for curve in curves] == [
        each.errors.absolute.tolist() for each in details.history
    ]


@pytest.mark.parametrize("other", [np.eye(3), None, {"absolute": np.ones(3)}])
def test_only_a_path_is_drawn_as_one(other):
    with pytest.raises(
        TypeError, match=r"path is of type \w+: give a result of kappaform.condition_path"
    ):
        plots.plot_path(other)


def test_path_without_validation_shows_training_alone():
    assert [len(axes.lines) for axes in plots.plot_path(path(validation=False)).axes] == [1, 1, 1]


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plots.plot_convergence([]), "give at least one result"),
        (lambda: plots.plot_convergence(result(Free()), ["a", "b"]), "2 entries for 1 curves"),
        (lambda: plots.plot_convergence(result(Free()), error="x"), "error='x' is unknown"),
        (lambda: plots.plot_spectrum(np.ones((2, 3))), r"shape \(2, 3\).*\(n, n\) array"),
        (lambda: plots.plot_atoms(np.ones((2, 3, 4))), r"shape \(2, 3, 4\).*\(n, n\) array"),
        (lambda: plots.plot_atoms(np.ones((0, 4, 4))), r"shape \(0, 4, 4\).*\(n, n\) array"),
        (lambda: plots.plot_atoms(np.ones(4)), r"shape \(4,\).*\(n, n\) array"),
        (lambda: plots.plot_atoms(np.eye(6)), "n_features=6 is not a square: give the shape"),
        (lambda: plots.plot_atoms(np.eye(6), (2, 2)), r"patch_shape=\(2, 2\).*product is 6"),
        (lambda: plots.plot_atoms(np.eye(6), (1, 1, 2, 3)), "give 1 to 3 positive integers"),
        (lambda: plots.plot_atoms(np.eye(6), (-2, -3)), "give 1 to 3 positive integers"),
    ],
)
def test_errors_name_the_parameter_and_the_remedy(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()
