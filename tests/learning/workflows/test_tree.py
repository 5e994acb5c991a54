"""The tree: K candidates per prompt, valued at once, the best carried out; routes; what wrong keys do."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft.errors import UserError
from rolecraft.learning import (
    Answers,
    Effect,
    GroupOfOneWarning,
    Routes,
    SampledRows,
    TextsOf,
    WorldWorkflow,
    prompt_bias,
    sample_trajectories,
    sample_tree,
)
from rolecraft.learning.credit import Group, Mix, assign_credit
from rolecraft.worlds import PlanPath


@dataclass
class Sum:
    """Two roles add digits to a total; the second is paid for both, and a total of 12 ends it."""

    agents: tuple[str, ...] = ("writer", "checker")
    order: str = "sequence"
    max_turns: int = 2
    applied: int = 0

    def start(self, task: int) -> dict[str, list[int]]:
        return {"digits": [task]}

    def prompt(self, role: str, state: dict[str, list[int]]) -> str:
        return f"{role} {state['digits']}"

    def apply(self, state: dict[str, list[int]], role: str, text: str) -> Effect[dict[str, list[int]]]:
        self.applied += 1
        state["digits"].append(int(text))  # in place: the sampler must hand out copies
        total = sum(state["digits"])
        return Effect(state, float(total) if role == "checker" else 0.0, float(text), total >= 12, total >= 12)


@dataclass
class Digits:
    """Answers a digit that follows from its seed, or a script; keeps what it was asked."""

    script: list[int] = field(default_factory=list)
    most: int = 4
    asked: list[tuple[str, str, int]] = field(default_factory=list)

    def sample(self, prompts: Sequence[str], roles: Sequence[str], seeds: Sequence[int]) -> Answers:
        self.asked += zip(prompts, roles, seeds, strict=True)
        found = [self.script.pop(0) if self.script else seed % self.most for seed in seeds]
        return Answers([str(x) for x in found], [(x, 9) for x in found], [(-0.5, -0.1)] * len(found))


def tree(policy, *, workflow=None, tasks=(0,), **options) -> SampledRows:
    workflow = workflow or Sum()
    return sample_tree(workflow, Routes.shared(policy, workflow.agents), list(tasks), **options)


def test_the_best_candidate_goes_on_and_the_first_of_equals():
    rows = tree(Digits([1, 3, 3, 2, 0, 2, 3, 1, 2, 1, 1, 2]), candidates=3).rows
    assert [row.text for row in rows] == list("133202312112")
    assert [row.chosen for row in rows] == [bool(x) for x in (0, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1)]
    assert [row.prompt for row in rows[::3]] == [
        "writer [0]",
        "checker [0, 3]",
        "writer [0, 3, 2]",
        "checker [0, 3, 2, 3]",
    ]
    assert [row.reward for row in rows[:3]] == [1, 3, 3]
    assert [row.team for row in rows[3:6]] == [5, 3, 5]
    assert [row.reward for row in rows[3:6]] == [7, 3, 7]
    assert [(row.turn, row.role) for row in rows[::3]] == list(itertools.product((0, 1), ("writer", "checker")))


def test_alpha_weighs_the_team_and_decides_who_goes_on():
    for alpha, reward in ((0.0, 2.0), (0.5, 3.0), (1.0, 4.0)):
        rows = tree(Digits([0, 0, 2, 1]), candidates=2, alpha=alpha).rows
        assert rows[2].reward == reward, "own 2, team 2"

    class Rival(Sum):
        def apply(self, state, role, text):
            effect = super().apply(state, role, text)
            return Effect(effect.state, -2.0 * float(text), effect.local, effect.done)

    for alpha, chosen in ((0, [False, True]), (1, [True, False])):
        rows = tree(Digits([1, 3]), workflow=Rival(max_turns=1), candidates=2, alpha=alpha).rows
        assert [row.chosen for row in rows[:2]] == chosen


def test_success_ends_a_branch_and_leaves_the_others():
    rows = tree(Digits(most=3), tasks=(12, 0), candidates=2).rows
    first = [row for row in rows if row.task == 0]
    assert {(row.turn, row.role) for row in first} == {(0, "writer")}
    assert all(row.done and row.success for row in first)
    assert len([row for row in rows if row.task == 1]) == 2 * 2 * 2


@settings(max_examples=20, deadline=None)
@given(st.integers(2, 5), st.integers(1, 3), st.booleans(), st.integers(0, 1000))
def test_candidates_of_a_group_share_their_prompt_and_the_spine_holds_together(candidates, tasks, greedy, seed):
    rows = tree(Digits(), tasks=range(tasks), candidates=candidates, greedy=greedy, seed=seed).rows
    groups: dict[tuple[int, int, str], list] = {}
    for row in rows:
        groups.setdefault((row.task, row.turn, row.role), []).append(row)
    for (task, _, role), group in groups.items():
        assert len(group) == candidates
        assert len({row.prompt for row in group}) == 1
        (chosen,) = [row for row in group if row.chosen]
        if greedy:
            assert chosen.reward == max(row.reward for row in group)
        digits = json.loads(group[0].prompt.split(" ", 1)[1])
        before = [row for row in rows if row.task == task and row.chosen and rows.index(row) < rows.index(group[0])]
        assert digits == [task, *(int(row.text) for row in before)]
        assert group[0].prompt.startswith(role)


def test_a_random_branch_is_not_always_the_best_and_follows_the_seed():
    def chosen(seed):
        rows = tree(Digits(most=100), tasks=range(20), candidates=4, greedy=False, seed=seed).rows
        return [row.reward for row in rows if row.chosen], [row.text for row in rows]

    rewards, texts = chosen(3)
    assert chosen(3) == (rewards, texts)
    assert chosen(4)[1] != texts
    best = tree(Digits(most=100), tasks=range(20), candidates=4, seed=3)
    assert np.mean(rewards[:20]) < np.mean([row.reward for row in best if row.chosen][:20])


def test_draws_do_not_depend_on_who_else_is_asked():
    alone = tree(Digits(), tasks=(0,), candidates=3, seed=7).rows
    many = tree(Digits(), tasks=(0, 1, 2), candidates=3, seed=7).rows
    assert [row for row in many if row.task == 0] == list(alone)
    policy = Digits()
    tree(policy, tasks=(0, 1), candidates=4)
    seeds = [seed for *_, seed in policy.asked]
    assert len(set(seeds)) == len(seeds)


def test_each_policy_is_asked_once_per_turn_and_agent():
    class Counted(Digits):
        calls = 0

        def sample(self, prompts, roles, seeds):
            self.calls += 1
            assert len(set(roles)) == 1
            return super().sample(prompts, roles, seeds)

    policies = {"writer": Counted(most=2), "checker": Counted(most=2)}
    sample_tree(Sum(), Routes.own(policies), [0, 1, 2], candidates=4)
    assert [policy.calls for policy in policies.values()] == [2, 2]
    assert {role for _, role, _ in policies["writer"].asked} == {"writer"}


def test_agents_in_parallel_see_the_same_state():
    rows = tree(Digits([1, 2, 3, 0, 1, 1, 0, 2]), workflow=Sum(order="parallel"), candidates=2).rows
    assert [row.prompt for row in rows] == [
        *["writer [0]"] * 2, *["checker [0]"] * 2, *["writer [0, 2, 3]"] * 2, *["checker [0, 2, 3]"] * 2,
    ]  # fmt: skip
    assert [row.team for row in rows[2:4]] == [3, 0], "each is valued from the common state"
    rows = tree(Digits([7, 6, 3, 2]), workflow=Sum(order="parallel"), candidates=2, tasks=(5,)).rows
    assert len(rows) == 4, "the writer's answer ends it: the checker's is not carried out, and there is no second turn"


def test_trajectories_go_their_own_way():
    rows = sample_trajectories(Sum(), Routes.shared(Digits(), Sum().agents), [0, 1], trajectories=3, seed=1)
    assert all(row.chosen for row in rows)
    assert sorted({row.traj for row in rows}) == list(range(6))
    assert [row.task for row in rows][:6] == [0, 0, 0, 1, 1, 1]
    for traj in range(6):
        own = [row for row in rows if row.traj == traj]
        assert [row.prompt for row in own][-1].count(",") == len(own) - 1
        paid = sum(row.team for row in own)
        assert [x for x, row in zip(rows.returns, rows, strict=True) if row.traj == traj] == [paid] * len(own)
    last = rows.last_turns()
    assert {row.traj for row in last} == set(range(6))
    assert {row.turn for row in last} == {1}


def test_returns_of_a_tree_count_what_was_carried_out():
    rows = tree(Digits([1, 3, 0, 2, 1, 0, 1, 0]), candidates=2)
    assert set(rows.returns) == {5.0 + 7.0}


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 6), st.sampled_from(["std", "none"]), st.integers(0, 99))
def test_advantages_equal_a_slow_reference(candidates, scale, seed):
    rows = tree(Digits(most=9), tasks=(0, 1), candidates=candidates, alpha=0.7, seed=seed)
    rule = [Mix(0.7), Group(("task", "agent", "turn"), scale=scale, same="prompt")]
    found = assign_credit(rows.batch(), rule).advantages
    for number, row in enumerate(rows):
        group = [x.reward for x in rows if (x.task, x.turn, x.role) == (row.task, row.turn, row.role)]
        expected = row.reward - sum(group) / len(group)
        if scale == "std":
            expected /= np.std(group, ddof=1) + 1e-6
        assert found[number] == pytest.approx([expected, expected], abs=1e-9)


def test_wrong_keys_are_refused_where_prompts_must_agree_and_bias_prompts_where_not():
    rows = tree(Digits(most=3), tasks=(0, 1, 2), candidates=6, seed=5)
    batch = rows.batch()
    for keys in (("task",), ("task", "agent"), ("task", "turn"), ("agent", "turn")):
        with pytest.raises(UserError, match="differ in 'prompt'"):
            assign_credit(batch, [Mix(), Group(keys, same="prompt")])
        assert prompt_bias(assign_credit(batch, [Mix(), Group(keys)]).advantages[:, 0], rows.prompts) > 0.1
    right = assign_credit(batch, [Mix(), Group(("task", "agent", "turn"), same="prompt")])
    assert prompt_bias(right.advantages[:, 0], rows.prompts) < 1e-9


def test_the_bias_by_hand():
    assert prompt_bias(np.array([1.0, 1.0, -3.0, 1.0]), np.array([5, 5, 2, 2])) == pytest.approx((1 + 1) / 2)
    assert prompt_bias(np.zeros(0), np.zeros(0, dtype=int)) == 0


def test_rows_as_arrays():
    rows = tree(Digits([1, 3, 0, 2]), workflow=Sum(max_turns=1), candidates=2)
    batch = rows.batch()
    assert batch.keys["agent"].tolist() == [0, 0, 1, 1]
    assert batch.keys["step"].tolist() == [0, 0, 1, 1]
    assert batch.keys["prompt"].tolist() == [0, 0, 1, 1]
    assert batch.row["team_reward"].tolist() == [0, 0, 3, 5]
    assert batch.row["reward"].tolist() == [1, 3, 0, 2]
    assert batch.row["outcome"].tolist() == [1, 3, 3, 7]
    tokens, logp, mask = rows.tokens()
    assert tokens.tolist() == [[1, 9], [3, 9], [0, 9], [2, 9]]
    assert mask.all()
    assert logp[0].tolist() == [-0.5, -0.1]
    figures = rows.summary()
    assert [(row["turn"], row["role"], row["groups"], row["dead"]) for row in figures] == [
        (0, "writer", 1, 0),
        (0, "checker", 1, 0),
    ]
    assert figures[1]["std"] == pytest.approx(np.std([3, 7], ddof=1))
    dead = tree(Digits([1, 1, 0, 2]), workflow=Sum(max_turns=1), candidates=2).summary()
    assert [row["dead"] for row in dead] == [1, 0]


def test_swapped_routes_ask_the_other_policy():
    policies = {"writer": Digits(most=2), "checker": Digits(most=2)}
    routes = Routes.own(policies)
    rows = sample_tree(Sum(), routes.swapped("writer", "checker"), [0], candidates=2)
    assert {(row.role, row.policy) for row in rows} == {("writer", "checker"), ("checker", "writer")}
    assert {role for _, role, _ in policies["writer"].asked} == {"checker"}
    assert len(rows.of("writer")) == len(rows) / 2
    assert {row.role for row in rows.of("writer")} == {"checker"}
    assert routes.roles == {"writer": "writer", "checker": "checker"}


def test_bad_routes():
    with pytest.raises(UserError, match="role 'checker' has no policy"):
        sample_tree(Sum(), Routes({"a": Digits()}, {"writer": "a"}), [0])
    with pytest.raises(UserError, match="policy 'b', which is not among a"):
        sample_tree(Sum(), Routes({"a": Digits()}, {"writer": "a", "checker": "b"}), [0])

    class Short(Digits):
        def sample(self, prompts, roles, seeds):
            return Answers(*(column[1:] for column in super().sample(prompts, roles, seeds)))

    with pytest.raises(UserError, match="7 answers for 8 prompts"):
        tree(Short())


def test_bad_options_and_rewards():
    for alpha in (-0.1, float("nan"), float("inf")):
        with pytest.raises(UserError, match="alpha 0 or more"):
            tree(Digits(), alpha=alpha)
    with pytest.raises(UserError, match="candidates must be at least 1"):
        tree(Digits(), candidates=0)
    with pytest.warns(GroupOfOneWarning, match="REINFORCE"):
        tree(Digits(), candidates=1)

    class Broken(Sum):
        def apply(self, state, role, text):
            effect = super().apply(state, role, text)
            return Effect(effect.state, float("nan") if text == "3" else 0.0, effect.local, False)

    with pytest.raises(UserError, match="task 0, turn 0, writer, candidate 1: its reward is team nan"):
        tree(Digits([1, 3, 2]), workflow=Broken(), candidates=3)


def test_states_must_be_copyable_and_hold_their_chance():
    class Locked(Sum):
        def start(self, task):
            return {"digits": [task], "generator": (x for x in ())}

    with pytest.raises(UserError, match="cannot be copied"):
        tree(Digits(), workflow=Locked())

    class Counting(Sum):
        def apply(self, state, role, text):
            effect = super().apply(state, role, text)
            return Effect(effect.state, float(self.applied), effect.local, False)

    with pytest.raises(UserError, match="the same answer of writer from the same state led to two results"):
        tree(Digits(), workflow=Counting())

    class Identity(Sum):
        def prompt(self, role, state):
            return f"{role} {id(state)}"

    with pytest.raises(UserError, match="shows writer another prompt"):
        tree(Digits(), workflow=Identity())


class Plans:
    """Writes random plans, some of which cannot be read."""

    def __init__(self, words=("U", "D", "L", "R"), broken=False):
        self.words, self.broken = words, broken

    def sample(self, prompts, roles, seeds):
        texts = []
        for seed in seeds:
            rng = np.random.default_rng(seed)
            texts.append("?" if self.broken else " ".join(rng.choice(self.words, 4)))
        return Answers(texts, [(0,)] * len(texts), [(0.0,)] * len(texts))


def test_a_world_is_a_workflow():
    workflow = WorldWorkflow(PlanPath(nearest=3, turns=3), 3)
    rows = sample_tree(workflow, Routes.shared(Plans(), workflow.agents), [11, 12], candidates=8)
    for row in rows:
        assert f"You are the {row.role} . Turn {row.turn + 1} of 3 ." in row.prompt
        assert row.team == (0 if row.role == "proposer" else pytest.approx(row.local))
    drafts = {(row.task, row.turn): row.text for row in rows if row.chosen and row.role == "proposer"}
    for row in rows:
        if row.role == "checker":
            assert f"The proposer suggests : {drafts[row.task, row.turn]}\n" in row.prompt
    starts = {row.prompt.split("Write")[0] for row in rows if row.turn == 0 and row.role == "proposer"}
    assert len(starts) == 2


def test_a_group_that_cannot_be_read_is_dead_and_the_turn_goes_on():
    workflow = WorldWorkflow(PlanPath(nearest=3), 2)
    rows = sample_tree(workflow, Routes.shared(Plans(broken=True), workflow.agents), [3], candidates=4)
    assert len(rows) == 2 * 2 * 4
    assert {row.local for row in rows} == {-2.0}
    assert [row["dead"] for row in rows.summary()] == [1, 1, 1, 1]
    assert rows.rows[-1].done
    assert not rows.rows[-1].success


def test_a_tiny_transformer_plays_and_its_log_probs_are_those_of_training():
    from rolecraft.learning.policy import Reply, WordCodec, tiny_policy, words

    workflow = WorldWorkflow(PlanPath(size=4, longest=3, turns=1), 1)
    world = workflow.start(5)
    text = " ".join(
        [world.observe("proposer"), world.observe("checker"), "The proposer suggests nothing Check it U D L R"]
    )
    codec = WordCodec(sorted(set(words(text)) | set("0123456789")))
    policy = tiny_policy(codec, layers=1, hidden=16, heads=2, max_tokens=4)
    rows = sample_tree(workflow, Routes.shared(TextsOf(policy), workflow.agents), [5], candidates=4, seed=2)
    assert len(rows) == 8
    replies = [Reply(policy.encode(row.role, None, row.prompt), row.tokens) for row in rows]
    _, logp, mask = rows.tokens()
    scored = policy.score(replies).logp.detach().numpy()
    assert scored[mask] == pytest.approx(logp[mask], abs=1e-5)
    assert len({row.text for row in rows}) > 1
