"""A weapon shop: stock, twelve functions on it, and customers' turns with the calls that are right."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rolecraft._run import derive_seed
from rolecraft.errors import UserError

ITEMS = (
    "iron sword", "oak bow", "steel axe", "bronze dagger", "war hammer", "long spear", "curved sabre", "light crossbow",
    "hunting knife", "silver rapier", "stone mace", "throwing star",
)  # fmt: skip
PURPOSES = ("hunting", "travel", "guard duty", "tournament")

FUNCTIONS: Mapping[str, tuple[str, Mapping[str, tuple[str, str]]]] = {
    "price": ("what an item costs", {"item": ("string", "name of the item")}),
    "stock": ("how many of an item are left", {"item": ("string", "name of the item")}),
    "damage": ("how hard an item hits", {"item": ("string", "name of the item")}),
    "weight": ("how heavy an item is", {"item": ("string", "name of the item")}),
    "compare": (
        "which of two items hits harder",
        {"item": ("string", "one item"), "other": ("string", "another item")},
    ),
    "buy": ("sell an item to the customer", {"item": ("string", "name"), "quantity": ("integer", "how many")}),
    "trade_in": ("what the shop pays for an old item", {"item": ("string", "name of the item")}),
    "repair_cost": ("what it costs to repair an item", {"item": ("string", "name of the item")}),
    "reserve": ("put an item aside", {"item": ("string", "name of the item")}),
    "order_status": ("how far an order is", {"order": ("integer", "number of the order")}),
    "recommend": ("the best item for a purpose", {"purpose": ("string", "what it is for")}),
    "opening_hours": ("when the shop is open", {}),
}
"""Name to description and arguments: name to type and description."""

MISSING_FUNCTIONS: Mapping[str, str] = {
    "enchant": "Can you enchant my {item}?",
    "deliver": "Will you deliver the {item} to my house?",
    "engrave": "Please engrave my name on the {item}.",
    "rent": "Could I rent the {item} for a week?",
}
"""Functions that the shop does not have, and what a customer says who wants one."""

_ASKED: Mapping[str, tuple[str, ...]] = {
    "price": ("How much is the {item}?", "What do you want for the {item}?"),
    "stock": ("How many of the {item} are left?", "Have you still got the {item}?"),
    "damage": ("How hard does the {item} hit?", "Is the {item} any good in a fight?"),
    "weight": ("How heavy is the {item}?", "Can I carry the {item} all day?"),
    "compare": ("Which hits harder, the {item} or the {other}?", "Is the {item} stronger than the {other}?"),
    "buy": ("I will take {quantity} of the {item}.", "Sell me {quantity} of the {item}, please."),
    "trade_in": ("What would you pay for my old {item}?", "I want to hand in a {item}. What do I get?"),
    "repair_cost": ("My {item} is broken. What would mending it cost?", "What do you ask to repair a {item}?"),
    "reserve": ("Please put the {item} aside for me.", "Keep the {item} for me until Friday."),
    "order_status": ("How is my order number {order} coming along?", "Is order {order} ready yet?"),
    "recommend": ("What do you advise for {purpose}?", "I need something for {purpose}."),
    "opening_hours": ("When do you open tomorrow?", "How long are you open today?"),
}
_CHAT = (
    ("Good morning to you!", "Good morning. What can I do for you?"),
    ("Terrible weather outside, is it not?", "It is. At least the forge keeps us warm."),
    ("Who taught you this trade?", "My mother did, right here in this shop."),
    ("You have a fine shop here.", "Thank you, I keep it with care."),
    ("Have you heard about the wolves in the hills?", "I have. Be careful on the road."),
    ("Thanks for your help.", "You are welcome. Come back soon."),
    ("Are you ever afraid of robbers?", "With all these blades around me? No."),
    ("Farewell, I must be off.", "Farewell, and safe travels."),
)
_READ_ONLY = ("price", "stock", "damage", "weight", "repair_cost", "trade_in")
Kind = Literal["call", "chat", "tempting", "answered"]


@dataclass(frozen=True)
class ShopTurn:
    """What a customer says, and what is right."""

    id: str
    kind: Kind
    """`call` needs one function; `chat`, `tempting` (a function that does not exist) and `answered` need none."""
    user: str
    history: tuple[tuple[str, str], ...]
    """Earlier turns: what the customer and what the shopkeeper said."""
    answered: tuple[tuple[str, Mapping[str, Any]], ...]
    """Calls whose results stand in the history."""
    gold_calls: tuple[tuple[str, Mapping[str, Any]], ...]
    gold_reply: str


@dataclass
class WeaponShop:
    """The state that the functions read and change."""

    prices: dict[str, int]
    left: dict[str, int]
    hits: dict[str, int]
    pounds: dict[str, int]
    best: dict[str, str]
    reserved: set[str] = field(default_factory=set)

    @classmethod
    def stocked(cls, seed: int) -> WeaponShop:
        """Return a shop whose stock depends on the seed alone."""
        draw = random.Random(derive_seed("weapon-shop", seed))
        return cls(
            prices={item: 10 * draw.randint(3, 40) for item in ITEMS},
            left={item: draw.randint(2, 9) for item in ITEMS},
            hits=dict(zip(ITEMS, draw.sample(range(5, 40), len(ITEMS)), strict=True)),
            pounds={item: draw.randint(1, 12) for item in ITEMS},
            best={purpose: draw.choice(ITEMS) for purpose in PURPOSES},
        )

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Return the functions by name; they take their arguments by name and raise `KeyError` for an unknown item."""
        return {
            "price": lambda item: self.prices[item],
            "stock": lambda item: self.left[item],
            "damage": lambda item: self.hits[item],
            "weight": lambda item: self.pounds[item],
            "compare": lambda item, other: max(item, other, key=self.hits.__getitem__),
            "buy": self.buy,
            "trade_in": lambda item: self.prices[item] // 2,
            "repair_cost": lambda item: self.prices[item] // 5,
            "reserve": self.reserve,
            "order_status": lambda order: ("waiting", "in the forge", "ready")[order % 3],
            "recommend": lambda purpose: self.best[purpose],
            "opening_hours": lambda: "eight to six",
        }

    def buy(self, item: str, quantity: int) -> int:
        """Take items out of the stock and return what they cost.

        Raises:
            KeyError: If there is no such item.
            ValueError: If not so many are left, or the quantity is below 1.
        """
        if not 1 <= quantity <= self.left[item]:
            raise ValueError(f"{self.left[item]} of the {item} are left, {quantity} were asked for")
        self.left[item] -= quantity
        return quantity * self.prices[item]

    def reserve(self, item: str) -> str:
        """Put an item aside.

        Raises:
            KeyError: If there is no such item.
        """
        if item not in self.left:
            raise KeyError(item)
        self.reserved.add(item)
        return "put aside"


