"""The paired-counterfactual probe: what differs, what it recovers, what it leaves undefined and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from rolecraft._run import RunStore, derive_seed
from rolecraft.errors import UserError
from rolecraft.measures import (
    Factor,
    Probe,
    ProbeItem,
    ProbeQuestion,
    answer_by_logprob,
    answer_by_policy,
    changed_span,
)
from rolecraft.testing import ScriptedModel, tiny_model
from rolecraft.worlds import Act

SPEAKER = Factor("speaker", {"nurse": "A nurse", "judge": "A judge", "clerk": "A clerk"}, base="nurse")
WORDING = Factor("wording", {"plain": "Is it so?", "other": "Is that the case?"}, base="plain", placebo=True)
TEXT = "{{speaker}} says that claim %d holds. {{wording}}\n{{options}}"


def items(n: int, **rest) -> list[ProbeItem]:
    return [ProbeItem(f"i{i}", TEXT % i, ("yes", "no"), target=0, **rest) for i in range(n)]


def probe(n: int = 40) -> Probe:
    return Probe(items(n), [SPEAKER, WORDING])


def planted(seed: int, flips: dict[str, float], place: float = 0.0) -> Callable[[Sequence[ProbeQuestion]], list]:
    """Answer `yes` or `no` by item; go over at a level with a known probability; like the first place a little."""

    def answer(questions):
        found = []
        for q in questions:
            own = derive_seed(seed, q.item) % 2
            rng = np.random.default_rng(derive_seed(seed, q.item, q.factor, q.level))
            own ^= int(rng.random() < flips.get(q.level, 0.0))
            shares = [0.2 + 0.6 * (option == ("yes", "no")[own]) for option in q.shown]
            found.append([shares[0] + place, shares[1] - place])
        return found

    return answer


class TestLayout:
    def test_base_identity_and_one_level_at_a_time_in_both_orders(self):
        questions = probe(1).questions()
        assert [(q.factor, q.level, q.order) for q in questions] == [
            (factor, level, order)
            for factor, level in [
                ("base", ""),
                ("identity", ""),
                ("speaker", "judge"),
                ("speaker", "clerk"),
                ("wording", "other"),
            ]
            for order in (0, 1)
        ]
        by = {(q.factor, q.level, q.order): q for q in questions}
        assert by["base", "", 0].chat[-1]["content"] == "A nurse says that claim 0 holds. Is it so?\n- yes\n- no"
        assert by["speaker", "judge", 1].chat[-1]["content"] == (
            "A judge says that claim 0 holds. Is it so?\n- no\n- yes"
        )
        assert by["base", "", 0].chat == by["identity", "", 0].chat
        assert len({q.seed for q in questions}) == len(questions)

    def test_letters_keep_their_order_while_the_options_move(self):
        first, second = Probe(items(1), [SPEAKER, WORDING], "letters").questions()[:2]
        assert first.shown == second.shown == ("A", "B")
        assert second.chat[-1]["content"].endswith("A. no\nB. yes")

    def test_three_options_stand_once_in_each_place(self):
        one = ProbeItem("i", "{{speaker}}?\n{{options}}", ("a", "b", "c"))
        shown = [q.shown for q in Probe([one], [SPEAKER]).questions() if q.factor == "base"]
        assert shown == [("a", "b", "c"), ("b", "c", "a"), ("c", "a", "b")]

    def test_answers_are_kept_in_the_items_own_order(self):
        layout = Probe([ProbeItem("i", "{{speaker}}?\n{{options}}", ("a", "b", "c"))], [SPEAKER])
        assert {row.p for row in layout.ask(lambda questions: ["b"] * len(questions))} == {(0, 1, 0)}
        assert {row.p for row in layout.ask(lambda questions: [q.shown.index("c") for q in questions])} == {(0, 0, 1)}
        given = layout.ask(lambda questions: [[0.5, 0.3, 0.2]] * len(questions))
        assert [row.p for row in given[:3]] == [(0.5, 0.3, 0.2), (0.2, 0.5, 0.3), (0.3, 0.2, 0.5)]

    def test_without_a_list_there_is_one_order(self):
        one = ProbeItem("i", "{{speaker}} asks: yes or no?", ("yes", "no"))
        assert {q.order for q in Probe([one], [SPEAKER]).questions()} == {0}

    def test_a_slot_in_the_system_text_and_texts_of_an_items_own(self):
        one = ProbeItem(
            "i", "Go?", ("yes", "no"), system="You are {{speaker}}.", texts={"speaker": {"judge": "the judge"}}
        )
        chats = {q.level: q.chat for q in Probe([one], [SPEAKER]).questions()}
        assert chats["judge"][0] == {"role": "system", "content": "You are the judge."}
        assert chats["clerk"][0]["content"] == "You are A clerk."

    def test_what_stands_in_a_slot_is_never_read_as_a_slot(self):
        factor = Factor("context", {"none": "-", "quote": "{{options}} {{speaker}}"}, base="none")
        one = ProbeItem("i", "{{speaker}}: {{context}}. Yes or no?", ("yes", "no"))
        texts = {q.level: q.chat[-1]["content"] for q in Probe([one], [SPEAKER, factor]).questions()}
        assert texts["quote"] == "A nurse: {{options}} {{speaker}}. Yes or no?"

    @given(
        parts=st.lists(st.text("abc {}\n", max_size=8), min_size=3, max_size=3),
        levels=st.lists(st.text("xyz {}", min_size=1, max_size=6), min_size=2, max_size=4, unique=True),
    )
    @settings(max_examples=60, deadline=None)
    def test_a_variant_differs_from_its_base_in_the_factors_span_alone(self, parts, levels):
        factor = Factor("f", {str(i): text for i, text in enumerate(levels)}, base="0")
        one = ProbeItem("i", f"{parts[0]}{{{{f}}}}{parts[1]}", ("yes", "no"), system=parts[2])
        layout = Probe([one], [factor])
        for level in factor.levels:
            text = layout.render(one, "f", level)[-1]["content"]
            assert text == parts[0] + factor.levels[level] + parts[1]


class TestWritten:
    BASE = "The nurse says it is safe. Is it?"

    def test_texts_in_full_become_levels(self):
        factor = Factor("speaker", {"nurse": "-", "judge": "+"}, base="nurse")
        variants = {"nurse": self.BASE, "judge": "The old judge says it is safe. Is it?"}
        one = ProbeItem.written("i", self.BASE, "nurse", "speaker", variants, ("yes", "no"))
        assert one.texts == {"speaker": {"nurse": "nurse", "judge": "old judge"}}
        assert Probe([one], [factor]).render(one, "speaker", "judge")[-1]["content"] == variants["judge"]

    @pytest.mark.parametrize(
        ("variant", "where"),
        [
            ("A judge says it is safe. Is it?", "before it"),
            ("The judge says it is sound. Is it?", "after it"),
            ("The", "before it"),
        ],
    )
    def test_a_difference_outside_the_span_is_refused(self, variant, where):
        with pytest.raises(UserError, match=rf"item 'i', level 'judge': .*{where}"):
            ProbeItem.written("i", self.BASE, "nurse", "speaker", {"judge": variant}, ("yes", "no"))

    @pytest.mark.parametrize(("span", "times"), [("judge", 0), ("s", 6), ("", 0)])
    def test_the_span_must_stand_in_the_base_once(self, span, times):
        with pytest.raises(UserError, match=f"{times} times"):
            changed_span(self.BASE, self.BASE, span)

    def test_head_and_tail_may_not_overlap(self):
        with pytest.raises(UserError, match="differs"):
            changed_span("aXa", "a", "X")


class TestFigures:
    def test_exact_flips_contrasts_and_directions(self):
        layout = Probe(items(4), [Factor("speaker", {"nurse": "A nurse", "judge": "A judge"}, "nurse"), WORDING])
        base = {"i0": 0.9, "i1": 0.8, "i2": 0.3, "i3": 0.4}
        judge = {"i0": 0.4, "i1": 0.7, "i2": 0.6, "i3": 0.9}

        def answer(questions):
            yes = [(judge if q.level == "judge" else base)[q.item] for q in questions]
            return [[p if word == "yes" else 1 - p for word in q.shown] for q, p in zip(questions, yes, strict=True)]

        report = layout.report(layout.ask(answer))
        effect = report.effect("speaker", "judge")
        assert (effect.flip.estimate, effect.hold.estimate) == (0.75, 0.25)
        assert (effect.toward.estimate, effect.away.estimate) == (0.5, 0.25)
        assert effect.contrast.estimate == pytest.approx((-0.5 - 0.1 + 0.3 + 0.5) / 4)
        assert effect.spread.estimate == pytest.approx((0.25 + 0.01 + 0.09 + 0.25) / 4)
        assert effect.excess.estimate == 0.75
        assert report.noise.estimate == report.effect("wording", "other").contrast.estimate == 0
        assert report.position.estimate == pytest.approx(0, abs=1e-12)
        assert (report.order_bound.estimate, report.sound) == (0, True)

    def test_flip_and_hold_have_wilsons_interval(self):
        layout = probe(20)
        rows = layout.ask(planted(3, {"judge": 0.3}))
        flip = layout.report(rows).effect("speaker", "judge").flip
        z, n, p = 1.959964, 20, flip.estimate
        centre, half = (
            (p + z * z / 40) / (1 + z * z / n),
            z * math.sqrt(p * (1 - p) / n + z * z / 1600) / (1 + z * z / n),
        )
        assert (flip.low, flip.high) == pytest.approx((centre - half, centre + half), abs=1e-6)

    def test_levels_are_compared_with_each_other(self):
        layout = probe(60)
        report = layout.report(layout.ask(planted(1, {"judge": 0.9})))
        one, two = (report.effect("speaker", level).contrast.estimate for level in ("judge", "clerk"))
        assert report.contrast("speaker", "judge", "clerk").estimate == pytest.approx(one - two)

    def test_a_liking_for_a_place_is_told_apart_and_cancels_out(self):
        layout = probe(60)
        plain = layout.report(layout.ask(planted(2, {"judge": 0.4})))
        biased = layout.report(layout.ask(planted(2, {"judge": 0.4}, place=0.15)))
        assert biased.position.estimate == pytest.approx(0.15)
        for name in ("judge", "clerk"):
            one, two = plain.effect("speaker", name), biased.effect("speaker", name)
            assert (one.flip, one.contrast.estimate) == (two.flip, pytest.approx(two.contrast.estimate))
            assert two.position.estimate == pytest.approx(0.15)
        assert biased.effect("speaker", "clerk").outweighed
        assert not plain.effect("speaker", "judge").outweighed

    def test_answers_that_follow_the_place_alone_have_no_choice_that_could_flip(self):
        layout = probe(10)
        report = layout.report(layout.ask(lambda questions: [0] * len(questions)))
        effect = report.effect("speaker", "judge")
        assert (effect.undecided, effect.missing) == (10, 0)
        assert math.isnan(effect.flip.estimate)
        assert effect.flip.reason == "no item has a choice both times (0 without an answer, 10 undecided)"
        assert (report.order_bound.estimate, report.position.estimate, effect.contrast.estimate) == (1, 0.5, 0)
        assert "undefined (no item" in report.text()

    def test_missing_answers_are_counted_and_left_out(self):
        layout = probe(10)

        def answer(questions):
            given = planted(1, {})(questions)
            return [
                None if q.item == "i3" and q.level == "judge" and q.order else a
                for q, a in zip(questions, given, strict=True)
            ]

        report = layout.report(layout.ask(answer))
        assert (report.effect("speaker", "judge").missing, report.effect("speaker", "judge").flip.n) == (1, 9)
        assert report.effect("speaker", "clerk").flip.n == 10

    def test_without_target_or_list_the_figures_say_why(self):
        one = [ProbeItem(f"i{i}", "{{speaker}}: yes or no?", ("yes", "no")) for i in range(3)]
        layout = Probe(one, [SPEAKER])
        report = layout.report(layout.ask(planted(1, {})))
        effect = report.effect("speaker", "judge")
        assert effect.contrast.reason == "no item with a target was answered both times"
        assert effect.toward.reason == "no item with a choice names a target"
        assert report.position.reason == "no answered item lists its options"
        assert report.order_bound.reason == "no base item lists its options"

    def test_items_without_the_slot_are_not_asked_about_the_factor(self):
        more = ProbeItem("bare", "{{speaker}}?\n{{options}}", ("yes", "no"), target=0)
        layout = Probe([*items(3), more], [SPEAKER, WORDING])
        report = layout.report(layout.ask(planted(1, {})))
        assert (report.effect("wording", "other").items, report.effect("speaker", "judge").items) == (3, 4)


class TestPlanted:
    LEVELS = Factor("speaker", {"base": "-"} | {str(i): f"speaker {i}" for i in range(10)}, "base")
    """Ten levels, so that one report is ten repeats."""

    def reports(self, answer: Callable[[np.random.Generator], float], n: int = 50, repeats: int = 24):
        """Yield reports on items whose probability of `yes` is 0.3 in the base, and drawn by `answer` elsewhere."""
        layout = Probe(
            [ProbeItem(f"i{i}", "{{speaker}}: yes or no?", ("yes", "no"), target=0) for i in range(n)], [self.LEVELS]
        )
        for seed in range(1, repeats + 1):
            rng = np.random.default_rng(seed)
            rows = layout.ask(
                lambda questions, rng=rng: [
                    [p := answer(rng) if q.factor == "speaker" else 0.3, 1 - p] for q in questions
                ]
            )
            yield layout.report(rows, draws=200)

    @pytest.mark.parametrize("truth", [0.05, 0.3])
    def test_known_flip_probabilities_are_recovered_at_the_nominal_rate(self, truth):
        inside = 0
        for report in self.reports(lambda rng: 0.9 if rng.random() < truth else 0.3):
            assert report.noise.estimate == 0
            flips = [effect.flip for effect in report.effects if effect.factor == "speaker"]
            inside += sum(flip.low <= truth <= flip.high for flip in flips)
        assert inside >= binom.ppf(0.01, 240, 0.95)

    def test_contrasts_are_recovered_at_the_nominal_rate(self):
        inside = 0
        for report in self.reports(lambda rng: 0.3 + 0.4 * rng.random() ** 2, repeats=12):
            found = [effect.contrast for effect in report.effects if effect.factor == "speaker"]
            inside += sum(contrast.low <= 0.4 / 3 <= contrast.high for contrast in found)
        assert inside >= binom.ppf(0.01, 120, 0.95)

    def test_a_placebo_that_flips_makes_the_probe_unsound(self):
        layout = probe(60)
        report = layout.report(layout.ask(planted(4, {"other": 0.4})))
        assert not report.sound
        assert "NOT SOUND" in report.text()
        assert layout.report(layout.ask(planted(4, {"judge": 0.4}))).sound

    def test_noise_is_taken_off(self):
        noisy = planted(5, {"": 0.2, "judge": 0.2, "clerk": 0.9})  # the base too changes from time to time
        layout = probe(120)
        report = layout.report(layout.ask(noisy))
        assert report.noise.estimate > 0.2
        assert not report.effect("speaker", "judge").excess.excludes_zero
        assert report.effect("speaker", "clerk").excess.low > 0.2


class TestAsking:
    def test_permuted_items_and_rows_give_the_same_report(self):
        layout = probe(12)
        rows = layout.ask(planted(1, {"judge": 0.5}))
        turned = Probe(layout.items[::-1], [SPEAKER, WORDING])
        again = turned.ask(planted(1, {"judge": 0.5}))
        assert sorted(again, key=str) == sorted(rows, key=str)
        assert [row.item for row in again[:10]] == ["i11"] * 10
        one, two = layout.report(rows), layout.report(rows[::-1])
        assert one == two
        for left, right in zip(one.effects, turned.report(again).effects, strict=True):
            assert left.flip == right.flip
            assert left.contrast.estimate == pytest.approx(right.contrast.estimate)

    def test_a_store_keeps_answers_and_only_the_missing_are_asked(self, tmp_path):
        layout, asked = probe(5), []

        def answer(questions):
            asked.append(len(questions))
            return planted(1, {"judge": 0.5})(questions)

        with RunStore.open(tmp_path / "run", "probe", {"seed": 1}) as store:
            first = Probe(items(3), [SPEAKER, WORDING]).ask(answer, store=store)
            rows = layout.ask(answer, store=store)
            assert layout.ask(answer, store=store) == rows
        assert asked == [30, 20]
        assert rows[:30] == first
        assert rows == layout.ask(planted(1, {"judge": 0.5}))

    def test_log_probabilities_of_a_real_engine(self):
        layout = Probe(items(2), [SPEAKER, WORDING], "letters")
        rows = layout.ask(answer_by_logprob(tiny_model()))
        report = layout.report(rows)
        assert all(row.p and sum(row.p) == pytest.approx(1) for row in rows)
        assert report.effect("identity").spread.estimate == pytest.approx(0, abs=1e-9)
        assert report.noise.estimate in (0.0, pytest.approx(math.nan, nan_ok=True))

    def test_a_model_that_obeys_the_judge_is_found_out(self):
        def obey(chat, seed):
            return "yes" if "A judge" in chat[-1]["content"] else "no"

        layout = probe(6)
        effect = layout.report(layout.ask(answer_by_logprob(ScriptedModel(obey)))).effect("speaker", "judge")
        assert (effect.flip.estimate, effect.toward.estimate, effect.away.estimate) == (1, 1, 0)

    def test_a_policy_chooses_among_the_replies(self):
        class Obedient:
            def act(self, views):
                assert all(view.role == "clerk" for view in views)
                return [Act(" Yes " if "A judge" in view.observation else "no") for view in views]

        layout = probe(6)
        rows = layout.ask(answer_by_policy(Obedient(), role="clerk"))
        assert layout.report(rows).effect("speaker", "judge").flip.estimate == 1
        assert layout.report(rows).effect("speaker", "clerk").flip.estimate == 0

    def test_a_reply_that_is_none_of_the_options_is_missing(self):
        layout = probe(2)
        assert {row.p for row in layout.ask(lambda questions: ["perhaps"] * len(questions))} == {None}


class TestBadInput:
    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: Factor("options", {"a": "1", "b": "2"}, "a"), "none of base, identity, options"),
            (lambda: Factor("f", {"a": "1"}, "a"), "at least two levels"),
            (lambda: Factor("f", {"one": "1", "two": "2"}, "tow"), "Did you mean 'two'"),
            (lambda: Factor("f", {"a": "1", "b": "1"}, "a"), "same text"),
            (lambda: ProbeItem("i", "x", ("yes",)), "2 to 26 different"),
            (lambda: ProbeItem("i", "x", ("yes", "yes")), "different"),
            (lambda: ProbeItem("i", "x", ("yes", "no"), target=2), "target 2"),
            (lambda: Probe([], [SPEAKER]), "at least one item"),
            (lambda: Probe(items(1) * 2, [SPEAKER, WORDING]), "'i0' is given twice"),
            (lambda: Probe(items(1), [SPEAKER, SPEAKER, WORDING]), "'speaker' is given twice"),
            (lambda: Probe(items(1), [SPEAKER]), "{{wording}} is no factor"),
            (lambda: Probe([ProbeItem("i", "{{speaker}}", ("a", "b"))], [SPEAKER, WORDING]), "would change nothing"),
            (lambda: Probe([ProbeItem("i", "{{speaker}}", ("a", "b"))], [SPEAKER], "letters"), "needs the slot"),
            (lambda: Probe(items(1), [SPEAKER, WORDING], "words"), "style must be"),
            (lambda: Probe(items(1, texts={"speaker": {"jugde": "x"}}), [SPEAKER, WORDING]), "Did you mean 'judge'"),
            (lambda: Probe(items(1, texts={"speakr": {}}), [SPEAKER, WORDING]), "Did you mean 'speaker'"),
            (lambda: Probe(items(1, texts={"speaker": {"judge": "A nurse"}}), [SPEAKER, WORDING]), "same text"),
            (lambda: probe(1).ask(lambda questions: [0]), "got 1 answers to 10 questions"),
            (lambda: probe(1).ask(lambda questions: [2] * len(questions)), "no place among 2"),
            (lambda: probe(1).ask(lambda questions: [[0.5, 0.6]] * len(questions)), "sum to 1"),
            (lambda: probe(1).ask(lambda questions: [[1.5, -0.5]] * len(questions)), "sum to 1"),
            (lambda: probe(1).ask(lambda questions: [[math.nan, 1]] * len(questions)), "sum to 1"),
        ],
    )
    def test_a_mistake_is_named(self, make, message):
        with pytest.raises(UserError, match=message.replace("{", r"\{")):
            make()

    def test_an_unknown_level_has_a_hint(self):
        layout = probe(2)
        report = layout.report(layout.ask(planted(1, {})))
        with pytest.raises(UserError, match="Did you mean 'speaker=judge'"):
            report.effect("speaker", "jugde")

    def test_a_policy_is_not_shown_a_system_text(self):
        layout = Probe([ProbeItem("i", "Go?", ("yes", "no"), system="You are {{speaker}}.")], [SPEAKER])
        with pytest.raises(UserError, match="leave `system` empty"):
            layout.ask(answer_by_policy(None))
