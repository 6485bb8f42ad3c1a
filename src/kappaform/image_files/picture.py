"""An image: the pixels of a file, their axes, and its metadata."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_NOTHING: Mapping[str, Any] = MappingProxyType({})
NO_UNIT, INCH, CENTIMETRE = 1, 2, 3  # units of resolution, as TIFF and EXIF number them
#: Axes of pages that may be the depth of a volume or the time of a movie, in order of preference.
#: Channels are neither.
VOLUME, MOVIE = "ZQIT", "TQIZ"
_ALONG = {
    VOLUME: "the depth of a volume: leave out --volume",
    MOVIE: "the time of a movie: leave out --movie",
}
#: Orientations of EXIF that exchange width and height.
SIDEWAYS = (5, 6, 7, 8)
_LUMINANCE = (0.2126, 0.7152, 0.0722)  # of red, green and blue, ITU-R BT.709


class Resolution(NamedTuple):
    """Pixels per unit along x and y."""

    x: Fraction
    y: Fraction
    unit: int

    @property
    def dpi(self) -> tuple[float, float] | None:
        """Pixels per inch, where the unit is a length."""
        if self.unit not in (INCH, CENTIMETRE):
            return None
        units = 1.0 if self.unit == INCH else 2.54
        return float(self.x) * units, float(self.y) * units


class Metadata(NamedTuple):
    """What a file contains besides its pixels, to be copied to another file."""

    kind: str = ""  #: format of the file
    options: Mapping[str, Any] = _NOTHING  #: how to write a similar file of that format
    resolution: Resolution | None = None
    exif: bytes = b""  #: without the leading mark; its orientation is 1
    xmp: bytes = b""
    texts: Mapping[str, str] = _NOTHING  #: PNG only
    omitted: tuple[str, ...] = ()  #: what is not copied, each with the reason
    is_bilevel: bool = False  #: whether the file has one bit per pixel
    no_data: float | None = None  #: value of pixels without data (GDAL)
    iso: float | None = None  #: sensitivity of the camera, of a TIFF; others have it in EXIF


class Picture(NamedTuple):
    """Pixels in the type of the file: (H, W), with pages first and channels last, if any."""

    pixels: NDArray
    has_channels: bool
    profile: bytes | None = None  #: ICC colour profile
    has_alpha: bool = False  #: whether the file declares the last channel as alpha
    page_axes: str = ""  #: a letter for each axis of pages ("TZC"); empty if the file has none
    metadata: Metadata = Metadata()
    along: str = ""  #: what the pages along one axis form: VOLUME, MOVIE or nothing

    @property
    def has_pages(self) -> bool:
        return self.pixels.ndim - self.has_channels > 2

    @property
    def value_range(self) -> tuple[int, int] | None:
        """The smallest and largest possible value of unsigned 8 and 16 bit, else None."""
        dtype = self.pixels.dtype
        is_bounded = dtype.kind == "u" and dtype.itemsize <= 2  # whatever the order of its bytes
        return (0, int(np.iinfo(dtype).max)) if is_bounded else None

    @property
    def n_without_data(self) -> int:
        """Number of values that mean "no data", by the metadata."""
        value = self.metadata.no_data
        return 0 if value is None else int(np.count_nonzero(self.has_value(value)))

    def has_value(self, value: float) -> NDArray:
        """Which pixels have a value, rounded to the precision of the file; NaN is one."""
        if self.pixels.dtype.kind != "f":
            return np.asarray(self.pixels == value)
        with np.errstate(over="ignore"):
            rounded = self.pixels.dtype.type(value)
        if np.isinf(rounded) and not np.isinf(value):
            return np.zeros(self.pixels.shape, bool)  # no pixel can have it
        return np.isnan(self.pixels) if np.isnan(rounded) else np.asarray(self.pixels == rounded)

    @property
    def without_data(self) -> NDArray | None:
        """Which pixels have no data, in the layout of `as_stack`; None if all have some.

        A pixel that lacks one colour lacks all.
        """
        if not self.n_without_data:
            return None
        value: Any = self.metadata.no_data
        found = self._replace(pixels=self.has_value(value)).as_stack()
        if self.channel_axis:
            found = np.broadcast_to(found.any(axis=-1, keepdims=True), found.shape)
        return found if found.any() else None  # only alpha may lack them

    @property
    def axes(self) -> str:
        """A letter for each axis of the pixels; Q where the file does not name it."""
        n_pages = self.pixels.ndim - 2 - self.has_channels
        return (self.page_axes or "Q" * n_pages) + "YX" + "S" * self.has_channels

    @property
    def colours(self) -> NDArray:
        """The pixels without alpha; without an axis for channels if only one is left."""
        colours = self.pixels[..., :-1] if self.has_alpha else self.pixels
        return colours if self.channel_axis or not self.has_channels else colours[..., 0]

    @property
    def channel_axis(self) -> int | None:
        """The axis of the colours, if there are several."""
        n_colours = self.pixels.shape[-1] - self.has_alpha
        return -1 if self.has_channels and n_colours > 1 else None

    @property
    def grey(self) -> NDArray:
        """One number per pixel: the luminance of colours, else the first channel."""
        colours = self.colours
        if self.channel_axis is None:
            return colours
        return colours[..., :3] @ np.array(_LUMINANCE) if colours.shape[-1] > 2 else colours[..., 0]

    def with_colours(self, colours: NDArray) -> Picture:
        """The same image with other `colours`."""
        if self.has_channels:
            colours = colours.reshape(*self.pixels.shape[:-1], -1)
            alpha = self.pixels[..., colours.shape[-1] :]
            colours = np.concatenate([colours, alpha], axis=-1)
        return self._replace(pixels=colours)

    def as_stack(self) -> NDArray:
        """The colours as (n, Y, X), where every plane is a separate image.

        Or as n volumes (n, Z, Y, X), or n movies (n, T, Y, X), by `along`. Colour channels, if any,
        come last. Channels of a microscope (C) are pages, and so separate images, volumes or
        movies.
        """
        colours, n_pages = self._with_last()
        n_pages -= bool(self.along)
        return colours.reshape(-1, *colours.shape[n_pages:])

    def with_stack(self, stack: NDArray) -> Picture:
        """The same image with other colours, in the layout of `as_stack`."""
        colours, n_pages = self._with_last()
        colours = stack.reshape(colours.shape)
        if self.along:
            colours = np.moveaxis(colours, n_pages - 1, self._axis())
        return self.with_colours(colours)

    def _with_last(self) -> tuple[NDArray, int]:
        """The colours with depth or time as the last page axis, and the number of page axes."""
        n_pages = self.axes.index("Y")
        colours = self.colours
        if self.along:
            colours = np.moveaxis(colours, self._axis(), n_pages - 1)
        return colours, n_pages

    def _axis(self) -> int:
        """The page axis that is depth or time."""
        pages = self.axes[: self.axes.index("Y")]
        for letter in self.along:
            if letter in pages:
                return pages.rindex(letter)
        raise ValueError(
            f"the axes of the image are {self.axes}, none of which is {_ALONG[self.along]}."
        )


def turned(pixels: NDArray, orientation: int, y: int) -> NDArray:
    """Pixels turned upright by their EXIF orientation; `y` is their first axis, followed by x."""
    if orientation in SIDEWAYS:
        pixels = pixels.swapaxes(y, y + 1)
    if orientation in (3, 4, 7, 8):
        pixels = np.flip(pixels, y)
    if orientation in (2, 3, 6, 7):
        pixels = np.flip(pixels, y + 1)
    return np.ascontiguousarray(pixels)


def resolution_of(
    x: Any, y: Any, unit: Any, orientation: int, omitted: list[str]
) -> Resolution | None:
    """The resolution of an image that is turned upright, from that of the stored pixels.

    None if it is invalid: both numbers must be finite and positive.
    """
    try:
        across, down = (Fraction(*n) if isinstance(n, tuple) else Fraction(n) for n in (x, y))
        if min(across, down) > 0 and unit in (NO_UNIT, INCH, CENTIMETRE):
            if orientation in SIDEWAYS:
                across, down = down, across
            return Resolution(across, down, int(unit))
    except (ArithmeticError, TypeError, ValueError):
        pass  # not numbers, or not finite
    omitted.append(f"the resolution: it is {x} x {y}, unit {unit}")
    return None


@contextmanager
def complaints_of(package: str) -> Iterator[list[str]]:
    """Collect what a package would log."""
    messages: list[str] = []

    def keep(record: logging.LogRecord) -> bool:
        messages.append(record.getMessage())
        return False  # nothing else sees it

    logger = logging.getLogger(package)
    logger.addFilter(keep)
    try:
        yield messages
    finally:
        logger.removeFilter(keep)
