"""One process at a time works on a run directory."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

from rolecraft.errors import RunMismatchError

LOCK = "run.lock"
PATIENCE = 0.2
"""Seconds: whoever asks for the holder of a run has its lock for a moment."""


def hold(directory: Path) -> int:
    """Lock a directory for this process; the system lets go of the lock when the process ends, however it ends.

    Returns:
        The file descriptor to close when the work is done.

    Raises:
        RunMismatchError: If another process, or this one, has the lock.
    """
    lock = os.open(directory / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    end = time.monotonic() + PATIENCE
    while not _try(lock, fcntl.LOCK_EX):
        if time.monotonic() >= end:
            process = os.pread(lock, 32, 0).decode().strip() or "unknown"
            os.close(lock)
            raise RunMismatchError(
                f"{directory}: process {process} is working on this run; wait for it, stop it, or choose another --out."
                f" To look at it meanwhile: rolecraft show {directory}"
            )
        time.sleep(0.01)
    os.pwrite(lock, f"{os.getpid():<20}".encode(), 0)  # one width, so that a reader never sees a part of it
    return lock


def holder(directory: Path) -> int | None:
    """Return the number of the process that has the lock of a directory, or None."""
    try:
        lock = os.open(directory / LOCK, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return None if _try(lock, fcntl.LOCK_SH) else int(os.pread(lock, 32, 0) or b"0")
    finally:
        os.close(lock)


def _try(lock: int, kind: int) -> bool:
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
