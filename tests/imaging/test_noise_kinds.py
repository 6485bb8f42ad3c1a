"""Kinds of noise: what they promise of themselves, and what they refuse."""

import re
from functools import partial

import numpy as np
import pytest

import kappaform as kf
from kappaform import Correlated, Shot, Varying, White, add_noise
from kappaform.imaging.components import components_of
from kappaform.imaging.noise.correlated import covariance_of
from kappaform.imaging.options import Options

KERNEL = np.array([[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]) / 16


def autocovariance_of(kernel, variance=1.0):
    """Of white noise that a kernel has blurred."""
    from scipy.signal import correlate2d

    found = correlate2d(kernel, kernel)
    return variance * found / found.max()


def matrix_of_channels(n_channels, n, rng):
    """A covariance (channels, channels, n, n)."""
    root = rng.standard_normal((n_channels * n, n_channels * n)) / np.sqrt(n)
    whole = (root @ root.T).reshape(n_channels, n, n_channels, n)
    return whole.transpose(0, 2, 1, 3)


NOT_NUMBERS = [np.nan, np.inf, [1.0, np.nan], [[1.0]], []]


@pytest.mark.parametrize("sigma", [-1.0, *NOT_NUMBERS])
def test_a_bad_sigma_is_named(sigma):
    message = f"sigma={sigma!r}: give a finite number >= 0, or one for each channel."
    with pytest.raises(ValueError, match=re.escape(message)):
        White(sigma)


@pytest.mark.parametrize("gain", [0.0, -2.0, [1.0, 0.0], *NOT_NUMBERS])
def test_a_bad_gain_is_named(gain):
    message = f"gain={gain!r}: give a finite number > 0, or one for each channel."
    with pytest.raises(ValueError, match=re.escape(message)):
        Shot(gain)


@pytest.mark.parametrize("read_noise", [-0.1, [1.0, -1.0], *NOT_NUMBERS])
def test_a_bad_read_noise_is_named(read_noise):
    message = f"read_noise={read_noise!r}: give a finite number >= 0, or one for each channel."
    with pytest.raises(ValueError, match=re.escape(message)):
        Shot(1.0, read_noise)


@pytest.mark.parametrize("offset", NOT_NUMBERS)
def test_a_bad_offset_is_named(offset):
    message = f"offset={offset!r}: give a finite number, or one for each channel."
    with pytest.raises(ValueError, match=re.escape(message)):
        Shot(1.0, 0.0, offset)


@pytest.mark.parametrize("value", ["much", 1j, None])
@pytest.mark.parametrize("kind", [White, Shot])
def test_what_is_not_a_number_is_rejected(kind, value):
    with pytest.raises(TypeError, match=f"^{'sigma' if kind is White else 'gain'} has dtype"):
        kind(value)


@pytest.mark.parametrize(
    ("brightness", "sigma", "message"),
    [
        ([0, 1], [1.0], "brightness has shape (2,), sigma (1,): give as many of both"),
        ([0], [1.0], "at least two"),
        (0.0, 1.0, "brightness has shape (), sigma ()"),
        (np.ones((1, 1, 2)), np.ones((1, 1, 2)), "or a row of them for each channel"),
        ([0, np.nan], [1, 1], "brightness and sigma must be finite, sigma above 0."),
        ([0, 1], [1, np.inf], "brightness and sigma must be finite, sigma above 0."),
        ([0, 1], [1, 0.0], "brightness and sigma must be finite, sigma above 0."),
        ([0, 0], [1, 1], "brightness must increase from each number to the next."),
        ([[0, 1], [1, 0]], [[1, 1], [1, 1]], "brightness must increase"),
        ([0, 5e-324], [1, 2], "exceed what float64 resolves: scale the image"),
        ([-1e308, 1e308], [1, 2], "exceed what float64 resolves"),
        ([0, 1], [5e-324, 1], "exceed what float64 resolves"),
        ([0, 1], [1, 1e308], "exceed what float64 resolves"),
    ],
)
def test_bad_levels_are_named(brightness, sigma, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Varying(brightness, sigma)


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ones(4), "has shape (4,): give a square matrix, (n, n)."),
        (np.ones((4, 3)), "has shape (4, 3): give a square matrix"),
        (np.ones((2, 3, 4, 4)), "has shape (2, 3, 4, 4)"),
        (np.empty((0, 0)), "has shape (0, 0)"),
        (np.full((2, 2), np.nan), "contains NaN or inf."),
        ([[1.0, 0.5], [0.4, 1.0]], "is not symmetric: entry (i, j) must be entry (j, i)."),
        ([[1.0, 2.0], [2.0, 1.0]], "is not positive: its least eigenvalue is -1, so that some sum"),
        (np.zeros((3, 3)), "is not positive"),
        (1e307 * np.eye(9), "has entries of 1e+307: at most 1e+300; divide the image"),
    ],
)
def test_what_is_not_a_covariance_is_rejected(matrix, message):
    with pytest.raises(ValueError, match=re.escape(f"covariance {message}")):
        Correlated(matrix)
    with pytest.raises(ValueError, match=re.escape(f"correlation {message}")):
        White(1.0, matrix)


