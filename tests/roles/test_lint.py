import numpy as np
import pytest

from rolecraft.models import Embedder
from rolecraft.roles import Inventory, Question, QuestionBank, lint, load_inventory, load_questions, parse_role


class BagOfWords:
    """Embeds a text by the letters of its words: equal words, equal vector."""

    def encode(self, texts):
        vectors = np.zeros((len(texts), 512), np.float32)
        for row, text in enumerate(texts):
            for word in text.casefold().split():
                vectors[row, sum(word.encode()) % 512] += 1
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def core():
    return load_inventory("core-v1").select(["pirate", "poet", "chef"])


def rules(inventory, *args):
    return {(finding.role, finding.rule) for finding in lint(inventory, *args)}


def replaced(core, role_id, **changes):
    return Inventory("mine", "1", tuple(r.edited(**changes) if r.id == role_id else r for r in core))


def test_good_roles_pass(core):
    assert lint(core, load_questions("questions-v1"), BagOfWords()) == []


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        (
            {"questions": ("What does a Poet eat?",) * 1 + tuple(f"question {n}?" for n in range(10))},
            "name-in-question",
        ),
        ({"instructions": ("One.",)}, "thin"),
        ({"style": ""}, "thin"),
        ({"description": "You write."}, "thin"),
        ({"traits": {"calm": 1.5}}, "trait-range"),
        ({"relations": {"nobody": "friend"}}, "unknown-relation"),
        ({"name": "Chef"}, "duplicate-name"),
    ],
)
def test_each_rule_finds_its_fault(core, changes, rule):
    inventory = replaced(core, "poet", **changes)
    assert rule in {found for _, found in rules(inventory)}


def test_a_copy_is_a_near_duplicate(core):
    twin = core["poet"].edited(id="bard-like", name="Bardlike")
    assert ("bard-like", "near-duplicate") in rules(Inventory("mine", "1", (*core, twin)), None, BagOfWords())


def test_template_fill_is_found():
    made = [
        parse_role(
            {"id": name, "name": name, "description": "d", "instructions": [f"You are a {name} who loves work."]}, "x"
        )
        for name in ("miller", "baker", "cooper", "sawyer")
    ]
    assert ("miller", "template") in rules(Inventory("mine", "1", tuple(made)))


def test_extraction_questions_may_not_be_evaluation_questions(core):
    bank = QuestionBank(
        "b",
        "1",
        (Question(id="q1", text=core["poet"].questions[0].upper()), Question(id="q2", text="A pirate would say what?")),
    )
    found = rules(core, bank)
    assert ("poet", "leaked-question") in found
    assert ("pirate", "name-in-bank") in found


def test_ours_pass_with_the_real_embeddings():
    """Every 6th role keeps this quick; `rolecraft roles lint core-v1` looks at all of them."""
    core = load_inventory("core-v1")
    sample = Inventory(core.name, core.version, core.roles[::6])
    assert lint(sample, None, Embedder.load()) == []


def test_ours_pass_without_embeddings():
    assert lint(load_inventory("core-v1"), load_questions("questions-v1")) == []
