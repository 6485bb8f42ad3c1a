"""Images: patches, noise and its removal."""

from kappaform.imaging.cleaning.fill_rounds import InpaintRound
from kappaform.imaging.denoise import denoise, denoise_with_details
from kappaform.imaging.inpaint import inpaint
from kappaform.imaging.noise.correlated import Correlated
from kappaform.imaging.noise.estimate import estimate_noise, estimate_sigma
from kappaform.imaging.noise.files import load_noise, save_noise
from kappaform.imaging.noise.frames import measure_noise
from kappaform.imaging.noise.kinds import Shot, Varying, White
from kappaform.imaging.options import DenoiseResult
from kappaform.imaging.patches import average_patches, extract_patches
from kappaform.imaging.shared import learn_from_images
from kappaform.imaging.simulate import add_noise

__all__ = [
    "Correlated",
    "DenoiseResult",
    "InpaintRound",
    "Shot",
    "Varying",
    "White",
    "add_noise",
    "average_patches",
    "denoise",
    "denoise_with_details",
    "estimate_noise",
    "estimate_sigma",
    "extract_patches",
    "inpaint",
    "learn_from_images",
    "load_noise",
    "measure_noise",
    "save_noise",
]