def test_channels_that_do_not_agree_with_each_other_are_not_a_covariance(rng):
    matrix = matrix_of_channels(2, 4, rng)
    Correlated(matrix)
    matrix[0, 1] *= 10  # no longer the transposed one of (1, 0)
    with pytest.raises(ValueError, match="covariance is not symmetric"):
        Correlated(matrix)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.ones((3, 4)), "autocovariance has shape (3, 4): give finite numbers with odd sides"),
        (np.ones((0, 3)), "autocovariance has shape (0, 3)"),
        ([[np.nan]], "give finite numbers"),
        ([[0.5, 1.0, 0.4]], "autocovariance is not symmetric about its middle"),
        ([[0.0, -1.0, 0.0]], "the middle, which is the variance, is not positive"),
        ([[0.0]], "is not positive"),
        ([[1e306, 1e307, 1e306]], "autocovariance has entries of 1e+307: at most 1e+300"),
    ],
)
def test_what_is_not_an_autocovariance_is_rejected(array, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Correlated(autocovariance=array)


def test_an_autocovariance_that_no_noise_has_is_rejected_for_the_patches():
    noise = Correlated(autocovariance=np.ones((1, 3)))
    with pytest.raises(ValueError, match="autocovariance is not positive: its least eigenvalue"):
        kf.denoise(np.eye(20), noise=noise)


@pytest.mark.parametrize(
    "given", [{}, {"covariance": np.eye(4), "autocovariance": np.ones((1, 1))}]
)
def test_correlated_noise_needs_one_description(given):
    with pytest.raises(ValueError, match=r"needs covariance .* or autocovariance .* only one of"):
        Correlated(**given)


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        (White([1.0, 2.0]), "sigma is for 2 channels, the image has 3: give what holds for all of"),
        (White(1.0, np.eye(2)), "correlation is for 2 channels, the image has 3"),
        (Shot([1.0, 1.0]), "gain is for 2 channels, the image has 3"),
        (Shot(1.0, [0.0] * 4), "read_noise is for 4 channels, the image has 3"),
        (Shot(1.0, 0.0, [0.0] * 2), "offset is for 2 channels, the image has 3"),
        (Varying([[0, 1]] * 2, [[1, 1]] * 2), "sigma is for 2 channels, the image has 3"),
        (Correlated(np.eye(8).reshape(2, 4, 2, 4).transpose(0, 2, 1, 3)), "covariance is for 2 ch"),
        (
            Correlated(np.eye(4), stabiliser=Shot([1.0, 2.0])),
            "gain is for 2 channels, the image has 3",
        ),
    ],
    ids=str,
)
def test_parameters_for_another_number_of_channels_are_rejected(noise, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        kf.denoise(np.ones((20, 20, 3)), noise=noise, channel_axis=-1, patch_size=2)


def test_one_channel_rejects_the_parameters_of_several():
    with pytest.raises(ValueError, match="gain is for 3 channels, the image has 1"):
        kf.denoise(np.eye(20), noise=Shot([1.0, 2.0, 3.0]))


def test_a_covariance_of_other_patches_is_rejected():
    message = r"covariance has shape \(9, 9\): patches of shape \(4, 4\) need \(16, 16\); give the"
    with pytest.raises(ValueError, match=message):
        kf.denoise(np.eye(20), noise=Correlated(np.eye(9)), patch_size=4)


@pytest.mark.parametrize("kind", ["gaussian", "", "White"])
def test_a_kind_that_is_unknown_is_rejected(kind):
    message = f"={kind!r} is no kind of noise: choose one of ('white', 'shot', 'correlated')"
    with pytest.raises(ValueError, match="noise" + re.escape(message)):
        kf.denoise(np.eye(20), noise=kind)
    with pytest.raises(ValueError, match="kind" + re.escape(message)):
        kf.estimate_noise(np.eye(20), kind=kind)


@pytest.mark.parametrize("kind", ["poisson", "gaussian"])
def test_other_names_of_a_kind_are_known(kind):
    with pytest.raises(ValueError, match="Poisson noise is 'shot', Gaussian noise is 'white'"):
        kf.estimate_noise(np.eye(20), kind=kind)


@pytest.mark.parametrize(
    ("kind", "example"),
    [
        (kf.White, r"White\(sigma\)"),
        (kf.Shot, r"Shot\(gain\)"),
        (kf.Varying, r"Varying\(brightness, sigma\)"),
        (kf.Correlated, r"Correlated\(covariance\)"),
    ],
)
def test_a_class_is_no_noise(kind, example, tmp_path):
    message = rf"noise={kind.__name__} is a class: give an object, {example}\.$"
    for call in (
        lambda: kf.denoise(np.eye(20), noise=kind),
        lambda: kf.add_noise(np.eye(20), noise=kind),
        lambda: kf.save_noise(tmp_path / "n.json", kind),
    ):
        with pytest.raises(TypeError, match=message):
            call()


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: kf.denoise(np.eye(20), 5, strength="0.5"), "strength='0.5' is a string"),
        (lambda: kf.denoise(np.eye(20), sigma="20"), "sigma='20' is a string"),
        (lambda: kf.Shot(gain="2"), "gain='2' is a string"),
    ],
)
def test_a_string_is_no_number(call, told):
    with pytest.raises(TypeError, match=f"{told}, not a number: leave out the quotes"):
        call()


