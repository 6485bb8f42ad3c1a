"""The alternating minimisation."""

from kappaform.learning.evaluate import Evaluation, evaluate
from kappaform.learning.learn import learn
from kappaform.learning.methods import Conditioned, LogDet, Method, Orthonormal
from kappaform.learning.path import ConditionPath, condition_path
from kappaform.learning.result import Errors, LearningInterrupted, LearnResult, StopReason
from kappaform.learning.stream import BatchRefused, learn_stream

__all__ = [
    "BatchRefused",
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
    "learn_stream",
]
