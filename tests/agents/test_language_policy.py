import json
import threading

import numpy as np
import pytest

from rolecraft.agents import (
    ChoicePolicy,
    Drawn,
    LanguagePolicy,
    Likeliest,
    ModelSummariser,
    Part,
    RetrievalMemory,
    RolePolicy,
    SummaryMemory,
    ThinkAct,
    Tool,
    ToolLoop,
    ToolRegistry,
    WindowMemory,
    option_probabilities,
    parse_counts,
)
from rolecraft.agents._failures import GIVE_UP, Failure, ask_rows
from rolecraft.agents._language_policy import SPEECH
from rolecraft.conditioning import Intervention, Steering
from rolecraft.errors import BudgetExceededError, ServerError, UserError
from rolecraft.models import Completion, Sampling, chat, choose
from rolecraft.testing import ScriptedModel, tiny_model
from rolecraft.worlds import Receipt, Rules, Table, play, play_all
from tests.agents._talk import Talk, turn, view
from tests.agents.test_memory import encode

TEXTS = {"a": "You are a.", "b": "You are b."}
TINY = tiny_model(n_sites=2)
SHORT = Sampling(max_tokens=3, temperature=1.0)


def part(seen):
    return Part(system=TEXTS.get(seen.role or "", ""))


def views():
    return [
        view("Speak.", seed=1, role="a"),
        view("Choose.", ("x", "yes", "no"), seed=2, role="b"),
        view("Speak up.", seed=3),
        view("Choose well.", ("left", "right"), seed=4, role="a"),
        view("Speak.", seed=5, role="b"),
    ]


def chats(chosen):
    return [chat(one.observation, TEXTS.get(one.role or "", "")) for one in chosen]


class TestWithoutExtras:
    def test_free_text_is_what_the_model_replies_and_a_choice_what_it_finds_likeliest(self):
        seen = views()
        acts = LanguagePolicy(TINY, part, sampling=SHORT).act(seen)
        free, legal = [seen[place] for place in (0, 2, 4)], [seen[1], seen[3]]
        replies = TINY.generate(chats(free), SHORT, None, [one.seed for one in free])
        for place, reply in zip((0, 2, 4), replies, strict=True):
            assert acts[place].action == reply.text.strip()
            usage = {"tokens": reply.tokens, "prompt_tokens": reply.prompt_tokens, "end": reply.finish}
            assert acts[place].notes == usage
        chosen = choose(TINY, chats(legal), [one.legal for one in legal])
        for place, one, index in zip((1, 3), legal, chosen, strict=True):
            assert acts[place].action == one.legal[index]
            assert acts[place].notes == {}

    def test_a_draw_is_by_the_probability_of_the_option_and_the_seed_of_the_view(self):
        seen = [view("Choose.", ("x", "yes", "no"), seed=seed, role="a") for seed in range(20)]
        acts = LanguagePolicy(TINY, part, choose=Drawn(0.7)).act(seen)
        shares = option_probabilities(TINY, chats(seen[:1]), [seen[0].legal])[0]
        weights = np.exp(np.log(shares) / 0.7)
        for one, act in zip(seen, acts, strict=True):
            place = one.rng().choice(3, p=weights / weights.sum())
            assert act.action == one.legal[place]
            assert act.notes == {"probability": pytest.approx(float(shares[place]), abs=1e-5)}

    @pytest.mark.parametrize("chosen", [Likeliest(length_normalised=False), Drawn()])
    def test_many_at_once_are_as_one_at_a_time_in_any_order(self, chosen):
        policy = LanguagePolicy(TINY, part, sampling=SHORT, choose=chosen)
        together = policy.act(views())
        alone = [policy.act([one])[0] for one in views()]
        assert [act.action for act in together] == [act.action for act in alone]
        order = [3, 0, 4, 2, 1]
        moved = policy.act([views()[place] for place in order])
        assert [act.action for act in moved] == [together[place].action for place in order]

    def test_role_and_choice_policies_are_the_same_policy_with_other_parts(self):
        seen = [one for one in views() if one.legal]
        assert ChoicePolicy(TINY, TEXTS).act(seen) == LanguagePolicy(TINY, part).act(seen)
        bare = [view("Speak.", seed=9), view("Choose.", ("x", "y"))]
        assert RolePolicy(TINY, {}, SHORT).act(bare) == LanguagePolicy(TINY, part, sampling=SHORT).act(bare)

    def test_a_choice_can_be_drawn_under_steering(self):
        rng = np.random.default_rng(0)
        vector = rng.standard_normal(TINY.hidden).astype(np.float32)
        steered = (Intervention(vector, 8.0, 1),)
        asked = [chat("Choose.")] * 3
        steering = Steering((steered, (), steered))
        first, plain, again = option_probabilities(TINY, asked, [("x", "y")] * 3, steering)
        assert first == pytest.approx(again)
        assert abs(first - plain).max() > 1e-4
        assert plain == pytest.approx(option_probabilities(TINY, asked[:1], [("x", "y")])[0], abs=1e-5)

    def test_no_views_no_acts(self):
        assert LanguagePolicy(TINY, part, memory=WindowMemory()).act([]) == []

    def test_a_refused_attempt_is_shown_with_the_reason(self):
        seen = []
        model = ScriptedModel(lambda said, seed: seen.append(said) or "better")
        refused = (Receipt("first", False, "too short."), Receipt("second", False, "too long."))
        LanguagePolicy(model, part).act([view(refused=refused), view(legal=("better", "b"), refused=refused)])
        assert [message["content"] for message in seen[0]][2:] == ["second", "That was refused: too long. Reply again."]
        assert len(seen[1]) == 2  # a choice cannot be refused, so nothing is said of it


