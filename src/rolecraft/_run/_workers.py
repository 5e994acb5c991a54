"""Sharding work over processes or a Ray cluster. The coordinator alone writes the store."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from rolecraft.errors import MissingDependencyError, RolecraftError, UserError

Shard = TypeVar("Shard")
Result = TypeVar("Result")


def map_shards(
    task: Callable[[Shard], Result], shards: Sequence[Shard], workers: str | int = "1"
) -> Iterator[tuple[int, Result]]:
    """Run a task on each shard and yield (position of the shard, result) as they complete.

    Args:
        task: A function of a module (or a picklable object), so that another process can import it.
        shards: Picklable parts of the work.
        workers: `1`: here, one after the other, nothing pickled. `N`: so many fresh processes, the processor's cores
            shared out among them. `ray`: the Ray cluster named by RAY_ADDRESS, or else one on this machine.
            `ray://HOST:PORT`: that cluster. Where `ray start` says that it has switched token authentication on, set
            RAY_AUTH_MODE=token, so that Ray sends the token that it finds.

    Raises:
        UserError: If `workers` is none of these.
        RolecraftError: If a worker dies. Everything that was returned before has been yielded; the shards that were not
            started are dropped. An exception of the task itself is raised in the same way.
    """
    given = str(workers).strip()
    if given == "ray" or re.fullmatch(r"ray://\S+", given):
        return _on_ray(task, shards, None if given == "ray" else given)
    if not re.fullmatch(r"[1-9]\d*", given):
        raise UserError(f"workers: expected a number from 1, 'ray' or 'ray://HOST:PORT', got {given!r}.")
    if int(given) == 1 or len(shards) <= 1:
        return ((index, task(shard)) for index, shard in enumerate(shards))
    return _on_processes(task, shards, min(int(given), len(shards)))


def _on_processes(
    task: Callable[[Shard], Result], shards: Sequence[Shard], workers: int
) -> Iterator[tuple[int, Result]]:
    import multiprocessing

    failure: BaseException | None = None
    returned = 0
    threads = max(1, (os.cpu_count() or 1) // workers)
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker, (threads,))
    try:
        futures = {pool.submit(task, shard): index for index, shard in enumerate(shards)}
        for future in as_completed(futures):
            try:
                result = future.result()
            except CancelledError:
                continue
            except Exception as error:
                failure = failure or error
                for other in futures:
                    other.cancel()
                continue
            returned += 1
            yield futures[future], result
    except BrokenProcessPool as error:  # the pool broke while shards were still being handed to it
        failure = error
    finally:
        pool.shutdown(cancel_futures=True)
    if isinstance(failure, BrokenProcessPool):
        raise _died(returned, len(shards)) from failure
    if failure:
        raise failure


def _start_worker(threads: int) -> None:
    """Prepare a worker process: few threads, silent on Ctrl-C, gone when the coordinator is gone."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    from multiprocessing import parent_process

    parent = parent_process()
    if parent:
        parent.join()
        os._exit(1)


def _on_ray(
    task: Callable[[Shard], Result], shards: Sequence[Shard], address: str | None
) -> Iterator[tuple[int, Result]]:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise MissingDependencyError("workers 'ray' needs Ray: pip install 'rolecraft[scale]'.") from None

    started = not ray.is_initialized()
    if started:
        _connect_ray(ray, address)
    try:
        remote: Any = ray.remote(max_retries=1)(_call)
        shared = ray.put(task)
        waiting = {remote.remote(shared, shard): index for index, shard in enumerate(shards)}
        returned = 0
        while waiting:
            done, _ = ray.wait(list(waiting), num_returns=1)
            index = waiting.pop(done[0])
            try:
                result = ray.get(done[0])
            except ray.exceptions.RayTaskError as error:
                raise error.cause from error
            except ray.exceptions.RayError as error:
                raise _died(returned, len(shards)) from error
            returned += 1
            yield index, result
    finally:
        if started:
            ray.shutdown()


_TOKEN_HINT = "set RAY_AUTH_MODE=token if `ray start` said that token authentication is on, "
"""A cluster with a token does not answer a client without: Ray says no more than that it has waited too long."""


def _connect_ray(ray: Any, address: str | None) -> None:
    where = address or os.environ.get("RAY_ADDRESS")
    options: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    try:
        if where:
            _knock(where)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # what went wrong is said below
                ray.init(address=where, **options)
        else:
            ray.init(address="local", include_dashboard=False, **options)
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise RolecraftError(
            f"workers: no Ray cluster answers at {where or 'this machine'} ({error}); "
            f"start one with `ray start --head`, {_TOKEN_HINT if where else ''}or give a number of processes."
        ) from error


def _knock(address: str) -> None:
    """Try the port of an address: Ray itself waits for minutes before it says that nobody is there."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


def _call(task: Callable[[Shard], Result], shard: Shard) -> Result:
    return task(shard)


def _died(returned: int, total: int) -> RolecraftError:
    return RolecraftError(
        f"a worker process died (killed, or out of memory) after {returned} of {total} parts had come back. "
        "Those are kept; run again with --resume, with fewer --workers if memory is short."
    )
