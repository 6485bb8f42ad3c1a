"""Signals that are read block by block, ahead of their use: memory-maps and stores.

A store is anything with a shape, a dtype and rows that can be sliced, such as a dataset of HDF5 or
Zarr. Blocks have the same rows wherever the signals lie, and so results have the same bits.

Each thread that computes has another one that reads ahead for it. Stores of h5py, which has its own
lock, and of Zarr are read by several threads at once. Any other store is read one slice at a time,
even if several calls use it.
"""

from __future__ import annotations

import mmap
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import numpy as np

from kappaform.checks import Array, is_store, library_of, memory_map
from kappaform.engines.blocks import blocks_of, split_rows
from kappaform.engines.engine import reading
from kappaform.errors import SignalsUnreadable
from kappaform.threads import after_fork

# Bytes that are read at a time: many enough for a disk, few compared to the memory of a machine.
_PIECE_BYTES = 2**23
_READ_BY_MANY = ("h5py", "zarr")  # libraries whose stores several threads may read at once

#: Blocks of some rows, each with its slice: called with these rows and the length of a block.
Reader = Callable[[slice, int], Iterator[tuple[slice, Array]]]


def reader_of(signals: Any, name: str) -> Reader:
    """How to read signals block by block: in place, through a memory-map, or from a store."""
    if is_store(signals):
        return partial(_stored_blocks, signals, name, _turn_of(signals))
    mapped = memory_map(signals)
    if mapped is not None and _may_be_advised(signals, mapped):
        return partial(_mapped_blocks, signals, mapped._mmap)
    return partial(blocks_of, signals)


def _mapped_blocks(
    signals: Array, mapped: mmap.mmap, part: slice, length: int
) -> Iterator[tuple[slice, Array]]:
    """Blocks, while the system is advised what to read ahead and what may leave the memory."""
    row_bytes = abs(signals.strides[0])
    n_rows = max(1, _PIECE_BYTES // (row_bytes * length)) * length
    address = np.frombuffer(mapped, np.uint8).ctypes.data

    def advise(advice: int, start: int, stop: int) -> None:
        rows = signals[max(start, 0) : stop]
        first = rows.__array_interface__["data"][0] - address
        first -= first % mmap.PAGESIZE
        with suppress(OSError):  # advice that the system does not take changes no result
            mapped.madvise(advice, first, len(rows) * row_bytes)

    for piece in split_rows(part.start, part.stop, n_rows):
        if piece.stop < part.stop:
            advise(mmap.MADV_WILLNEED, piece.stop, piece.stop + n_rows)
        yield from blocks_of(signals, piece, length)
        # With its first and last page the system may have mapped some of the neighbours.
        advise(mmap.MADV_DONTNEED, piece.start - n_rows, piece.stop + n_rows)


def _may_be_advised(signals: Array, mapped: Any) -> bool:
    """Whether rows follow one another in a file, and that file keeps all that was written to them.

    What was written to a private map (mode "c") is nowhere else: it may not leave the memory.
    """
    shared = mapped.mode != "c" and hasattr(mapped._mmap, "madvise")
    return shared and signals.strides[0] >= signals.shape[1] * signals.strides[1] > 0


class _Turn:
    """A lock that the readers of one store share, as long as there are any."""

    def __init__(self) -> None:
        self.lock: Any = threading.Lock()


_turns: weakref.WeakValueDictionary[int, _Turn] = weakref.WeakValueDictionary()
_turns_lock = threading.Lock()


def _turn_of(store: Any) -> _Turn:
    """The lock for reading a store: none, if several threads may read it at once."""
    if library_of(store) not in _READ_BY_MANY:
        with _turns_lock:
            return _turns.setdefault(id(store), _Turn())
    turn = _Turn()
    turn.lock = nullcontext()
    return turn


@after_fork
def _renew_turns() -> None:
    global _turns_lock
    _turns_lock = threading.Lock()
    for turn in _turns.values():
        turn.lock = threading.Lock()


def _stored_blocks(
    store: Any, name: str, turn: _Turn, part: slice, length: int
) -> Iterator[tuple[slice, Array]]:
    """Blocks of the pieces that are read; a block that spans two pieces is concatenated."""
    pieces = _read_ahead(store, name, turn, part)
    piece = np.empty((0, store.shape[1]))
    for rows in split_rows(part.start, part.stop, length):
        block = piece[: rows.stop - rows.start]
        piece = piece[len(block) :]
        while (missing := rows.stop - rows.start - len(block)) > 0:
            piece = next(pieces)
            block = np.concatenate([block, piece[:missing]]) if len(block) else piece[:missing]
            piece = piece[missing:]
        yield rows, block


def _read_ahead(store: Any, name: str, turn: _Turn, part: slice) -> Iterator[Array]:
    """Pieces in order: while one is in use, the next is being read."""
    reader = ThreadPoolExecutor(1, thread_name_prefix="kappaform-read")
    waiting: Future[Array] | None = None
    try:
        for rows in _pieces(store, part):
            following = reader.submit(_read, store, name, turn, rows)
            if waiting is not None:
                yield waiting.result()
            waiting = following
        if waiting is not None:
            yield waiting.result()
    finally:
        reader.shutdown(wait=False)  # after an error nobody waits for what was being read


def _pieces(store: Any, part: slice) -> Iterator[slice]:
    """Rows to read at a time: whole chunks of the store, where it has any."""
    chunk = _chunk_rows(store)
    row_bytes = store.shape[1] * np.dtype(store.dtype).itemsize
    length = max(1, _PIECE_BYTES // (chunk * row_bytes)) * chunk
    start = part.start
    while start < part.stop:
        stop = min((start // length + 1) * length, part.stop)
        yield slice(start, stop)
        start = stop


def _chunk_rows(store: Any) -> int:
    """Rows that are stored, and perhaps compressed, together; 1 if the store has no chunks."""
    for attribute in ("chunks", "chunkshape"):
        chunks = getattr(store, attribute, None)
        if isinstance(chunks, tuple) and chunks and isinstance(chunks[0], int) and chunks[0] > 0:
            return chunks[0]
    return 1


def _read(store: Any, name: str, turn: _Turn, rows: slice) -> Array:
    where = f"{name} could not be read, rows {rows.start} to {rows.stop - 1}"
    with reading(where), turn.lock:
        given = store[rows.start : rows.stop]
        masked = np.ma.is_masked(given)
        piece = np.asarray(given)
    expected = (rows.stop - rows.start, store.shape[1])
    if piece.shape != expected:
        raise SignalsUnreadable(
            f"{where}: the store gave shape {piece.shape} instead of {expected}; it is damaged, or "
            "its shape is not that of its data."
        )
    if masked or piece.dtype.kind not in "biuf":
        what = "masked entries" if masked else f"dtype {piece.dtype}"
        raise SignalsUnreadable(f"{where}: the store gave {what}; fill it with real numbers.")
    return piece