class TestReader:
    def talker(self, script, **parts):
        return LanguagePolicy(ScriptedModel(script), part, sampling=Sampling(max_tokens=200), **parts)

    def test_a_thought_never_reaches_another_agent(self):
        seen = []

        def script(said, seed):
            seen.append("\n".join(message["content"] for message in said))
            return f"<think>SECRET {seed}</think><act>hello {len(seen)}</act>"

        policy = self.talker(script, reader=ThinkAct(), memory=WindowMemory())
        episode = play(Talk(), dict.fromkeys(Talk.agents, policy), 0)
        assert all("SECRET" in one.notes["thought"] for one in episode.turns)
        assert not [text for text in seen if "SECRET" in text]
        assert "SECRET" not in json.dumps([[one.observation, one.action] for one in episode.turns])
        assert parse_counts(episode.turns) == {"ok": 6}

    def test_an_unreadable_reply_is_asked_for_once_more_with_the_reason(self):
        seen = []

        def script(said, seed):
            seen.append((said[-1]["content"], seed))
            return "I wonder" if len(said) == 2 else "<act>go</act>"

        act = self.talker(script, reader=ThinkAct()).act([view(seed=7)])[0]
        assert act.action == "go"
        assert act.notes["parse"] == {"status": "repaired", "reason": "no action is marked", "again": 1}
        assert "no action is marked" in seen[1][0]
        assert seen[0][1] == 7 != seen[1][1]

    def test_a_reply_that_stays_unreadable_is_a_wasted_turn(self):
        policy = self.talker(lambda *_: "I wonder", reader=ThinkAct())
        episode = play(Talk(2), dict.fromkeys(Talk.agents, policy), 0)
        assert [one.action for one in episode.turns] == ["", ""]
        assert parse_counts(episode.turns) == {"failed": 2}
        assert episode.turns[0].notes["thought"] == "I wonder\nI wonder"
        assert self.talker(lambda *_: "x", reader=ThinkAct(), repairs=0).act([view()])[0].notes["parse"]["again"] == 0

    @pytest.mark.parametrize(("rule", "ended"), [("random", "over"), ("halt", "illegal")])
    def test_where_actions_are_legal_ones_the_engine_asks_again_and_its_rules_decide(self, rule, ended):
        asked = []

        class Choosing(Talk):
            def legal(self, agent):
                return ("left", "right") if agent in self.acting else ()

        policy = self.talker(lambda said, seed: asked.append(said) or "I wonder", reader=ThinkAct(), choose=None)
        episode = play(Choosing(1), dict.fromkeys(Talk.agents, policy), 0, on_illegal=rule)
        assert episode.ended == ended
        assert len(asked) == 2  # once by the policy, once more for the engine
        assert episode.turns[0].fallback
        assert episode.turns[0].notes["parse"]["status"] == "failed"
        assert "may not do ''" in asked[1][-1]["content"]

    def test_a_written_choice_is_spelt_as_the_legal_one_it_means(self):
        policy = self.talker(
            lambda said, seed: f"<act>{said[-1]['content'][0]}. </act>", reader=ThinkAct(), choose=None
        )
        acts = policy.act([view("left", ("L", "R")), view("round", ("L", "R")), view("up", ("L", "R"))])
        assert [act.action for act in acts] == ["L", "R", "u."]
        assert "left" not in policy.act([view("left", ("L", "l"))])[0].action
        listed = []
        self.talker(lambda said, seed: listed.append(said[-1]["content"]) or "x", choose=None).act(
            [view(legal=("go", "stay"))]
        )
        assert "go\nstay" in listed[0]


