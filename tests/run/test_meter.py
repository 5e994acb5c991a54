import threading
import time

import pytest

from rolecraft._run import Budget, Meter
from rolecraft.errors import BudgetExceededError, UserError


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("2.50usd", Budget(usd=2.5)),
        ("100ktok", Budget(tokens=100_000)),
        ("1.5Mtok", Budget(tokens=1_500_000)),
        ("10min", Budget(seconds=600)),
        ("2h", Budget(seconds=7200)),
        (" 1 usd, 30 s ", Budget(usd=1, seconds=30)),
    ],
)
def test_budgets_are_read(text, budget):
    assert Budget.parse(text) == budget


@pytest.mark.parametrize("text", ["", "10", "usd", "10eur", "-1usd", "0usd", "1usd,,2s", "1e3tok", "nan usd"])
def test_what_is_no_budget_is_refused_with_the_units(text):
    with pytest.raises(UserError, match="usd, tok, ktok"):
        Budget.parse(text)


def test_a_limit_given_twice_is_refused():
    with pytest.raises(UserError, match="seconds is limited twice"):
        Budget.parse("1min,30s")


def test_a_meter_counts_and_stops_at_its_budget():
    meter = Meter(Budget(tokens=100))
    meter.add(calls=1, prompt_tokens=60, new_tokens=30, cost=0.01)
    with pytest.raises(
        BudgetExceededError, match=r"budget of 100 tokens is used up \(110 tokens\).*--resume"
    ) as caught:
        meter.add(calls=1, prompt_tokens=20)
    assert caught.value.exit_code == 3
    assert meter.tokens == 110
    summary = meter.summary()
    assert summary.pop("seconds") >= 0
    assert summary == {"calls": 2, "prompt_tokens": 80, "new_tokens": 30, "cost": 0.01}


def test_money_and_time_stop_a_run_too():
    with pytest.raises(BudgetExceededError, match=r"0\.50 USD"):
        Meter(Budget(usd=0.5)).add(cost=0.5)
    meter = Meter(Budget(seconds=0.01))
    time.sleep(0.02)
    with pytest.raises(BudgetExceededError, match="min is used up"):
        meter.check()


def test_no_budget_is_no_limit():
    meter = Meter()
    meter.add(calls=10**9, prompt_tokens=10**12, cost=1e9)
    meter.check()


def test_threads_may_share_a_meter():
    meter = Meter()
    threads = [
        threading.Thread(target=lambda: [meter.add(calls=1, new_tokens=2) for _ in range(2000)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (meter.calls, meter.new_tokens) == (8000, 16000)
