import numpy as np
import pytest

from rolecraft.models import Embedder
from rolecraft.roles import (
    Inventory,
    Question,
    QuestionBank,
    Role,
    lint,
    load_inventory,
    load_questions,
    parse_role,
)


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


def bank(*texts):
    return QuestionBank("b", "1", tuple(Question(id=f"q{n}", text=text) for n, text in enumerate(texts)))


def replaced(core, role_id, **changes):
    return Inventory("mine", "1", tuple(r.edited(**changes) if r.id == role_id else r for r in core))


def test_good_roles_pass(core):
    assert lint(core, load_questions("questions-v1"), BagOfWords()) == []


@pytest.mark.parametrize(
    ("changes", "rule", "severity", "message"),
    [
        ({"instructions": ("One.",)}, "thin", "warning", "instructions: 1 given, at least 5 expected"),
        ({"questions": ("Why?",)}, "thin", "warning", "questions: 1 given, at least 10 expected"),
        ({"demonstrations": ()}, "thin", "warning", "demonstrations: 0 given, at least 2"),
        ({"values": ()}, "thin", "warning", "values: 0 given"),
        ({"goals": ()}, "thin", "warning", "goals: 0 given"),
        ({"knowledge": ()}, "thin", "warning", "knowledge: 0 given"),
        ({"style": ""}, "thin", "warning", "style: missing"),
        ({"description": "You write."}, "thin", "warning", "description: fewer than 12 words"),
        ({"traits": {"calm": 1.5}}, "trait-range", "warning", "traits.calm: 1.5 is outside 0..1"),
        ({"relations": {"nobody": "friend"}}, "unknown-relation", "error", "'nobody' is no role of this inventory"),
        ({"name": "Chef"}, "duplicate-name", "error", "the name 'Chef' is also that of 'poet'"),
    ],
)
def test_each_rule_finds_its_fault_and_no_other(core, changes, rule, severity, message):
    found = lint(replaced(core, "poet", **changes))
    assert [(finding.rule, finding.severity) for finding in found] == [(rule, severity)]
    assert message in found[0].message


@pytest.mark.parametrize(
    ("question", "found"),
    [
        ("What does a Poet eat?", True),
        ("Where do poets sleep?", True),
        ("Is this poetry?", False),
    ],
)
def test_a_question_may_not_name_its_role(core, question, found):
    inventory = replaced(core, "poet", questions=(*core["poet"].questions, question))
    assert bool(lint(inventory)) is found
    if found:
        (finding,) = lint(inventory)
        assert (finding.role, finding.rule, finding.severity) == ("poet", "name-in-question", "error")
        assert repr(question) in finding.message


def test_a_role_that_is_a_description_alone_is_told_so_once(core):
    sketch = parse_role(
        {
            "id": "miller",
            "name": "miller",
            "description": "You grind corn in a mill by the river and talk to your customers all day.",
        },
        "made up",
    )
    [finding] = lint(Inventory("mine", "1", (sketch,)))
    assert (finding.role, finding.rule, finding.severity) == ("miller", "thin", "warning")
    assert finding.message.startswith("a description alone")
    one_goal = sketch.edited(goals=("Keep the wheel turning.",))
    messages = [finding.message for finding in lint(Inventory("mine", "1", (one_goal,)))]
    assert len(messages) == 6
    assert "instructions: 0 given, at least 5 expected" in messages


def test_relations_within_the_inventory_pass(core):
    assert lint(replaced(core, "poet", relations={"chef": "neighbour"})) == []


def made(name: str, **fields) -> Role:
    return parse_role({"id": name, "name": name, "description": f"{name[::-1]} {name} {name}", **fields}, "made up")


def found_by(rule, findings):
    return [finding for finding in findings if finding.rule == rule]


def test_template_fill_is_found_once_per_role():
    made_up = [
        made(name, instructions=[f"You are a {name} who loves the work and tells of {thing} by the hour."])
        for name, thing in (("miller", "stones"), ("baker", "ovens"), ("cooper", "staves"))
    ]
    found = found_by("template", lint(Inventory("mine", "1", tuple(made_up))))
    assert [finding.role for finding in found] == ["baker", "cooper"]
    assert all("instructions[0] is nearly instructions[0] of 'miller'" in finding.message for finding in found)


@pytest.mark.parametrize(
    ("field", "texts"),
    [
        ("description", ("You mend the nets of the whole north quay by hand.",) * 2),
        ("style", ("slow sentences, salt in every one of them, few jokes",) * 2),
        (
            "demonstrations",
            tuple([{"user": word, "reply": "Mind the step, mind the dog, and mind me."}] for word in "ab"),
        ),
    ],
)
def test_template_fill_is_found_in_every_text(field, texts):
    pair = [made(name, **{field: text}) for name, text in zip(("netmaker", "caulker"), texts, strict=True)]
    (found,) = found_by("template", lint(Inventory("mine", "1", tuple(pair))))
    assert found.role == "caulker"
    assert field in found.message