@pytest.mark.parametrize("shape", [(3,), (3, 3, 3)])
def test_an_autocovariance_of_other_axes_is_rejected(shape):
    array = np.zeros(shape)
    array[(1,) * len(shape)] = 1
    message = f"autocovariance has shape {shape}: patches of shape (4, 4) need one of 2 axes."
    with pytest.raises(ValueError, match=re.escape(message)):
        kf.denoise(np.eye(20), noise=Correlated(autocovariance=array), patch_size=4)


@pytest.mark.parametrize("stabiliser", [White(1.0), 2.0, "shot"])
def test_what_does_not_stabilise_is_rejected(stabiliser):
    with pytest.raises(TypeError, match=r"stabiliser=.*: give Shot, Varying or None\."):
        Correlated(np.eye(4), stabiliser=stabiliser)


def test_sigma_and_noise_together_are_rejected():
    with pytest.raises(ValueError, match=r"sigma=3\.0 and noise=White.*: give one of them"):
        kf.denoise(np.eye(20), 3.0, noise=White(3.0))


@pytest.mark.parametrize("noise", [3.0, np.ones(1), [3.0], [White(1.0)] * 2, (), {"white": 1}])
def test_noise_of_a_wrong_type_is_rejected(noise):
    message = (
        "give White, Shot, Varying or Correlated, the name of a kind, or one for each of the 1"
    )
    with pytest.raises(TypeError, match=re.escape(message)):
        kf.denoise(np.eye(20), noise=noise)


def test_the_preset_of_the_paper_assumes_white_noise():
    image = add_noise(np.full((30, 30), 100.0), 10)
    with pytest.raises(ValueError, match="preset='paper' assumes white noise: give sigma"):
        kf.denoise(image, noise=Shot(1.0), preset="paper")


