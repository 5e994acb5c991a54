import math
import re

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.measures import administer, load_questionnaire, parse_rating
from rolecraft.models import Completion, chat
from rolecraft.testing import ScriptedModel

BIG = load_questionnaire("big-five-v1")
SHORT = BIG.short(2)
CONTEXT = chat("x", "You are careful.")[:1]


def small(**changes):
    data = {
        "name": "mini", "version": "1", "instructions": ["{{statement}} {{scale}}"],
        "scale": ["no", "rather no", "so-so", "rather yes", "yes"],
        "items": [
            {"id": "a1", "trait": "a", "text": "I sing."},
            {"id": "a2", "trait": "a", "text": "I never sing.", "reverse": True},
        ],
    }  # fmt: skip
    return data | changes


def load(tmp_path, **changes):
    path = tmp_path / "mini.yaml"
    path.write_text(yaml.safe_dump({k: v for k, v in small(**changes).items() if v is not None}), encoding="utf-8")
    return load_questionnaire(path)


class TestInstrument:
    def test_the_bundled_one_has_ten_items_per_trait_half_of_them_reversed(self):
        for trait in BIG.traits:
            items = [item for item in BIG.items if item.trait == trait]
            assert (len(items), sum(item.reverse for item in items)) == (10, 5)
        assert len(BIG.traits) == 5
        assert len({item.text for item in BIG.items}) == 50

    def test_an_item_is_asked_with_its_statement_and_every_label(self):
        for wording in range(len(BIG.instructions)):
            text = BIG.ask(BIG.items[3], wording)["content"]
            assert BIG.items[3].text in text
            assert all(f"{number} = {label}" in text for number, label in enumerate(BIG.scale, 1))
            assert "{{" not in text
        assert BIG.ask(BIG.items[0], 0) != BIG.ask(BIG.items[0], 1)
        assert BIG.ask(BIG.items[0], 0) == BIG.ask(BIG.items[0], len(BIG.instructions))

    def test_the_order_follows_from_the_seed(self):
        assert BIG.order(1) == BIG.order(1) != BIG.order(2)
        assert sorted(item.id for item in BIG.order(1)) == sorted(item.id for item in BIG.items)

    def test_a_short_form_keeps_both_keyings(self):
        for count in (2, 3, 4):
            items = [item for item in BIG.short(count).items if item.trait == "openness"]
            assert (len(items), sum(item.reverse for item in items)) == (count, count // 2)
        assert BIG.short(2).hash != BIG.hash
        for wrong in (1, 12):
            with pytest.raises(UserError, match="items per trait"):
                BIG.short(wrong)

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"name": None}, r"mini.yaml: the field 'name' is missing"),
            ({"scale": ["no"]}, "scale: expected 2 to 9"),
            ({"scale": ["no", "No"]}, "scale: expected 2 to 9 different"),
            ({"instructions": ["{{statement}}"]}, r"instructions\[0\]: the slot {{scale}} is missing"),
            ({"instructions": []}, "at least one text"),
            ({"itmes": []}, "unknown field 'itmes'.*Did you mean 'items'"),
            ({"items": []}, "items: expected at least two"),
            ({"items": ["x"]}, r"items\[0\]: an item must be a mapping"),
            ({"items": [{"id": "a1", "trait": "a"}]}, r"items\[0\] \(a1\): the field 'text' is missing"),
            ({"items": [{"id": "a1", "trait": "a", "text": " "}]}, r"\(a1\): text: expected a non-empty text"),
            ({"items": [{"id": "a1", "trait": "a", "text": "x", "reverse": "yes"}]}, r"\(a1\): reverse: expected true"),
            ({"items": [*small()["items"], small()["items"][0]]}, r"items\[2\] \(a1\): id: stands twice"),
            ({"items": [{"id": n, "trait": "a", "text": n} for n in "pq"]}, "trait 'a': needs plain and reversed"),
        ],
    )
    def test_bad_files_are_refused_by_file_item_and_field(self, tmp_path, changes, message):
        with pytest.raises(UserError, match=message) as caught:
            load(tmp_path, **changes)
        assert "mini.yaml" in str(caught.value)

    def test_a_good_file_is_read(self, tmp_path):
        assert load(tmp_path).digits == ("1", "2", "3", "4", "5")


