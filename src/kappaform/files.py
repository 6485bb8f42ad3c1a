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


def check_readable(path: Path) -> None:
    """Refuse what is not a file, or may not be read."""
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a file.")
    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file.")
    if not path.is_file():  # a pipe would be waited for
        raise ValueError(f"{path} is a device, a pipe or a socket: give a plain file.")
    if not os.access(path, os.R_OK):
        raise PermissionError(f"{path} may not be read: change its permissions.")


def check_writable(path: Path) -> Path:
    """The plain file that is written under this name: where a link leads, if it is one.

    Raises
    ------
    OSError, ValueError
        If the name is too long, its folder is missing, or what is there is a folder, a device or
        protected.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        mode = None
    file = Path(os.path.realpath(path)) if path.is_symlink() else path
    if not file.parent.is_dir():
        raise FileNotFoundError(
            f"{path}: the folder {file.parent} does not exist, create it first."
        )
    if mode is not None:
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(f"{path} is a folder: give the name of a file.")
        if not stat.S_ISREG(mode):
            raise ValueError(f"{path} is a device, a pipe or a socket: give a plain file.")
        # Replacing a file asks for no permission on the file itself, so that is asked here.
        if not mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError(f"{path} is read-only: choose another name, or make it writable.")
    if not os.access(file.parent, os.W_OK | os.X_OK):
        raise PermissionError(
            f"{path}: the folder {file.parent} is read-only: choose another, or make it writable."
        )
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
    except OSError as error:  # the caller knows `path`, not the temporary name
        temporary.unlink(missing_ok=True)
        if error.filename not in (None, str(temporary)):
            raise
        reason = error.strerror or f"not written completely ({error})"
        raise OSError(error.errno or errno.EIO, reason, str(path)) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _copy_permissions(source: Path, target: Path) -> None:
    if hasattr(os, "chown"):
        owner = source.stat()
        with suppress(PermissionError):  # only root gives files away
            os.chown(target, owner.st_uid, owner.st_gid)
    shutil.copymode(source, target)
