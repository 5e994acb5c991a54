"""What an agent in Incognita can gather from its own observation: its dialogues, and what they say."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rolecraft.worlds.incognita import ORDER, OUTSIDE, PHRASES, ROUTED, USER, asked_topics, asks_to_confirm, money

_SAID = re.compile(r"^\[([\w-]+) to ([\w-]+)\](?: \(\w+\))? (.*(?:\n    .*)*)", re.MULTILINE)
_FIELD = re.compile(
    r"^\s*((?:second )?(?:request|email|name|zip|order|item|options|payment|address|reason)): (.*)$", re.M
)
_CUSTOMER = re.compile(r"^The customer id is ([\w-]+)\.")
_ORDER = re.compile(
    r"Order (#W\d{7}) is ([^.]+)\.(?: Items: (.*?)\.(?= Paid|$))?(?: Paid: ([\d.]+) with (\w+)\.)?", re.M
)
_LINE = re.compile(r"([^;]+?) (\d{10}) \(([^)]*)\) at [\d.]+")
_VARIANT = re.compile(r"^(.+?) \(([^)]*)\): item (\d{10}) at ([\d.]+), (available|not available)\.")
_WAITING = re.compile(r"^I can (.*)\. The customer must confirm it first\.$", re.M)
_DONE = re.compile(r"^Done: (.*)\.$", re.M)
_MORE = "There is more"
CONFIRM = "Do you confirm this: {}?"


class Said(NamedTuple):
    """One message to or from the agent."""

    sender: str
    to: str
    text: str


@dataclass
class KnownOrder:
    """What was told of an order."""

    status: str
    items: list[tuple[str, str]] = field(default_factory=list)
    """Product name and item id of each line."""
    amount: str = ""
    paid_with: str = ""


@dataclass
class Facts:
    """The agent's knowledge, each time read anew from what it sees."""

    talk: list[Said] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)
    """What the customer told."""
    unknown: set[str] = field(default_factory=set)
    """Topics that were asked for and on which the customer has nothing more to say."""
    remits: dict[str, str] = field(default_factory=dict)
    """Specialist to what it said of itself, or what the observation says of it."""
    routed: bool = False
    """Whomever it is sent to, a message reaches the one whom it concerns."""
    user_id: str = ""
    orders: list[str] = field(default_factory=list)
    gift_card: str = ""
    details: dict[str, KnownOrder] = field(default_factory=dict)
    variants: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    """Product and options to item id and price."""
    products: dict[str, str] = field(default_factory=dict)
    """Name to id; told by a tool alone."""
    waiting: set[str] = field(default_factory=set)
    """Writes, in words, that wait for the customer's consent."""
    confirmed: set[str] = field(default_factory=set)
    done: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    """Writes, in words, to which the customer said no."""

    @property
    def specialists(self) -> dict[str, list[tuple[str, str]]]:
        """Name to (what was asked, what it answered)."""
        found: dict[str, list[tuple[str, str]]] = {}
        for said, reply in self.exchanges():
            if said.to != USER:
                found.setdefault(said.to, []).append((said.text, reply))
        return found

    def exchanges(self) -> list[tuple[Said, str]]:
        """Return every message of the agent with the answer to it."""
        return [
            (said, answer.text)
            for said, answer in zip(self.talk, self.talk[1:], strict=False)
            if said.sender == "agent" and answer.sender == said.to
        ]

    def outside(self, op: str) -> set[str]:
        """Return who has refused an operation as outside its remit."""
        asked = PHRASES[op].partition("{")[0]
        return {said.to for said, answer in self.exchanges() if asked in said.text and answer == OUTSIDE}

    def helped(self, op: str) -> str | None:
        """Return who last took up an operation that it was asked for, if anyone did."""
        asked = PHRASES[op].partition("{")[0]
        heard = [(said, answer) for said, answer in self.exchanges() if said.to != USER and answer != OUTSIDE]
        found = [said.to for said, _ in heard if asked in said.text]
        return found[-1] if found else None

    def answered(self, text: str) -> int:
        """Return how often a message was answered by someone in whose remit it is."""
        return sum(said.text == text and answer != OUTSIDE for said, answer in self.exchanges())


def read_facts(observation: str) -> Facts:
    """Gather what an observation of `Incognita` tells."""
    head, _, talk = observation.partition("\nSo far:\n")
    facts = Facts()
    if "What the user wants and knows:" in head:
        facts.fields.update((name, value) for name, value in _FIELD.findall(head))
        facts.unknown = {"request", "email", "name", "zip", "order", "item", "options", "payment", "address", "reason"}
    facts.routed = ROUTED in head
    facts.remits.update(re.findall(r"^(\w+): (I .*)$", head, re.MULTILINE))
    facts.talk = [Said(sender, to, text.replace("\n    ", "\n")) for sender, to, text in _SAID.findall(talk)]
    for said, answer in facts.exchanges():
        if said.to == USER:
            _hear_user(facts, said.text, answer)
        elif said.to in PHRASES:
            _read_result(facts, said, answer)
        else:
            _hear_specialist(facts, said.to, answer)
    return facts


def _hear_user(facts: Facts, asked: str, answer: str) -> None:
    if asks_to_confirm(asked):
        for phrase in facts.waiting:
            if phrase in asked:
                (facts.confirmed if answer.startswith("Yes") else facts.refused).add(phrase)
        return
    told = dict(_FIELD.findall(answer))
    facts.fields.update((name, value) for name, value in told.items() if value != "I cannot say.")
    if _MORE not in answer:
        facts.unknown.update(asked_topics(asked))


def _hear_specialist(facts: Facts, name: str, answer: str) -> None:
    if answer.startswith("I ") and not answer.startswith("I can "):
        facts.remits[name] = answer
    if found := _CUSTOMER.search(answer):
        facts.user_id = found[1]
    if answer.startswith("Orders: "):
        facts.orders = ORDER.findall(answer.partition(".")[0])
    if gift := re.search(r"\bgift_card_\d{7}(?= \(balance)", answer):
        facts.gift_card = gift[0]
    for order_id, status, items, amount, paid in _ORDER.findall(answer):
        lines = [(line[0].strip(), line[1]) for line in _LINE.findall(items)]
        facts.details[order_id] = KnownOrder(status, lines, amount, paid)
    if variant := _VARIANT.search(answer):
        facts.variants[variant[1], variant[2]] = variant[3], variant[4]
    facts.waiting.update(_WAITING.findall(answer))
    facts.done.update(_DONE.findall(answer))


def _read_result(facts: Facts, said: Said, answer: str) -> None:
    """Learn from the result of a tool."""
    if answer.startswith("Not done"):
        return
    found = json.loads(answer)
    if said.to.startswith("find_user"):
        facts.user_id = str(found)
    elif said.to == "get_user_details":
        facts.orders = list(found["orders"])
        facts.gift_card = next((name for name in found["payment_methods"] if name.startswith("gift_card")), "")
    elif said.to == "get_order_details":
        paid = found["payment_history"][0]
        lines = [(line["name"], line["item_id"]) for line in found["items"]]
        facts.details[found["order_id"]] = KnownOrder(
            found["status"], lines, money(paid["amount"]), paid["payment_method_id"]
        )
    elif said.to == "list_all_product_types":
        facts.products = dict(found)
    elif said.to == "get_product_details":
        for one in found["variants"].values():
            facts.variants[found["name"], _options(one["options"])] = one["item_id"], money(one["price"])
    else:
        facts.done.add(f"{said.to} {said.text}")


def _options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{axis} {value}" for axis, value in options.items())
