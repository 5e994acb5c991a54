"""The generated tasks of Incognita: six for every number of specialists from 1 to 6."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.worlds.incognita._cards import GoldAction, TaskCard, UserField
from rolecraft.worlds.incognita._retail import REASONS, RetailData, cents, money, retail_hash
from rolecraft.worlds.incognita._shop import make_address, make_retail
from rolecraft.worlds.incognita._words import place_in_words

WISHES: Mapping[str, str] = {
    "price": "know the price of a product",
    "customer_id": "know my customer id",
    "amount": "know the amount of the payment of an order",
    "cancel": "cancel a pending order",
    "refund": "cancel a pending order and know how much comes back",
    "order_address": "change the address of a pending order",
    "user_address": "change the saved address of my account",
    "payment": "change the payment of a pending order to my gift card",
    "items": "change an item of a pending order",
    "return": "return an item of a delivered order",
    "exchange": "exchange an item of a delivered order",
}
"""Kind of a wish to how customers say it."""
ORIGINAL, GIFT, EITHER = "the way I paid", "my gift card", "the way I paid or my gift card, whichever you like"
"""How customers name a way to pay."""

Draw = Callable[["_Maker"], None]


class _Maker:
    """Collects the fields and the gold actions of one task of one customer.

    Raises:
        _UnfitError: Anywhere, if this customer cannot have such a task.
    """

    def __init__(self, data: RetailData, user_id: str, rng: np.random.Generator) -> None:
        self.data, self.user_id, self.rng = data, user_id, rng
        self.user = data["users"][user_id]
        self.fields: list[UserField] = []
        self.gold: list[GoldAction] = []
        self.other: list[GoldAction] | None = None
        self.outputs: list[str] = []
        self.prefix = ""
        self._used: set[str] = set()

    def tell(self, name: str, value: str, topic: str, *cites: str) -> str:
        """Add a field and return its name."""
        self.fields.append(UserField(self.prefix + name, value, topic, cites=cites))
        return self.prefix + name

    def act(self, op: str, args: Mapping[str, Any], *yields: str, **said_by: str) -> None:
        if any((action.op, action.args) == (op, args) for action in self.gold):
            return
        self.gold.append(GoldAction(op, args, yields, said_by))

    def wish(self, kind: str) -> None:
        self.prefix = "second " if self.fields else ""
        self.tell("request", f"I want to {WISHES[kind]}.", "request")

    def identify(self, by_email: bool | None = None, cited: bool = True) -> None:
        """Let the customer be looked up, once a task."""
        if any(action.op.startswith("find_user") for action in self.gold):
            return
        yields = (self.user_id,) if cited else ()
        if by_email if by_email is not None else bool(self.rng.integers(2)):
            self.tell("email", self.user["email"], "email", self.user["email"])
            self.act("find_user_id_by_email", {"email": self.user["email"]}, *yields)
            return
        name, zip_code = self.user["name"], self.user["address"]["zip"]
        self.tell("name", f"{name['first_name']} {name['last_name']}", "name", name["last_name"])
        self.tell("zip", zip_code, "zip", zip_code)
        self.act("find_user_id_by_name_zip", {**name, "zip": zip_code}, *yields)

    def pick_order(self, status: str) -> dict[str, Any]:
        """Draw one of the customer's orders, each once a task."""
        orders = [self.data["orders"][name] for name in self.user["orders"]]
        fitting = [each for each in orders if each["status"] == status and each["order_id"] not in self._used]
        order: dict[str, Any] = _some(self.rng, fitting)
        self._used.add(order["order_id"])
        return order

    def tell_order(
        self, order: Mapping[str, Any], known: bool, item: Mapping[str, Any] | None = None
    ) -> dict[str, str]:
        """Tell the order's number, or let it be found by an item; returns which field decides the argument."""
        if known:
            return {"order_id": self.tell("order", order["order_id"], "order", order["order_id"])}
        held = [
            each for each in self.user["orders"]
            if self.data["orders"][each]["status"] == order["status"]
            and any(line["name"] == (item or order["items"][0])["name"] for line in self.data["orders"][each]["items"])
        ]  # fmt: skip
        if held != [order["order_id"]]:
            raise _UnfitError
        self.act("get_user_details", {"user_id": self.user_id}, order["order_id"])
        return {}

    def gift_card(self) -> str:
        """Return the gift card, which the account holder knows."""
        self.act("get_user_details", {"user_id": self.user_id}, *self._gift_cards())
        return self._gift_cards()[0]

    def _gift_cards(self) -> list[str]:
        return [name for name in self.user["payment_methods"] if name.startswith("gift_card")]

    def read_order(self, order: Mapping[str, Any], *yields: str) -> None:
        self.act("get_order_details", {"order_id": order["order_id"]}, *yields)


