"""Order of the tutorials: from first steps to specialised topics."""

from __future__ import annotations

_ORDER = (
    "first_denoising.py",
    "noise_models.py",
    "real_noise.py",
    "missing_pixels.py",
    "learn_a_transform.py",
    "choose_the_bound.py",
    "union_of_transforms.py",
    "pipeline.py",
    "stream_and_disk.py",
    "dask_signals.py",
    "gpu.py",
    "custom_method.py",
    "paper_to_code.py",
    "compare_with_scikit_learn.py",
)


def place_of(name: str) -> int:
    return _ORDER.index(name)
