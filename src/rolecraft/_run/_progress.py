"""Progress on stderr: a bar on a terminal, a plain line now and then in a log."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

PLAIN_INTERVAL = 15.0
"""Seconds between two lines where stderr is not a terminal."""


class Progress:
    """Shows how far a stage is, its rate, and the time that remains.

    Args:
        total: Units in all.
        label: Name of the stage.
        done: Units that an earlier session did; they do not count for the rate.
        quiet: Show nothing.

    Example:
        ```python
        with Progress(len(keys), "answers") as progress:
            for key in keys:
                work(key)
                progress.advance()
        ```
    """

    def __init__(self, total: int, label: str, *, done: int = 0, quiet: bool = False) -> None:
        self.total, self.label, self.done = total, label, done
        self._before = done
        self._quiet = quiet
        self._start = self._last = time.monotonic()
        self._bar: tuple[Bar, TaskID] | None = None

    @property
    def rate(self) -> float:
        """Units per second in this session."""
        return (self.done - self._before) / max(time.monotonic() - self._start, 1e-9)

    @property
    def remaining(self) -> float | None:
        """Seconds that remain at this rate; None before the first unit."""
        return max(self.total - self.done, 0) / self.rate if self.done > self._before else None

    def advance(self, units: int = 1) -> None:
        """Count units as done."""
        self.done += units
        if self._bar:
            bar, task = self._bar
            bar.update(task, completed=self.done, rate=self._rate_text())
        elif not self._quiet and time.monotonic() - self._last >= PLAIN_INTERVAL:
            self._last = time.monotonic()
            self._print_line()

    def __enter__(self) -> Self:
        self._start = self._last = time.monotonic()
        if not self._quiet and sys.stderr.isatty():
            self._bar = self._start_bar()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar[0].stop()
        elif not self._quiet:
            self._print_line()

    def _start_bar(self) -> tuple[Bar, TaskID]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar

        bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        bar.start()
        return bar, bar.add_task(self.label, total=self.total, completed=self.done, rate="")

    def _rate_text(self) -> str:
        return f"{self.rate:.1f}/s" if self.rate >= 1 or not self.rate else f"{1 / self.rate:.1f} s each"

    def _print_line(self) -> None:
        share = 100 * self.done / self.total if self.total else 100
        left = "" if self.remaining is None or self.done >= self.total else f", {_clock(self.remaining)} left"
        elapsed = _clock(time.monotonic() - self._start)
        print(
            f"{self.label}: {self.done}/{self.total} ({share:.0f} %), {self._rate_text()}, {elapsed} elapsed{left}",
            file=sys.stderr,
            flush=True,
        )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