class _UnfitError(Exception):
    """This customer cannot have this task."""


def _some(rng: np.random.Generator, options: Sequence[Any]) -> Any:
    if not options:
        raise _UnfitError
    return options[int(rng.integers(len(options)))]


def _price(maker: _Maker) -> None:
    product = _some(maker.rng, list(maker.data["products"].values()))
    variant = _some(maker.rng, list(product["variants"].values()))
    maker.wish("price")
    maker.tell("item", product["name"], "item", product["name"])
    options = _options(variant)
    maker.tell("options", options, "options", options)
    maker.act("get_product_details", {"product_id": product["product_id"]}, money(variant["price"]))
    maker.outputs.append(money(variant["price"]))


def _options(variant: Mapping[str, Any]) -> str:
    return ", ".join(f"{axis} {value}" for axis, value in variant["options"].items())


def _customer_id(by_email: bool) -> Draw:
    def draw(maker: _Maker) -> None:
        maker.wish("customer_id")
        maker.identify(by_email)
        maker.outputs.append(maker.user_id)

    return draw


def _amount(maker: _Maker) -> None:
    order = maker.pick_order(_some(maker.rng, ["pending", "delivered"]))
    maker.wish("amount")
    maker.identify(cited=False)
    maker.tell_order(order, True)
    amount = money(order["payment_history"][0]["amount"])
    maker.read_order(order, amount)
    maker.outputs.append(amount)


def _cancel(known: bool = True, refund: bool = False) -> Draw:
    def draw(maker: _Maker) -> None:
        order, reason = maker.pick_order("pending"), _some(maker.rng, REASONS)
        maker.wish("refund" if refund else "cancel")
        maker.identify(cited=not known)
        said = maker.tell_order(order, known)
        if not known:
            maker.tell("item", order["items"][0]["name"], "item")
            maker.read_order(order, order["order_id"])
        if refund:
            amount = money(order["payment_history"][0]["amount"])
            maker.read_order(order, amount)
            maker.outputs.append(amount)
        said["reason"] = maker.tell("reason", reason, "reason", reason)
        maker.act("cancel_pending_order", {"order_id": order["order_id"], "reason": reason}, **said)

    return draw


def _address(saved: bool) -> Draw:
    def draw(maker: _Maker) -> None:
        address = make_address(maker.rng)
        maker.wish("user_address" if saved else "order_address")
        maker.identify(cited=saved)
        said = {} if saved else maker.tell_order(order := maker.pick_order("pending"), True)
        line = place_in_words(address)
        name = maker.tell("address", line, "address", line)
        said |= dict.fromkeys(address, name)
        if saved:
            maker.act("modify_user_address", {"user_id": maker.user_id, **address}, **said)
        else:
            maker.act("modify_pending_order_address", {"order_id": order["order_id"], **address}, **said)

    return draw


def _payment(maker: _Maker) -> None:
    order = maker.pick_order("pending")
    maker.wish("payment")
    maker.identify()
    said = maker.tell_order(order, True)
    gift = maker.gift_card()
    if cents(maker.user["payment_methods"][gift]["balance"]) < cents(order["payment_history"][0]["amount"]):
        raise _UnfitError
    maker.act("modify_pending_order_payment", {"order_id": order["order_id"], "payment_method_id": gift}, **said)


def _give_back(pay: str) -> Draw:
    """Return an item of an order whose number the customer knows."""

    def draw(maker: _Maker) -> None:
        order = maker.pick_order("delivered")
        item, paid = _some(maker.rng, order["items"]), order["payment_history"][0]["payment_method_id"]
        maker.wish("return")
        maker.identify(cited=pay == GIFT)
        said = maker.tell_order(order, True)
        maker.tell("item", item["name"], "item", item["item_id"])
        means = maker.gift_card() if pay == GIFT else paid
        maker.tell("payment", pay, "payment")
        maker.read_order(order, item["item_id"])
        args = {"order_id": order["order_id"], "item_ids": [item["item_id"]]}
        maker.act("return_delivered_order_items", {**args, "payment_method_id": means}, **said)
        if pay == EITHER:
            gift = maker._gift_cards()[0]
            other = GoldAction("return_delivered_order_items", {**args, "payment_method_id": gift}, said_by=said)
            maker.other = [*maker.gold[:-1], other]

    return draw