class Server(ScriptedModel):
    """Fails on every row whose observation says so, as a whole batch, as a served model does."""

    def __init__(self):
        super().__init__("echo")
        self.asked = []

    def generate(self, chats, sampling, steering=None, seeds=None):
        self.asked.append([said[-1]["content"] for said in chats])
        if any("stall" in text for text in self.asked[-1]):
            raise ServerError("no answer in 7 tries")
        return super().generate(chats, sampling, steering, seeds)

    def logprobs(self, chats, replies):
        if any("stall" in said[-1]["content"] for said in chats):
            raise ServerError("no answer in 7 tries")
        return super().logprobs(chats, replies)


class TestFailures:
    def test_by_default_the_error_stops_the_run(self):
        with pytest.raises(ServerError):
            LanguagePolicy(Server(), part).act([view("stall")])

    def test_a_stalled_row_wastes_its_turn_alone_and_is_marked(self):
        seen = [view("one"), view("stall"), view("three"), view("stall", ("a", "b")), view("yes or no", ("yes", "no"))]
        acts = LanguagePolicy(Server(), part, on_failure="waste").act(seen)
        assert [act.action for act in acts] == ["one", "", "three", "", "yes"]
        assert [act.notes.get("failure") for act in acts] == [None, *["no answer in 7 tries", None] * 2]

    def test_a_server_that_is_away_is_not_asked_row_by_row_to_the_end(self):
        server = Server()
        acts = LanguagePolicy(server, part, on_failure="waste").act([view(f"stall {n}") for n in range(9)])
        assert len(server.asked) == 1 + GIVE_UP
        assert all("no answer" in act.notes["failure"] for act in acts)
        assert "not asked" in acts[-1].notes["failure"]

    def test_without_giving_up_every_row_is_asked_and_in_threads_no_slower_row_holds_up_the_others(self):
        together = threading.Barrier(3, timeout=5)

        def ask(rows):
            if len(rows) > 1:
                raise ServerError("the batch failed")
            together.wait()
            if rows[0] % 2:
                raise ServerError(f"row {rows[0]}")
            return [f"answer {rows[0]}"]

        found = ask_rows(ask, 6, "waste", give_up=None, threads=3)
        assert found == ["answer 0", Failure("row 1"), "answer 2", Failure("row 3"), "answer 4", Failure("row 5")]

    def test_threads_that_give_up_begin_no_further_row(self):
        asked = []

        def ask(rows):
            asked.append(list(rows))
            raise ServerError("away")

        found = ask_rows(ask, 50, "waste", give_up=4, threads=2)
        assert 4 <= len(asked) - 1 <= 5
        assert all(isinstance(one, Failure) for one in found)
        assert found[-1].reason == "not asked, after 4 other rows failed: away"

    def test_a_budget_always_stops_the_run(self):
        class Spent(ScriptedModel):
            def generate(self, *_, **__):
                raise BudgetExceededError("the budget is spent")

        with pytest.raises(BudgetExceededError):
            LanguagePolicy(Spent(), part, on_failure="waste").act([view()])

    def test_an_episode_goes_on_after_a_failure(self):
        class Stalling(Talk):
            def observe(self, agent):
                return "stall" if len(self.said) == 2 else super().observe(agent)

        policy = LanguagePolicy(Server(), part, on_failure="waste", sampling=Sampling(max_tokens=50))
        episode = play(Stalling(), dict.fromkeys(Talk.agents, policy), 0)
        assert episode.ended == "over"
        assert [bool(one.notes.get("failure")) for one in episode.turns] == [False, False, True, False, False, False]
        assert episode.turns[2].action == ""

    def test_an_empty_reply_is_asked_for_once_more_with_another_seed_and_then_marked(self):
        seeds = []
        model = ScriptedModel(lambda said, seed: seeds.append(seed) or "")
        act = LanguagePolicy(model, part).act([view(seed=4)])[0]
        assert (act.action, act.notes["failure"]) == ("", "the reply is empty")
        assert len(set(seeds)) == 2
        late = ScriptedModel(lambda said, seed: "" if seed == 4 else "hello")
        act = LanguagePolicy(late, part).act([view(seed=4)])[0]
        assert act.action == "hello"
        assert "failure" not in act.notes

    def test_a_refusal_of_the_server_is_told_in_its_words(self):
        model = ScriptedModel(lambda *_: Completion("", "error", note="the model refused: no"))
        act = LanguagePolicy(model, part).act([view()])[0]
        assert model.calls == 1
        assert act.notes["failure"] == "the model refused: no"
        assert act.notes["end"] == "error"

    def test_a_summary_that_the_server_does_not_write_does_not_cost_the_turn(self):
        memory = SummaryMemory(ModelSummariser(Server()), every=1)
        acts = LanguagePolicy(ScriptedModel("echo"), part, memory=memory).act([view("hi", history=(turn(0, "stall"),))])
        assert acts[0].action.endswith("hi")
        assert acts[0].notes["memory"]["failures"] == 1


