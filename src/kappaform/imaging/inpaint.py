"""Filling missing pixels from what is known around them and from similar places."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kappaform.checks import float_dtype, library_of, representable
from kappaform.errors import warn
from kappaform.imaging.axes import check_scale, extremes_of
from kappaform.imaging.cleaning.fill_rounds import FillCallback
from kappaform.imaging.cleaning.holes import Filling, filled
from kappaform.imaging.components import place_of
from kappaform.imaging.masked import filling_of
from kappaform.imaging.masks import check_some_known, pixels_and_missing
from kappaform.imaging.options import Options, Quality, of_ordinary_scale, warn_about_range
from kappaform.imaging.progress import Listener, Progress
from kappaform.threads import single_threaded_blas

_MOST_JOINT = 4  # channels with different masks whose patches are filled together


def inpaint(
    image: ArrayLike,
    mask: ArrayLike | None = None,
    *,
    quality: Quality | None = None,
    value_range: tuple[float, float] | None = None,
    channel_axis: int | None = None,
    stack_axis: int | None = None,
    movie: bool = False,
    rng: int | np.random.Generator | None = None,
    callback: FillCallback | None = None,
    progress: Listener | None = None,
) -> NDArray:
    """Fill the missing pixels of an image, a volume or a stack; known pixels are kept exactly.

    Groups of similar patches are estimated together, each patch from its known pixels, in rounds
    that start from local averages. For noisy images use `denoise` with `mask`, which fills and
    denoises in one estimate.

    Parameters
    ----------
    image : array
        2-D or 3-D, plus the axes of channels and of a stack. Floats keep their dtype, integers are
        returned as float64 in their own range. NaN, and the masked entries of a masked array, are
        missing. A torch tensor is returned as a tensor on its device; on a GPU it
        is also filled there.
    mask : array of bool, optional
        True where pixels are missing; what the image holds there is not used. It has the shape of
        the image, or that without the axes of channels or stack, which then have it in common.
    quality : {"fast", "balanced", "best"}, optional
        More and smaller steps, and denser patches; default "balanced".
    value_range : (low, high), optional
        Possible values: filled pixels are clipped to them.
    channel_axis : int, optional
        Axis of the channels.
    stack_axis : int, optional
        Axis along which images are filled independently.
    movie : bool
        The images of the stack are the frames of a movie, in order: holes are filled from other
        frames as well.
    rng : int or Generator, optional
        Chooses the known pixels that are held out to measure the error. None: 0, the same call
        gives the same result.
    callback : callable, optional
        Called with an `InpaintRound` after every round that is kept. Returning
        True ends the rounds of this image, or tile of a large one: only the last, with all known
        pixels, follow.
    progress : callable, optional
        Called with the completed fraction, a float that never decreases and ends at 1.

    Returns
    -------
    array of the shape and axes of `image`

    See Also
    --------
    denoise : with `mask`, denoises an image around its missing pixels and fills these.

    Examples
    --------
    >>> import numpy as np
    >>> from skimage.data import camera
    >>> import kappaform as kf
    >>> picture = camera()[100:164, 200:264].astype(float)
    >>> mask = np.random.default_rng(0).random(picture.shape) < 0.3
    >>> filled = kf.inpaint(picture, mask, value_range=(0, 255))
    >>> bool(abs(filled - picture)[mask].mean() < 6), bool((filled == picture)[~mask].all())
    (True, True)
    """
    return inpaint_on(None, **locals())  # every argument by its name


def inpaint_on(
    device: Any,
    image: Any,
    mask: Any = None,
    *,
    channel_axis: int | None = None,
    stack_axis: int | None = None,
    callback: FillCallback | None = None,
    **settings: Any,
) -> Any:
    """`inpaint` of an array on a torch device, or of a tensor on its own."""
    pixels, missing = pixels_and_missing(image, mask, (channel_axis, stack_axis), nan=True)
    options = Options.checked(
        pixels,
        channel_axis=channel_axis,
        stack_axis=stack_axis,
        device=place_of(image, device),
        **settings,
    )
    if callback is not None and not callable(callback):
        raise TypeError(f"callback={callback!r}: give a function of an InpaintRound, or None.")
    check_some_known(missing, options.axes)
    stack = options.axes.to_stack(pixels)
    lowest, highest = extremes_of(stack[0] if options.axes.movie else stack)
    check_scale(lowest, highest, np.zeros_like(lowest))
    result = pixels.astype(float_dtype(pixels.dtype))
    if missing.any():
        warn_about_range(options.value_range, pixels, ~missing, "filled pixels")
        values = _filled(pixels, missing, options, callback)
        low, high = representable(options.value_range, result.dtype)
        result[missing] = values[missing].clip(low, high)
    else:
        warn("nothing is missing: the image is returned as it is.")
    options.progress(1.0)
    if library_of(image) == "torch":
        from kappaform.imaging.tensors import as_given

        return as_given(result, image)
    return result


def _filled(
    pixels: NDArray, missing: NDArray, options: Options, callback: FillCallback | None
) -> NDArray:
    """Values for all pixels, image by image of a stack."""
    axes = options.axes
    stack, known = axes.to_stack(pixels), axes.to_stack(~missing)
    parts = options.progress.sections([1] * len(stack))
    how = filling_of(options)._replace(callback=callback)
    with single_threaded_blas():
        images = [
            filled_image(image, is_known, how, part)
            for image, is_known, part in zip(stack, known, parts, strict=True)
        ]
    return axes.from_stack(np.stack(images))


def filled_image(image: NDArray, known: NDArray, how: Filling, progress: Progress) -> NDArray:
    """One image of a stack, channels last, float64."""
    n_channels = image.shape[-1]
    values = image.astype(np.float64)
    if n_channels > 1 and (known == known[..., :1]).all():
        return _by_principal_components(values, known[..., 0], how, progress)
    channels, masks = np.moveaxis(values, -1, 0), np.moveaxis(known, -1, 0)
    if 1 < n_channels <= _MOST_JOINT and image.ndim == 3:  # planes
        means = [each[is_known].mean() for each, is_known in zip(channels, masks, strict=True)]
        centres = np.array(means)[:, np.newaxis, np.newaxis]
        (joint,) = filled([channels - centres], [masks], how._replace(joint=True), progress)
        return np.moveaxis(joint + centres, 0, -1)
    found = filled(list(channels), list(masks), how, progress)
    return np.stack(found, axis=-1)


def _by_principal_components(
    values: NDArray, known: NDArray, how: Filling, progress: Progress
) -> NDArray:
    """Channels with a mask in common, by the principal components of their known pixels."""
    given = values[known]
    mean = given.mean(axis=0)
    deviations = of_ordinary_scale(given - mean)  # the basis is the same
    basis = np.linalg.eigh(deviations.T @ deviations)[1][:, ::-1]
    rotated = (values - mean) @ basis
    components = list(np.moveaxis(rotated, -1, 0))
    found = filled(components, [known] * len(components), how, progress)
    return np.stack(found, axis=-1) @ basis.T + mean
