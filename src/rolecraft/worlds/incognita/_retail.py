"""A shop's database in the schema of tau-bench retail, and the twelve operations that its policy admits.

Facts of the schema and the policy: arXiv 2406.12045. Every proposed operation leaves a receipt; only an accepted write
changes the state. Amounts are kept as the schema has them, numbers with two decimals, and added up in whole cents.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, NamedTuple

RetailData = dict[str, dict[str, Any]]
"""`users`, `orders` and `products`, each by id, as the original JSON files hold them."""
ADDRESS = ("address1", "address2", "city", "state", "country", "zip")
REASONS = ("no longer needed", "ordered by mistake")
"""The only reasons for which a pending order is cancelled."""
UNCONFIRMED = "the customer has not confirmed it"
"""Why a write is refused that nothing else speaks against."""


class RetailOperation(NamedTuple):
    """What an operation takes, and what it does."""

    takes: Mapping[str, type]
    """Arguments by name; all are required."""
    writes: bool
    public: bool = False
    """Needs no authenticated customer."""


RETAIL_OPERATIONS: Mapping[str, RetailOperation] = {
    "find_user_id_by_email": RetailOperation({"email": str}, False, True),
    "find_user_id_by_name_zip": RetailOperation({"first_name": str, "last_name": str, "zip": str}, False, True),
    "get_user_details": RetailOperation({"user_id": str}, False),
    "modify_user_address": RetailOperation({"user_id": str} | dict.fromkeys(ADDRESS, str), True),
    "get_order_details": RetailOperation({"order_id": str}, False),
    "list_all_product_types": RetailOperation({}, False, True),
    "get_product_details": RetailOperation({"product_id": str}, False, True),
    "return_delivered_order_items": RetailOperation(
        {"order_id": str, "item_ids": list, "payment_method_id": str}, True
    ),
    "exchange_delivered_order_items": RetailOperation(
        {"order_id": str, "item_ids": list, "new_item_ids": list, "payment_method_id": str}, True
    ),
    "cancel_pending_order": RetailOperation({"order_id": str, "reason": str}, True),
    "modify_pending_order_address": RetailOperation({"order_id": str} | dict.fromkeys(ADDRESS, str), True),
    "modify_pending_order_items": RetailOperation(
        {"order_id": str, "item_ids": list, "new_item_ids": list, "payment_method_id": str}, True
    ),
    "modify_pending_order_payment": RetailOperation({"order_id": str, "payment_method_id": str}, True),
}
"""By name; the two look-ups of a customer count as one of the twelve."""


@dataclass(frozen=True)
class RetailReceipt:
    """What became of one proposed operation."""

    op: str
    args: Mapping[str, Any]
    accepted: bool
    reason: str
    """Why it was refused; empty if it was not."""
    before: str
    """Hash of the database before it."""
    after: str
    by: str = ""
    """Who proposed it."""


class _RefusedError(Exception):
    """The policy refuses an operation."""


@dataclass
class Retail:
    """A database, and how far one conversation with one customer has come in it.

    Args:
        data: Copied, so that an episode never changes the database of another.
        start: Hash of `data` if it is known, which saves working it out.
    """

    data: RetailData
    user: str | None = None
    """The customer who was identified; all other operations but public ones wait for that."""
    receipts: list[RetailReceipt] = field(default_factory=list)
    start: str = ""

    def __post_init__(self) -> None:
        self.data = json.loads(json.dumps(self.data))
        self._hash = self.start or retail_hash(self.data)

    @property
    def hash(self) -> str:
        """Hash of the database as it is now."""
        return self._hash

    def propose(
        self, op: str, args: Mapping[str, Any], *, by: str = "", allowed: Collection[str] | None = None,
        confirmed: bool = True,
    ) -> Any:  # fmt: skip
        """Carry out an operation if the policy admits it; the last of `receipts` says whether it did.

        Args:
            op: A key of `RETAIL_OPERATIONS`.
            args: Its arguments.
            by: Who proposes it.
            allowed: The operations that the proposer may use; None is all.
            confirmed: Whether the customer agreed to it; reads need no consent.

        Returns:
            What the operation reads, or the changed record; None if it was refused.
        """
        before, result, reason = self._hash, None, ""
        try:
            _check_call(op, args, allowed)
            if not RETAIL_OPERATIONS[op].public and self.user is None:
                raise _RefusedError("the customer is not authenticated; look the customer up first")
            commit = _PLANS[op](self, args)
            if RETAIL_OPERATIONS[op].writes and not confirmed:
                raise _RefusedError(UNCONFIRMED)
            result = commit()
        except _RefusedError as refusal:
            reason = str(refusal)
        if not reason and RETAIL_OPERATIONS[op].writes:
            self._hash = retail_hash(self.data)
        self.receipts.append(RetailReceipt(op, dict(args), not reason, reason, before, self._hash, by))
        return result

    def order(self, order_id: str) -> dict[str, Any]:
        """Return an order of the identified customer."""
        found: dict[str, Any] | None = self.data["orders"].get(order_id)
        if found is None:
            raise _RefusedError(f"there is no order {order_id}")
        if found["user_id"] != self.user:
            raise _RefusedError(f"order {order_id} is another customer's")
        return found

    def means(self, payment_id: str) -> dict[str, Any]:
        """Return a payment method of the identified customer."""
        found: dict[str, Any] | None = self.data["users"][self.user or ""]["payment_methods"].get(payment_id)
        if found is None:
            raise _RefusedError(f"the customer has no payment method {payment_id}")
        return found


def cents(amount: float) -> int:
    """Return an amount in whole cents; half a cent is rounded away from zero."""
    return int((Decimal(str(amount)) * 100).quantize(Decimal(1), ROUND_HALF_UP))


def money(amount: float) -> str:
    """Return an amount as people write it, such as `45.10`."""
    return f"{cents(amount) / 100:.2f}"


def retail_hash(data: Mapping[str, Any]) -> str:
    """Return the SHA-256 of a database, mappings as sorted pairs: 64 hex digits."""
    return hashlib.sha256(repr(_sorted(data)).encode()).hexdigest()


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return tuple(sorted((key, _sorted(item)) for key, item in value.items()))
    return tuple(_sorted(item) for item in value) if isinstance(value, list | tuple) else value


def _check_call(op: str, args: Mapping[str, Any], allowed: Collection[str] | None) -> None:
    if op not in RETAIL_OPERATIONS:
        raise _RefusedError(f"there is no operation {op!r}")
    if allowed is not None and op not in allowed:
        raise _RefusedError(f"{op} is outside the remit")
    takes = RETAIL_OPERATIONS[op].takes
    wrong = [name for name in {**takes, **args} if name not in takes or not isinstance(args.get(name), takes[name])]
    wrong += [name for name in takes if takes[name] is list and not _texts(args.get(name))]
    if wrong:
        named = ", ".join(sorted(set(wrong)))
        raise _RefusedError(f"{op} takes {', '.join(takes) or 'nothing'}; wrong or missing: {named}")


def _texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)


# Plans: each checks everything first and returns what carries it out


def _identify(shop: Retail, fits: Callable[[Mapping[str, Any]], bool]) -> Callable[[], str]:
    found = [name for name, user in shop.data["users"].items() if fits(user)]
    if not found:
        raise _RefusedError("no customer matches")
    if shop.user not in (None, found[0]):
        raise _RefusedError("another customer is being helped already")

    def commit() -> str:
        shop.user = found[0]
        return found[0]

    return commit


def _by_email(shop: Retail, args: Mapping[str, Any]) -> Callable[[], Any]:
    return _identify(shop, lambda user: user["email"].casefold() == args["email"].casefold())


def _by_name(shop: Retail, args: Mapping[str, Any]) -> Callable[[], Any]:
    wanted = (args["first_name"].casefold(), args["last_name"].casefold(), args["zip"])
    return _identify(
        shop,
        lambda user: (
            (user["name"]["first_name"].casefold(), user["name"]["last_name"].casefold(), user["address"]["zip"])
            == wanted
        ),
    )


def _own_user(shop: Retail, args: Mapping[str, Any]) -> dict[str, Any]:
    if args["user_id"] != shop.user:
        raise _RefusedError(f"{args['user_id']} is not the customer who was identified")
    found: dict[str, Any] = shop.data["users"][args["user_id"]]
    return found


def _user_details(shop: Retail, args: Mapping[str, Any]) -> Callable[[], Any]:
    user = _own_user(shop, args)
    return lambda: user


def _user_address(shop: Retail, args: Mapping[str, Any]) -> Callable[[], Any]:
    user = _own_user(shop, args)
    return lambda: user.update(address={name: args[name] for name in ADDRESS}) or user


def _order_details(shop: Retail, args: Mapping[str, Any]) -> Callable[[], Any]:
    order = shop.order(args["order_id"])
    return lambda: order


def _product_types(shop: Retail, args: Mapping[str, Any]) -> Callable[[], Any]:
    return lambda: {product["name"]: name for name, product in sorted(shop.data["products"].items())}


def _product_details(shop: Retail, args: Mapping[str, Any]) -> Callable[[], Any]:
    product = shop.data["products"].get(args["product_id"])
    if product is None:
        raise _RefusedError(f"there is no product {args['product_id']}")
    return lambda: product


def _with_status(shop: Retail, args: Mapping[str, Any], status: str) -> dict[str, Any]:
    order = shop.order(args["order_id"])
    if order["status"] != status:
        raise _RefusedError(f"order {order['order_id']} is {order['status']}, not {status}")
    return order


def _pick(order: Mapping[str, Any], item_ids: Sequence[str]) -> list[dict[str, Any]]:
    """Return the lines of an order that item ids name, in their order, each line once."""
    left, picked = list(order["items"]), []
    for item_id in item_ids:
        place = next((place for place, line in enumerate(left) if line["item_id"] == item_id), None)
        if place is None:
            raise _RefusedError(f"order {order['order_id']} does not hold item {item_id} that often")
        picked.append(left.pop(place))
    return picked


def _swap(shop: Retail, order: Mapping[str, Any], args: Mapping[str, Any]) -> tuple[list[Any], list[Any], int]:
    """Return the lines to change, their new variants, and what the customer pays more, in cents."""
    if len(args["item_ids"]) != len(args["new_item_ids"]):
        raise _RefusedError("there must be one new item for each old one")
    lines, variants = _pick(order, args["item_ids"]), []
    for line, new in zip(lines, args["new_item_ids"], strict=True):
        variant = shop.data["products"][line["product_id"]]["variants"].get(new)
        if variant is None:
            raise _RefusedError(f"item {new} is not of the same product as {line['item_id']}")
        if new == line["item_id"]:
            raise _RefusedError(f"item {new} is the same as before")
        if not variant["available"]:
            raise _RefusedError(f"item {new} is not available")
        variants.append(variant)
    more = sum(cents(new["price"]) - cents(old["price"]) for old, new in zip(lines, variants, strict=True))
    _can_pay(shop, args["payment_method_id"], more)
    return lines, variants, more


def _can_pay(shop: Retail, payment_id: str, amount: int) -> None:
    means = shop.means(payment_id)
    if means["source"] == "gift_card" and cents(means["balance"]) < amount:
        raise _RefusedError(f"the balance of {payment_id} does not cover {amount / 100:.2f}")


def _book(shop: Retail, order: dict[str, Any], kind: str, amount: int, payment_id: str) -> None:
    """Write a payment or refund into an order; a gift card's balance changes at once."""
    order["payment_history"].append({"transaction_type": kind, "amount": amount / 100, "payment_method_id": payment_id})
    means = shop.means(payment_id)
    if means["source"] == "gift_card":
        balance = cents(means["balance"]) + (amount if kind == "refund" else -amount)
        means["balance"] = balance / 100


