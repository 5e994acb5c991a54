"""`rolecraft guard` as a user types it, on the example files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

HERE = Path(__file__).parents[2] / "examples" / "guard"
BANK, NARROWER, TOOLS, CALLS = (
    HERE / name for name in ("bank.yaml", "bank-narrower.yaml", "tools.json", "calls.jsonl")
)


def test_check_says_what_becomes_of_every_call(rolecraft):
    code, out, _ = rolecraft("guard", "check", BANK, CALLS, "--tools", TOOLS, "--json")
    found = json.loads(out)
    effects = [row["effect"] for row in found["calls"]]
    assert effects == ["allow", "allow", "block", "allow", "block", "ask", "ask", "stop", "allow", "block", "block"]
    assert (code, found["allowed"]) == (1, 4)
    code, out, _ = rolecraft("guard", "check", BANK, CALLS, "--tools", TOOLS)
    assert code == 1
    assert "11 calls: 4 allowed, 7 not" in out
    assert "treasurer.send_money[0]" in out


def test_check_of_calls_that_all_pass_and_the_role_option(rolecraft, tmp_path):
    calls = tmp_path / "c.jsonl"
    calls.write_text('{"name": "send_money", "arguments": {"recipient": "new", "amount": 2000}}\n\n')
    assert rolecraft("guard", "check", BANK, calls)[0] == 1
    assert rolecraft("guard", "check", BANK, calls, "--role", "treasurer")[0] == 0


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "no calls"),
        ("[]\n", "expected an object with a name"),
        ('{"name": 3}\n', "expected an object with a name"),
        ('{"name": "t", "args": {}}\n', "Did you mean"),
        ('{"name": "t", "role": 3}\n', "role: expected"),
        ('{"name": "t"\n', "c.jsonl:1"),
        ('{"name": "t", "arguments": {"n": NaN}}\n', "NaN"),
    ],
)
def test_calls_that_cannot_be_read_end_in_one_message(rolecraft, tmp_path, text, part):
    calls = tmp_path / "c.jsonl"
    calls.write_text(text)
    code, _, err = rolecraft("guard", "check", BANK, calls)
    assert code == 2
    assert part in err


def test_lint_of_a_sound_and_of_a_flawed_policy(rolecraft, tmp_path):
    code, out, _ = rolecraft("guard", "lint", BANK, "--tools", TOOLS)
    assert code == 0
    assert "3 tools, 0 errors, 0 warnings" in out
    flawed = tmp_path / "p.yaml"
    flawed.write_text("tools: {send_mony: [{}], send_money: [{when: {amount: {pattern: '^5$'}}}]}")
    code, out, _ = rolecraft("guard", "lint", flawed, "--tools", TOOLS, "--json")
    assert code == 1
    assert {entry["kind"] for entry in json.loads(out)} >= {"unknown-tool", "argument-type"}
    flawed.write_text("tools: {send_money: [{whn: {}}]}")
    code, _, err = rolecraft("guard", "lint", flawed)
    assert code == 2
    assert "Did you mean 'when'" in err


def test_diff_says_which_allows_less_with_a_call(rolecraft):
    code, out, _ = rolecraft("guard", "diff", BANK, NARROWER, "--tools", TOOLS)
    assert code == 0
    assert "allows less than" in out
    code, out, _ = rolecraft("guard", "diff", NARROWER, BANK, "--tools", TOOLS, "--json")
    found = json.loads(out)
    assert code == 1
    assert found["relation"] == "wider"
    money = next(row for row in found["tools"] if row["tool"] == "send_money")
    assert money["gained"]["amount"] > 50 or money["gained"]["recipient"] != "GB29NWBK60161331926819"
    assert rolecraft("guard", "diff", BANK, BANK)[:2] == (0, f"{BANK} allows what {BANK} allows.\n")