def note_taker(chat, seed):
    return f"{len(chat[-1]['content'])} {seed % 100}"


MEMORIES = {
    "window": WindowMemory(turns=2, budget=400),
    "summary": SummaryMemory(ModelSummariser(ScriptedModel(note_taker)), every=2),
    "retrieval": RetrievalMemory(encode, capacity=3, top=2),
}


class TestMemoryInPlay:
    @pytest.mark.parametrize("name", MEMORIES)
    def test_an_episode_goes_on_exactly_wherever_it_was_broken_off(self, name):
        policy = LanguagePolicy(ScriptedModel(note_taker), part, memory=MEMORIES[name])
        seats = dict.fromkeys(Talk.agents, policy)
        whole = play(Talk(10), seats, 5)
        assert len({one.action for one in whole.turns}) > 5
        for place in range(10):
            rest = play_all([Table(Talk(10), seats, 5, played=whole.turns[:place])], Rules())[0]
            assert rest == whole

    @pytest.mark.parametrize("name", MEMORIES)
    def test_it_stands_before_the_observation_and_counts_after_a_json_round_trip(self, name):
        seen = []
        model = ScriptedModel(lambda said, seed: seen.append(said[-1]["content"]) or "cat")
        policy = LanguagePolicy(model, part, memory=MEMORIES[name])
        first = turn(0, saw="a cat in the house", did="feed it")
        noted = policy.act([view("cat?", history=(first,))])[0].notes
        second = turn(1, saw="cat?", did="cat", notes=json.loads(json.dumps(noted)))
        policy.act([view("cat!", history=(first, second))])
        text = seen[-1]
        assert text.endswith("\n\ncat!")
        assert "feed it" in text or name == "summary"
        assert policy.act([view("cat!")])[0].action == "cat"
        assert seen[-1] == "cat!"

    def test_a_loaded_memory_counts_at_the_first_turn_alone(self):
        memory = RetrievalMemory(encode)
        state = memory.recall([view(history=(turn(0, "gold in the house"),))], [{}])[0].state
        seen = []
        model = ScriptedModel(lambda said, seed: seen.append(said[-1]["content"]) or "x")
        policy = LanguagePolicy(model, part, memory=memory, remembered={"ann": state})
        policy.act(
            [view("house?"), view("house?", agent="bob"), view("house?", history=(turn(3, notes={"memory": {}}),))]
        )
        assert ["gold in" in text for text in seen] == [True, False, False]

    @pytest.mark.parametrize("memory", [SummaryMemory(lambda items: [], every=9), RetrievalMemory(encode)])
    def test_turns_that_were_taken_for_the_agent_are_remembered_too(self, memory):
        policy = LanguagePolicy(ScriptedModel("echo"), part, memory=memory)
        first = turn(0, saw="a cat", did="feed it")
        state = policy.act([view("cat?", history=(first,))])[0].notes
        history = (first, turn(1, saw="cat?", did="cat", notes=state), turn(2, saw="boat", did="silence"))
        kept = json.dumps(policy.act([view("cat boat", history=history)])[0].notes["memory"])
        assert [kept.count(f"[step {step}]") for step in range(3)] == [1, 1, 1]
        assert "silence" in kept

    def test_a_memory_of_another_version_on_record_is_refused(self):
        old = turn(0, notes={"memory": {"kind": "summary", "version": 0}})
        with pytest.raises(UserError, match="version 0; this policy needs 'summary', version 1"):
            LanguagePolicy(TINY, part, memory=MEMORIES["summary"]).act([view(history=(old,))])

    def test_notes_and_prompts_of_a_long_episode_do_not_grow(self):
        lengths = []

        def script(said, seed):
            lengths.append(len(said[-1]["content"]))
            return "word " * 30

        memory = SummaryMemory(ModelSummariser(ScriptedModel(lambda *_: "sum " * 500)), every=4, budget=200)
        policy = LanguagePolicy(ScriptedModel(script), part, memory=memory)
        episode = play(Talk(2000), dict.fromkeys(Talk.agents, policy), 0, limit=2000, hashes=False)
        sizes = [len(json.dumps(one.notes)) for one in episode.turns]
        assert max(sizes[200:]) <= max(sizes[:200]) + 40
        assert max(lengths[200:]) <= max(lengths[:200]) + 40


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"repairs": -1}, "repairs must be at least 0, got -1"),
        ({"on_failure": "ignore"}, "on_failure must be 'raise' or 'waste', got 'ignore'"),
        ({"sampling": None, "reader": ThinkAct()}, "give a sampling"),
        ({"sampling": None, "choose": None}, "give a sampling"),
        ({"sampling": None, "tools": ToolLoop(ToolRegistry([Tool("a", "b")]))}, "give a sampling"),
        ({"remembered": {"ann": {"kind": "window"}}}, "needs the memory"),
    ],
)
def test_parts_that_do_not_fit_together(parts, message):
    with pytest.raises(UserError, match=message):
        LanguagePolicy(TINY, part, **{"sampling": SPEECH, **parts})
