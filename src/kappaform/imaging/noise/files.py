"""Files of noise: JSON, to be used for other images of the same camera.

A file is checked before its noise is used: no field is missing, unknown or given twice, every
number is finite, and every covariance is one.
"""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from kappaform.checks import Array
from kappaform.files import check_readable, file_of, replaced_when_complete
from kappaform.imaging.noise.correlated import Correlated
from kappaform.imaging.noise.kinds import Noise, Shot, Varying, White, check_no_class
from kappaform.imaging.options import PATCH_SIDES

_FORMAT, _FORMAT_VERSION = "kappaform noise", 1
_MOST_BYTES = 32 * 2**20  # four channels with patches of 16 x 16 pixels take 20 MB
_MOST_ROWS = 4096  # of a covariance of all channels: its eigenvalues take a few seconds
_MOST_AXES = 5
_LONGEST_TEXT = 1000
_LARGEST_ISO = 1e9  # cameras have less than 1e7; longer integers are not read
_KINDS: dict[str, type[Noise]] = {
    "white": White,
    "shot": Shot,
    "varying": Varying,
    "correlated": Correlated,
}
_FIELDS = {"format", "format_version", "kappaform_version", "camera", "noise"}
_OPTIONAL = {"correlation", "covariance", "autocovariance", "stabiliser"}  # None if absent
_OF_EVERY_KIND = {"kind", "confidence", "evidence"}


class Camera(NamedTuple):
    """What a noise was measured for; None: unknown."""

    model: str | None = None
    iso: float | None = None
    dtype: str | None = None  #: type of the values of its pictures


def save_noise(
    path: str | os.PathLike[str],
    noise: Noise,
    *,
    camera: str | None = None,
    iso: float | None = None,
    dtype: str | None = None,
) -> None:
    """Write a noise to a JSON file, to use it for other images of the same camera.

    Numbers are stored exactly. The file appears when it is complete; until then an older one of
    that name stays.

    Parameters
    ----------
    path : str or path
    noise : White, Shot, Varying or Correlated
    camera : str, optional
        Model of the camera.
    iso : float, optional
        Its sensitivity. ``kappaform denoise --noise FILE`` warns if the metadata of a picture name
        another model or sensitivity.
    dtype : str, optional
        Type of the values that the noise is for, such as "uint8".

    See Also
    --------
    load_noise, measure_noise

    Examples
    --------
    >>> import kappaform as kf
    >>> kf.save_noise("camera.json", kf.Shot(gain=2.5, read_noise=3.0), camera="X100", iso=800)
    """
    if isinstance(path, Noise):
        raise TypeError(
            f"path is a {type(path).__name__}: give the name of the file first, "
            "save_noise(path, noise)."
        )
    check_no_class(noise)
    if type(noise) not in _KINDS.values():
        raise TypeError(f"noise={noise!r}: give White, Shot, Varying or Correlated.")
    document = {
        "format": _FORMAT,
        "format_version": _FORMAT_VERSION,
        "kappaform_version": version("kappaform"),
        "camera": _checked_camera(Camera(camera, iso, dtype))._asdict(),
        "noise": _described(noise)
        | {"confidence": noise.confidence, "evidence": noise.evidence[:_LONGEST_TEXT]},
    }
    text = json.dumps(document, indent=1, default=float)
    with replaced_when_complete(file_of(path)) as file:
        file.write(_short_lists(text).encode())


def _described(noise: Noise) -> dict[str, Any]:
    """Kind and parameters, for JSON."""
    facts: dict[str, Any] = {"kind": type(noise).__name__.lower()}
    for name, value in noise.parameters.items():
        if isinstance(value, Noise):
            facts[name] = _described(value)
        elif value is not None:
            facts[name] = np.asarray(value, np.float64).tolist()
    return facts


def _short_lists(text: str) -> str:
    """The same text with each innermost list of numbers on one line; texts have no line breaks."""
    numbers = re.compile(r"\[\n([-+.,\de\s]+)\n *\]")
    return numbers.sub(lambda found: f"[{' '.join(found[1].split())}]", text) + "\n"


