"""Theories as files: what they may say, what the errors name, and the files that are shipped."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rolecraft.errors import UserError
from rolecraft.guard.reasons import PriorityCycle, judge, load_claims, load_theory, make_claims, make_theory, verify

ROOT = Path(__file__).parents[3]
SHIPPED = [*sorted((ROOT / "src/rolecraft/systems/guard/theories").glob("*.yaml")), ROOT / "examples/guard/grace.yaml"]
DATA = {
    "facts": {"drowning": "somebody is in the water", "storm": ""},
    "actions": ["rescue", "deliver", "cross", "wait"],
    "exclusive": [["rescue", "deliver"]],
    "rules": [{"if": ["storm"], "then": "not cross"}],
    "reasons": {
        "life": {"if": ["drowning"], "then": "rescue", "why": "a life"},
        "word": {"then": "deliver"},
        "calm": {"if": ["not storm"], "then": "cross"},
    },
    "priorities": ["life > word > calm"],
    "claims": [{"when": ["drowning"], "obligatory": "rescue"}],
}


def changed(**fields):
    return {**copy.deepcopy(DATA), **fields}


def test_a_file_says_all_of_it(tmp_path):
    (tmp_path / "harbour.yaml").write_text(yaml.safe_dump(DATA, sort_keys=False))
    theory = load_theory(tmp_path / "harbour.yaml")
    assert theory.name == "harbour"
    assert theory.safe == "wait"
    assert theory.order == {("word", "life"), ("calm", "word"), ("calm", "life")}
    assert judge(theory, ["drowning"]).obligatory == {"rescue"}
    assert judge(theory, ["storm"]).forbidden == {"cross", "rescue"}
    assert theory.described["drowning"] == "somebody is in the water"
    (claim,) = load_claims(tmp_path / "harbour.yaml")
    assert verify(theory, claim).holds
    assert theory == make_theory(DATA, where="harbour")


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        ({"reason": {}}, "unknown field 'reason'.*Did you mean 'reasons'"),
        ({"reasons": {"life": {"if": ["drowning"], "than": "rescue"}}}, "reasons.life: unknown field 'than'.*'then'"),
        ({"reasons": {"life": {"if": ["drowning"]}}}, "reasons.life: expected then"),
        ({"reasons": {"life": {"if": "drowning", "then": "rescue"}}}, r"reasons.life.if: expected a list"),
        ({"reasons": {"life": {"if": ["drownin"], "then": "rescue"}}}, "'drownin'.*Did you mean 'drowning'"),
        ({"reasons": {"life": {"then": "storm"}}}, "'storm' is no macro action"),
        ({"reasons": {"life": {"then": True}}}, "quoted where YAML"),
        ({"reasons": ["life"]}, "reasons: expected a mapping"),
        ({"priorities": ["life"]}, "such as 'rescue > promise'"),
        ({"priorities": ["life > wort"]}, "no reason 'wort'.*Did you mean 'word'"),
        ({"exclusive": [["rescue", "rescue"]]}, "two or more different"),
        ({"exclusive": ["rescue"]}, "expected a list"),
        ({"safe": 3}, "safe: expected text"),
        ({"name": 3}, "name: expected text"),
        ({"actions": ["a", "a"]}, "stands twice"),
        ({"facts": {"no": {"x": 1}}}, "expected text"),
        ({"rules": [{"if": ["storm"]}]}, "expected a name"),
    ],
)
def test_faulty_files_name_the_place(fields, part):
    others = {"priorities": []} if "reasons" in fields else {}
    with pytest.raises(UserError, match=part) as caught:
        make_theory(changed(**others, **fields), where="harbour.yaml")
    assert str(caught.value).startswith("harbour.yaml")


def test_circles_and_other_documents():
    with pytest.raises(PriorityCycle, match=r"^h: .*life < "):
        make_theory(changed(priorities=["life > word", "word > life"]), where="h")
    for data in (None, [], "text"):
        with pytest.raises(UserError, match="expected a mapping"):
            make_theory(data)


@pytest.mark.parametrize("claim", [{"when": []}, {"obligatory": "a", "forbidden": "b"}, {"obligatry": "a"}, "text"])
def test_faulty_claims(claim):
    with pytest.raises(UserError, match=r"claims\[0\]"):
        make_claims(changed(claims=[claim]))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_what_is_shipped_proves_its_claims(path):
    theory = load_theory(path)
    for claim in load_claims(path):
        assert verify(theory, claim).holds, claim


def test_the_example_runs():
    done = subprocess.run(
        [sys.executable, "grace.py"], cwd=ROOT / "examples/guard", capture_output=True, text=True, check=True
    )
    assert "escalate is obligatory" in done.stdout
    assert "counsel -> Decision(effect='block', rule='suicide-risk'" in done.stdout
    assert "escalate -> Decision(effect='allow'" in done.stdout
    assert "proved" in done.stdout
    assert "learned" in done.stdout
