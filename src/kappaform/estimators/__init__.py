"""scikit-learn estimators: thin shells over learning."""

from kappaform.estimators.choice import ConditionedTransformCV as ConditionedTransformCV
from kappaform.estimators.transforms import ConditionedTransform as ConditionedTransform
from kappaform.estimators.transforms import LearnedTransform as LearnedTransform
from kappaform.estimators.transforms import LogDetTransform as LogDetTransform
from kappaform.estimators.transforms import OrthonormalTransform as OrthonormalTransform
from kappaform.estimators.union import UnionTransform as UnionTransform
