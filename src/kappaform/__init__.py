"""Sparsifying transforms with an explicit bound on their condition number.

Public names are imported on first use, so that ``import kappaform`` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kappaform import plots
    from kappaform.engines import SignalsUnreadable, hard_threshold
    from kappaform.estimators import ConditionedTransform, LogDetTransform, OrthonormalTransform
    from kappaform.imaging import (
        DenoiseResult,
        add_noise,
        average_patches,
        denoise,
        denoise_with_details,
        estimate_sigma,
        extract_patches,
    )
    from kappaform.learning import (
        BatchRefused,
        Conditioned,
        LearningInterrupted,
        LearnResult,
        LogDet,
        Orthonormal,
        condition_path,
        evaluate,
        learn,
        learn_stream,
    )
    from kappaform.linalg import dct_basis, project_spectrum, random_basis
    from kappaform.persistence import load, save

    __version__: str

__all__ = [
    "BatchRefused",
    "Conditioned",
    "ConditionedTransform",
    "DenoiseResult",
    "LearnResult",
    "LearningInterrupted",
    "LogDet",
    "LogDetTransform",
    "Orthonormal",
    "OrthonormalTransform",
    "SignalsUnreadable",
    "add_noise",
    "average_patches",
    "condition_path",
    "dct_basis",
    "denoise",
    "denoise_with_details",
    "estimate_sigma",
    "evaluate",
    "extract_patches",
    "hard_threshold",
    "learn",
    "learn_stream",
    "load",
    "plots",
    "project_spectrum",
    "random_basis",
    "save",
]

# The same names as above, for the interpreter: a test keeps the two lists equal.
_HOME = {
    "BatchRefused": "learning",
    "Conditioned": "learning",
    "ConditionedTransform": "estimators",
    "DenoiseResult": "imaging",
    "LearnResult": "learning",
    "LearningInterrupted": "learning",
    "LogDet": "learning",
    "LogDetTransform": "estimators",
    "Orthonormal": "learning",
    "OrthonormalTransform": "estimators",
    "SignalsUnreadable": "engines",
    "add_noise": "imaging",
    "average_patches": "imaging",
    "condition_path": "learning",
    "dct_basis": "linalg",
    "denoise": "imaging",
    "denoise_with_details": "imaging",
    "estimate_sigma": "imaging",
    "evaluate": "learning",
    "extract_patches": "imaging",
    "hard_threshold": "engines",
    "learn": "learning",
    "learn_stream": "learning",
    "load": "persistence",
    "project_spectrum": "linalg",
    "random_basis": "linalg",
    "save": "persistence",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("kappaform")
    elif name == "plots":
        value = import_module("kappaform.plots")
    elif name in _HOME:
        value = getattr(import_module(f"kappaform.{_HOME[name]}"), name)
    else:
        raise AttributeError(f"module 'kappaform' has no attribute {name!r}")
    globals()[name] = value  # so that this function is asked only once for each name
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