def shop_turns(count: int, seed: int, part: str = "test") -> list[ShopTurn]:
    """Generate turns: 60 % need one call, 15 % tempt, 15 % repeat an answered question, 10 % are small talk.

    Args:
        count: How many, at least 20 so that every kind occurs.
        seed: Of the scenario; the shop is `WeaponShop.stocked(seed)`.
        part: Turns of different parts (`train`, `validation`, `test`) are drawn apart and differ in their ids.

    Raises:
        UserError: If `count` is below 20.
    """
    if count < 20:
        raise UserError(f"count must be at least 20, so that every kind of turn occurs, got {count}.")
    draw = random.Random(derive_seed("shop-turns", part, seed))
    few = round(0.15 * count)
    shares: dict[Kind, int] = {"tempting": few, "answered": few, "chat": round(0.1 * count)}
    shares["call"] = count - sum(shares.values())
    kinds = [kind for kind, number in shares.items() for _ in range(number)]
    draw.shuffle(kinds)
    called = [name for _ in range(count) for name in draw.sample(list(FUNCTIONS), len(FUNCTIONS))]
    return [_turn(f"{part}/{seed}/{place}", kind, called[place], seed, draw) for place, kind in enumerate(kinds)]


def _turn(id_: str, kind: Kind, name: str, seed: int, draw: random.Random) -> ShopTurn:
    greeting, welcome = draw.choice(_CHAT)
    history = ((greeting, welcome),) if draw.random() < 0.5 else ()
    if kind == "chat":
        user, reply = draw.choice([pair for pair in _CHAT if pair[0] != greeting])
        return ShopTurn(id_, kind, user, history, (), (), reply)
    if kind == "tempting":
        item = draw.choice(ITEMS)
        user = draw.choice(list(MISSING_FUNCTIONS.values())).format(item=item)
        return ShopTurn(id_, kind, user, history, (), (), "I am sorry, that is a thing we do not do here.")
    name = draw.choice(_READ_ONLY) if kind == "answered" else name
    item, other = draw.sample(ITEMS, 2)
    values: dict[str, Any] = {
        "item": item, "other": other, "quantity": draw.randint(1, 2), "order": draw.randint(11, 99),
        "purpose": draw.choice(PURPOSES),
    }  # fmt: skip
    given = {argument: values[argument] for argument in FUNCTIONS[name][1]}
    asked = draw.choice(_ASKED[name]).format(**given)
    reply = gold_reply(name, given, WeaponShop.stocked(seed).functions()[name](**given))
    if kind == "answered":
        history = ((asked, reply),)
        return ShopTurn(id_, kind, f"Sorry, say that again: {asked}", history, ((name, given),), (), reply)
    return ShopTurn(id_, kind, asked, history, (), ((name, given),), reply)


def gold_reply(name: str, given: Mapping[str, Any], result: Any) -> str:
    """Return the short reply that is right for a result."""
    said = {
        "price": "The {item} costs {result} coins.",
        "stock": "There are {result} of the {item} left.",
        "damage": "The {item} hits with a force of {result}.",
        "weight": "The {item} weighs {result} pounds.",
        "compare": "The {result} hits harder.",
        "buy": "That makes {result} coins for {quantity} of the {item}.",
        "trade_in": "For your {item} I pay {result} coins.",
        "repair_cost": "Mending the {item} costs {result} coins.",
        "reserve": "The {item} is put aside for you.",
        "order_status": "Your order {order} is {result}.",
        "recommend": "For {purpose} I advise the {result}.",
        "opening_hours": "We are open from {result}.",
    }
    return said[name].format(**given, result=result)
