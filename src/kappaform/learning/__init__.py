"""The alternating minimisation."""

from kappaform.learning.evaluate import Evaluation, evaluate
from kappaform.learning.learn import learn
from kappaform.learning.learn_union import learn_union
from kappaform.learning.method import Method, MethodFailed
from kappaform.learning.methods import Conditioned, LogDet, Orthonormal
from kappaform.learning.path import ConditionPath, condition_path
from kappaform.learning.result import (
    BatchRefused,
    Errors,
    LearningInterrupted,
    LearnResult,
    Record,
    StopReason,
)
from kappaform.learning.stream import learn_stream
from kappaform.learning.union_path import UnionPath, union_path
from kappaform.learning.union_result import UnionResult

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
    "MethodFailed",
    "Orthonormal",
    "Record",
    "StopReason",
    "UnionPath",
    "UnionResult",
    "condition_path",
    "evaluate",
    "learn",
    "learn_stream",
    "learn_union",
    "union_path",
]