class TestScores:
    def test_reversed_items_count_the_other_way_round(self):
        answers = {item.id: 1.0 if item.reverse else 5.0 for item in BIG.items}
        assert set(BIG.score(answers).traits.values()) == {5.0}
        answers = {item.id: 2.0 if item.reverse else 5.0 for item in BIG.items}
        assert set(BIG.score(answers).traits.values()) == {4.5}

    def test_agreeing_with_everything_scores_the_middle_and_is_flagged(self):
        score = BIG.score({item.id: 5.0 for item in BIG.items})
        assert set(score.traits.values()) == {3.0}
        assert score.straight_lining
        one_off = {item.id: 5.0 for item in BIG.items} | {"o1": 4.0}
        assert not BIG.score(one_off).straight_lining
        assert BIG.score({item.id: 3 + 0.01 * n for n, item in enumerate(BIG.items[:20])}).straight_lining

    def test_up_to_a_fifth_may_be_missing_and_is_left_out_not_filled_in(self):
        full = {item.id: 5.0 if not item.reverse else 1.0 for item in BIG.items}
        two = BIG.score(full | {"o1": None, "o2": None})
        assert (two.traits["openness"], two.missing["openness"]) == (5.0, 2)
        three = BIG.score(full | dict.fromkeys(("o1", "o2", "o3")))
        assert math.isnan(three.traits["openness"])
        assert three.missing == {trait: 3 * (trait == "openness") for trait in BIG.traits}
        assert three.traits["neuroticism"] == 5.0
        assert not BIG.score({}).straight_lining

    @pytest.mark.parametrize("answer", [0, 6, -1, 5.01])
    def test_answers_off_the_scale_are_refused(self, answer):
        with pytest.raises(UserError, match=re.escape("must lie in 1..5")):
            BIG.score({"o1": answer})

    def test_unknown_items_and_wrong_shapes_are_refused(self):
        with pytest.raises(UserError, match=r"no item 'o11'.*Did you mean"):
            BIG.score({"o11": 3})
        with pytest.raises(UserError, match="expected 50 answers"):
            BIG.score_array(np.ones((2, 49)))

    @given(st.lists(st.one_of(st.none(), st.integers(1, 5)), min_size=10, max_size=10))
    @settings(max_examples=60)
    def test_scores_stay_on_the_scale_and_mirror_with_the_answers(self, given_answers):
        answers = {item.id: value for item, value in zip(SHORT.items, given_answers, strict=True)}
        mirrored = {name: None if value is None else 6 - value for name, value in answers.items()}
        for trait, value in SHORT.score(answers).traits.items():
            other = SHORT.score(mirrored).traits[trait]
            assert math.isnan(value) == math.isnan(other)
            assert math.isnan(value) or (1 <= value <= 5 and value + other == pytest.approx(6))


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("4", 4), (" 4.", 4), ("I would say 4.", 4), ("4/5", 4), ("4 out of 5", 4),
        ("**2**", 2), ("4 = agree a little", 4),
        ("On a scale from 1 to 5 I am a 3", 3), ("(1-5): 2", 2), ("Agree strongly.", 5),
        ("neither agree nor disagree", 3),
        ("disagree a little, as ever", 2), ("4, yes, 4", 4),
        ("0", None), ("6", None), ("-3", None), ("3.5", None), ("3,5", None), ("2 or 3", None),
        ("", None), ("yes", None),
        ("As an AI, I have no personality, so 3", None), ("I cannot answer that.", None), ("B4", None), ("44", None),
    ],
)  # fmt: skip
def test_ratings_are_parsed_or_missing(reply, answer):
    assert parse_rating(reply, BIG.scale) == answer


