"""Rollouts by several processes, here or on a Ray cluster: weights go out, episodes come back."""

from __future__ import annotations

import re
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from rolecraft._run._workers import _connect_ray, _start_worker
from rolecraft.errors import MissingDependencyError, UserError
from rolecraft.learning.trainer._rollouts import Start
from rolecraft.worlds import Episode

if TYPE_CHECKING:
    from rolecraft.learning.trainer._trainer import Trainer


class WorkerDiedWarning(UserWarning):
    """A worker died; its episodes were played again here."""


@dataclass(frozen=True)
class _Job:
    """What a worker plays."""

    key: str
    """Of the `RolloutWorkers`: a worker process makes its trainer once for each."""
    make: Callable[[], Trainer]
    iteration: int
    weights: Mapping[str, tuple[str, bytes]]
    """Base and safetensors by policy."""
    starts: Sequence[Start]


class RolloutWorkers:
    """Plays a trainer's episodes in other processes, which live as long as this object.

    Each process makes the trainer for itself, models included, and is sent the weights at every iteration. A reply's
    draw depends on its seed and the weights alone, so that the number of workers does not change what is played; as a
    batch's size can move the last digits of a probability, only a draw that falls on the very edge of two tokens could.

    A worker that dies costs time, no episode: its share is played again here and counted, and the next iteration starts
    afresh with all workers. What a policy that is not under training remembers does not travel: opponents are those
    that `make` makes.

    Args:
        make: Makes the trainer; a function of a module, or a `functools.partial` of one, as another process imports it.
        workers: `N` processes here, `ray` (the cluster named by RAY_ADDRESS, else one on this machine), or
            `ray://HOST:PORT`.

    Raises:
        UserError: If `workers` is none of these.
        MissingDependencyError: If Ray is asked for and not installed.
        RolecraftError: If no cluster answers.
    """

    def __init__(self, make: Callable[[], Trainer], workers: str | int) -> None:
        self.make = make
        self.workers = str(workers).strip()
        self.replayed = 0
        """Shares that were played again here because their worker had died."""
        self._key = uuid.uuid4().hex
        self._pool: ProcessPoolExecutor | None = None
        self._ray: Any = None
        self._started_ray = False
        if re.fullmatch(r"ray|ray://\S+", self.workers):
            self._meet_ray()
        elif not re.fullmatch(r"[1-9]\d*", self.workers):
            raise UserError(f"workers: expected a number from 1, 'ray' or 'ray://HOST:PORT', got {self.workers!r}.")

    def __enter__(self) -> RolloutWorkers:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
        if self._started_ray:
            self._ray.shutdown()
            self._started_ray = False

    def collect(self, trainer: Trainer, starts: Sequence[Start]) -> list[Episode]:
        """Play an episode from each start with the weights of now.

        Raises:
            UserError: If the workers' trainer has other policies than this one.
        """
        weights = {name: (policy.base, _packed(policy)) for name, policy in trainer.policies.items()}
        jobs = [_Job(self._key, self.make, trainer.iteration, weights, part) for part in _shares(starts, self._count())]
        played = self._on_ray(jobs) if self._ray is not None else self._on_processes(jobs)
        episodes: list[Episode] = []
        for job, found in zip(jobs, played, strict=True):
            if found is None:
                self.replayed += 1
                warnings.warn(
                    f"iteration {trainer.iteration}: a rollout worker died (killed, or out of memory); its "
                    f"{len(job.starts)} episodes are played here.",
                    WorkerDiedWarning,
                    stacklevel=3,
                )
                found = trainer.play(job.starts)
            episodes += found
        return episodes

    def _count(self) -> int:
        if self._ray is None:
            return int(self.workers)
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def _on_processes(self, jobs: Sequence[_Job]) -> Iterator[list[Episode] | None]:
        """Yield what each job gave, None where its worker died."""
        futures: list[Future[list[Episode]] | None] = []
        for job in jobs:
            try:
                futures.append(self._processes().submit(_play, job))
            except BrokenProcessPool:
                futures.append(None)
        broken = False
        for future in futures:
            try:
                found = None if future is None else future.result()
            except BrokenProcessPool:
                found = None
            broken = broken or found is None
            yield found
        if broken and self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def _processes(self) -> ProcessPoolExecutor:
        if self._pool is None:
            import multiprocessing
            import os

            count = int(self.workers)
            threads = max(1, (os.cpu_count() or 1) // count)
            self._pool = ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), _start_worker, (threads,))
        return self._pool

    def _on_ray(self, jobs: Sequence[_Job]) -> Iterator[list[Episode] | None]:
        remote = self._ray.remote(max_retries=0)(_play)
        for waiting in [remote.remote(job) for job in jobs]:
            try:
                yield self._ray.get(waiting)
            except self._ray.exceptions.RayTaskError as error:
                raise error.cause from error
            except self._ray.exceptions.RayError:
                yield None

    def _meet_ray(self) -> None:
        import os

        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError:
            raise MissingDependencyError("workers 'ray' needs Ray: pip install 'rolecraft[scale]'.") from None
        if not ray.is_initialized():
            _connect_ray(ray, None if self.workers == "ray" else self.workers)
            self._started_ray = True
        self._ray = ray


_MADE: dict[str, Trainer] = {}
"""In a worker process: the trainer of the workers' key. One at a time is kept, as models are large."""


def _play(job: _Job) -> list[Episode]:
    """Play a share in a worker process."""
    from safetensors.torch import load

    if job.key not in _MADE:
        _MADE.clear()
        _MADE[job.key] = job.make()
    trainer = _MADE[job.key]
    trainer.iteration = job.iteration
    if set(trainer.policies) != set(job.weights):
        raise UserError(f"workers: make() gives policies {', '.join(trainer.policies)}, expected "
                        f"{', '.join(job.weights)}.")  # fmt: skip
    for name, (base, weights) in job.weights.items():
        policy = trainer.policies[name]
        if policy.base != base:
            raise UserError(f"workers: make() gives policy {name!r} another base ({policy.base}), expected {base}.")
        policy.load(load(weights))
    return trainer.play(job.starts)


def _packed(policy: Any) -> bytes:
    from safetensors.torch import save

    return save({name: each.detach().cpu().contiguous() for name, each in policy.parameters().items()})


def _shares(starts: Sequence[Start], count: int) -> list[Sequence[Start]]:
    """Cut starts into at most `count` runs of even size, none of them empty."""
    count = min(count, len(starts))
    edges = [round(place * len(starts) / count) for place in range(count + 1)] if count else [0]
    return [starts[low:high] for low, high in pairwise(edges)]
