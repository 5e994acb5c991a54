"""Whom the agent meets in Incognita: a customer who answers what is asked, and six specialists, all by rules."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rolecraft.worlds.incognita._retail import RETAIL_OPERATIONS, UNCONFIRMED, Retail, money
from rolecraft.worlds.incognita._words import RetailCall, in_words, place_in_words, read_calls, says

if TYPE_CHECKING:
    from rolecraft.worlds.incognita._cards import TaskCard

USER = "USER"
SPECIALISTS = ("Aster", "Boreal", "Cygnus", "Dorian", "Elara", "Fenn")
"""Names that say nothing."""
REMITS: Mapping[str, str] = {
    "account": "I look after customer accounts: the orders of a customer, the ways to pay, the saved address.",
    "returns": "I handle the return and the exchange of delivered items.",
    "catalog": "I keep the catalog: products, their variants with options, availability and prices.",
    "records": "I keep the order records: the status of an order, its items and its payment.",
    "identity": "I identify customers: I look up the customer id by email, or by name and zip.",
    "pending": "I change orders that are still pending: I cancel them and change items, address or payment.",
}  # fmt: skip
"""Role to what its holder says of it; in the order of `SPECIALISTS`, as the paper lists both."""
WHITELIST: Mapping[str, tuple[str, ...]] = {
    "account": ("get_user_details", "modify_user_address"),
    "returns": ("return_delivered_order_items", "exchange_delivered_order_items"),
    "catalog": ("list_all_product_types", "get_product_details"),
    "records": ("get_order_details",),
    "identity": ("find_user_id_by_email", "find_user_id_by_name_zip"),
    "pending": (
        "cancel_pending_order", "modify_pending_order_address", "modify_pending_order_items",
        "modify_pending_order_payment",
    ),
}  # fmt: skip
"""Role to the operations that it alone may propose."""
HOLDERS: Mapping[str, str] = {op: role for role, ops in WHITELIST.items() for op in ops}
"""Operation to role."""
TOPICS: Mapping[str, tuple[str, ...]] = {
    "request": ("need", "want", "wish", "request", "problem", "do for you"),
    "email": ("email", "e-mail"),
    "name": ("name",),
    "zip": ("zip", "postcode"),
    "order": ("order",),
    "item": ("item", "product", "article"),
    "options": ("option", "variant"),
    "payment": ("payment", "pay", "refund"),
    "address": ("address",),
    "reason": ("reason", "why"),
}
"""Topics of what a customer knows, and the words that ask for them."""
OUTSIDE = "That is outside my remit."
ROUTED = "Whomever of the six you write to, your message is passed on to the one whom it concerns."
_ORDERS_WRITE = re.compile(r"(?:^|\bplease |[.!] )(?:cancel|change|exchange|modify|return|update)\b", re.I)
"""A message that orders a change, which whoever only reads refuses, though it names an order to read."""
_ASKS_REMIT = re.compile(r"\b(?:what|which|do you|can you|your)\b.*\b(?:handle|remit|help|do|responsible|role)\b", re.I)


def asked_topics(message: str) -> list[str]:
    """Return the topics that a message to the customer asks for."""
    return [topic for topic, words in TOPICS.items() if says(message, *words)]


def customer_reply(card: TaskCard, opened: Collection[str], message: str, quota: int) -> tuple[str, tuple[str, ...]]:
    """Answer a question by the disclosure gate.

    A locked field opens when the message asks for its topic, at most `quota` a turn in the order of the card; what is
    open already is said again.

    Returns:
        The reply, which holds values of open fields alone, and the names of the fields that it opens.
    """
    topics = asked_topics(message)
    if not topics:
        return "What would you like to know?", ()
    lines: list[str] = []
    opens: list[str] = []
    more: list[str] = []
    for field in card.fields:
        if field.topic not in topics:
            continue
        if field.locked and field.name not in opened:
            if len(opens) >= quota:
                more = ["There is more; please ask again."]
                break
            opens.append(field.name)
        lines.append(f"{field.name}: {field.value}")
    known = {field.topic for field in card.fields}
    lines += [f"{topic}: I cannot say." for topic in topics if topic not in known]
    return "\n".join(lines + more), tuple(opens)


def asks_to_confirm(message: str) -> bool:
    """Return whether a message to the customer asks for consent."""
    return says(message, "confirm", "agree", "consent")


def agrees(card: TaskCard, opened: Collection[str], op: str, args: Mapping[str, Any]) -> bool:
    """Return whether the customer agrees to an operation.

    It must be one that the customer came for, and must not contradict what the customer has said; details that nobody
    asked for pass unnoticed.
    """
    said = {field.name for field in card.fields if field.name in opened or not field.locked}
    for gold in card.solutions:
        for action in gold:
            if action.op == op and all(
                args.get(name) == action.args[name] for name, field in action.said_by.items() if field in said
            ):
                return True
    return False


def specialist_reply(
    role: str, message: str, shop: Retail, confirmed: Callable[[RetailCall], bool], by: str, products: Mapping[str, str]
) -> str:
    """Answer within a remit, and propose the operations that the message calls for.

    Args:
        role: A key of `WHITELIST`.
        message: What the agent wrote; nothing else of the episode is known here.
        shop: Where operations are proposed.
        confirmed: Whether the customer agreed to an operation.
        by: Name on the receipts.
        products: Name to id.
    """
    if role == "catalog":
        message = _with_ids(message, products)
    calls = read_calls(message, WHITELIST[role])
    if not calls or (_ORDERS_WRITE.search(message) and not RETAIL_OPERATIONS[calls[0].op].writes):
        return REMITS[role] if _ASKS_REMIT.search(message) else OUTSIDE
    return "\n".join(_carry_out(role, call, message, shop, confirmed(call), by) for call in calls)


def _with_ids(message: str, products: Mapping[str, str]) -> str:
    """Put a product's id beside its name."""
    for name in sorted(products, key=len, reverse=True):
        if re.search(rf"\b{re.escape(name)}s?\b", message, re.IGNORECASE):
            return f"{message} ({products[name]})"
    return message