def careful(chat, seed):
    """Answer by what stands in the prompt: 5 to orderly statements if the system text says careful, else 1."""
    statement = chat[-1]["content"]
    item = next(item for item in BIG.items if item.text in statement)
    likes = item.trait == "conscientiousness" and "careful" in chat[0]["content"]
    return "5" if likes != item.reverse else "1"


class TestAdministering:
    @pytest.mark.parametrize("mode", ["expected", "sampled"])
    def test_the_persona_of_the_context_answers(self, mode):
        contexts = [CONTEXT, chat("x", "You are wild.")[:1]]
        scores = SHORT.score_array(administer(ScriptedModel(careful), SHORT, contexts, mode=mode, seeds=[1, 2]))
        place = SHORT.traits.index("conscientiousness")
        assert scores[0, place] > 4 > 2 > scores[1, place]
        assert (scores[:, [k for k in range(5) if k != place]] < 2).all()

    def test_expected_values_are_the_mean_of_the_digits_by_probability(self):
        class Fixed(ScriptedModel):
            def logprobs(self, chats, replies):
                weight = {"1": 1, "2": 1, "3": 2, "4": 4, "5": 2}
                return [np.array([math.log(weight[reply] / 40)], dtype=np.float32) for reply in replies]

        answers = administer(Fixed(careful), SHORT, [CONTEXT])
        assert answers == pytest.approx((1 + 2 + 6 + 16 + 10) / 10, abs=1e-5)

    def test_digits_of_several_tokens_are_refused(self):
        class Split(ScriptedModel):
            def logprobs(self, chats, replies):
                return [np.zeros(2, dtype=np.float32) for _ in replies]

        with pytest.raises(UserError, match=r"'1' as 2 tokens.*sampled"):
            administer(Split(careful), SHORT, [CONTEXT])

    def test_refusals_and_numbers_off_the_scale_are_missing(self):
        replies = iter(["As an AI I have no traits.", "7", "4"] + ["3"] * 7)
        answers = administer(
            ScriptedModel(lambda chat, seed: next(replies)), SHORT, [CONTEXT], mode="sampled", seeds=[5]
        )
        by_item = dict(zip([item.id for item in SHORT.items], answers[0], strict=True))
        first = [by_item[item.id] for item in SHORT.order(5)[:3]]
        assert math.isnan(first[0])
        assert math.isnan(first[1])
        assert first[2] == 4
        failed = ScriptedModel(lambda chat, seed: Completion("", "error"))
        assert np.isnan(administer(failed, SHORT, [CONTEXT], mode="sampled")).all()

    def test_only_carried_items_stay_in_view_and_then_the_order_counts(self):
        seen = []

        def script(chat, seed):
            seen.append(len(chat))
            return str(min(5, (len(chat) + 1) // 2))

        administer(ScriptedModel(script), SHORT, [CONTEXT], mode="sampled")
        assert set(seen) == {2}
        seen.clear()
        one = administer(ScriptedModel(script), SHORT, [CONTEXT], mode="sampled", carry=2, seeds=[1])
        assert seen == [2, 4, *[6] * 8]
        two = administer(ScriptedModel(script), SHORT, [CONTEXT], mode="sampled", carry=2, seeds=[2])
        assert (one != two).any()
        assert sorted(one[0]) == sorted(two[0])

    def test_sheets_do_not_depend_on_their_neighbours(self):
        model = ScriptedModel(lambda chat, seed: str(1 + seed % 5))
        both = administer(model, SHORT, [CONTEXT, CONTEXT], mode="sampled", seeds=[3, 4])
        alone = administer(model, SHORT, [CONTEXT], mode="sampled", seeds=[4])
        assert (both[1] == alone[0]).all()
        assert (both[0] != both[1]).any()

    def test_bad_calls_are_refused(self):
        for options in ({"mode": "guess"}, {"carry": -1}, {"seeds": [1, 2]}, {"wordings": [0, 1]}):
            with pytest.raises(UserError):
                administer(ScriptedModel(careful), SHORT, [CONTEXT], **options)
