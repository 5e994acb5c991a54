import json
import math

import pytest

from rolecraft.errors import UserError
from rolecraft.learning import (
    Gradient,
    Sample,
    SearchConfig,
    Split,
    model_critic,
    model_editor,
    optimise,
    refuse_overlap,
)
from rolecraft.learning.prompts._search import refusal, summarise
from rolecraft.testing import ScriptedModel

START = {"function": "Choose. {functions}", "dialogue": "Reply."}
IDS = [f"t{n}" for n in range(12)]
SPLIT = Split(IDS[:6], IDS[6:9], IDS[9:])
GOOD = ("call when needed", "stay brief")


class Bench:
    """Scores prompts by the good lines they hold, and records what was asked."""

    def __init__(self, good=GOOD, base=0.2):
        self.good, self.base = good, base
        self.asked = []

    def evaluate(self, prompts, ids):
        self.asked.append((dict(prompts), list(ids)))
        text = " ".join(prompts.values())
        score = self.base + sum(0.3 for line in self.good if line in text) - 0.2 * ("harm" in text)
        return [Sample(id_, min(1.0, max(0.0, score))) for id_ in ids]


def critic(prompts, sample):
    lines = [("function", GOOD[0]), ("dialogue", GOOD[1]), ("function", "harm")]
    return [Gradient(target, "cause", line) for target, line in lines if line not in " ".join(prompts.values())]


def editor(prompts, criticisms, memory, count):
    return [dict(prompts) | {c.target: f"{prompts[c.target]} {c.suggestion}"} for c in criticisms[:count]]


def search(bench=None, editor=editor, critic=critic, start=START, **changes):
    config = SearchConfig(**({"iterations": 6, "minibatch": 4, "patience": 2} | changes))
    return optimise(start, (bench or Bench()).evaluate, critic, editor, SPLIT, config)


@pytest.mark.parametrize("selection", ["beam", "monte-carlo"])
def test_the_search_finds_the_lines_that_help_and_leaves_out_what_harms(selection):
    trace = search(selection=selection)
    text = " ".join(trace.best.values())
    assert all(line in text for line in GOOD)
    assert "harm" not in text
    assert trace.validation == pytest.approx((0.2, 0.8))
    assert trace.test == pytest.approx((0.2, 0.8))
    assert trace.stopped == "converged"  # 0.8 is the threshold: nothing failed any more
    assert [one.accepted for one in trace.iterations] == [True, True, False]  # the beam's others had failed still


def test_test_examples_are_seen_once_and_after_everything_else():
    bench = Bench()
    search(bench)
    seen = [set(ids) for _, ids in bench.asked]
    assert [ids == set(SPLIT.test) for ids in seen[-2:]] == [True, True]
    assert not any(ids & set(SPLIT.test) for ids in seen[:-2])
    assert all(ids <= set(SPLIT.train) or ids == set(SPLIT.validation) for ids in seen[:-2])


def test_a_regression_is_rolled_back_and_patience_ends_the_search():
    def worse(prompts, criticisms, memory, count):
        return [dict(prompts) | {"dialogue": f"{prompts['dialogue']} harm {len(memory)}"}]

    trace = search(editor=worse)
    assert trace.best == START
    assert trace.stopped == "patience"
    assert len(trace.iterations) == 2
    assert all(tried.gain < 0 and not tried.accepted for tried in trace.memory if tried.iteration == 0)


def test_a_gain_below_the_least_improvement_is_not_accepted():
    assert search(Bench(good=GOOD[:1]), min_improvement=0.31).best == START
    assert search(Bench(good=GOOD[:1]), min_improvement=0.29).best != START


def test_equal_scores_keep_the_shorter_prompt():
    def padded(prompts, criticisms, memory, count):
        longer = f"{prompts['dialogue']} stay brief, at all times and everywhere"
        return [dict(prompts) | {"dialogue": longer}, dict(prompts) | {"dialogue": f"{prompts['dialogue']} stay brief"}]

    assert search(editor=padded, iterations=1).best["dialogue"] == "Reply. stay brief"