# --- What the noise becomes


SCALED = [
    White(3.0),
    White([1.0, 2.0]),
    Shot(2.0, 3.0, 5.0),
    Shot([1.0, 2.0], [0.0, 1.0], 4.0),
    Varying([0.0, 10.0, 100.0], [1.0, 2.0, 4.0]),
    Correlated(autocovariance=autocovariance_of(KERNEL, 9.0)),
    Correlated(np.diag([4.0, 1.0])),
    Correlated(np.eye(4), stabiliser=Shot(2.0, 3.0, 5.0)),
    Correlated(np.eye(4), stabiliser=Varying([0.0, 10.0], [1.0, 2.0])),
]


@pytest.mark.parametrize("noise", SCALED, ids=str)
@pytest.mark.parametrize("factor", [0.25, 8.0])
def test_noise_of_a_scaled_image_is_scaled(noise, factor, rng):
    means = np.array([12.0, 40.0])
    scaled = noise.scaled(factor)
    np.testing.assert_allclose(scaled.level(factor * means), factor * noise.level(means))
    image = rng.uniform(10, 50, size=(9, 8, 2))
    if noise.stabilised(image) is not image:
        stabilised = noise.stabilised(image)
        np.testing.assert_allclose(scaled.stabilised(factor * image), stabilised, atol=1e-5)
        np.testing.assert_allclose(
            scaled.restored(stabilised), factor * noise.restored(stabilised), rtol=1e-6
        )


@pytest.mark.parametrize("noise", [White(3.0), Shot(2.0, 3.0, 5.0), SCALED[4], SCALED[5]], ids=str)
@pytest.mark.parametrize("mean", [15.0, 80.0])
def test_the_level_is_the_standard_deviation_of_what_is_added(noise, mean, rng):
    image = np.full((300, 300), mean)
    noisy = add_noise(image, noise=noise, rng=rng)
    level = noise.level(np.array([mean])).item()
    assert (noisy - image).std() == pytest.approx(level, rel=0.02)
    assert (noisy - image).mean() == pytest.approx(0, abs=0.05 * level)


def test_correlated_noise_that_is_added_has_its_autocovariance(rng):
    given = autocovariance_of(KERNEL, 25.0)
    noisy = add_noise(np.zeros((400, 300)), noise=Correlated(autocovariance=given), rng=rng)
    for i, j in np.ndindex(5, 5):
        moved = np.roll(noisy, (i - 2, j - 2), axis=(0, 1))[3:-3, 3:-3]
        assert (noisy[3:-3, 3:-3] * moved).mean() == pytest.approx(given[i, j], abs=0.5)
    # Opposite borders are not neighbours.
    assert abs((noisy[0] * noisy[-1]).mean()) < 6


def test_photons_below_zero_are_rejected():
    with pytest.raises(ValueError, match=r"image has values below offset=10\.0: photon counts are"):
        add_noise(np.zeros((4, 4)), noise=Shot(1.0, 0.0, 10.0))


@pytest.mark.parametrize(
    "noise",
    [
        White([1.0, 1.0], np.eye(2)),
        Correlated(np.eye(4)),
        Correlated(autocovariance=np.ones((1, 1, 1))),
        Correlated(autocovariance=[[1.0]], stabiliser=Shot(1.0)),
    ],
    ids=str,
)
def test_noise_that_cannot_be_added_is_rejected(noise):
    with pytest.raises(ValueError, match=r"to add it, give White without correlation, Shot, or"):
        add_noise(np.ones((4, 4)), noise=noise)


@pytest.mark.parametrize("given", [{}, {"sigma": 1.0, "noise": White(1.0)}])
def test_one_noise_is_added(given):
    with pytest.raises(ValueError, match="give sigma or noise, and only one of them"):
        add_noise(np.ones((4, 4)), **given)