def _swap(kind: str, known: bool) -> Draw:
    """Exchange an item of a delivered order, or change one of a pending order, for another variant."""
    status, op = {
        "exchange": ("delivered", "exchange_delivered_order_items"), "items": ("pending", "modify_pending_order_items"),
    }[kind]  # fmt: skip

    def draw(maker: _Maker) -> None:
        order = maker.pick_order(status)
        item = _some(maker.rng, order["items"])
        product = maker.data["products"][item["product_id"]]
        others = [each for name, each in product["variants"].items() if each["available"] and name != item["item_id"]]
        new, options = _some(maker.rng, others), ""
        maker.wish(kind)
        maker.identify(cited=not known)
        said = maker.tell_order(order, known, item)
        maker.tell("item", item["name"], "item", item["item_id"])
        maker.read_order(order, item["item_id"])
        options = _options(new)
        maker.tell("options", options, "options", options)
        maker.act("get_product_details", {"product_id": product["product_id"]}, new["item_id"])
        maker.tell("payment", ORIGINAL, "payment")
        paid = order["payment_history"][0]["payment_method_id"]
        args = {"order_id": order["order_id"], "item_ids": [item["item_id"]], "new_item_ids": [new["item_id"]]}
        maker.act(op, {**args, "payment_method_id": paid}, **said)

    return draw


_SLOTS: Sequence[tuple[str, Sequence[Draw]]] = (
    *[("price", [_price])] * 3, *[("customer_id", [_customer_id(True)])] * 2, ("customer_id", [_customer_id(False)]),
    *[("cancel", [_cancel()])] * 2, ("order_address", [_address(False)]), *[("user_address", [_address(True)])] * 2,
    ("amount", [_amount]),
    *[("payment", [_payment])] * 2, ("return", [_give_back(ORIGINAL)]), ("return", [_give_back(EITHER)]),
    *[("refund", [_cancel(refund=True)])] * 2,
    *[("exchange", [_swap("exchange", True)])] * 3, *[("items", [_swap("items", True)])] * 2,
    ("return", [_give_back(GIFT)]),
    *[("exchange", [_swap("exchange", False)])] * 3, *[("items", [_swap("items", False)])] * 3,
    *[("exchange+payment", [_swap("exchange", True), _payment])] * 3,
    *[("exchange+cancel", [_swap("exchange", False), _cancel()])] * 3,
)  # fmt: skip
"""Kind and parts of each task: six for every breadth, 1 to 6 in turn."""
INCOGNITA_TASKS = len(_SLOTS)


@cache
def make_task_cards(seed: int = 0) -> tuple[TaskCard, ...]:
    """Return 36 tasks, six for every breadth from 1 to 6, in one database.

    Raises:
        UserError: If some task fits no customer of this database.
    """
    data = shop_data(seed)
    return tuple(_card(data, seed, number) for number in range(INCOGNITA_TASKS))


@cache
def shop_hash(seed: int) -> str:
    """Return the hash of a snapshot."""
    return retail_hash(shop_data(seed))


@cache
def shop_data(seed: int) -> RetailData:
    """Return the database of a snapshot, made once; never to be changed."""
    return make_retail(seed)


def _card(data: RetailData, seed: int, number: int) -> TaskCard:
    kind, draws = _SLOTS[number]
    for maker in _customers(data, np.random.default_rng(derive_seed("incognita", "task", seed, number))):
        try:
            for draw in draws:
                draw(maker)
        except _UnfitError:
            continue
        return TaskCard(
            f"b{number // 6 + 1}-{number % 6 + 1}-{kind}", seed, kind, tuple(maker.fields), tuple(maker.gold),
            tuple(maker.outputs), (tuple(maker.other),) if maker.other else (),
        )  # fmt: skip
    raise UserError(f"seed {seed}: no customer can have a task of kind {kind}; take another seed.")


def _customers(data: RetailData, rng: np.random.Generator) -> Iterator[_Maker]:
    """Try every customer, eight times over: a draw may fail that another would not."""
    names = list(data["users"])
    for _ in range(8):
        for place in rng.permutation(len(names)):
            yield _Maker(data, names[place], rng)
