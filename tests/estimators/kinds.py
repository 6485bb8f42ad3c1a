"""The estimators of one transform. Importing them, and scikit-learn, takes two seconds."""

import pytest

import kappaform as kf

ESTIMATORS = [kf.ConditionedTransform, kf.OrthonormalTransform, kf.LogDetTransform]
each_estimator = pytest.mark.parametrize("estimator_class", ESTIMATORS)
