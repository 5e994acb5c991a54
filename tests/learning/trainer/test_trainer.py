"""The trainer: it learns what pays, goes on exactly, trains nobody else's tokens, and says what is wrong."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from rolecraft.errors import ModelError, UserError
from rolecraft.learning.credit import NoSignalWarning, assign_credit, make_rule
from rolecraft.learning.policy import WordCodec, lora_policies, tiny_policy
from rolecraft.learning.trainer import (
    CollapseError,
    CollapseMonitor,
    CollapseWarning,
    MonitorConfig,
    RandomPolicy,
    TrainConfig,
    Trainer,
    checkpoints,
    load_weights,
)
from rolecraft.testing import tiny_model
from rolecraft.worlds import Act
from tests.learning.trainer.small_worlds import Pick

pytestmark = [
    pytest.mark.filterwarnings("ignore::rolecraft.learning.credit.NoSignalWarning"),
    pytest.mark.filterwarnings("ignore::rolecraft.learning.trainer.CollapseWarning"),
]


def policy(seed=0, agents=("ann",), **options):
    codec = WordCodec.of_world(lambda: Pick(agents=agents), extra=["judge"])
    return tiny_policy(codec, hidden=16, heads=2, seed=seed, max_tokens=4, **options)


def trainer(world=Pick, policies=None, rule="reinforce", **fields):
    beside = {name: fields.pop(name) for name in ("route", "roles", "opponents", "columns", "losses") if name in fields}
    config = TrainConfig(**{"iterations": 40, "episodes": 32, "lr": 0.02} | fields)
    return Trainer(world, policies or policy(), make_rule(rule), config, seed=7, **beside)


def weights(made):
    return {f"{n}/{k}": v.detach().clone() for n, p in made.policies.items() for k, v in p.parameters().items()}


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def share_right(made):
    made.iteration += 1000
    episodes = made.collect(made.starts())
    made.iteration -= 1000
    return sum(e.rewards["ann"] for e in episodes) / len(episodes)


@pytest.mark.parametrize("rule", ["grpo", "rae", "reinforce"])
def test_it_learns_what_pays(rule):
    made = trainer(rule=rule, group=8 if rule == "grpo" else 1, episodes=64)
    assert share_right(made) < 0.6
    for _ in range(40):
        made.step()
    assert share_right(made) > 0.9


def test_nothing_is_learned_where_nothing_pays():
    made = trainer(world=lambda: Pick(pay=0.0))
    before = weights(made)
    with pytest.warns(NoSignalWarning):
        made.step()
    assert equal(weights(made), before)


def test_going_on_from_a_checkpoint_gives_the_same_numbers(tmp_path):
    def make():
        options = {"rule": "rae", "kl": 0.1, "entropy": 0.01, "epochs": 2, "minibatch": 16, "warmup": 3}
        return trainer(policies=policy(critic=True), schedule="cosine", **options)

    whole, broken, resumed = make(), make(), make()
    figures = [whole.step().figures for _ in range(5)]
    for _ in range(3):
        broken.step()
    broken.save(tmp_path / "000003")
    resumed.load(tmp_path / "000003")
    assert [resumed.step().figures for _ in range(2)] == figures[3:]
    assert equal(weights(resumed), weights(whole))
    assert resumed.state == whole.state
    assert resumed.monitor.state() == whole.monitor.state()


@pytest.mark.parametrize("normaliser", ["tokens", "rows", 5.0])
def test_a_minibatch_may_be_cut_into_parts(normaliser):
    def after(micro):
        made = trainer(
            world=lambda: Pick(turns=2), micro=micro, normaliser=normaliser, entropy=0.1, kl=0.1, max_grad_norm=1e9
        )
        for _ in range(2):
            figures = made.step().figures
        return weights(made), figures

    (one, figures), (other, cut) = after(1000), after(5)
    for name in one:
        assert torch.allclose(one[name], other[name], atol=2e-5), name
    for name in ("entropy", "kl", "clipped"):
        assert figures[name] == pytest.approx(cut[name], abs=1e-4)


def test_rows_are_those_of_policies_under_training_alone():
    world = lambda: Pick(agents=("ann", "bob"), turns=3)  # noqa: E731
    made = trainer(world, policy(agents=("ann", "bob")), opponents=lambda start: {"bob": RandomPolicy()}, episodes=4)
    starts = made.starts()
    episodes = made.collect(starts)
    rows = made.rows(episodes, starts)
    assert {turn.agent for turn in rows.turns} == {"ann"}
    keys = rows.batch.keys
    assert keys["traj"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert keys["turn"].tolist() == [0, 1, 2] * 4
    assert keys["step"].tolist() == [0, 2, 4] * 4
    assert rows.batch.row["steps_to_end"].tolist() == [2, 1, 0] * 4
    for row, turn in enumerate(rows.turns):
        assert rows.batch.row["outcome"][row] == episodes[keys["traj"][row]].rewards["ann"]
        assert rows.batch.row["duration"][row] == len(turn.notes["tokens"])


def test_tokens_without_a_choice_are_not_trained():
    made = trainer(episodes=64)
    starts = made.starts()
    rows = made.rows(made.collect(starts), starts)
    two = [row for row, turn in enumerate(rows.turns) if turn.action == "light blue"]
    assert two
    assert rows.batch.mask[two, :2].tolist() == [[True, False]] * len(two)
    assert np.allclose(rows.batch.token["logp_old"][two, 1], 0, atol=1e-6)


def test_a_group_shares_its_start_and_differs_in_its_draws():
    made = trainer(group=16, episodes=32)
    starts = made.starts()
    assert len({start.seed for start in starts}) == 2
    assert [start.sample for start in starts] == list(range(16)) * 2
    episodes = made.collect(starts)
    assert len({e.turns[0].observation for e in episodes[:16]}) == 1
    assert len({e.turns[0].action for e in episodes[:16]}) > 1
    keys = made.rows(episodes, starts).batch.keys
    assert len(set(keys["task"].tolist())) == 2
    made.iteration += 1
    assert not {start.task for start in made.starts()} & {start.task for start in starts}


def test_an_illegal_action_ends_the_episode_and_is_paid():
    class Wrong:
        def act(self, views):
            return [Act("mauve") for _ in views]

    world = lambda: Pick(agents=("ann", "bob"))  # noqa: E731
    made = trainer(world, policy(agents=("ann", "bob")), opponents=lambda start: {"bob": Wrong()}, episodes=4)
    done = made.step()
    assert done.figures["ended_illegal"] == 1
    assert (done.figures["outcome/ann"], done.figures["outcome/bob"]) == (0.5, -1.5)


def test_a_cut_episode_may_be_left_out():
    for choice, kept in (("keep", 8), ("drop", 0)):
        made = trainer(lambda: Pick(turns=5), limit=2, on_limit=choice, episodes=4)
        starts = made.starts()
        rows = made.rows(made.collect(starts), starts)
        assert len(rows.replies) == 8
        assert assign_credit(rows.batch, made.credit).info["kept"] == kept


def test_replies_without_an_end_may_be_masked():
    codec = WordCodec.of_world(Pick)
    for masked in (False, True):
        learner = tiny_policy(codec, hidden=16, heads=2, max_tokens=1)
        made = trainer(lambda: Pick(free=True), learner, mask_truncated=masked)
        starts = made.starts()
        rows = made.rows(made.collect(starts), starts)
        cut = [row for row, turn in enumerate(rows.turns) if not turn.notes["ended"]]
        assert cut
        assert rows.batch.mask[cut].any() != masked


def test_rows_without_advantage_may_be_dropped():
    made = trainer(drop_zero=True)
    starts = made.starts()
    rows = made.rows(made.collect(starts), starts)
    credit = assign_credit(rows.batch, made.credit)
    lesson = made._lesson(rows, credit, rows.of("policy"))
    assert torch.equal(lesson.mask.any(1), lesson.advantages.abs().sum(1) > 0)
    assert 0 < int(lesson.mask.any(1).sum()) < len(rows.replies)


def test_each_role_may_have_its_own_policy_and_routes_may_change():
    agents = ("ann", "bob")
    world = lambda: Pick(agents=agents)  # noqa: E731
    pair = {"ann": policy(1, agents), "judge": policy(2, agents)}
    made = trainer(world, pair, roles={"bob": "judge"}, episodes=4)
    before = weights(made)
    starts = made.starts()
    rows = made.rows(made.collect(starts), starts)
    assert {(turn.agent, name) for turn, name in zip(rows.turns, rows.policies, strict=True)} == (
        {("ann", "ann"), ("bob", "judge")}
    )
    only_ann = replace(assign_credit(rows.batch, made.credit))
    advantages = np.where([[name == "ann"] for name in rows.policies], only_ann.advantages, 0.0)
    figures = made.update(rows, replace(only_ann, advantages=advantages))
    assert {"ann/loss", "judge/loss"} <= set(figures)
    now = weights(made)
    assert not all(torch.equal(now[n], before[n]) for n in now if n.startswith("ann/"))
    assert all(torch.equal(now[n], before[n]) for n in now if n.startswith("judge/"))
    swapped = trainer(world, pair, roles={"bob": "judge"}, episodes=4, route=lambda agent, role: "ann")
    starts = swapped.starts()
    assert set(swapped.rows(swapped.collect(starts), starts).policies) == {"ann"}
    lost = trainer(world, {"ann": policy(1, agents), "eve": policy(2, agents)}, episodes=4)
    with pytest.raises(UserError, match="no policy is named for agent 'bob'"):
        lost.collect(lost.starts())


def test_a_loss_beside_the_gradient_and_columns_reach_the_update():
    def pull(logp, logp_old, token, mask, by):
        return -(logp * token)[mask].sum(), {"rows": float(mask.any(1).sum())}

    class Ask:
        def __call__(self, batch, carry):
            from rolecraft.learning.credit import AuxLoss

            return replace(carry, aux=(AuxLoss("pull", 2.0, batch.tokens("wanted", "ask")),))

    def wanted(rows):
        likes = [[turn.action == "red"] * rows.batch.shape[1] for turn in rows.turns]
        return {"wanted": np.array(likes, dtype=float)}

    made = Trainer(
        lambda: Pick(pay=0.0), policy(), [Ask()], TrainConfig(lr=0.02), columns=wanted, losses={"pull": pull}
    )
    for _ in range(20):
        figures = made.step().figures
    assert figures["pull/rows"] == 64
    last = made.collect(made.starts())
    assert sum(episode.turns[0].action == "red" for episode in last) > 58


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_before_the_step(broken):
    made = trainer()
    starts = made.starts()
    rows = made.rows(made.collect(starts), starts)
    credit = assign_credit(rows.batch, made.credit)
    advantages = credit.advantages.copy()
    advantages[3] = broken
    before = weights(made)
    with pytest.raises(ModelError, match=r"row 3 has an advantage that is not finite"):
        made.update(rows, replace(credit, advantages=advantages))
    assert equal(weights(made), before)


def test_a_checkpoint_of_another_base_or_a_broken_one_is_refused(tmp_path):
    made = trainer()
    made.save(tmp_path / "000000")
    other = Trainer(Pick, tiny_policy(WordCodec(["a"]), hidden=16, heads=2), make_rule("rae"))
    with pytest.raises(UserError, match="stand on another base"):
        other.load(tmp_path / "000000")
    first, second = (lora_policies(tiny_model(2, seed=seed), ["policy"], rank=2) for seed in (0, 1))
    Trainer(Pick, first, make_rule("rae")).save(tmp_path / "lora")
    load_weights(tmp_path / "lora", first)
    with pytest.raises(UserError, match="stand on another base"):
        load_weights(tmp_path / "lora", second)
    (tmp_path / "000000" / "policy.safetensors").write_bytes(b"broken")
    with pytest.raises(ModelError, match="cannot be read"):
        made.load(tmp_path / "000000")
    with pytest.raises(UserError, match="no checkpoint"):
        made.load(tmp_path)
    state = tmp_path / "000000" / "state.json"
    state.write_text(json.dumps(json.loads(state.read_text()) | {"format": 99}))
    with pytest.raises(UserError, match="format 99"):
        made.load(tmp_path / "000000")
    assert [folder.name for folder in checkpoints(tmp_path)] == ["000000"]


def test_the_rate_rises_and_falls():
    config = TrainConfig(iterations=10, lr=1.0, warmup=2, schedule="linear")
    assert [config.rate(n) for n in (0, 1, 5, 9)] == pytest.approx([0.5, 0.9, 0.5, 0.1])
    assert TrainConfig(iterations=10, lr=2.0).rate(9) == 2.0
    assert TrainConfig(iterations=10, lr=1.0, schedule="cosine").rate(5) == pytest.approx(0.5)
    with pytest.raises(UserError, match="groups of 3"):
        TrainConfig(episodes=4, group=3)


class TestCollapse:
    def look(self, monitor, rows):
        return [monitor.look(**{"length": 10, "entropy": 1, "repeated": 0, "spread": 1} | row) for row in rows]

    @pytest.mark.parametrize(
        ("row", "word"), [({"length": 1}, "length"), ({"entropy": 0.01}, "entropy"), ({"repeated": 1}, "repetition")]
    )
    def test_a_planted_collapse_is_found(self, row, word):
        monitor = CollapseMonitor(MonitorConfig(window=2))
        found = self.look(monitor, [{}, {}, {}, row, row])
        assert found[:4] == [[], [], [], []]
        assert len(found[4]) == 1
        assert found[4][0].startswith(word)

    def test_it_is_said_once_and_again_when_it_comes_back(self):
        monitor = CollapseMonitor(MonitorConfig(window=1))
        found = self.look(monitor, [{}, {"length": 1}, {"length": 1}, {}, {"length": 1}])
        assert [bool(each) for each in found] == [False, True, False, False, True]

    def test_what_stays_is_left_alone(self):
        assert not any(self.look(CollapseMonitor(MonitorConfig(window=2)), [{}] * 30))

    def test_rewards_that_never_differ(self):
        monitor = CollapseMonitor(MonitorConfig(window=1, flat=3))
        found = self.look(monitor, [{"spread": 0}, {"spread": 0}, {}, {"spread": 0}, {"spread": 0}, {"spread": 0}])
        assert [bool(each) for each in found] == [False] * 5 + [True]

    def test_it_goes_on_from_its_state(self):
        rows = [{}, {}, {"length": 1}, {"length": 1}]
        whole = self.look(CollapseMonitor(MonitorConfig(window=2)), rows)
        first = CollapseMonitor(MonitorConfig(window=2))
        self.look(first, rows[:3])
        second = CollapseMonitor(MonitorConfig(window=2), json.loads(json.dumps(first.state())))
        assert self.look(second, rows[3:]) == whole[3:]

    @pytest.mark.parametrize("action", ["warn", "stop", "off"])
    def test_what_is_done(self, action):
        made = trainer(lambda: Pick(pay=0.0), monitor={"action": action, "window": 1, "flat": 1})
        if action == "off":
            assert made.step().alarms == []
        elif action == "warn":
            with pytest.warns(CollapseWarning, match="no signal"):
                made.step()
        else:
            with pytest.raises(CollapseError, match="no signal"):
                made.step()
        assert made.iteration == 1
