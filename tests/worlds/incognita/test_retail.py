"""The retail database: every rule of its policy, exact money, hashes, the generator and the loader."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.worlds import RETAIL_OPERATIONS, Retail, load_retail, make_retail, retail_hash
from rolecraft.worlds.incognita._retail import ADDRESS, REASONS, UNCONFIRMED, cents, money
from rolecraft.worlds.incognita._words import in_words, read_calls

PLACE = dict(zip(ADDRESS, ("1 Oak Street", "Suite 2", "Austin", "TX", "USA", "10001"), strict=True))
CARD, OTHER, GIFT = "credit_card_0000001", "paypal_0000002", "gift_card_0000003"


def variant(item_id: str, color: str, price: float, available: bool = True) -> dict[str, Any]:
    return {"item_id": item_id, "options": {"color": color}, "available": available, "price": price}


def line(item_id: str, price: float) -> dict[str, Any]:
    return {
        "name": "Lamp", "product_id": "5000000000", "item_id": item_id, "price": price, "options": {"color": "red"},
    }  # fmt: skip


def order(order_id: str, status: str, items: list[dict[str, Any]], user: str = "ada_berg_1000") -> dict[str, Any]:
    total = sum(cents(item["price"]) for item in items) / 100
    return {
        "order_id": order_id, "user_id": user, "address": dict(PLACE), "items": items, "fulfillments": [],
        "status": status,
        "payment_history": [{"transaction_type": "payment", "amount": total, "payment_method_id": CARD}],
    }  # fmt: skip


def small() -> dict[str, dict[str, Any]]:
    """One product, two customers, a pending and a delivered order of the first and a pending one of the second."""

    def user(first: str, email: str, orders: list[str]) -> dict[str, Any]:
        means = {
            CARD: {"source": "credit_card", "id": CARD}, OTHER: {"source": "paypal", "id": OTHER},
            GIFT: {"source": "gift_card", "id": GIFT, "balance": 10.10},
        }  # fmt: skip
        return {
            "name": {"first_name": first, "last_name": "Berg"}, "address": dict(PLACE), "email": email,
            "payment_methods": means, "orders": orders,
        }  # fmt: skip

    red, blue = variant("1000000001", "red", 20.10), variant("1000000002", "blue", 30.20)
    green, gone = variant("1000000003", "green", 15.05), variant("1000000004", "white", 20.0, available=False)
    lamp = {"name": "Lamp", "product_id": "5000000000", "variants": {v["item_id"]: v for v in (red, blue, green, gone)}}
    orders = [
        order("#W1000000", "pending", [line("1000000001", 20.10), line("1000000003", 15.05)]),
        order("#W2000000", "delivered", [line("1000000001", 20.10), line("1000000001", 20.10)]),
        order("#W3000000", "pending", [line("1000000001", 20.10)], "bea_berg_2000"),
        order("#W4000000", "processed", [line("1000000001", 20.10)]),
    ]
    return {
        "users": {
            "ada_berg_1000": user("Ada", "ada@example.com", ["#W1000000", "#W2000000", "#W4000000"]),
            "bea_berg_2000": user("Bea", "bea@example.com", ["#W3000000"]),
        },
        "orders": {each["order_id"]: each for each in orders},
        "products": {"5000000000": lamp},
    }


@pytest.fixture
def shop() -> Retail:
    found = Retail(small())
    found.propose("find_user_id_by_email", {"email": "ADA@example.com"})
    return found


def refusal(shop: Retail, op: str, **args: Any) -> str:
    before = copy.deepcopy(shop.data)
    assert shop.propose(op, args) is None
    receipt = shop.receipts[-1]
    assert not receipt.accepted
    assert receipt.before == receipt.after == shop.hash
    assert shop.data == before, "a refused operation changes nothing"
    return receipt.reason


def accepted(shop: Retail, op: str, **args: Any) -> Any:
    found = shop.propose(op, args)
    receipt = shop.receipts[-1]
    assert receipt.accepted, receipt.reason
    assert (receipt.before != receipt.after) == RETAIL_OPERATIONS[op].writes
    assert receipt.after == retail_hash(shop.data)
    return found


WRITES: dict[str, dict[str, Any]] = {
    "modify_user_address": {"user_id": "ada_berg_1000", **PLACE, "zip": "20002"},
    "return_delivered_order_items": {
        "order_id": "#W2000000", "item_ids": ["1000000001"], "payment_method_id": CARD,
    },
    "exchange_delivered_order_items": {
        "order_id": "#W2000000", "item_ids": ["1000000001"], "new_item_ids": ["1000000003"], "payment_method_id": CARD,
    },
    "cancel_pending_order": {"order_id": "#W1000000", "reason": REASONS[0]},
    "modify_pending_order_address": {"order_id": "#W1000000", **PLACE, "zip": "20002"},
    "modify_pending_order_items": {
        "order_id": "#W1000000", "item_ids": ["1000000001"], "new_item_ids": ["1000000002"], "payment_method_id": CARD,
    },
    "modify_pending_order_payment": {"order_id": "#W1000000", "payment_method_id": OTHER},
}  # fmt: skip


def test_every_write_of_the_policy_is_here() -> None:
    assert set(WRITES) == {op for op, spec in RETAIL_OPERATIONS.items() if spec.writes}


@pytest.mark.parametrize("op", WRITES)
def test_writes_need_a_customer_who_was_looked_up_and_who_agrees(shop: Retail, op: str) -> None:
    assert "not authenticated" in refusal(Retail(small()), op, **WRITES[op])
    shop.propose(op, WRITES[op], confirmed=False)
    assert shop.receipts[-1].reason == UNCONFIRMED
    assert shop.hash == retail_hash(small())
    accepted(shop, op, **WRITES[op])


@pytest.mark.parametrize("op", [op for op in WRITES if op != "modify_user_address"])
def test_orders_of_other_customers_are_refused(op: str) -> None:
    shop = Retail(small())
    accepted(shop, "find_user_id_by_email", email="bea@example.com")
    assert "another customer's" in refusal(shop, op, **WRITES[op])
    assert "no order" in refusal(shop, op, **{**WRITES[op], "order_id": "#W9999999"})


def test_reading_needs_the_customer_too_but_the_catalog_is_public(shop: Retail) -> None:
    bare = Retail(small())
    assert "not authenticated" in refusal(bare, "get_order_details", order_id="#W1000000")
    assert accepted(bare, "list_all_product_types") == {"Lamp": "5000000000"}
    assert accepted(bare, "get_product_details", product_id="5000000000")["name"] == "Lamp"
    assert "no product" in refusal(bare, "get_product_details", product_id="1000000001")
    assert "not the customer" in refusal(shop, "get_user_details", user_id="bea_berg_2000")
    assert accepted(shop, "get_user_details", user_id="ada_berg_1000")["email"] == "ada@example.com"


def test_customers_are_found_by_email_or_by_name_and_zip_and_only_one_a_conversation(shop: Retail) -> None:
    assert shop.user == "ada_berg_1000"
    named = {"first_name": "ada", "last_name": "BERG", "zip": "10001"}
    assert accepted(shop, "find_user_id_by_name_zip", **named) == "ada_berg_1000"
    assert "no customer" in refusal(shop, "find_user_id_by_name_zip", **{**named, "zip": "10002"})
    assert "another customer is being helped" in refusal(shop, "find_user_id_by_email", email="bea@example.com")
    assert shop.user == "ada_berg_1000"


@pytest.mark.parametrize(
    ("op", "status"), [(op, args["order_id"]) for op, args in WRITES.items() if "order_id" in args]
)
def test_only_orders_of_the_right_status_change(shop: Retail, op: str, status: str) -> None:
    for other in {"#W1000000", "#W2000000", "#W4000000"} - {status}:
        assert "not " in refusal(shop, op, **{**WRITES[op], "order_id": other})


@pytest.mark.parametrize("op", [op for op, args in WRITES.items() if "item_ids" in args])
def test_items_change_once(shop: Retail, op: str) -> None:
    accepted(shop, op, **WRITES[op])
    assert refusal(shop, op, **WRITES[op])
    if op == "modify_pending_order_items":
        assert "(item modified), not pending" in refusal(shop, "cancel_pending_order", **WRITES["cancel_pending_order"])


def test_cancelling_refunds_each_payment_and_gift_cards_at_once(shop: Retail) -> None:
    shop.data["orders"]["#W1000000"]["payment_history"][0]["payment_method_id"] = GIFT
    found = accepted(shop, "cancel_pending_order", order_id="#W1000000", reason="ordered by mistake")
    assert found["status"] == "cancelled"
    assert found["cancel_reason"] == "ordered by mistake"
    assert found["payment_history"][1:] == [{"transaction_type": "refund", "amount": 35.15, "payment_method_id": GIFT}]
    assert shop.data["users"]["ada_berg_1000"]["payment_methods"][GIFT]["balance"] == 45.25
    assert "reason must be" in refusal(Retail(small(), "ada_berg_1000"), "cancel_pending_order", order_id="#W1000000", reason="I am bored")  # fmt: skip # noqa: E501


def test_a_new_item_is_an_available_variant_of_the_same_product_and_the_difference_is_exact(shop: Retail) -> None:
    args = WRITES["modify_pending_order_items"]
    for new, why in [
        ("9999999999", "not of the same product"), ("1000000004", "not available"), ("1000000001", "same as before"),
    ]:  # fmt: skip
        assert why in refusal(shop, "modify_pending_order_items", **{**args, "new_item_ids": [new]})
    assert "one new item for each" in refusal(
        shop, "modify_pending_order_items", **{**args, "new_item_ids": ["1000000002", "1000000002"]}
    )
    assert "does not hold" in refusal(shop, "modify_pending_order_items", **{**args, "item_ids": ["1000000002"]})
    found = accepted(shop, "modify_pending_order_items", **{**args, "payment_method_id": GIFT})
    assert found["status"] == "pending (item modified)"
    assert found["payment_history"][1] == {"transaction_type": "payment", "amount": 10.1, "payment_method_id": GIFT}
    assert shop.data["users"]["ada_berg_1000"]["payment_methods"][GIFT]["balance"] == 0
    assert [item["item_id"] for item in found["items"]] == ["1000000002", "1000000003"]
    assert found["items"][0]["price"] == 30.2


def test_a_gift_card_must_cover_the_difference_to_the_cent(shop: Retail) -> None:
    shop.data["users"]["ada_berg_1000"]["payment_methods"][GIFT]["balance"] = 10.09
    args = {**WRITES["exchange_delivered_order_items"], "new_item_ids": ["1000000002"], "payment_method_id": GIFT}
    assert "does not cover 10.10" in refusal(shop, "exchange_delivered_order_items", **args)
    shop.data["users"]["ada_berg_1000"]["payment_methods"][GIFT]["balance"] = 10.10
    found = accepted(shop, "exchange_delivered_order_items", **args)
    assert found["exchange_price_difference"] == 10.1
    assert found["exchange_new_items"] == ["1000000002"]


def test_a_cheaper_item_gives_money_back(shop: Retail) -> None:
    args = {**WRITES["modify_pending_order_items"], "new_item_ids": ["1000000003"], "payment_method_id": GIFT}
    found = accepted(shop, "modify_pending_order_items", **args)
    assert found["payment_history"][1] == {"transaction_type": "refund", "amount": 5.05, "payment_method_id": GIFT}
    assert shop.data["users"]["ada_berg_1000"]["payment_methods"][GIFT]["balance"] == 15.15


def test_returns_are_refunded_to_the_original_method_or_a_gift_card(shop: Retail) -> None:
    args = WRITES["return_delivered_order_items"]
    assert "original payment method" in refusal(
        shop, "return_delivered_order_items", **{**args, "payment_method_id": OTHER}
    )
    assert "no payment method" in refusal(shop, "return_delivered_order_items", **{**args, "payment_method_id": "x"})
    three = {**args, "item_ids": ["1000000001"] * 3}
    assert "that often" in refusal(shop, "return_delivered_order_items", **three)
    found = accepted(shop, "return_delivered_order_items", **{**three, "item_ids": ["1000000001"] * 2, "payment_method_id": GIFT})  # fmt: skip # noqa: E501
    assert (found["status"], found["return_items"]) == ("return requested", ["1000000001"] * 2)


def test_the_payment_of_an_order_changes_once_to_another_method_that_covers_it(shop: Retail) -> None:
    op = "modify_pending_order_payment"
    assert "already" in refusal(shop, op, order_id="#W1000000", payment_method_id=CARD)
    assert "does not cover 35.15" in refusal(shop, op, order_id="#W1000000", payment_method_id=GIFT)
    shop.data["users"]["ada_berg_1000"]["payment_methods"][GIFT]["balance"] = 35.15
    found = accepted(shop, op, order_id="#W1000000", payment_method_id=GIFT)
    assert [(row["transaction_type"], row["payment_method_id"]) for row in found["payment_history"]] == [
        ("payment", CARD), ("payment", GIFT), ("refund", CARD),
    ]  # fmt: skip
    assert shop.data["users"]["ada_berg_1000"]["payment_methods"][GIFT]["balance"] == 0
    assert "only once" in refusal(shop, op, order_id="#W1000000", payment_method_id=OTHER)


@pytest.mark.parametrize(
    ("op", "args", "why"),
    [
        ("erase_order", {}, "no operation 'erase_order'"),
        ("cancel_pending_order", {"order_id": "#W1000000"}, "wrong or missing: reason"),
        ("cancel_pending_order", {"order_id": "#W1", "reason": REASONS[0], "now": "yes"}, "wrong or missing: now"),
        ("return_delivered_order_items", {"order_id": "#W2", "item_ids": "1", "payment_method_id": CARD}, "item_ids"),
        ("return_delivered_order_items", {"order_id": "#W2", "item_ids": [], "payment_method_id": CARD}, "item_ids"),
        ("return_delivered_order_items", {"order_id": "#W2", "item_ids": [1], "payment_method_id": CARD}, "item_ids"),
    ],
)  # fmt: skip
def test_arguments_are_checked(shop: Retail, op: str, args: dict[str, Any], why: str) -> None:
    assert why in refusal(shop, op, **args)


def test_a_whitelist_holds_before_everything_else() -> None:
    shop = Retail(small())
    shop.propose("cancel_pending_order", {}, by="Aster", allowed=("get_user_details",))
    assert shop.receipts[-1].reason == "cancel_pending_order is outside the remit"
    assert shop.receipts[-1].by == "Aster"


@given(st.integers(-10_000_000, 10_000_000))
def test_cents_and_money_are_inverse(amount: int) -> None:
    assert cents(amount / 100) == amount
    assert cents(float(money(amount / 100))) == amount


def test_half_a_cent_and_sums_of_floats() -> None:
    assert (cents(0.005), cents(-0.005), cents(0.1 + 0.2), cents(1319.4299999999998)) == (1, -1, 30, 131943)


def test_the_hash_ignores_the_order_of_keys_but_not_of_lists_and_no_value() -> None:
    data = small()
    turned = json.loads(json.dumps(data, sort_keys=True))
    assert retail_hash(data) == retail_hash(turned)
    turned["orders"]["#W1000000"]["items"].reverse()
    assert retail_hash(data) != retail_hash(turned)
    data["users"]["bea_berg_2000"]["address"]["zip"] = "10009"
    assert retail_hash(data) != retail_hash(small())


def test_a_conversation_never_changes_the_database_it_was_made_from() -> None:
    data = small()
    shop = Retail(data)
    accepted(shop, "find_user_id_by_email", email="ada@example.com")
    accepted(shop, "cancel_pending_order", **WRITES["cancel_pending_order"])
    assert data == small()


# The generator and the loader


def test_the_generator_is_deterministic_and_sound() -> None:
    data = make_retail(3, users=6)
    assert retail_hash(data) == retail_hash(make_retail(3, users=6)) != retail_hash(make_retail(4, users=6))
    assert len(data["users"]) == 6
    for user_id, user in data["users"].items():
        orders = [data["orders"][name] for name in user["orders"]]
        statuses = [each["status"] for each in orders]
        assert statuses.count("pending") >= 2
        assert statuses.count("delivered") >= 2
        assert sum(means["source"] == "gift_card" for means in user["payment_methods"].values()) == 1
        for each in orders:
            assert each["user_id"] == user_id
            [payment] = each["payment_history"]
            assert cents(payment["amount"]) == sum(cents(item["price"]) for item in each["items"])
            for item in each["items"]:
                variant = data["products"][item["product_id"]]["variants"][item["item_id"]]
                assert (variant["price"], variant["options"]) == (item["price"], item["options"])
    with pytest.raises(UserError, match="users must be 1 to 144, got 0"):
        make_retail(0, users=0)


def write_tables(folder: Path, data: dict[str, Any]) -> None:
    for table, rows in data.items():
        (folder / f"{table}.json").write_text(json.dumps(rows))


def test_the_original_layout_is_read(tmp_path: Path) -> None:
    write_tables(tmp_path, small())
    assert retail_hash(load_retail(tmp_path)) == retail_hash(small())


def test_damaged_files_are_named(tmp_path: Path) -> None:
    data = small()
    del data["orders"]["#W1000000"]["status"]
    write_tables(tmp_path, data)
    with pytest.raises(UserError, match=r"orders\.json: '#W1000000' has no 'status'"):
        load_retail(tmp_path)
    data = small()
    data["orders"]["#W1000000"]["user_id"] = "nobody"
    write_tables(tmp_path, data)
    with pytest.raises(UserError, match="'#W1000000' names user 'nobody'"):
        load_retail(tmp_path)
    (tmp_path / "products.json").unlink()
    with pytest.raises(UserError, match=r"products\.json"):
        load_retail(tmp_path)
    (tmp_path / "users.json").write_text("[]")
    with pytest.raises(UserError, match="expected an object of users by id"):
        load_retail(tmp_path)


# Operations in words


@pytest.mark.parametrize("op", [op for op in RETAIL_OPERATIONS if op != "list_all_product_types"])
def test_what_is_said_is_read_back(op: str) -> None:
    reads = {
        "find_user_id_by_email": {"email": "ada@example.com"},
        "find_user_id_by_name_zip": {"first_name": "Ada", "last_name": "Berg", "zip": "10001"},
        "get_user_details": {"user_id": "ada_berg_1000"}, "get_order_details": {"order_id": "#W1000000"},
        "get_product_details": {"product_id": "5000000000"},
    }  # fmt: skip
    args = {**WRITES, **reads}[op]
    [call] = read_calls(f"Please {in_words(op, args)}.", [op])
    assert (call.op, call.args, call.missing) == (op, args, ())


def test_what_a_message_lacks_is_named_and_other_words_call_for_nothing() -> None:
    [call] = read_calls("cancel it, no longer needed", ["cancel_pending_order"])
    assert (call.args, call.missing) == ({"reason": "no longer needed"}, ("order_id",))
    assert read_calls("good morning", list(RETAIL_OPERATIONS)) == []
    assert [call.args["order_id"] for call in read_calls("#W1000000, #W2000000, #W1000000", ["get_order_details"])] == [
        "#W1000000", "#W2000000",
    ]  # fmt: skip
