"""Retail databases: made up from a seed, or read in the layout of tau-bench."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product as cross
from pathlib import Path
from typing import Any

import numpy as np

from rolecraft._files import read_mapping
from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.worlds.incognita._retail import RetailData, cents

_FIRST = ("Ada", "Bruno", "Chloe", "Dario", "Elif", "Felix", "Grace", "Hana", "Ivan", "Jonas", "Keiko", "Liam")
_LAST = ("Berg", "Costa", "Dietz", "Evans", "Fonseca", "Garcia", "Haas", "Ito", "Jansen", "Kovacs", "Lopez", "Meyer")
_STREETS = ("Oak Street", "Hill Road", "Lake Avenue", "Mill Lane", "Park Drive", "River Street")
_CITIES = (("Austin", "TX"), ("Boston", "MA"), ("Chicago", "IL"), ("Denver", "CO"), ("Phoenix", "AZ"))
_SIZES, _COLORS = ("small", "medium", "large"), ("black", "blue", "green", "red", "white")
_PRODUCTS: tuple[tuple[str, int, dict[str, Sequence[str]]], ...] = (
    ("T-Shirt", 2200, {"color": _COLORS, "size": _SIZES}),
    ("Desk Lamp", 6100, {"color": _COLORS, "brightness": ("low", "high")}),
    ("Backpack", 9800, {"color": _COLORS, "size": _SIZES}),
    ("Water Bottle", 1900, {"capacity": ("500 ml", "750 ml", "1000 ml"), "color": _COLORS}),
    ("Running Shoes", 12400, {"color": _COLORS, "width": ("narrow", "regular", "wide")}),
    ("Office Chair", 23100, {"armrest": ("fixed", "none"), "color": _COLORS}),
    ("Headphones", 15900, {"color": _COLORS, "type": ("in-ear", "over-ear")}),
    ("Electric Kettle", 5400, {"capacity": ("1 l", "2 l"), "color": _COLORS}),
    ("Yoga Mat", 3500, {"color": _COLORS, "thickness": ("4 mm", "6 mm")}),
    ("Jigsaw Puzzle", 2700, {"pieces": ("500", "1000", "1500"), "theme": ("animals", "art", "cities")}),
    ("Smart Watch", 27900, {"band": ("leather", "metal", "silicone"), "color": _COLORS}),
    ("Garden Hose", 4100, {"color": _COLORS, "length": ("15 m", "30 m")}),
)  # fmt: skip
_STATUSES = ("pending", "delivered", "pending", "delivered", "processed", "cancelled")


def make_retail(seed: int, users: int = 24) -> RetailData:
    """Return a database.

    Args:
        seed: Of everything in it.
        users: Customers, each with a gift card, one or two other ways to pay, and four to six orders, at least two of
            them pending and two delivered.

    Raises:
        UserError: If there are no customers, or more than names.
    """
    if not 1 <= users <= len(_FIRST) * len(_LAST):
        raise UserError(f"users must be 1 to {len(_FIRST) * len(_LAST)}, got {users}.")
    rng = np.random.default_rng(derive_seed("retail", seed))
    numbers = _Numbers(rng)
    data: RetailData = {"users": {}, "orders": {}, "products": _products(rng, numbers)}
    names = list(cross(_FIRST, _LAST))
    for place in rng.permutation(len(names))[:users]:
        user = _user(names[place], rng, numbers)
        user_id = f"{names[place][0]}_{names[place][1]}_{numbers.take(4)}".lower()
        for number in range(int(rng.integers(4, 7))):
            order = _order(user_id, user, _STATUSES[number], data["products"], rng, numbers)
            data["orders"][order["order_id"]] = order
            user["orders"].append(order["order_id"])
        data["users"][user_id] = user
    return data


class _Numbers:
    """Digit strings, none of a length twice."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng, self._taken = rng, set[str]()

    def take(self, digits: int) -> str:
        while (found := str(int(self._rng.integers(10 ** (digits - 1), 10**digits)))) in self._taken:
            pass
        self._taken.add(found)
        return found


def _choice(rng: np.random.Generator, options: Sequence[Any]) -> Any:
    return options[int(rng.integers(len(options)))]


