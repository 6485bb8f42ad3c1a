"""The alternating minimisation."""

from kappaform.learning.evaluate import evaluate as evaluate
from kappaform.learning.learn import learn as learn
from kappaform.learning.learn_union import learn_union as learn_union
from kappaform.learning.method import Method as Method
from kappaform.learning.method import MethodFailed as MethodFailed
from kappaform.learning.methods import Conditioned as Conditioned
from kappaform.learning.methods import LogDet as LogDet
from kappaform.learning.methods import Orthonormal as Orthonormal
from kappaform.learning.path import ConditionPath as ConditionPath
from kappaform.learning.path import condition_path as condition_path
from kappaform.learning.result import BatchRefused as BatchRefused
from kappaform.learning.result import LearningInterrupted as LearningInterrupted
from kappaform.learning.result import LearnResult as LearnResult
from kappaform.learning.result import StopReason as StopReason
from kappaform.learning.stream import learn_stream as learn_stream
from kappaform.learning.union_path import UnionPath as UnionPath
from kappaform.learning.union_path import union_path as union_path
from kappaform.learning.union_result import UnionResult as UnionResult
