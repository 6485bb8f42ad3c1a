"""A method as the header of a file has it, and back."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from kappaform.learning.learn_union import N_STARTS, union_of
from kappaform.learning.method import Method, parameters_of
from kappaform.learning.methods import Conditioned, LogDet, Orthonormal, UnknownMethod
from kappaform.learning.union import UnionOf

_NAMES: dict[type[Method], str] = {UnknownMethod: "Saved"}  # the other names are those of classes
_NAMES |= {method: method.__name__ for method in (Conditioned, LogDet, Orthonormal)}
_UNION = "Union"
_LONGEST_DESCRIPTION = 1000


def described(method: Method) -> dict[str, Any]:
    """A method as a header has it; of a custom method, its description."""
    if isinstance(method, UnionOf):
        of_each = described(method.method)
        return {"name": _UNION, "n_transforms": method.n_transforms, "method": of_each}
    if is_custom(method):
        method = UnknownMethod(saved_name(method))
    return {"name": _NAMES[type(method)], **parameters_of(method)}


def saved_name(method: Method) -> str:
    """What a file calls a custom method."""
    return repr(method)[:_LONGEST_DESCRIPTION]


def method_of(description: Any) -> Method:
    """The method that `described` was given."""
    if not isinstance(description, dict):
        raise TypeError(f"its method is {description!r}.")
    parameters = dict(description)
    name = parameters.pop("name")
    if not isinstance(name, str) or name not in _METHODS:
        raise ValueError(f"the name of its method is {name!r}, not one of {tuple(_METHODS)}.")
    kind, is_union = _METHODS[name], name == _UNION
    known = ["n_transforms", "method"] if is_union else [field.name for field in fields(kind)]
    if unknown := parameters.keys() - set(known):
        raise ValueError(f"its method {name} has no parameters {sorted(unknown)}.")
    if is_union:
        return union_of(method_of(parameters["method"]), parameters["n_transforms"], N_STARTS, None)
    return kind(**parameters)


_METHODS: dict[str, Any] = {name: method for method, name in _NAMES.items()} | {_UNION: UnionOf}


def claimed_transforms(description: Any) -> Any:
    """Number of transforms that a description, not checked yet, claims; None: it is no union."""
    return description.get("n_transforms") if isinstance(description, dict) else None


def is_custom(method: Method) -> bool:
    """Whether a file has no more than the name of a method, or of that of a union."""
    return type(single(method)) not in _NAMES


def single(method: Method) -> Method:
    """The method of each transform of a union; any other method itself."""
    return method.method if isinstance(method, UnionOf) else method


def n_members(method: Method) -> int:
    """Number of transforms of each candidate."""
    return method.n_transforms if isinstance(method, UnionOf) else 1