@pytest.mark.parametrize("n_axes", [1, 2, 3])
def test_the_covariance_of_a_patch_is_that_of_the_distances(n_axes, rng):
    patch_shape = (4, 3, 2)[:n_axes]
    autocovariance = rng.standard_normal((3, 5, 3)[:n_axes])
    matrix = covariance_of(autocovariance, patch_shape)
    places = list(np.ndindex(*patch_shape))
    for i, one in enumerate(places):
        for j, other in enumerate(places):
            index = tuple(
                a - b + n // 2 for a, b, n in zip(one, other, autocovariance.shape, strict=True)
            )
            known = all(0 <= k < n for k, n in zip(index, autocovariance.shape, strict=True))
            assert matrix[i, j] == (autocovariance[index] if known else 0)


# --- Through the rotation of colours


@pytest.mark.parametrize("weights", [[1.0, 0.0, 0.0], [0.3, -0.5, 0.8], [1.0, 1.0, 1.0]])
def test_mixed_white_noise_has_the_standard_deviation_of_samples(weights, rng):
    between = np.array([[1.0, 0.6, 0.1], [0.6, 1.0, -0.2], [0.1, -0.2, 1.0]])
    sigma, weights = np.array([2.0, 5.0, 1.0]), np.array(weights)
    samples = rng.multivariate_normal(np.zeros(3), between, 100_000) * sigma
    deviation, covariance = White(sigma, between).mixed(weights, (4, 4))
    assert deviation == pytest.approx((samples @ weights).std(), rel=0.01)
    assert covariance is None
    independent, _ = White(sigma).mixed(weights, (4, 4))
    assert independent == pytest.approx(np.linalg.norm(weights * sigma))


@pytest.mark.parametrize("weights", [[0.0, 1.0, 0.0], [0.3, -0.5, 0.8]])
def test_mixed_correlated_noise_has_the_covariance_of_samples(weights, rng):
    matrix, weights = matrix_of_channels(3, 6, rng), np.array(weights)
    whole = matrix.transpose(0, 2, 1, 3).reshape(18, 18)
    samples = rng.multivariate_normal(np.zeros(18), whole, 200_000).reshape(-1, 3, 6)
    mixed = np.einsum("a,iaj->ij", weights, samples)
    deviation, covariance = Correlated(matrix).mixed(weights, (3, 2))
    found = deviation**2 * covariance
    np.testing.assert_allclose(found, np.cov(mixed.T), atol=0.02 * np.abs(found).max())
    assert np.trace(covariance) == pytest.approx(6)  # in units of the variance


def test_channels_of_one_matrix_are_independent(rng):
    single = matrix_of_channels(1, 6, rng)  # as it is estimated of a grey image
    weights = np.array([0.6, -0.2, 0.1])
    each = np.zeros((3, 3, 6, 6))
    each[range(3), range(3)] = single[0, 0]
    deviation, covariance = Correlated(each).mixed(weights, (3, 2))
    for matrix in (single, single[0, 0]):
        found = Correlated(matrix).mixed(weights, (3, 2))
        assert found[0] == pytest.approx(deviation)
        np.testing.assert_allclose(found[1], covariance)


BETWEEN = np.array([[9.0, 4.0, 1.0], [4.0, 16.0, -2.0], [1.0, -2.0, 4.0]])  # of three channels


def components_of_noise(noise, samples):
    """The components of an image that is nothing but noise."""
    options = Options.checked(samples, patch_size=3, channel_axis=-1)
    lowest, highest = samples.min(axis=(0, 1)), samples.max(axis=(0, 1))
    return components_of(samples, noise, lowest, highest, options)


def test_components_know_the_white_noise_that_is_in_them(rng):
    samples = rng.multivariate_normal(np.zeros(3), BETWEEN, (300, 300))
    sigma = np.sqrt(np.diag(BETWEEN))
    parts = components_of_noise(White(sigma, BETWEEN / np.outer(sigma, sigma)), samples).parts
    assert parts[0].sigma > 1.2 * parts[-1].sigma
    for part in parts:
        assert part.image.std() == pytest.approx(part.sigma, rel=0.02)