def load_noise(path: str | os.PathLike[str]) -> Noise:
    """Read a noise that `save_noise` or ``kappaform noise`` wrote.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    White, Shot, Varying or Correlated

    Raises
    ------
    FileNotFoundError
    OSError
        If the file cannot be read.
    ValueError
        If the file is damaged, of another kind or of a newer version, or if it does not describe a
        noise: a negative variance, or a covariance that is not symmetric or not positive.

    Examples
    --------
    >>> import kappaform as kf
    >>> kf.save_noise("camera.json", kf.Shot(gain=2.5, read_noise=3.0))
    >>> print(kf.load_noise("camera.json"))
    shot, gain 2.5, read noise 3
    """
    return read_noise(Path(path))[0]


def read_noise(path: Path) -> tuple[Noise, Camera]:
    """The noise in a file, and the camera that it was measured for."""
    check_readable(path)
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"{path} is no noise: it has more than {_MOST_BYTES} bytes.")
    try:
        document = json.loads(
            content.decode(),
            object_pairs_hook=_once,
            parse_constant=_no_constant,
            parse_int=_integer,
        )
        found = _checked_fields(document, _FIELDS, "the file")
        if found["format"] != _FORMAT:
            raise ValueError(f"its format is {found['format']!r}.")
        its_format = found["format_version"]
        if type(its_format) is not int or its_format < 1:
            raise ValueError(f"its format_version is {its_format!r}.")
        if its_format <= _FORMAT_VERSION:
            camera = Camera(**_checked_fields(found["camera"], {*Camera._fields}, "camera"))
            return _noise(found["noise"]), _checked_camera(camera)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{path} is not JSON: give a file written by save_noise or kappaform noise."
        ) from error
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        reason = "it is nested too deeply." if isinstance(error, RecursionError) else str(error)
        raise ValueError(f"{path} is not a noise that kappaform saved: {reason}") from error
    raise ValueError(
        f"{path} was written by kappaform {found['kappaform_version']!s:.20}, in format "
        f"{its_format}: this version reads formats up to {_FORMAT_VERSION}, upgrade kappaform."
    )


def is_noise(path: Path) -> bool:
    """Whether a file is a JSON object with the format of noise; its noise is not checked."""
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES)
    try:
        return bool(json.loads(content).get("format") == _FORMAT)
    except (AttributeError, ValueError, RecursionError):
        return False


# --- Checks


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    given = dict(pairs)
    if len(given) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the field {twice!r:.60} is given twice.")
    return given


def _no_constant(name: str) -> float:
    raise ValueError(f"it contains {name}: numbers must be finite.")


def _integer(digits: str) -> int:
    if len(digits) > 19:
        raise ValueError(f"it has a number of {len(digits)} digits.")
    return int(digits)


def _checked_fields(
    given: Any, required: set[str], name: str, optional: frozenset[str] | set[str] = frozenset()
) -> dict[str, Any]:
    """A JSON object with exactly these fields."""
    if not isinstance(given, dict):
        raise ValueError(f"{name} is not an object with fields.")
    for missing in sorted(required - given.keys()):
        raise ValueError(f"{name} has no field {missing!r}.")
    for unknown in sorted(given.keys() - required - optional):
        raise ValueError(f"{name} has the unknown field {unknown!r:.60}.")
    return given


def _checked_camera(camera: Camera) -> Camera:
    model, iso, dtype = camera
    if model is not None and not (isinstance(model, str) and len(model) <= _LONGEST_TEXT):
        raise ValueError(f"camera={model!r:.60}: give the name of a model, or None.")
    is_number = isinstance(iso, int | float | np.number) and not isinstance(iso, bool)
    if iso is not None and not (is_number and 0 < iso <= _LARGEST_ISO):
        raise ValueError(f"iso={iso!r:.60}: give a positive number up to 1e9, or None.")
    try:
        # NumPy also reads lists of types, as Python.
        is_simple = re.fullmatch(r"[<>=|]?(u?int|float|[uif])\d*", str(dtype))
        is_valid = dtype is None or bool(is_simple and np.dtype(str(dtype)))
    except TypeError:
        is_valid = False
    if not is_valid:
        raise ValueError(f"dtype={dtype!r:.60}: give a type of numbers, such as 'uint8', or None.")
    return camera._replace(dtype=None if dtype is None else np.dtype(str(dtype)).name)