def _return(shop: Retail, args: Mapping[str, Any]) -> Callable[[], Any]:
    order = _with_status(shop, args, "delivered")
    _pick(order, args["item_ids"])
    paid = order["payment_history"][0]["payment_method_id"]
    if shop.means(args["payment_method_id"])["source"] != "gift_card" and args["payment_method_id"] != paid:
        raise _RefusedError(f"refunds go to the original payment method ({paid}) or to a gift card")
    changes = {
        "status": "return requested", "return_items": sorted(args["item_ids"]),
        "return_payment_method_id": args["payment_method_id"],
    }  # fmt: skip
    return lambda: order.update(changes) or order


def _exchange(shop: Retail, args: Mapping[str, Any]) -> Callable[[], Any]:
    order = _with_status(shop, args, "delivered")
    *_, more = _swap(shop, order, args)
    changes = {
        "status": "exchange requested", "exchange_items": sorted(args["item_ids"]),
        "exchange_new_items": sorted(args["new_item_ids"]),
        "exchange_payment_method_id": args["payment_method_id"], "exchange_price_difference": more / 100,
    }  # fmt: skip
    return lambda: order.update(changes) or order


def _cancel(shop: Retail, args: Mapping[str, Any]) -> Callable[[], Any]:
    order = _with_status(shop, args, "pending")
    if args["reason"] not in REASONS:
        raise _RefusedError(f"the reason must be one of: {', '.join(REASONS)}")

    def commit() -> Any:
        for row in list(order["payment_history"]):
            _book(shop, order, "refund", cents(row["amount"]), row["payment_method_id"])
        order.update(status="cancelled", cancel_reason=args["reason"])
        return order

    return commit