def _carry_out(role: str, call: RetailCall, message: str, shop: Retail, confirmed: bool, by: str) -> str:
    if call.missing:
        return f"For that I need: {', '.join(name.replace('_', ' ') for name in call.missing)}."
    found = shop.propose(call.op, call.args, by=by, allowed=WHITELIST[role], confirmed=confirmed)
    receipt = shop.receipts[-1]
    if receipt.accepted:
        writes = RETAIL_OPERATIONS[call.op].writes
        return f"Done: {in_words(call.op, call.args)}." if writes else _NARRATED[role](found, message)
    if receipt.reason == UNCONFIRMED:
        return f"I can {in_words(call.op, call.args)}. The customer must confirm it first."
    return f"Not done: {receipt.reason}."


def _tell_account(user: Mapping[str, Any], message: str) -> str:
    parts = []
    if says(message, "order"):
        parts.append(f"Orders: {', '.join(user['orders'])}.")
    if says(message, "pay", "payment", "gift card"):
        parts.append(f"Ways to pay: {', '.join(map(_means, user['payment_methods'].values()))}.")
    if says(message, "address"):
        parts.append(f"Saved address: {place_in_words(user['address'])}.")
    return " ".join(parts) or f"The customer has {len(user['orders'])} orders. What of the account do you ask for?"


def _means(means: Mapping[str, Any]) -> str:
    balance = f" (balance {money(means['balance'])})" if means["source"] == "gift_card" else ""
    return f"{means['id']}{balance}"


def _tell_order(order: Mapping[str, Any], message: str) -> str:
    parts = [f"Order {order['order_id']} is {order['status']}."]
    if says(message, "item", "product"):
        parts.append(f"Items: {'; '.join(map(_line, order['items']))}.")
    if says(message, "pay", "payment", "paid"):
        paid = order["payment_history"][0]
        parts.append(f"Paid: {money(paid['amount'])} with {paid['payment_method_id']}.")
    return " ".join(parts)


def _line(item: Mapping[str, Any]) -> str:
    return f"{item['name']} {item['item_id']} ({_options(item['options'])}) at {money(item['price'])}"


def _options(options: Mapping[str, str]) -> str:
    return ", ".join(f"{axis} {value}" for axis, value in options.items())


def _tell_product(found: Mapping[str, Any], message: str) -> str:
    if "variants" not in found:
        return f"Products: {', '.join(found)}."
    variants: Sequence[Mapping[str, Any]] = list(found["variants"].values())
    named = [one for one in variants if all(says(message, f"{a} {v}") for a, v in one["options"].items())]
    if named:
        one = named[0]
        state = "available" if one["available"] else "not available"
        return f"{found['name']} ({_options(one['options'])}): item {one['item_id']} at {money(one['price'])}, {state}."
    open_ = sum(one["available"] for one in variants)
    prices = sorted(one["price"] for one in variants)
    return (
        f"{found['name']}: {len(variants)} variants, {open_} of them available, {money(prices[0])} to "
        f"{money(prices[-1])}. Which options?"
    )


_NARRATED: Mapping[str, Callable[[Any, str], str]] = {
    "account": _tell_account,
    "catalog": _tell_product,
    "records": _tell_order,
    "identity": lambda found, message: f"The customer id is {found}.",
}
