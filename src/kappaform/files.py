"""Files that appear when they are complete, and not before."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replaced_when_complete(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the name `path` at the end, or leaves no trace if that fails."""
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{path}: the folder {path.parent} does not exist, create it first."
        )
    # In the same folder, because only within a file system a file can be renamed in one step.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        opened = temporary.open("xb")
    except OSError as error:  # of a name that nobody gave
        raise OSError(error.errno, error.strerror, str(path)) from error
    try:
        with opened as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
