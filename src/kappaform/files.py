"""Files on disk: which of them may be read or written, and results that appear when complete."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

_SPECIAL = "is a device, a pipe or a socket: give a plain file."


class UnsupportedError(ValueError):
    """Says what an intact file has that cannot be read here; all other exceptions mean damage."""


def check_readable(path: Path) -> None:
    """Reject what cannot be opened, and pipes, whose opening would wait for a writer."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise ValueError(f"{path} {_SPECIAL}")
    path.open("rb").close()


def file_of(name: str | os.PathLike[str]) -> Path:
    """The path with the name of a file; a slash at its end, which `Path` drops, is rejected."""
    if os.fspath(name).endswith(("/", os.sep)):
        raise ValueError(
            f"{os.fspath(name)} ends with a slash, which names a folder: give the name of a file."
        )
    return Path(name)


def check_writable(path: Path) -> Path:
    """The plain file that is written under this name: where a link leads, if it is one."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = None
    file = Path(os.path.realpath(path)) if path.is_symlink() else path
    if not file.parent.is_dir():
        raise FileNotFoundError(f"{path}: the folder {file.parent} does not exist: create it.")
    if mode is not None:
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(f"{path} is a folder: give the name of a file.")
        if not stat.S_ISREG(mode):
            raise ValueError(f"{path} {_SPECIAL}")
        # Replacing a file needs no permission on the file itself, so that is asked here.
        if not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"{path} is read-only: choose another name.")
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise PermissionError(f"{path}: the folder {file.parent} is read-only: choose another.")
    return file


@contextmanager
def replaced_when_complete(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the name `path` at the end, or leaves no trace if that fails.

    A file that is replaced keeps its permissions and, where that is allowed, its owner; a link
    stays, and what it leads to is replaced.
    """
    file = check_writable(path)
    # In the same folder, because only within a file system a file can be renamed in one step. The
    # name is short: that of the file may be as long as the system allows.
    temporary = file.with_name(f".{secrets.token_hex(6)}.part")
    try:
        with temporary.open("xb") as opened:
            if file.exists():
                _copy_permissions(file, temporary)
            yield opened
            opened.flush()
            os.fsync(opened.fileno())
        temporary.replace(file)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename in (None, str(temporary)):
            # The caller knows `path`, not the temporary name.
            reason = error.strerror or f"not written completely ({error})"
            raise OSError(error.errno or errno.EIO, reason, str(path)) from error
        raise


def _copy_permissions(source: Path, target: Path) -> None:
    if hasattr(os, "chown"):
        owner = source.stat()
        with suppress(PermissionError):  # only root gives files away
            os.chown(target, owner.st_uid, owner.st_gid)
    shutil.copymode(source, target)
