"""The bundled characters, files of one's own, and the grouping of profiles."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import yaml

from rolecraft.agents import FOCUS_POINTS
from rolecraft.errors import RoleError, UserError
from rolecraft.learning import CharacterCase, character_reward, cluster_vectors, group_profiles, load_character_cases
from rolecraft.roles import Role

CASES = load_character_cases()


def test_the_bundled_set_has_three_cases_per_character_and_every_label():
    per_role = Counter(case.role.id for case in CASES)
    assert len(per_role) == 12
    assert set(per_role.values()) == {3}
    assert Counter(case.group for case in CASES) == dict.fromkeys(("water", "craft", "court", "machine"), 9)
    assert {label for case in CASES for label in case.focus} == set(FOCUS_POINTS)
    for case in CASES:
        assert {case.focus[label] for label in ("Engagement", "Human_Like") if label in case.focus} <= {"N/A"}
        assert len({other.reference for other in CASES}) == len(CASES)


def ideal(case):
    blocks = "".join(f"<focus>{label}</focus><focus_attr>{text}</focus_attr>" for label, text in case.focus.items())
    return f"<think>{blocks}</think>\\boxed{{{case.reference}}}"


def test_the_gold_answer_of_every_case_earns_everything_and_other_cases_gold_less():
    for case in CASES:
        assert character_reward(ideal(case), case).total == pytest.approx(1)
    for case, other in pairwise(CASES):
        assert character_reward(ideal(other), case).total < 0.75


def written(tmp_path, change=(), **case):
    first = {"id": "one", "messages": [{"user": "A nail?"}], "focus": {"Style": "blunt"}, "reference": "No."}
    record = {
        "id": "smith", "name": "the smith", "description": "You forge.", "family": "craft",
        "cases": [first | case],
    } | dict(change)  # fmt: skip
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump({"characters": [record]}))
    return path


def test_a_file_of_ones_own(tmp_path):
    (case,) = load_character_cases(written(tmp_path, group="hot"))
    assert (case.id, case.role.id, case.group, case.language) == ("one", "smith", "hot", "en")
    assert case.messages == ({"role": "user", "content": "A nail?"},)
    assert load_character_cases(written(tmp_path))[0].group == "craft"


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ({"focus": {}}, "case 'one': no gold label"),
        ({"focus": {"Styl": "blunt"}}, r"gold label 'Styl' is unknown .* Did you mean 'Style'\?"),
        ({"focus": {"Style": "-"}}, "the attribute of 'Style' has no word"),
        ({"focus": ["Style"]}, r"focus must be a dict, got \['Style'\]"),
        ({"reference": " "}, "case 'one': the reference is empty"),
        ({"reference": None}, "reference must be a str, got None"),
        ({"messages": []}, "must end with a message of the user"),
        ({"messages": [{"user": "Hi."}, {"character": "Hm."}]}, "must end with a message of the user"),
        ({"messages": [{"user": "Hi.", "character": "Hm."}]}, "message 0: expected {user: text} or {character: text}"),
        ({"messages": [{"smith": "Hi."}]}, "message 0: expected {user: text} or {character: text}"),
        ({"language": "de"}, "language 'de' is unknown"),
    ],
)  # fmt: skip
def test_bad_cases_name_file_and_case(tmp_path, case, message):
    path = written(tmp_path, **case)
    with pytest.raises(UserError, match=message) as error:
        load_character_cases(path)
    assert "mine.yaml: characters[0] (smith)" in str(error.value)


def test_bad_characters(tmp_path):
    with pytest.raises(RoleError, match="family_name"):
        load_character_cases(written(tmp_path, {"family_name": "x"}))
    with pytest.raises(UserError, match="a list of cases"):
        load_character_cases(written(tmp_path, {"cases": None}))
    with pytest.raises(UserError, match="case 0: expected a mapping, got 'one'"):
        load_character_cases(written(tmp_path, {"cases": ["one"]}))
    with pytest.raises(UserError, match="no character has a case"):
        load_character_cases(written(tmp_path, {"cases": []}))
    twice = [{"id": "x", "messages": [{"user": "a"}], "focus": {"Style": "b"}, "reference": "c"}] * 2
    with pytest.raises(UserError, match="two cases have the id 'x'"):
        load_character_cases(written(tmp_path, {"cases": twice}))


class Planted:
    """Embeds a profile by the one word of it that tells the group."""

    def encode(self, texts):
        rows = [[float("sea" in text), float("iron" in text)] for text in texts]
        return np.array(rows) + 0.01 * np.arange(len(rows))[:, None]


def roles(*descriptions):
    return [Role(id=f"r{n}", name="x", description=text) for n, text in enumerate(descriptions)]


def test_profiles_are_grouped_as_planted_and_numbered_in_order_of_appearance():
    found = group_profiles(roles("iron", "sea", "iron", "sea", "sea"), 2, embedder=Planted())
    assert found == {"r0": 0, "r1": 1, "r2": 0, "r3": 1, "r4": 1}


def test_vectors_of_clear_clusters_are_told_apart_whatever_the_seed():
    rng = np.random.default_rng(0)
    truth = np.repeat([0, 1, 2], 5)
    vectors = 5 * np.eye(3)[truth] + rng.normal(0, 0.1, (15, 3))
    for seed in range(3):
        assert cluster_vectors(vectors, 3, seed).tolist() == truth.tolist()
    assert cluster_vectors(vectors, 1).tolist() == [0] * 15


def test_grouping_refuses_what_cannot_be_grouped():
    with pytest.raises(UserError, match=r"expected 1 to 2 \(the number of profiles\), got 7"):
        group_profiles(roles("iron", "sea"), embedder=Planted())
    with pytest.raises(UserError, match="two roles have the id 'r0'"):
        group_profiles(roles("iron") * 2, 1, embedder=Planted())
    with pytest.raises(UserError, match="got 0"):
        cluster_vectors(np.eye(2), 0)


def test_a_case_made_in_code_is_checked_too():
    case = CASES[0]
    with pytest.raises(UserError, match="case 'x': no gold label"):
        CharacterCase("x", case.role, case.messages, {}, "A reply.")


@pytest.mark.slow
def test_minilm_groups_the_bundled_characters_the_same_way_each_time():
    distinct = list({case.role.id: case.role for case in CASES}.values())
    found = group_profiles(distinct, 4)
    assert found == group_profiles(distinct, 4)
    assert set(found.values()) == {0, 1, 2, 3}
