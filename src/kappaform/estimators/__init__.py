"""scikit-learn estimators: thin shells over learning."""

from kappaform.estimators.choice import ConditionedTransformCV
from kappaform.estimators.transforms import (
    ConditionedTransform,
    LearnedTransform,
    LogDetTransform,
    OrthonormalTransform,
)
from kappaform.estimators.union import UnionTransform

__all__ = [
    "ConditionedTransform",
    "ConditionedTransformCV",
    "LearnedTransform",
    "LogDetTransform",
    "OrthonormalTransform",
    "UnionTransform",
]