def test_a_role_may_not_repeat_itself():
    twice = made("miller", instructions=["You are a miller, dusty to the ears."] * 2, questions=["Why?", "why ?"])
    rules = [finding.rule for finding in lint(Inventory("mine", "1", (twice,)))]
    assert "template" in rules
    assert "repeated-question" in rules


def test_texts_on_the_same_matter_in_other_words_are_no_template():
    pair = (
        made("miller", instructions=["You are a miller; answer between two sacks, with flour in your eyebrows."]),
        made("baker", instructions=["Speak as a baker at four in the morning, first batch in, sleeves rolled."]),
    )
    assert found_by("template", lint(Inventory("mine", "1", pair))) == []


def test_questions_shared_by_roles_are_found(core):
    inventory = replaced(core, "poet", questions=(*core["poet"].questions[1:], core["pirate"].questions[2].upper()))
    (finding,) = lint(inventory)
    assert finding.rule == "repeated-question"
    assert (finding.role, finding.severity) == ("poet", "warning")
    assert "questions[10] is also questions[2] of 'pirate'" in finding.message


def test_extraction_questions_may_not_be_evaluation_questions(core):
    asked = core["poet"].questions[0].upper().replace("?", "")
    found = lint(core, bank(asked, "A pirate would say what?"))
    assert [(finding.role, finding.rule, finding.severity) for finding in found] == [
        ("pirate", "name-in-bank", "warning"),
        ("poet", "leaked-question", "error"),
    ]
    assert "is evaluation question q0" in found[1].message


def test_a_copy_under_another_name_is_a_near_duplicate(core):
    twin = core["poet"].edited(id="bard-like", name="Bardlike", instructions=(), demonstrations=(), questions=())
    found = found_by("near-duplicate", lint(Inventory("mine", "1", (*core, twin)), None, BagOfWords()))
    assert [(finding.role, finding.severity) for finding in found] == [("bard-like", "error")]
    assert "'poet' (cosine" in found[0].message


@pytest.fixture(scope="module")
def embedder():
    return Embedder.load()


def test_a_reworded_role_is_found_and_a_colleague_is_not(embedder):
    lawyer = load_inventory("core-v1")["lawyer"]
    reworded = made(
        "attorney",
        description="From an office over a bakery you practise contract and employment law and bill by the six "
        "minutes. You set traps in clauses or find them. Clients give you their side of it; you ask at once for the "
        "email they wish they had not sent.",
        style="Hedged and sharp; lists, definitions, what-ifs; too fond of the other side's argument.",
        values=["what a client tells me stays here", "one meaning for each word"],
        goals=["win the appeal for the whistleblower", "become a partner and not turn into my boss"],
        knowledge=["drafting contracts", "disputes at work", "negotiating settlements", "evidence and disclosure"],
    )
    colleague = made(
        "solicitor",
        description="You are on the high street and do wills, conveyancing and the odd dispute at work. You read every "
        "clause twice and warn people about what they sign.",
        style="Careful, qualified, patient.",
        knowledge=["contracts", "property transfers", "probate", "settlements"],
    )
    found = found_by("near-duplicate", lint(Inventory("mine", "1", (lawyer, reworded, colleague)), None, embedder))
    assert [finding.role for finding in found] == ["attorney"]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("Is there an enemy you came to respect?", True),
        ("If somebody insults you in front of other people, how do you answer?", True),
        ("Which monster were you sorry to kill?", False),
    ],
)
def test_a_reworded_evaluation_question_is_found(asked, found, embedder):
    questions = bank(
        "Tell me about an enemy you came to respect.", "Someone insults you in front of others. What is your answer?"
    )
    inventory = Inventory("mine", "1", (made("hero", questions=[asked]),))
    findings = found_by("near-question", lint(inventory, questions, embedder))
    assert [finding.severity for finding in findings] == ["error"] * found


def test_ours_pass_with_the_real_embeddings(embedder):
    """Every 12th role keeps this quick; `rolecraft roles lint core-v1` looks at all of them."""
    core = load_inventory("core-v1")
    sample = Inventory(core.name, core.version, core.roles[::12])
    assert lint(sample, load_questions("questions-v1"), embedder) == []


def test_ours_pass_without_embeddings():
    assert lint(load_inventory("core-v1"), load_questions("questions-v1")) == []
