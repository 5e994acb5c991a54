"""Incognita: a customer's request, six specialists whose remits are unknown, and a state that only they can change."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.errors import IllegalActionError, UserError
from rolecraft.worlds._messages import Message, MessageLog, one_line_per_message, read_object, read_recipients
from rolecraft.worlds._world import World
from rolecraft.worlds.incognita._cards import TaskCard, gold_states
from rolecraft.worlds.incognita._lineage import AGENT, Trace, lineage
from rolecraft.worlds.incognita._menu import MENU, composed
from rolecraft.worlds.incognita._people import (
    REMITS,
    ROUTED,
    SPECIALISTS,
    USER,
    WHITELIST,
    agrees,
    asks_to_confirm,
    customer_reply,
    specialist_reply,
)
from rolecraft.worlds.incognita._retail import (
    RETAIL_OPERATIONS,
    UNCONFIRMED,
    Retail,
    RetailData,
    RetailReceipt,
    retail_hash,
)
from rolecraft.worlds.incognita._tasks import make_task_cards, shop_data, shop_hash
from rolecraft.worlds.incognita._words import RetailCall, read_calls

Control = Literal["direct", "disclosed", "hidden", "routed"]
"""C0: the agent has all operations, the policy and the goal; C1: it is told who does what; C2: it is told names alone,
the paper's setting; C3: whomever it writes to, the message reaches the specialist whom it concerns."""
WASTED = "(a turn was wasted)"
POLICY = (
    "Look the customer up before anything else, by email or by name and zip. Cancel and change pending orders only; "
    "return and exchange items of delivered orders only, once an order. A refund of a return goes to the original "
    "payment method or a gift card. A new item is an available variant of the same product."
)


