"""A model that fails in mid-episode: what is lost of a batch, and what is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, TypeVar

from rolecraft.errors import ServerError

OnFailure = Literal["raise", "waste"]
"""What a policy does when a served model does not answer within its retries: pass the error on, so that the run stops
and can be resumed; or waste the turns that got no answer, each marked by `failure` in its notes."""

GIVE_UP = 2
"""Rows that fail by themselves before the server counts as away, and the rest of the batch is not asked for."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Failure:
    """A row without an answer."""

    reason: str


def ask_rows(
    ask: Callable[[Sequence[int]], Sequence[_T]],
    count: int,
    on_failure: OnFailure = "raise",
    *,
    give_up: int | None = GIVE_UP,
    threads: int = 1,
) -> list[_T | Failure]:
    """Ask for all rows at once; where that fails, row by row, so that one stalled row does not cost the others.

    A served model keeps the replies of a batch that failed in its cache, so those are not paid for twice. Each request
    has the retries of the transport.

    Args:
        ask: From row numbers to answers.
        count: Number of rows.
        on_failure: Whether a `ServerError` is passed on or becomes a `Failure`.
        give_up: When so many rows have failed alone, the rest fail unasked; None asks for all.
        threads: Rows that are asked side by side once the batch has failed; with 1, in their order.

    Raises:
        ServerError: With `on_failure="raise"`, as `ask` does.
    """
    if not count:
        return []
    try:
        return list(ask(range(count)))
    except ServerError as error:
        if on_failure == "raise":
            raise
        if count == 1:
            return [Failure(str(error))]
    reasons: list[str] = []

    def alone(row: int) -> _T | Failure:
        if give_up is not None and len(reasons) >= give_up:
            return Failure(f"not asked, after {give_up} other rows failed: {reasons[-1]}")
        try:
            [answer] = ask([row])
        except ServerError as error:
            reasons.append(str(error))
            return Failure(str(error))
        return answer

    if threads == 1:
        return [alone(row) for row in range(count)]
    with ThreadPoolExecutor(min(threads, count)) as pool:
        return list(pool.map(alone, range(count)))