@pytest.mark.parametrize(
    ("candidate", "why"),
    [
        ({"function": " ", "dialogue": "Reply."}, "'function' is empty"),
        ({"function": "Choose.", "dialogue": "Reply."}, "lost its placeholder {functions}"),
        ({"function": "Choose. {functions}", "dialogue": "x" * 100}, "more than 60"),
        ({"function": "Choose. {functions}"}, "expected the prompts function, dialogue"),
    ],
)
def test_broken_candidates_are_refused_and_remembered(candidate, why):
    trace = search(editor=lambda *_: [candidate], longest=60)
    assert trace.best == START
    assert why in trace.memory[0].refused
    assert math.isnan(trace.memory[0].gain)
    assert trace.iterations[0].refused == 1


def test_nothing_failed_means_converged_without_an_edit():
    trace = search(Bench(base=0.9), editor=lambda *_: pytest.fail("asked to edit"))
    assert trace.stopped == "converged"
    assert trace.iterations == ()


def test_an_editor_without_ideas_ends_the_search():
    assert search(editor=lambda *_: []).stopped == "no-candidates"


def test_the_editor_sees_the_memory_of_earlier_rounds():
    seen = []

    def remember(prompts, criticisms, memory, count):
        seen.append(len(memory))
        return editor(prompts, criticisms, memory, count)

    search(editor=remember)
    assert seen[0] == 0
    assert seen[-1] > 0


def test_worst_samples_come_first_and_good_ones_by_ratio():
    seen = []

    def scores(prompts, ids):
        return [Sample(id_, 0.9 if int(id_[1:]) % 2 else int(id_[1:]) / 20) for id_ in ids]

    def note(prompts, sample):
        seen.append(sample.score)
        return []

    config = SearchConfig(iterations=1, minibatch=6, criticised=2, positive_ratio=0.5)
    optimise(START, scores, note, editor, SPLIT, config)
    assert seen == [0.0, 0.1, 0.9]


def test_criticisms_that_say_the_same_are_merged():
    merged = summarise(
        [Gradient("function", "a", "x", 0.5), Gradient("function", "b", "x"), Gradient("both", "c", "y", 2)]
    )
    assert [(one.suggestion, one.weight, one.causes) for one in merged] == [("y", 2, ("c",)), ("x", 1.5, ("a", "b"))]


def test_splits_that_overlap_or_are_empty_are_refused():
    with pytest.raises(UserError, match=r"train and test share 1 id\(s\) \(b\)"):
        Split(["a", "b"], ["c"], ["b"])
    with pytest.raises(UserError, match="validation is empty"):
        Split(["a"], [], ["b"])
    with pytest.raises(UserError, match="dev: a stands in it twice"):
        refuse_overlap(dev=["a", "a"], test=["b"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"width": 0}, "width must be at least 1"),
        ({"threshold": 2.0}, "threshold must lie in 0..1"),
        ({"selection": "best"}, "beam or monte-carlo"),
    ],
)
def test_faulty_settings_are_refused(changes, message):
    with pytest.raises(UserError, match=message):
        SearchConfig(**changes)


def test_faulty_parts_are_named():
    with pytest.raises(UserError, match="prompts to start from"):
        search(start={"function": "", "dialogue": "x"})
    with pytest.raises(UserError, match=r"score in 0\.\.1"):
        optimise(START, lambda p, ids: [Sample(i, 1.5) for i in ids], critic, editor, SPLIT, SearchConfig())
    with pytest.raises(UserError, match="target 'voice' is no prompt"):
        search(critic=lambda *_: [Gradient("voice", "c", "s")])
    assert refusal(START, START, 100) == ""


def test_a_model_can_be_critic_and_editor():
    def script(asked, seed):
        shown = json.loads(asked[-1]["content"])
        if "example" in shown:
            return 'Well: {"target": "dialogue", "cause": "too long", "suggestion": "stay brief", "priority": 0.5}'
        line = shown["suggestions"][0]["suggestion"]
        return json.dumps({"dialogue": f"{shown['prompts']['dialogue']} {line}"})

    model = ScriptedModel(script)
    trace = search(Bench(good=("stay brief",)), editor=model_editor(model), critic=model_critic(model))
    assert trace.best == START | {"dialogue": "Reply. stay brief"}
    assert trace.iterations[0].criticisms[0].weight == 2  # four samples at 0.5


def test_replies_that_cannot_be_read_give_nothing():
    model = ScriptedModel("nonsense")
    assert model_critic(model)(START, Sample("a", 0.1)) == []
    assert model_editor(model)(START, [], [], 2) == []