class Incognita(World):
    """One agent, a customer and six specialists (arXiv 2607.02975).

    Each turn the agent writes to one participant, as JSON `{"to": name, "message": text}`, and gets the reply;
    `"final": true` in a message to USER ends the episode. A specialist knows its own dialogue alone and proposes
    operations of its remit; what the policy admits changes the database, and every proposal leaves a receipt. The
    customer tells what is asked for. The reward is 1 if the final database is the one that the reference solution
    leaves, and all that the customer wanted to know was said to it; else 0.

    Args:
        task: Number of a task; None draws one by the seed of the episode.
        tasks: Seed of the generated database and its 36 tasks.
        cards: Tasks instead of the generated ones.
        data: Their database; needed with `cards` of a database that is not generated.
        control: See `Control`.
        turns: Most turns.
        quota: Most fields that the customer discloses a turn.
        menu: Choose among fixed messages instead of writing them, so that `actions` is not None.
        shuffle: Deal the remits to the names by the seed, so that names tell nothing over many tasks either.

    Raises:
        UserError: If there is no such task or control, or a number is out of range.
    """

    name = "incognita"
    agents = (AGENT,)

    def __init__(
        self, task: int | None = None, *, tasks: int = 0, cards: Sequence[TaskCard] | None = None,
        data: RetailData | None = None, control: Control = "hidden", turns: int = 20, quota: int = 2,
        menu: bool = False, shuffle: bool = False,
    ) -> None:  # fmt: skip
        if control not in get_args(Control):
            raise UserError(f"control must be one of {', '.join(get_args(Control))}, got {control!r}.")
        if turns < 1 or quota < 1:
            raise UserError(f"turns and quota must be at least 1, got {turns} and {quota}.")
        if menu and control == "direct":
            raise UserError("the direct control takes tool calls, for which there is no menu; leave menu out.")
        self.cards = tuple(cards) if cards is not None else make_task_cards(tasks)
        if not self.cards or (task is not None and not 0 <= task < len(self.cards)):
            raise UserError(f"task must be 0 to {len(self.cards) - 1}, got {task}.")
        self._task, self._given = task, data
        self.control, self.turns, self.quota, self.shuffle = control, turns, quota, shuffle
        self.actions = MENU if menu else None
        self.reset(0)

    def reset(self, seed: int) -> None:
        """Start a task on a fresh copy of its database."""
        rng = np.random.default_rng(derive_seed("incognita", seed))
        drawn = int(rng.integers(len(self.cards)))
        self.card = self.cards[drawn if self._task is None else self._task]
        roles = list(WHITELIST)
        order = rng.permutation(len(roles)) if self.shuffle else range(len(roles))
        self.roles: dict[str, str] = {name: roles[place] for name, place in zip(SPECIALISTS, order, strict=True)}
        self._data = self._given if self._given is not None else shop_data(self.card.snapshot)
        self._start = shop_hash(self.card.snapshot) if self._given is None else retail_hash(self._data)
        self.shop = Retail(self._data, start=self._start)
        self._products = {product["name"]: name for name, product in self._data["products"].items()}
        self._log = MessageLog([Message(-1, USER, "Hello, can you help me?", (AGENT,))])
        self._opened: dict[str, int] = {}
        self._confirmed: list[dict[str, Any]] = []
        self._stamps: list[int] = []
        self._turn, self._wasted, self._final = 0, 0, False
        self._gold: tuple[str, ...] | None = None

    @property
    def acting(self) -> tuple[str, ...]:
        """The agent, until it has finished or its turns are used up."""
        return () if self._final or self._turn >= self.turns else self.agents

    @property
    def receipts(self) -> tuple[RetailReceipt, ...]:
        """What became of every operation that was proposed."""
        return tuple(self.shop.receipts)

    @property
    def opened(self) -> tuple[str, ...]:
        """The customer's fields that were told so far."""
        return tuple(self._opened)

    def observe(self, agent: str) -> str:
        """Return whom the agent can write to, how, and its dialogues so far."""
        return "\n".join([
            f"You are the agent. Resolve the user's request. You can write to {USER} and to {', '.join(SPECIALISTS)}, "
            "to one of them a turn, and each answers you alone.",
            *self._disclosed(),
            self._format(),
            "\nSo far:",
            one_line_per_message(self._log),
            f"\nTurn {min(self._turn + 1, self.turns)} of {self.turns}.",
        ])  # fmt: skip

    def _disclosed(self) -> list[str]:
        """Return what a control tells beyond the names."""
        if self.control == "disclosed":
            return [f"{name}: {REMITS[role]}" for name, role in self.roles.items()]
        if self.control == "routed":
            return [ROUTED]
        if self.control == "direct":
            tools = [f"- {op}({', '.join(spec.takes)})" for op, spec in RETAIL_OPERATIONS.items()]
            return ["Policy: " + POLICY, "Tools:", *tools, "What the user wants and knows:", self.card.goal()]
        return []

    def _format(self) -> str:
        if self.actions is not None:
            return "Answer with one of the actions."
        shape = 'Answer with one JSON object: {"to": name, "message": text}. To finish: {"to": "USER", "message": '
        tool = ' To use a tool: {"tool": name, "args": {...}}.' if self.control == "direct" else ""
        return shape + 'text, "final": true}, which says to the user what was done.' + tool

    def legal(self, agent: str) -> tuple[str, ...] | None:
        """Return the menu, or None for JSON."""
        return self.actions if self.acting else ()

    def check(self, agent: str, action: str) -> None:
        """Refuse what is no message to somebody who is there; silence wastes a turn.

        Raises:
            IllegalActionError: Saying what is wrong.
        """
        super().check(agent, action)
        if self.actions is None and action.strip():
            self._read(action)

    def _read(self, action: str) -> tuple[str, str, bool]:
        """Return recipient, text and whether it is final; a tool call is a message to the operation itself."""
        found = read_object(action)
        if self.control == "direct" and "tool" in found:
            if found["tool"] not in RETAIL_OPERATIONS or not isinstance(found.get("args"), dict):
                raise IllegalActionError(f"expected a tool of the list and its args as an object, got {action[:60]!r}.")
            return str(found["tool"]), json.dumps(found["args"], sort_keys=True), False
        to = read_recipients(found.get("to"), AGENT, (AGENT, USER, *SPECIALISTS))
        text, final = found.get("message"), found.get("final", False)
        if len(to) != 1 or not isinstance(text, str) or not text.strip() or not isinstance(final, bool):
            raise IllegalActionError(
                'expected {"to": one name, "message": text} and perhaps "final": true or false; got '
                f"{action.strip()[:60]!r}."
            )
        if final and to != (USER,):
            raise IllegalActionError(f"a final message goes to {USER}, not to {to[0]}.")
        return to[0], text.strip(), final

    def _apply(self, actions: Mapping[str, str]) -> None:
        action = actions[AGENT].strip()
        if not action:
            self._wasted += 1
            self._log.append(Message(self._turn, AGENT, WASTED, (AGENT,), kind="wasted"))
        else:
            to, text, final = self._read(action) if self.actions is None else composed(action, self._log)
            self._log.append(Message(self._turn, AGENT, text, (to,)))
            self._final = final
            if not final:
                self._log.append(Message(self._turn, to, self._reply(to, text), (AGENT,)))
        self._stamps += [self._turn] * (len(self.shop.receipts) - len(self._stamps))
        self._turn += 1

    def _reply(self, to: str, text: str) -> str:
        if to == USER:
            return self._ask_to_confirm(text) if asks_to_confirm(text) else self._ask_user(text)
        if to in RETAIL_OPERATIONS:
            found = self.shop.propose(to, json.loads(text), by=AGENT)
            receipt = self.shop.receipts[-1]
            return json.dumps(found) if receipt.accepted else f"Not done: {receipt.reason}."
        to = self._concerned(text, to) if self.control == "routed" else to
        return specialist_reply(self.roles[to], text, self.shop, self._is_confirmed, to, self._products)

    def _ask_user(self, text: str) -> str:
        reply, opens = customer_reply(self.card, self._opened, text, self.quota)
        self._opened |= dict.fromkeys(opens, self._turn)
        return reply

    def _ask_to_confirm(self, text: str) -> str:
        """Let the customer agree to the last proposal that waits for it, if the message states it in full."""
        for receipt in reversed(self.shop.receipts):
            if receipt.reason == UNCONFIRMED and _states(text, receipt.args):
                if not agrees(self.card, self._opened, receipt.op, receipt.args):
                    return "No, that is not what I asked for."
                self._confirmed.append({"op": receipt.op, "args": dict(receipt.args)})
                return "Yes, please go ahead."
        return "I do not know what I would agree to; please say in full what you are going to do."

    def _is_confirmed(self, call: RetailCall) -> bool:
        return {"op": call.op, "args": dict(call.args)} in self._confirmed

    def _concerned(self, text: str, to: str) -> str:
        """Return the specialist whose operations a message calls for; the addressee if it calls for nobody's."""
        names = [to, *(name for name in SPECIALISTS if name != to)]
        named = f"{text} {' '.join(self._products[name] for name in self._products if name.lower() in text.lower())}"
        calls = {name: read_calls(named, WHITELIST[self.roles[name]]) for name in names}
        full = [name for name in names if calls[name] and not calls[name][0].missing]
        return max(full, key=lambda name: _weight(calls[name][0])) if full else to

    def state(self) -> Mapping[str, Any]:
        """Return the task, who holds which remit, all that was said and proposed, and the database's hash."""
        return {
            "task": self.card.task_id, "snapshot": self.card.snapshot, "control": self.control, "roles": self.roles,
            "turn": self._turn, "final": self._final, "wasted": self._wasted, "messages": self._log.rows(),
            "opened": self._opened, "confirmed": self._confirmed, "customer": self.shop.user,
            "receipts": [vars(receipt) for receipt in self.shop.receipts], "database": self.shop.hash,
        }  # fmt: skip

    @property
    def solved(self) -> bool:
        """Whether the database is as a solution leaves it, and the customer was told all that it wanted to know."""
        said = [message.text for message in self._log if message.sender == AGENT and message.to == (USER,)]
        return all(any(text in each for each in said) for text in self.card.outputs) and self.state_reached

    @property
    def state_reached(self) -> bool:
        """Whether the database is as a solution leaves it."""
        self._gold = self._gold or gold_states(self._data, self.card, self._start)
        return self.shop.hash in self._gold

    def rewards(self) -> Mapping[str, float]:
        """Return 1 if the agent has finished and solved the task, else 0."""
        return {AGENT: float(self._final and self.solved)}

    def outcome(self) -> Mapping[str, Any]:
        """Return what the measures of `rolecraft.measures.process_score` read."""
        if self.acting:
            return {}
        heard = [message.text for message in self._log if message.sender not in (AGENT, USER)]
        trace = Trace(self._log, self._opened, list(zip(self._stamps, self.shop.receipts, strict=True)), self.roles)
        contacts = [m.to[0] for m in self._log if m.sender == AGENT and m.to and m.to[0] in self.roles]
        return {
            "task": self.card.task_id, "breadth": self.card.breadth, "writes": self.card.writes,
            "arguments": self.card.arguments, "turns": self._turn, "wasted": self._wasted,
            "success": self._final and self.solved, "final": self._final, "state_reached": self.state_reached,
            "outputs_known": all(any(text in each for each in heard) for text in self.card.outputs),
            "locked": sum(field.locked for field in self.card.fields), "opened": len(self._opened),
            "contacts": contacts, "needed": [n for n, role in self.roles.items() if role in self.card.holders],
            "receipts": [vars(receipt) for receipt in self.shop.receipts], "lineage": lineage(self.card, trace),
        }  # fmt: skip


def _states(text: str, args: Mapping[str, Any]) -> bool:
    """Return whether a text holds every value of some arguments."""
    values = [item for value in args.values() for item in (value if isinstance(value, list) else [value])]
    return all(str(value) in text for value in values)


def _weight(call: RetailCall) -> tuple[bool, int]:
    """Rank calls of several specialists for one message: a write before a read, more arguments before fewer."""
    return RETAIL_OPERATIONS[call.op].writes, len(call.args)
