"""What a path of bounds does to an image, against the library's own functions."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from skimage.data import astronaut, camera

import kappaform as kf
from kappaform.explore import exploration
from kappaform.explore.exploration import reconstructed

PICTURE = kf.add_noise(camera()[100:164, 200:264], 10, rng=0)
BOUNDS = (1, 2, 5)
SIDE = 4  # of patches: learning them is most of the work

explore = partial(exploration.explore, patch_size=SIDE)


@pytest.fixture(scope="module")
def found():
    return explore(PICTURE, BOUNDS)


def test_every_view_obeys_its_bound(found):
    assert [view.bound for view in found.views] == list(BOUNDS)
    for view in found.views:
        assert view.condition_number <= view.bound * (1 + 1e-9)
        assert np.isclose(view.spectrum[0] / view.spectrum[-1], view.condition_number)


def test_the_two_errors_of_a_rotation_are_the_same(found):
    view = found.views[0]
    assert view.sparsification == pytest.approx(view.reconstruction, rel=1e-9)


def test_a_looser_bound_sparsifies_better(found):
    errors = [view.sparsification for view in found.views]
    assert errors == sorted(errors, reverse=True)


def test_the_best_view_reconstructs_best(found):
    errors = [view.reconstruction for view in found.views]
    assert errors[found.best] == min(errors)


def test_views_show_different_images(found):
    for name in ("reconstructed", "denoised"):
        pictures = [getattr(view, name) for view in found.views]
        assert all(picture.shape == PICTURE.shape for picture in pictures)
        assert not np.allclose(pictures[0], pictures[-1])


def test_an_image_is_reconstructed_exactly_from_all_coefficients():
    image = camera()[:20, :28].astype(float)  # no multiples of a patch
    transform = kf.random_basis(64) * np.linspace(1, 3, 64)[:, np.newaxis]
    assert np.allclose(reconstructed(image, transform, 8, 64), image)


def test_without_coefficients_the_means_of_patches_are_left():
    image = camera()[:16, :16].astype(float)
    means = image.reshape(2, 8, 2, 8).mean(axis=(1, 3))
    assert np.allclose(reconstructed(image, np.eye(64), 8, 0), np.kron(means, np.ones((8, 8))))


def test_atoms_stay_in_their_place_as_the_bound_moves(found):
    for before, after in pairwise(found.views):
        likeness = (before.atoms * after.atoms).sum(axis=(1, 2))
        assert (likeness >= -1e-12).all()  # signs agree
        # No exchange of two atoms makes them more alike.
        table = np.einsum("iab,jab->ij", before.atoms, after.atoms)
        kept = np.abs(np.diag(table))
        swapped = np.abs(table) + np.abs(table.T)
        assert (swapped <= kept[:, np.newaxis] + kept + 1e-9).all()


def test_atoms_are_the_rows_of_the_transform_in_some_order(found):
    atoms = found.views[1].atoms.reshape(SIDE**2, SIDE**2)
    assert np.allclose(np.linalg.norm(atoms, axis=1), 1)
    assert np.linalg.matrix_rank(atoms) == SIDE**2


def test_each_colour_is_reconstructed_and_denoised():
    image = astronaut()[:40, :48]
    found = explore(image, (1, 2), noise=kf.White(5.0))
    assert found.views[0].reconstructed.shape == found.views[0].denoised.shape == image.shape


def test_noise_that_is_given_is_used_and_reported():
    noise = kf.Shot(2.0)
    found = explore(PICTURE, (1, 2), noise=noise)
    assert found.noise is noise
    expected = kf.denoise(PICTURE, noise=noise, transform=_transform(PICTURE), patch_size=SIDE)
    assert expected.shape == found.views[0].denoised.shape


def test_of_a_kind_of_noise_the_size_is_estimated():
    assert isinstance(explore(PICTURE, (1, 2), noise="white").noise, kf.White)


def test_progress_never_falls_and_ends_at_one():
    told = []
    explore(PICTURE, BOUNDS, noise=kf.White(10.0), progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 1
    assert len(told) > len(BOUNDS)


@pytest.mark.parametrize(
    ("image", "text"),
    [
        (np.ones((64, 64)), "the image is constant: there is nothing to learn"),
        (PICTURE[:15], "the image has 64 × 15 pixels, too few patches to learn from: give at"),
        (np.where(np.eye(64), np.nan, PICTURE), "the image contains NaN or inf"),
    ],
)
def test_images_that_show_nothing_are_rejected(image, text):
    with pytest.raises(ValueError, match=text):
        explore(image, BOUNDS)


def _transform(image):
    return kf.learn(kf.extract_patches(image, SIDE), kf.Orthonormal(), max_iter=3).transform
