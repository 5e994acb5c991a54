"""Retail operations in words: how one is asked for, and how a message that asks for one is read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rolecraft.worlds.incognita._retail import ADDRESS, REASONS, RETAIL_OPERATIONS

ORDER = re.compile(r"#W\d{7}")
ITEM = re.compile(r"(?<![\d_])\d{10}(?!\d)")
PAYMENT = re.compile(r"\b(?:credit_card|paypal|gift_card)_\d{7}\b")
CUSTOMER = re.compile(r"\b[a-z]+_[a-z]+_\d{4}\b")
EMAIL = re.compile(r"[\w.+-]+@[\w-]+\.[\w.]*\w")
_PAIR = re.compile(r"(?<![\d_])(\d{10})\s*(?:to|for|by|with|->)\s*(?:item\s*)?(\d{10})(?!\d)", re.IGNORECASE)
_PLACE = re.compile(
    r"(?<![\w#])(\d{1,5} [A-Za-z][A-Za-z .'-]*), ([\w .#'-]+?), ([A-Za-z .'-]+?), ([A-Z]{2}), (USA|Canada), (\d{5})\b"
)
_NAMED = re.compile(r"\b(?:named|name:?|name is)\s+([A-Z][\w'-]+)\s+([A-Z][\w'-]+)")
_ZIP = re.compile(r"\bzip(?: code)?:?(?: is)?\s*(\d{5})\b", re.IGNORECASE)

PHRASES: Mapping[str, str] = {
    "find_user_id_by_email": "look up the customer with email {email}",
    "find_user_id_by_name_zip": "look up the customer named {first_name} {last_name}, zip {zip}",
    "get_user_details": "tell me the orders, the ways to pay and the address of customer {user_id}",
    "modify_user_address": "change the saved address of {user_id} to {place}",
    "get_order_details": "tell me the status, the items and the payment of order {order_id}",
    "list_all_product_types": "list all products",
    "get_product_details": "tell me about product {product_id}",
    "return_delivered_order_items": "return from order {order_id}: {items}, refund to {payment_method_id}",
    "exchange_delivered_order_items": "exchange in order {order_id}: {pairs}, difference by {payment_method_id}",
    "cancel_pending_order": "cancel order {order_id}, reason: {reason}",
    "modify_pending_order_address": "change the address of order {order_id} to {place}",
    "modify_pending_order_items": "change items of order {order_id}: {pairs}, difference by {payment_method_id}",
    "modify_pending_order_payment": "change the payment of order {order_id} to {payment_method_id}",
}


@dataclass(frozen=True)
class RetailCall:
    """An operation that a message asks for."""

    op: str
    args: Mapping[str, Any]
    missing: tuple[str, ...] = ()
    """Arguments that the message does not give."""


def in_words(op: str, args: Mapping[str, Any]) -> str:
    """Return an operation as a phrase that `read_calls` reads back."""
    pairs = zip(args.get("item_ids", ()), args.get("new_item_ids", ()), strict=False)
    return PHRASES[op].format(
        **args, place=place_in_words(args), items=", ".join(args.get("item_ids", ())),
        pairs=", ".join(f"{old} to {new}" for old, new in pairs),
    )  # fmt: skip


def place_in_words(address: Mapping[str, Any]) -> str:
    """Return an address in one line; it must have all six parts to be read back."""
    return ", ".join(str(address[name]) for name in ADDRESS if name in address)


def read_place(text: str) -> dict[str, str]:
    """Return the last address in a text; empty if there is none."""
    found = list(_PLACE.finditer(text))
    return dict(zip(ADDRESS, found[-1].groups(), strict=True)) if found else {}


def read_calls(text: str, allowed: Sequence[str]) -> list[RetailCall]:
    """Return the operations that a message asks for, of those that its reader knows.

    A reader takes the first of its operations that the words call for; of reads of orders it takes one for each order.

    Args:
        text: Of a message.
        allowed: Names of operations.
    """
    op = next((name for name in _CALLED if name in allowed and _CALLED[name](text)), None)
    if op is None:
        return []
    if op == "get_order_details":
        return [RetailCall(op, {"order_id": found}) for found in dict.fromkeys(ORDER.findall(text))]
    args = _arguments(op, text)
    missing = tuple(name for name in RETAIL_OPERATIONS[op].takes if not args.get(name))
    return [RetailCall(op, args, missing)]


def _arguments(op: str, text: str) -> dict[str, Any]:
    """Return what a message gives of an operation's arguments."""
    pairs = _PAIR.findall(text)
    named = _NAMED.search(text)
    items = [old for old, _ in pairs] if pairs else list(dict.fromkeys(ITEM.findall(text)))
    given: dict[str, Any] = {
        "email": _first(EMAIL.findall(text)), "zip": _first(_ZIP.findall(text)),
        "first_name": named and named[1], "last_name": named and named[2],
        "user_id": _first(CUSTOMER.findall(text)), "order_id": _first(ORDER.findall(text)),
        "payment_method_id": _first(PAYMENT.findall(text)), "item_ids": items,
        "new_item_ids": [new for _, new in pairs], "product_id": _first(ITEM.findall(text)),
        "reason": next((reason for reason in REASONS if reason in text.lower()), None),
    }  # fmt: skip
    if "address1" in RETAIL_OPERATIONS[op].takes:
        given |= dict.fromkeys(ADDRESS) | read_place(text)
    return {name: given[name] for name in RETAIL_OPERATIONS[op].takes if given[name]}


def _first(found: Sequence[str]) -> str | None:
    return found[0] if found else None


def says(text: str, *words: str) -> bool:
    """Return whether a text holds one of some words, also with an `s` behind it, in whatever case."""
    return bool(re.search(rf"\b(?:{'|'.join(map(re.escape, words))})s?\b", text, re.IGNORECASE))


_CHANGE = ("change", "update", "modify", "set")
_CALLED = {
    "find_user_id_by_name_zip": lambda text: bool(_NAMED.search(text)) and not EMAIL.search(text),
    "find_user_id_by_email": lambda text: bool(EMAIL.search(text)) or says(text, "look up", "email", "e-mail"),
    "modify_user_address": lambda text: says(text, *_CHANGE) and says(text, "address") and not ORDER.search(text),
    "get_user_details": lambda text: bool(CUSTOMER.search(text)) or says(text, "way to pay", "ways to pay", "account"),
    "get_order_details": lambda text: bool(ORDER.search(text)),
    "get_product_details": lambda text: bool(ITEM.search(text)),
    "list_all_product_types": lambda text: says(text, "product") and says(text, "all", "list", "which"),
    "return_delivered_order_items": lambda text: says(text, "return", "refund") and not says(text, "exchange"),
    "exchange_delivered_order_items": lambda text: says(text, "exchange"),
    "cancel_pending_order": lambda text: says(text, "cancel"),
    "modify_pending_order_items": lambda text: (
        says(text, "change item") or (bool(_PAIR.search(text)) and not says(text, "exchange"))
    ),
    "modify_pending_order_payment": lambda text: says(text, *_CHANGE) and says(text, "payment", "pay"),
    "modify_pending_order_address": lambda text: says(text, *_CHANGE) and says(text, "address"),
}
"""Which words call for an operation; tried in this order."""
