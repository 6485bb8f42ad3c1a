r"""How much of the noise is removed, from brightness and from colours: a blend with the input.

With the noisy image y, the denoised one z, and the luminance l(v), a weighted mean of the channels,

.. math:: y + s \, l(z - y) + t \, (z - y - l(z - y))

is the image denoised with strength s and colour strength t. The same l is added to every channel,
so colour differences depend on t alone; the last term has no luminance, so luminance depends on s
alone. For s = t it is y + s (z - y).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kappaform.imaging.axes import within
from kappaform.imaging.options import Strengths

_LUMINANCE = (0.2126, 0.7152, 0.0722)  # of red, green and blue, ITU-R BT.709


def blended(
    noisy: Any,
    denoised: Any,
    strengths: Strengths,
    value_range: tuple[float, float],
    known: NDArray | None = None,
) -> Any:
    """A noisy stack, moved towards the denoised one, channels last; unknown pixels go all the way.

    Values are clipped to the range, as those of the denoised stack are.
    """
    before = noisy.astype(np.float64)
    change = denoised - before
    change = change * strengths.colour + _luminance(change) * (
        strengths.luminance - strengths.colour
    )
    dtype = denoised.dtype
    result = within(before + change, value_range, dtype).astype(dtype, copy=False)
    return result if known is None else np.where(known, result, denoised)


def _luminance(values: Any) -> Any:
    n_channels = values.shape[-1]
    weights = np.array(_LUMINANCE if n_channels == 3 else np.full(n_channels, 1 / n_channels))
    return (values * weights).sum(axis=-1, keepdims=True)
