"""Work on one core, timed in turns by wall-clock and by CPU time. Import this before JAX."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
sys.path.insert(0, str(Path(__file__).parent))

from _entries import Entry, entry


class Done(NamedTuple):
    """What a side did in one turn."""

    work: float
    """Steps, samples or updates."""
    wall: float
    """Seconds by the clock."""
    cpu: float
    """Seconds of all threads of this process."""


Side = Callable[[int], Done]
"""Takes the number of the round, from 0."""


def clocked(call: Callable[[], Any], work: float) -> Done:
    """Time a call that returns when its work is done."""
    wall, cpu = time.perf_counter(), time.process_time()
    call()
    return Done(work, time.perf_counter() - wall, time.process_time() - cpu)


def often(call: Callable[[], Any], work: float, seconds: float = 0.3) -> Side:
    """Return a side that repeats a short call for about so many seconds; the call is made ready here."""
    call()
    start = time.perf_counter()
    call()
    times = max(1, round(seconds / (time.perf_counter() - start)))

    def several() -> None:
        for _ in range(times):
            call()

    return lambda _: clocked(several, times * work)


class Compiled:
    """A function of one argument, compiled ahead of time; `seconds` is what compiling took."""

    def __init__(self, function: Callable[[Any], Any], example: Any) -> None:
        import jax

        kept = "jax_enable_compilation_cache"
        before = jax.config.values[kept]
        jax.config.update(kept, False)
        try:
            start = time.perf_counter()
            self._call = jax.jit(function).lower(example).compile()
            self.seconds = time.perf_counter() - start
        finally:
            jax.config.update(kept, before)

    def __call__(self, argument: Any) -> Any:
        """Run it to the end."""
        import jax

        return jax.block_until_ready(self._call(argument))


def turns(sides: Mapping[str, Side], rounds: int) -> dict[str, list[Done]]:
    """Let the sides work in turns, the order reversed from round to round; a first turn of each is not counted."""
    found: dict[str, list[Done]] = {name: [] for name in sides}
    for number in range(-1, rounds):
        for name in list(sides)[:: 1 if number % 2 else -1]:
            done = sides[name](max(number, 0))
            if number >= 0:
                found[name].append(done)
    return found


def compared(name: str, unit: str, ours: Sequence[Done], peer: Sequence[Done], conditions: str) -> Entry:
    """Compare rates by CPU time; the conditions name the ratio by wall-clock too."""
    wall = statistics.median((a.work / a.wall) / (b.work / b.wall) for a, b in zip(ours, peer, strict=True))
    return entry(
        name,
        unit,
        [done.work / done.cpu for done in ours],
        [done.work / done.cpu for done in peer],
        f"{conditions}; one core each, in turns, {len(ours)} rounds, warm; by CPU time, by wall-clock the ratio is "
        f"{wall:.2f}",
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Keep torch and the numeric libraries to one thread."""
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)
