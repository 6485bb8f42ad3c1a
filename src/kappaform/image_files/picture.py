"""What is read from a file of a picture and written to it."""

from __future__ import annotations

from typing import NamedTuple

from numpy.typing import NDArray

#: What Pillow refuses by itself; applied to every format that is compressed.
MAX_PIXELS = 178_956_970


class Picture(NamedTuple):
    """Pixels of a file in their own type: (H, W), with channels last and pages first, if any."""

    pixels: NDArray
    has_channels: bool
    profile: bytes | None = None  #: ICC colour profile
    has_alpha: bool = False  #: whether the file says that the last channel is opacity

    @property
    def has_pages(self) -> bool:
        return self.pixels.ndim - self.has_channels > 2


def check_size(n_pixels: int) -> None:
    """Refuse what may have been made to exhaust the memory of its reader."""
    if n_pixels > MAX_PIXELS:
        raise ValueError(
            f"it says it has {n_pixels} pixels, more than the limit of {MAX_PIXELS}: crop it, or "
            "pass an array to kappaform.denoise."
        )