def _noise(described: Any, kinds: tuple[str, ...] = tuple(_KINDS)) -> Any:
    """The noise of these fields; `Correlated` contains that of another kind, its stabiliser."""
    whole = kinds == tuple(_KINDS)
    kind = described.get("kind") if isinstance(described, dict) else None
    if kind not in kinds:
        raise ValueError(f"the kind of noise is {kind!r:.60}: it must be one of {kinds}.")
    # Parameters, without confidence and evidence, which every kind has.
    names = {each.name for each in fields(_KINDS[kind]) if not each.kw_only}
    general = _OF_EVERY_KIND if whole else {"kind"}
    found = _checked_fields(described, general | (names - _OPTIONAL), kind, names & _OPTIONAL)
    values = {name: _parameter(name, found[name]) for name in names & found.keys()}
    if whole:
        values |= _checked_evidence(found["confidence"], found["evidence"])
    for name in ("covariance", "correlation"):
        _check_rows(name, np.shape(values.get(name, ())))
    noise = _KINDS[kind](**values)
    if isinstance(noise, Correlated) and noise.autocovariance is not None:
        _check_positive(noise)
    return noise


def _parameter(name: str, value: Any) -> Any:
    if name == "stabiliser":
        return _noise(value, ("shot", "varying"))
    array = _numbers(name, value)
    return array if array.ndim else float(array)


def _numbers(name: str, value: Any) -> Array:
    """A number, or lists of numbers of one length, as an array."""

    def shape(part: Any, depth: int) -> tuple[int, ...]:
        if type(part) in (int, float):
            if not math.isfinite(part):
                raise ValueError(f"{name} contains a number that is not finite.")
            return ()
        if not isinstance(part, list) or not part or depth == _MOST_AXES:
            raise ValueError(f"{name} is not a number, or lists of numbers.")
        shapes = {shape(each, depth + 1) for each in part}
        if len(shapes) > 1:
            raise ValueError(f"{name} has lists of different lengths.")
        return len(part), *shapes.pop()

    found = shape(value, 0)
    return np.array(value, np.float64).reshape(found)


def _checked_evidence(confidence: Any, evidence: Any) -> dict[str, Any]:
    if type(confidence) not in (int, float) or not 0 <= confidence <= 1:
        raise ValueError(f"confidence is {confidence!r:.60}: it must be a number from 0 to 1.")
    if not isinstance(evidence, str) or len(evidence) > _LONGEST_TEXT:
        raise ValueError(f"evidence must be a text of at most {_LONGEST_TEXT} characters.")
    return {"confidence": float(confidence), "evidence": evidence}


def _check_rows(name: str, shape: tuple[int, ...]) -> None:
    """Reject covariances whose eigenvalues would take minutes."""
    n_rows = shape[-1] * (shape[0] if len(shape) == 4 else 1) if shape else 0
    if n_rows > _MOST_ROWS:
        raise ValueError(f"{name} has {n_rows} rows, more than the limit of {_MOST_ROWS}.")


def _check_positive(noise: Correlated) -> None:
    """Reject an autocovariance with which some sum of pixels would have a negative variance."""
    shape = np.asarray(noise.autocovariance).shape
    channels, sides = (shape[:2], shape[2:]) if len(shape) > 3 else ((), shape)
    if len(sides) not in PATCH_SIDES or max(sides) > 63:
        raise ValueError(f"autocovariance has shape {shape}: 2 or 3 axes of at most 63 are read.")
    patch = tuple(max(PATCH_SIDES[len(sides)], side // 2 + 1) for side in sides)
    _check_rows("autocovariance", (*channels, math.prod(patch), math.prod(patch)))
    noise.mixed(np.ones(channels[:1] or 1), patch)