def _products(rng: np.random.Generator, numbers: _Numbers) -> dict[str, Any]:
    """Return all products, each with six to eight variants, most of them available."""
    found = {}
    for name, base, axes in _PRODUCTS:
        combos = list(cross(*axes.values()))
        variants = {}
        for place in rng.permutation(len(combos))[: min(len(combos), int(rng.integers(6, 9)))]:
            item_id = numbers.take(10)
            variants[item_id] = {
                "item_id": item_id, "options": dict(zip(axes, combos[place], strict=True)),
                "available": bool(rng.random() < 0.8), "price": (base + int(rng.integers(-900, 901))) / 100,
            }  # fmt: skip
        product_id = numbers.take(10)
        found[product_id] = {"name": name, "product_id": product_id, "variants": variants}
    return found


def make_address(rng: np.random.Generator) -> dict[str, str]:
    """Return an address in the United States."""
    city, state = _choice(rng, _CITIES)
    return {
        "address1": f"{int(rng.integers(100, 999))} {_choice(rng, _STREETS)}",
        "address2": f"Suite {int(rng.integers(100, 999))}",
        "city": city, "state": state, "country": "USA", "zip": str(int(rng.integers(10000, 99999))),
    }  # fmt: skip


def _user(name: tuple[str, str], rng: np.random.Generator, numbers: _Numbers) -> dict[str, Any]:
    first, last = name
    means: dict[str, Any] = {}
    for source in ["credit_card", "paypal"][: int(rng.integers(1, 3))]:
        payment_id = f"{source}_{numbers.take(7)}"
        means[payment_id] = {"source": source, "id": payment_id}
        if source == "credit_card":
            means[payment_id] |= {"brand": _choice(rng, ("visa", "mastercard")), "last_four": numbers.take(4)}
    gift = f"gift_card_{numbers.take(7)}"
    means[gift] = {"source": "gift_card", "id": gift, "balance": int(rng.integers(2000, 120000)) / 100}
    return {
        "name": {"first_name": first, "last_name": last}, "address": make_address(rng),
        "email": f"{first}.{last}{numbers.take(4)}@example.com".lower(), "payment_methods": means, "orders": [],
    }  # fmt: skip


def _order(
    user_id: str, user: dict[str, Any], status: str, products: dict[str, Any], rng: np.random.Generator,
    numbers: _Numbers,
) -> dict[str, Any]:  # fmt: skip
    """Return an order of one to three products, paid in full by card or paypal."""
    ids = list(products)
    items = []
    for place in rng.permutation(len(ids))[: int(rng.integers(1, 4))]:
        product = products[ids[place]]
        variant = product["variants"][_choice(rng, list(product["variants"]))]
        items.append({
            "name": product["name"], "product_id": product["product_id"], "item_id": variant["item_id"],
            "price": variant["price"], "options": dict(variant["options"]),
        })  # fmt: skip
    paid = _choice(rng, [name for name in user["payment_methods"] if not name.startswith("gift_card")])
    total = sum(cents(item["price"]) for item in items) / 100
    shipped = status in ("delivered", "processed")
    return {
        "order_id": f"#W{numbers.take(7)}", "user_id": user_id, "address": dict(user["address"]), "items": items,
        "fulfillments": [{"tracking_id": [numbers.take(12)], "item_ids": [item["item_id"] for item in items]}]
        if shipped else [],
        "status": status,
        "payment_history": [{"transaction_type": "payment", "amount": total, "payment_method_id": paid}],
    }  # fmt: skip


def load_retail(folder: str | Path) -> RetailData:
    """Read `users.json`, `orders.json` and `products.json` in tau-bench's layout.

    Raises:
        UserError: If a file is missing or damaged, a record lacks a field, or an order names nobody who is there.
    """
    data: RetailData = {}
    for table in _FIELDS:
        path = Path(folder) / f"{table}.json"
        content = read_mapping(path)
        if not isinstance(content, dict):
            raise UserError(f"{path}: expected an object of {table} by id.")
        for name, row in content.items():
            missing = [key for key in _FIELDS[table] if not isinstance(row, dict) or key not in row]
            if missing:
                raise UserError(f"{path}: {name!r} has no {missing[0]!r}; expected {', '.join(_FIELDS[table])}.")
        data[table] = content
    for name, order in data["orders"].items():
        if order["user_id"] not in data["users"]:
            raise UserError(
                f"{folder}/orders.json: {name!r} names user {order['user_id']!r}, who is not in users.json."
            )
    return data


_FIELDS = {
    "users": ("name", "address", "email", "payment_methods", "orders"),
    "orders": ("order_id", "user_id", "address", "items", "status", "payment_history"),
    "products": ("name", "product_id", "variants"),
}