def _order_address(shop: Retail, args: Mapping[str, Any]) -> Callable[[], Any]:
    order = _with_status(shop, args, "pending")
    return lambda: order.update(address={name: args[name] for name in ADDRESS}) or order


def _order_items(shop: Retail, args: Mapping[str, Any]) -> Callable[[], Any]:
    order = _with_status(shop, args, "pending")
    lines, variants, more = _swap(shop, order, args)

    def commit() -> Any:
        _book(shop, order, "payment" if more > 0 else "refund", abs(more), args["payment_method_id"])
        for line, new in zip(lines, variants, strict=True):
            line.update(item_id=new["item_id"], price=new["price"], options=dict(new["options"]))
        order["status"] = "pending (item modified)"
        return order

    return commit


def _order_payment(shop: Retail, args: Mapping[str, Any]) -> Callable[[], Any]:
    order, new = _with_status(shop, args, "pending"), args["payment_method_id"]
    history = order["payment_history"]
    if len(history) != 1 or history[0]["transaction_type"] != "payment":
        raise _RefusedError("the payment of an order changes only once")
    old, amount = history[0]["payment_method_id"], cents(history[0]["amount"])
    if old == new:
        raise _RefusedError(f"order {order['order_id']} is paid with {new} already")
    _can_pay(shop, new, amount)

    def commit() -> Any:
        _book(shop, order, "payment", amount, new)
        _book(shop, order, "refund", amount, old)
        return order

    return commit


_PLANS: Mapping[str, Callable[[Retail, Mapping[str, Any]], Callable[[], Any]]] = {
    "find_user_id_by_email": _by_email,
    "find_user_id_by_name_zip": _by_name,
    "get_user_details": _user_details,
    "modify_user_address": _user_address,
    "get_order_details": _order_details,
    "list_all_product_types": _product_types,
    "get_product_details": _product_details,
    "return_delivered_order_items": _return,
    "exchange_delivered_order_items": _exchange,
    "cancel_pending_order": _cancel,
    "modify_pending_order_address": _order_address,
    "modify_pending_order_items": _order_items,
    "modify_pending_order_payment": _order_payment,
}
