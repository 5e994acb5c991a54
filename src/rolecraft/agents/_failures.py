"""A model that fails in mid-episode: what is lost of a batch, and what is not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    ask: Callable[[Sequence[int]], Sequence[_T]], count: int, on_failure: OnFailure = "raise"
) -> list[_T | Failure]:
    """Ask for all rows at once; where that fails, row by row, so that one stalled row does not cost the others.

    A served model keeps the replies of a batch that failed in its cache, so those are not paid for twice. Each request
    has the retries of the transport; when `GIVE_UP` rows have failed alone, the rest fail unasked.

    Args:
        ask: From row numbers to answers.
        count: Number of rows.
        on_failure: Whether a `ServerError` is passed on or becomes a `Failure`.

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
    found: list[_T | Failure] = []
    reasons: list[str] = []
    for row in range(count):
        if len(reasons) >= GIVE_UP:
            found.append(Failure(f"not asked, after {GIVE_UP} other rows failed: {reasons[-1]}"))
            continue
        try:
            found += ask([row])
        except ServerError as error:
            reasons.append(str(error))
            found.append(Failure(str(error)))
    return found