def test_components_know_the_correlated_noise_that_is_in_them(rng):
    one = autocovariance_of(KERNEL)
    fields = [
        add_noise(np.zeros((400, 400)), noise=Correlated(autocovariance=one), rng=rng)
        for _ in range(3)
    ]
    samples = np.stack(fields, axis=-1) @ np.linalg.cholesky(BETWEEN).T
    matrix = np.multiply.outer(BETWEEN, covariance_of(one, (3, 3)))
    for part in components_of_noise(Correlated(matrix), samples).parts:
        patches = kf.extract_patches(part.image, 3)
        expected = part.sigma**2 * part.covariance
        np.testing.assert_allclose(np.cov(patches.T), expected, atol=0.05 * expected[0, 0])


@pytest.mark.parametrize(("scale", "dtype"), [(1.0, np.float32), (1e-4, np.float64)])
def test_components_lead_back_to_the_image(scale, dtype, rng):
    """They are single where its rounding is far below the noise, and double otherwise."""
    samples = rng.multivariate_normal(np.zeros(3), BETWEEN, (40, 30))
    components = components_of_noise(White(scale * np.array([3.0, 4.0, 2.0])), samples)
    assert {part.image.dtype for part in components.parts} == {np.dtype(dtype)}
    restored = components.restored([part.image for part in components.parts])
    np.testing.assert_allclose(restored, samples, atol=1e-6 if dtype == np.float32 else 1e-12)


def test_components_of_a_large_image_are_those_of_its_blocks_of_rows(rng, monkeypatch):
    samples = rng.multivariate_normal([5.0, -3.0, 80.0], BETWEEN, (41, 30))
    whole = components_of_noise(White(2.0), samples)
    monkeypatch.setattr("kappaform.imaging.components._BLOCK", 1000)
    blocks = components_of_noise(White(2.0), samples)
    for one, other in zip(blocks.parts, whole.parts, strict=True):
        sign = np.sign(np.sum(one.image * other.image))
        np.testing.assert_allclose(sign * one.image, other.image, atol=1e-5)
        assert one.sigma == pytest.approx(other.sigma)
    images = [part.image for part in blocks.parts]
    np.testing.assert_allclose(blocks.restored(images), samples, atol=1e-4)


UNSURE = {"confidence": 0.25, "evidence": "few details"}
NOISES = [
    White(2.0, **UNSURE),
    Shot(2.0, 1.0, **UNSURE),
    Varying([0.0, 1.0], [1.0, 2.0], **UNSURE),
    Correlated(autocovariance=np.array([[0.5, 1.0, 0.5]]), **UNSURE),
    Correlated(np.eye(4)[np.newaxis], **UNSURE),
    Correlated(np.eye(4)[np.newaxis], stabiliser=Shot(1.0), **UNSURE),
]


@pytest.mark.parametrize("noise", NOISES, ids=str)
def test_an_estimate_of_scaled_values_is_as_certain(noise):
    scaled = noise.scaled(3.0)
    assert (scaled.confidence, scaled.evidence) == (0.25, "few details")
    assert "confidence" not in repr(scaled)


@pytest.mark.parametrize("noise", [NOISES[0], NOISES[1], *NOISES[4:]], ids=str)
def test_an_estimate_among_constant_channels_is_as_certain(noise):
    among = noise.among([1], 3)
    assert (among.confidence, among.evidence) == (0.25, "few details")


def test_channels_are_as_certain_as_the_least_certain_of_them():
    together = Shot.of_channels([Shot(1.0), NOISES[1], Shot(3.0, confidence=0.5)])
    assert (together.confidence, together.evidence) == (0.25, "few details")
    np.testing.assert_array_equal(together.gain, [1.0, 2.0, 3.0])


def test_a_noise_that_is_given_is_certain():
    assert (White(1.0).confidence, White(1.0).evidence) == (1.0, "")


@pytest.mark.parametrize("make", [partial(White, 1.0), partial(Correlated, np.eye(4))])
def test_how_sure_a_noise_is_must_be_a_probability_and_a_text(make):
    for value in (2, -0.1, np.nan, "a", None, True):
        with pytest.raises(ValueError, match=f"confidence={value!r}: give a number from 0 to 1"):
            make(confidence=value)
    with pytest.raises(TypeError, match="evidence=3: give a text"):
        make(evidence=3)
    assert make(confidence=np.float32(0.5), evidence="seen").confidence == 0.5
