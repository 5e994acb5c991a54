"""From what the customer knows to what changed: one chain of links for everything that a solution needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from rolecraft.worlds._messages import Message
from rolecraft.worlds.incognita._cards import GoldAction, TaskCard
from rolecraft.worlds.incognita._people import HOLDERS, USER, asked_topics
from rolecraft.worlds.incognita._retail import RETAIL_OPERATIONS, UNCONFIRMED, RetailReceipt

AGENT = "agent"


class Trace(NamedTuple):
    """What happened in an episode, as far as the chain goes."""

    messages: Sequence[Message]
    """To and from the agent; `step` is the turn."""
    opened: Mapping[str, int]
    """Field of the customer to the turn in which it was told."""
    receipts: Sequence[tuple[int, RetailReceipt]]
    """With the turn of each."""
    roles: Mapping[str, str]
    """Name of a specialist to its role."""


def lineage(card: TaskCard, trace: Trace) -> list[dict[str, Any]]:
    """Return the links of a task, in the order of need: goal, facts and writes of the reference, outputs.

    Where a task has several solutions, the one with the most accepted writes counts.

    Returns:
        Rows of `prop_id`, `kind` (goal, fact, write or output), `holder` (a role, or USER), `asked_turn`,
        `delivered_turn`, `cited_in_request_turn` (and `cited_needed`), `op_id` (index of the receipt),
        `same_arguments`, `accepted`, `awaits_consent`, `state_effect` and `needed_by_gold`; a turn is None for what
        never came about.
    """
    gold = max(card.solutions, key=lambda actions: sum(_accepted(action, trace) for action in actions))
    rows = list(_goals(card, trace))
    for action in gold:
        rows.append((_write if RETAIL_OPERATIONS[action.op].writes else _fact)(action, trace))
    return rows + [_output(text, trace) for text in card.outputs]


def _row(prop_id: str, kind: str, holder: str, **links: Any) -> dict[str, Any]:
    empty = dict.fromkeys(
        (
            "asked_turn",
            "delivered_turn",
            "cited_in_request_turn",
            "op_id",
            "same_arguments",
            "accepted",
            "awaits_consent",
        )
    ) | {"state_effect": None}
    identity = {"prop_id": prop_id, "kind": kind, "holder": holder, "cited_needed": False, "needed_by_gold": True}
    return {**identity, **empty, **links}


def _goals(card: TaskCard, trace: Trace) -> Iterator[dict[str, Any]]:
    for field in card.fields:
        if not field.locked:
            continue
        told = trace.opened.get(field.name)
        asked = _first(message.step for message in _sent(trace, USER) if field.topic in asked_topics(message.text))
        cited = None if told is None else _cited(trace, field.cites, told, specialists=True)
        yield _row(
            field.name, "goal", USER, asked_turn=asked, delivered_turn=told, cited_in_request_turn=cited,
            cited_needed=bool(field.cites),
        )  # fmt: skip


def _fact(action: GoldAction, trace: Trace) -> dict[str, Any]:
    role = HOLDERS[action.op]
    asked = _first(turn for turn, receipt in trace.receipts if receipt.op == action.op)
    found = _same(action, trace, accepted=True)
    told = None if found is None else trace.receipts[found][0]
    cited = None if told is None else _cited(trace, action.yields, told)
    return _row(
        _name(action), "fact", role, asked_turn=asked, delivered_turn=told, cited_in_request_turn=cited,
        cited_needed=bool(action.yields), op_id=found, accepted=found is not None,
    )  # fmt: skip


def _write(action: GoldAction, trace: Trace) -> dict[str, Any]:
    """Of several proposals with the right arguments, the accepted one counts, else the last; else any of that kind."""
    tried = [place for place, (_, receipt) in enumerate(trace.receipts) if receipt.op == action.op]
    found = _same(action, trace, accepted=True)
    same = found if found is not None else _same(action, trace, accepted=False)
    chosen = same if same is not None else tried[-1] if tried else None
    receipt = None if chosen is None else trace.receipts[chosen][1]
    return _row(
        _name(action), "write", HOLDERS[action.op], asked_turn=trace.receipts[tried[0]][0] if tried else None,
        op_id=chosen, same_arguments=None if receipt is None else same is not None,
        accepted=receipt and receipt.accepted, awaits_consent=receipt and receipt.reason == UNCONFIRMED,
        state_effect=receipt and receipt.before != receipt.after,
    )  # fmt: skip


def _output(text: str, trace: Trace) -> dict[str, Any]:
    told = _first(each.step for each in trace.messages if each.sender != AGENT and text in each.text)
    said = _first(each.step for each in _sent(trace, USER) if text in each.text)
    return _row(
        f"output {text}", "output", USER, delivered_turn=told, cited_in_request_turn=said, cited_needed=True,
    )  # fmt: skip


def _name(action: GoldAction) -> str:
    values = ", ".join(str(value) for value in action.args.values())
    return f"{action.op}({values})"


def _same(action: GoldAction, trace: Trace, *, accepted: bool) -> int | None:
    """Return the last receipt of just this operation."""
    found = [
        place for place, (_, receipt) in enumerate(trace.receipts)
        if (receipt.op, dict(receipt.args)) == (action.op, dict(action.args)) and receipt.accepted is accepted
    ]  # fmt: skip
    return found[-1] if found else None


def _accepted(action: GoldAction, trace: Trace) -> bool:
    return RETAIL_OPERATIONS[action.op].writes and _same(action, trace, accepted=True) is not None


def _sent(trace: Trace, to: str) -> list[Message]:
    return [message for message in trace.messages if message.sender == AGENT and message.to == (to,)]


def _cited(trace: Trace, texts: Sequence[str], after: int, specialists: bool = False) -> int | None:
    """Return the first turn after another in which the agent used one of some texts."""
    return _first(
        message.step for message in trace.messages
        if message.sender == AGENT and message.step > after and any(text in message.text for text in texts)
        and not (specialists and message.to == (USER,))
    )  # fmt: skip


def _first(turns: Iterator[int]) -> int | None:
    return next(turns, None)
