"""Images: patches, noise and its removal."""

from kappaform.imaging.denoise import DenoiseResult, denoise, denoise_with_details
from kappaform.imaging.noise import add_noise, estimate_sigma
from kappaform.imaging.patches import (
    average_patches,
    extract_patches,
    iterate_patches,
    sum_patches,
)

__all__ = [
    "DenoiseResult",
    "add_noise",
    "average_patches",
    "denoise",
    "denoise_with_details",
    "estimate_sigma",
    "extract_patches",
    "iterate_patches",
    "sum_patches",
]
