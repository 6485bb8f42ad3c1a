"""The alternating minimisation."""

from kappaform.learning.evaluate import Evaluation, evaluate
from kappaform.learning.learn import learn
from kappaform.learning.methods import Conditioned, LogDet, Method, Orthonormal
from kappaform.learning.path import ConditionPath, condition_path
from kappaform.learning.result import Errors, LearningInterrupted, LearnResult, StopReason

__all__ = [
    "ConditionPath",
    "Conditioned",
    "Errors",
    "Evaluation",
    "LearnResult",
    "LearningInterrupted",
    "LogDet",
    "Method",
    "Orthonormal",
    "StopReason",
    "condition_path",
    "evaluate",
    "learn",
]
