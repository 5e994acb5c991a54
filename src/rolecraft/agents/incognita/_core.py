"""How a shop's requests are met, step by step, from what is known so far: what to ask next, and of what operation."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rolecraft.agents.incognita._facts import CONFIRM, Facts
from rolecraft.worlds.incognita import in_words, read_place

_KINDS: Sequence[tuple[str, tuple[str, ...]]] = (
    ("exchange", ("exchange",)), ("return", ("return an",)), ("refund", ("cancel", "how much")),
    ("cancel", ("cancel",)),
    ("user_address", ("saved address",)), ("order_address", ("address",)), ("payment", ("change the payment",)),
    ("items", ("change an item",)), ("price", ("price",)), ("customer_id", ("customer id",)), ("amount", ("amount",)),
)  # fmt: skip
"""Kind of a request and the words that tell it, the narrower first."""
_STATUS: Mapping[str, str] = {"exchange": "delivered", "return": "delivered"}
"""In which status an order must be for a request; else pending."""


@dataclass(frozen=True)
class AskUser:
    """Ask the customer for some topics."""

    topics: tuple[str, ...]

    @property
    def text(self) -> str:
        """The message."""
        return "What do you need?" if self.topics == ("request",) else f"Please tell me: {', '.join(self.topics)}."


@dataclass(frozen=True)
class GetConsent:
    """Ask the customer to confirm a write."""

    phrase: str

    @property
    def text(self) -> str:
        """The message."""
        return CONFIRM.format(self.phrase)


@dataclass(frozen=True)
class CallFor:
    """Have an operation carried out by whoever can."""

    op: str
    args: Mapping[str, Any]

    @property
    def text(self) -> str:
        """The message."""
        return f"Please {in_words(self.op, self.args)}."


@dataclass(frozen=True)
class Finish:
    """Tell the customer that all is done."""

    text: str


Move = AskUser | GetConsent | CallFor | Finish


class _GivenUpError(Exception):
    """A request cannot be met."""


@dataclass
class Core:
    """Works through the customer's requests one after the other.

    Args:
        facts: What is known.
        direct: Whether operations are called without specialists.
        careless: Skip the look-up of the customer.
    """

    facts: Facts
    direct: bool = False
    careless: bool = False

    def move(self) -> Move:
        """Return what to do next."""
        if "request" not in self.facts.fields and "request" not in self.facts.unknown:
            return AskUser(("request",))
        lines = []
        for prefix in ("", "second "):
            request = self.facts.fields.get(prefix + "request")
            if request is None:
                continue
            try:
                found = self._meet(prefix, kind_of(request))
            except _GivenUpError as why:
                found = f"I could not do it: {why}."
            if not isinstance(found, str):
                return found
            lines.append(found)
        return Finish(" ".join(lines) or "I did not understand what you need.")

    def _meet(self, prefix: str, kind: str) -> Move | str:
        """Return the next move for one request, or what to say of it once it is met."""
        step: Callable[[str, str], Move | str] = {
            "price": self._price, "customer_id": self._customer_id, "amount": self._amount, "cancel": self._cancel,
            "refund": self._cancel, "order_address": self._address, "user_address": self._address,
            "payment": self._payment, "items": self._swap, "exchange": self._swap, "return": self._return,
        }.get(kind, self._unknown)  # fmt: skip
        if kind != "price" and not self.facts.user_id and not self.careless and kind in dict(_KINDS):
            return self._identify()
        return step(prefix, kind)

    def _unknown(self, prefix: str, kind: str) -> Move | str:
        raise _GivenUpError("I did not understand it")

    def _identify(self) -> Move:
        fields = self.facts.fields
        if "email" in fields:
            return self._read("find_user_id_by_email", {"email": fields["email"]})
        first, _, last = fields.get("name", "").partition(" ")
        if last and "zip" in fields:
            args = {"first_name": first, "last_name": last, "zip": fields["zip"]}
            return self._read("find_user_id_by_name_zip", args)
        if "email" in self.facts.unknown:
            raise _GivenUpError("I could not find out who you are")
        return AskUser(("email", "name", "zip"))

    def _ask(self, prefix: str, *topics: str) -> Move | None:
        """Return a question for those topics that are open, two at a time, if there are any."""
        open_ = [each for each in topics if prefix + each not in self.facts.fields and each not in self.facts.unknown]
        return AskUser(tuple(open_[:2])) if open_ else None

    def _told(self, prefix: str, topic: str) -> str:
        if prefix + topic not in self.facts.fields:
            raise _GivenUpError(f"I do not know the {topic}")
        return self.facts.fields[prefix + topic]

    def _read(self, op: str, args: Mapping[str, Any]) -> Move:
        """Return a call that was not answered yet; what was answered once will not be told by asking again."""
        call = CallFor(op, args)
        text = json.dumps(dict(args), sort_keys=True) if self.direct else call.text
        if self.facts.answered(text):
            raise _GivenUpError("nobody could tell me what I needed to know")
        return call

    def _write(self, op: str, args: Mapping[str, Any]) -> Move | str:
        phrase, facts = in_words(op, args), self.facts
        text = json.dumps(dict(args), sort_keys=True)
        if phrase in facts.done or f"{op} {text}" in facts.done:
            return f"Done: {phrase}."
        if phrase in facts.refused:
            raise _GivenUpError("you did not confirm it")
        call = CallFor(op, args)
        if phrase in facts.waiting and phrase not in facts.confirmed:
            return GetConsent(phrase)
        if facts.answered(text if self.direct else call.text) > (phrase in facts.waiting):
            raise _GivenUpError("it was not admitted")
        return call

    def _order(self, prefix: str, kind: str, *topics: str) -> Move | str:
        """Return the order's number, or the move that brings nearer to it."""
        if ask := self._ask(prefix, "order", *topics):
            return ask
        if prefix + "order" in self.facts.fields:
            return self.facts.fields[prefix + "order"]
        if ask := self._ask(prefix, "item"):
            return ask
        item, status = self._told(prefix, "item"), _STATUS.get(kind, "pending")
        if not self.facts.orders:
            return self._read("get_user_details", {"user_id": self.facts.user_id})
        unread = [each for each in self.facts.orders if each not in self.facts.details]
        if unread:
            return self._read("get_order_details", {"order_id": unread[0] if self.direct else ", ".join(unread)})
        found = [
            each for each in self.facts.orders
            if self.facts.details[each].status == status and item in dict(self.facts.details[each].items)
        ]  # fmt: skip
        if not found:
            raise _GivenUpError("I did not find the order")
        return found[0]

    def _details(self, order_id: str) -> Move | None:
        return None if order_id in self.facts.details else self._read("get_order_details", {"order_id": order_id})

    def _variant(self, prefix: str) -> Move | tuple[str, str]:
        """Return item id and price of what the customer names, or the move that brings nearer to it."""
        if ask := self._ask(prefix, "item", "options"):
            return ask
        name, options = self._told(prefix, "item"), self._told(prefix, "options")
        if (name, options) in self.facts.variants:
            return self.facts.variants[name, options]
        if not self.direct:
            return self._read("get_product_details", {"product_id": f"{name}, {options}"})
        if not self.facts.products:
            return self._read("list_all_product_types", {})
        return self._read("get_product_details", {"product_id": self.facts.products.get(name, name)})

    def _price(self, prefix: str, kind: str) -> Move | str:
        found = self._variant(prefix)
        return f"The price is {found[1]}." if isinstance(found, tuple) else found

    def _customer_id(self, prefix: str, kind: str) -> Move | str:
        return f"Your customer id is {self.facts.user_id}." if self.facts.user_id else self._unknown(prefix, kind)

    def _amount(self, prefix: str, kind: str) -> Move | str:
        order = self._order(prefix, kind)
        if not isinstance(order, str):
            return order
        return self._details(order) or f"You paid {self.facts.details[order].amount}."

    def _cancel(self, prefix: str, kind: str) -> Move | str:
        order = self._order(prefix, kind, "reason")
        if not isinstance(order, str):
            return order
        if kind == "refund" and (read := self._details(order)):
            return read
        found = self._write("cancel_pending_order", {"order_id": order, "reason": self._told(prefix, "reason")})
        amount = f" {self.facts.details[order].amount} comes back." if kind == "refund" else ""
        return found + amount if isinstance(found, str) else found

    def _address(self, prefix: str, kind: str) -> Move | str:
        if kind == "order_address":
            order = self._order(prefix, kind, "address")
            if not isinstance(order, str):
                return order
            return self._write(
                "modify_pending_order_address", {"order_id": order, **read_place(self._told(prefix, "address"))}
            )
        if ask := self._ask(prefix, "address"):
            return ask
        place = read_place(self._told(prefix, "address"))
        return self._write("modify_user_address", {"user_id": self.facts.user_id, **place})

    def _payment(self, prefix: str, kind: str) -> Move | str:
        order = self._order(prefix, kind)
        if not isinstance(order, str):
            return order
        means = self._means("my gift card", order)
        if not isinstance(means, str):
            return means
        return self._write("modify_pending_order_payment", {"order_id": order, "payment_method_id": means})

    def _means(self, wanted: str, order: str) -> Move | str:
        """Return the way to pay that the customer names; the original one where there is a choice."""
        if "way I paid" in wanted:
            return self._details(order) or self.facts.details[order].paid_with
        if not self.facts.gift_card:
            return self._read("get_user_details", {"user_id": self.facts.user_id})
        return self.facts.gift_card

    def _item(self, prefix: str, kind: str) -> Move | tuple[str, str, str]:
        """Return order, item and way to pay, or the move that brings nearer to them."""
        order = self._order(prefix, kind, "item")
        if not isinstance(order, str):
            return order
        if move := self._ask(prefix, "payment", *(() if kind == "return" else ("options",))) or self._details(order):
            return move
        item = dict(self.facts.details[order].items).get(self._told(prefix, "item"))
        if item is None:
            raise _GivenUpError("the order does not hold the item")
        means = self._means(self._told(prefix, "payment"), order)
        return (order, item, means) if isinstance(means, str) else means

    def _return(self, prefix: str, kind: str) -> Move | str:
        found = self._item(prefix, kind)
        if not isinstance(found, tuple):
            return found
        order, item, means = found
        args = {"order_id": order, "item_ids": [item], "payment_method_id": means}
        return self._write("return_delivered_order_items", args)

    def _swap(self, prefix: str, kind: str) -> Move | str:
        found = self._item(prefix, kind)
        if not isinstance(found, tuple):
            return found
        new = self._variant(prefix)
        if not isinstance(new, tuple):
            return new
        order, item, means = found
        op = "exchange_delivered_order_items" if kind == "exchange" else "modify_pending_order_items"
        args = {"order_id": order, "item_ids": [item], "new_item_ids": [new[0]], "payment_method_id": means}
        return self._write(op, args)


def kind_of(request: str) -> str:
    """Return the kind of a request; empty if no words tell it."""
    return next((kind for kind, words in _KINDS if all(word in request for word in words)), "")
