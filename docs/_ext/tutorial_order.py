"""In which order the tutorials are shown: from the first steps to what few people need."""

from __future__ import annotations

_ORDER = (
    "first_denoising.py",
    "real_noise.py",
    "learn_a_transform.py",
    "choose_the_bound.py",
    "pipeline.py",
    "stream_and_disk.py",
    "dask_signals.py",
    "gpu.py",
    "own_method.py",
    "paper_to_code.py",
    "beside_scikit_learn.py",
)


def place_of(name: str) -> int:
    return _ORDER.index(name)
