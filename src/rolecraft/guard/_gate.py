"""A gate between calls and changes of policy: neither happens in the middle of the other."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Gate:
    """Any number of calls, or one change.

    A call that begins within another one of the same thread or task passes at once, so that tools may use tools.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._calls = 0
        self._changing = 0
        self._inside: ContextVar[bool] = ContextVar("inside", default=False)

    @property
    def calls(self) -> int:
        """Calls in flight."""
        return self._calls

    def acquire(self) -> None:
        """Begin a call; waits while a change is made or waited for."""
        with self._condition:
            self._condition.wait_for(lambda: not self._changing)
            self._calls += 1

    def release(self) -> None:
        """End a call."""
        with self._condition:
            self._calls -= 1
            self._condition.notify_all()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Hold changes off for the length of a call."""
        if self._inside.get():
            yield
            return
        self.acquire()
        token = self._inside.set(True)
        try:
            yield
        finally:
            self._inside.reset(token)
            self.release()

    @contextmanager
    def change(self, timeout: float) -> Iterator[bool]:
        """Hold calls off; yields whether all calls in flight ended within `timeout` seconds."""
        end = time.monotonic() + timeout
        with self._condition:
            self._changing += 1
            try:
                yield self._condition.wait_for(lambda: not self._calls, max(0.0, end - time.monotonic()))
            finally:
                self._changing -= 1
                self._condition.notify_all()
