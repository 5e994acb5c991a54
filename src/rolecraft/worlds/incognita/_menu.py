"""Fixed messages for agents that choose instead of writing: whom to ask for what, filled in from what was said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rolecraft.worlds._messages import Message
from rolecraft.worlds.incognita._people import SPECIALISTS, TOPICS, USER
from rolecraft.worlds.incognita._retail import ADDRESS
from rolecraft.worlds.incognita._words import (
    CUSTOMER,
    EMAIL,
    ITEM,
    ORDER,
    PAYMENT,
    in_words,
    read_place,
)

FINISH = f"{USER}: finish"
CONFIRM = f"{USER}: confirm"
_ERRANDS: Mapping[str, str] = {
    "what do you handle": "", "identify": "find_user_id_by_email", "account": "get_user_details",
    "order": "get_order_details", "product": "get_product_details", "cancel": "cancel_pending_order",
    "return": "return_delivered_order_items", "exchange": "exchange_delivered_order_items",
    "change items": "modify_pending_order_items", "change payment": "modify_pending_order_payment",
    "change order address": "modify_pending_order_address", "change saved address": "modify_user_address",
}  # fmt: skip
MENU: tuple[str, ...] = (
    *(f"{USER}: {topic}" for topic in TOPICS), CONFIRM, FINISH,
    *(f"{name}: {errand}" for name in SPECIALISTS for errand in _ERRANDS),
)  # fmt: skip
"""Every action of the menu: 10 topics, consent and the end, and 12 errands for each specialist."""


def composed(action: str, log: Sequence[Message]) -> tuple[str, str, bool]:
    """Return recipient, text and whether it is final, of an action of the menu.

    Args:
        action: One of `MENU`.
        log: What was said to the agent and by it; the last value of each kind fills in the message.
    """
    to, _, errand = action.partition(": ")
    heard = [message.text for message in log if message.sender != "agent"]
    if action == FINISH:
        return USER, "Finished. " + " ".join(heard[1:]), True
    if action == CONFIRM:
        waiting = [text for text in heard if text.startswith("I can ")]
        return USER, "Do you confirm this? " + (waiting[-1] if waiting else ""), False
    if to == USER:
        return USER, f"Please tell me: {errand}.", False
    op = _ERRANDS[errand]
    return to, f"Please {_filled(op, heard)}." if op else "What do you handle?", False


def _filled(op: str, heard: Sequence[str]) -> str:
    """Return the phrase of an operation, with the last value of each kind that was heard."""
    text = "\n".join(heard)
    values: dict[str, Any] = {
        "email": _last(EMAIL.findall(text)), "user_id": _last(CUSTOMER.findall(text)),
        "order_id": _last(ORDER.findall(text)), "payment_method_id": _last(PAYMENT.findall(text)),
        "reason": _told(text, "reason"), "product_id": f"{_told(text, 'item')}, {_told(text, 'options')}",
        **(read_place(text) or dict.fromkeys(ADDRESS, "")),
    }  # fmt: skip
    name = _told(text, "name").split()
    if op == "find_user_id_by_email" and not values["email"] and len(name) == 2:
        op = "find_user_id_by_name_zip"
        values |= {"first_name": name[0], "last_name": name[1], "zip": _told(text, "zip")}
    old, new = ITEM.findall("\n".join(each for each in heard if "Items: " in each)), ITEM.findall(text)
    items = {"item_ids": old[-1:], "new_item_ids": new[-1:]}
    return in_words(op, {**values, **items})


def _told(text: str, field: str) -> str:
    """Return the last value of one of the customer's fields."""
    lines = [line.partition(": ") for line in text.splitlines()]
    return next((value for name, _, value in reversed(lines) if name.removeprefix("second ") == field), "")


def _last(found: Sequence[str]) -> str:
    return found[-1] if found else ""
