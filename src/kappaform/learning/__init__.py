"""The alternating minimisation."""

from kappaform.learning.learn import learn
from kappaform.learning.methods import Conditioned, LogDet, Method, Orthonormal
from kappaform.learning.result import Errors, LearningInterrupted, LearnResult, StopReason

__all__ = [
    "Conditioned",
    "Errors",
    "LearnResult",
    "LearningInterrupted",
    "LogDet",
    "Method",
    "Orthonormal",
    "StopReason",
    "learn",
]
