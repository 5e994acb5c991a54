import pytest

from rolecraft.conditioning import LADDER, NEUTRAL_PROMPTS, assigned, conditioned, neutral_prompts, prompted
from rolecraft.conditioning._prompts import opposites, with_article
from rolecraft.errors import RoleError, UserError
from rolecraft.roles import load_inventory
from rolecraft.testing._scripts import find_role
from tests.conditioning.planted import role


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Pirate", "a Pirate"),
        ("Ant Colony", "an Ant Colony"),
        ("University Dean", "a University Dean"),
        ("Unemployed Graduate", "an Unemployed Graduate"),
        ("NGO Director", "an NGO Director"),
        ("UN Ambassador", "a UN Ambassador"),
        ("ICJ Judge", "an ICJ Judge"),
        ("PTA President", "a PTA President"),
        ("Honest Broker", "an Honest Broker"),
        ("Wind", "a Wind"),
    ],
)
def test_articles(name: str, said: str) -> None:
    assert with_article(name) == said


def test_the_reference_holds_all_the_profile_says() -> None:
    pirate = load_inventory("core-v1")["pirate"]
    messages = prompted(pirate, "How are you?")
    system = messages[0]["content"]
    assert messages[0]["role"] == "system"
    assert system.startswith("You are a Pirate. " + pirate.description)
    assert pirate.style in system
    assert all(phrase in system for phrase in pirate.catchphrases)
    assert "Never say or hint that you are an AI" in system
    assert [m["role"] for m in messages[1:-1]] == ["user", "assistant"] * len(pirate.demonstrations)
    assert messages[2]["content"] == pirate.demonstrations[0].reply
    assert messages[-1] == {"role": "user", "content": "How are you?"}
    assert prompted(pirate, "Hm?", manner="Reply in verse.")[0]["content"].endswith("Reply in verse.")


def test_a_bare_role_has_a_reference_without_gaps() -> None:
    system, user = prompted(role("pirate"), "How are you?")
    assert "catch" not in system["content"]
    assert "talk:" not in system["content"]
    assert user["content"] == "How are you?"


def test_assigned_uses_one_instruction() -> None:
    pirate = role("pirate", instructions=2)
    assert assigned(pirate, 1, "Well?")[0]["content"] == pirate.instructions[1]
    for index in (2, -1):
        with pytest.raises(RoleError, match="has 2 instructions"):
            assigned(pirate, index, "Well?")


def test_the_ladder_says_more_on_every_rung() -> None:
    pirate = load_inventory("core-v1")["pirate"]
    sizes = [sum(len(m["content"]) for m in conditioned(pirate, "Well?", rung)) for rung in LADDER]
    assert sizes == sorted(set(sizes))
    assert conditioned(pirate, "Well?", "none")[0] == {"role": "system", "content": ""}  # explicit: no default inserted
    assert conditioned(pirate, "Well?", "line")[0]["content"] == "You are a Pirate."
    with pytest.raises(UserError, match="Did you mean 'reference'"):
        conditioned(pirate, "Well?", "referense")  # type: ignore[arg-type]


def test_neutral_prompts_name_the_model_and_no_role() -> None:
    assert len(NEUTRAL_PROMPTS) == 5
    assert "You are smollm2." in neutral_prompts("local:smollm2")
    assert "You are qwen." in neutral_prompts("openai:qwen@http://127.0.0.1:8000/v1")
    assert "You are model.gguf." in neutral_prompts("local:/some/where/model.gguf")
    assert neutral_prompts("local:x")[0] == ""


def test_opposites_name_the_role_and_repeat_when_more_are_asked() -> None:
    texts = opposites(role("pirate"), 7)
    assert len(texts) == 7
    assert len(set(texts)) == 5
    assert all("a Pirate" in text for text in texts)


def test_the_scripted_player_recognises_the_role_of_every_bundled_reference() -> None:
    for one in load_inventory("core-v1"):
        found = find_role(prompted(one, "Well?"))
        assert one.id in ("assistant",) or (found is not None and found[0].lower() in one.name.lower()), one.id
