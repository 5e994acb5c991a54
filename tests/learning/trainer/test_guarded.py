"""Training under guards: what is blocked is not trained as if it were played; without guards nothing changes."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.guard import RoleGuards, make_policy
from rolecraft.learning.credit import make_rule
from rolecraft.learning.policy import WordCodec, tiny_policy
from rolecraft.learning.trainer import (
    TrainConfig,
    Trainer,
    TrainGuard,
    TrainingRun,
    play_checkpoint,
    read_refusals,
    read_train_study,
)
from tests.learning.trainer.small_worlds import Pick, Say

NO_RED = {"tools": {"act": [{"effect": "forbid", "when": {"action": ".*red.*"}}, {"priority": 2}]}}
pytestmark = pytest.mark.filterwarnings("ignore::rolecraft.learning.credit.NoSignalWarning")


def trainer(world=Pick, guard=None, rule="reinforce", **fields):
    codec = WordCodec(["red", "green", "light", "blue", ".", "ann"])
    policy = tiny_policy(codec, hidden=16, heads=2, max_tokens=2)
    config = TrainConfig(**{"iterations": 5, "episodes": 24, "lr": 0.02} | fields)
    return Trainer(world, policy, make_rule(rule), config, seed=7, guard=guard)


def no_red(data=NO_RED, **options):
    return TrainGuard(RoleGuards(default=make_policy(data)), **options)


def played(made):
    starts = made.starts()
    episodes = made.collect(starts)
    return episodes, made.rows(episodes, starts)


def test_masked_actions_are_never_drawn_and_probabilities_are_those_among_the_offered():
    made = trainer(guard=no_red())
    episodes, rows = played(made)
    assert "red" not in {turn.action for episode in episodes for turn in episode.turns}
    # scored again, replies have the probability that they were drawn with: both know what was offered
    drawn, scored = (rows.batch.token[name][rows.batch.mask] for name in ("logp_sampled", "logp_old"))
    assert np.allclose(drawn, scored, atol=1e-5)
    assert {tuple(reply.options.actions.values()) for reply in rows.replies} == {("green", "light blue")}
    figures = made.step().figures
    assert (figures["guard_refused"], figures["guard_narrowed"], figures["guard_decisions"]) == (0, 24, 24)


def test_a_blocked_reply_in_free_text_is_left_out_of_the_loss():
    made = trainer(Say, no_red())
    episodes, rows = played(made)
    blocked = [bool(turn.notes.get("guard", {}).get("passed")) for turn in rows.turns]
    assert 0 < sum(blocked) < len(blocked)
    for row, turn in enumerate(rows.turns):
        assert (turn.action == "") == blocked[row] or not turn.notes["tokens"][:-1]
        assert rows.batch.mask[row].any() != blocked[row]
    assert not any(episode.rewards["ann"] for episode in episodes)


def test_where_everything_is_blocked_no_weight_moves():
    nothing = {"tools": {"act": [{"when": {"action": "never"}}]}}
    made = trainer(Say, no_red(nothing), episodes=8)
    before = [each.detach().clone() for each in made.policies["policy"].parameters().values()]
    figures = made.step().figures
    assert all(map(torch.equal, before, made.policies["policy"].parameters().values()))
    assert figures["guard_passed"] == figures["guard_refused"] > 0
    # in a world of listed actions nothing is allowed: its episodes end, and have no rows to train
    with pytest.raises(UserError, match="no policy under training had a turn"):
        trainer(Pick, no_red(nothing), episodes=8).step()


def test_a_penalty_teaches_to_leave_it():
    def tried(made):
        figures = made.step().figures
        return figures["guard_refused"] / figures["episodes"]

    def always_green():
        return Pick(pay=0.0)

    made = trainer(always_green, no_red(blocked="penalty", penalty=2.0), episodes=48)
    _, rows = played(made)
    for row, turn in enumerate(rows.turns):
        refused = [one["effect"] for one in turn.notes["guard"]["decisions"]].count("block")
        assert rows.batch.row["outcome"][row] == -2.0 * refused
        assert turn.action != "red"
        assert rows.batch.mask[row].any()
    first = tried(made)
    for _ in range(12):
        last = tried(made)
    assert last < 0.5 * first


def test_without_a_guard_and_with_one_that_says_nothing_the_numbers_are_the_same():
    silent = {"tools": {"pay": [{}]}}
    plain, other = trainer(), trainer(guard=no_red(silent))
    for _ in range(2):
        one, same = plain.step(), other.step()
        assert one.episodes == same.episodes
        shared = {key: value for key, value in same.figures.items() if not key.startswith("guard_")}
        assert json.dumps(dict(one.figures)) == json.dumps(shared)


def test_a_guarded_run_is_stored_shown_and_played_again(tmp_path, rolecraft):
    (tmp_path / "p.yaml").write_text("tools: {act: [{when: {action: 'send [0-2]'}}]}\n")
    (tmp_path / "s.yaml").write_text(
        "world: {name: trust-game, endowment: 3, rounds: 1}\npolicy: {hidden: 8, heads: 2, layers: 1}\n"
        "guard: {roles: {trustor: p.yaml}, blocked: penalty}\ncredit: reinforce\n"
        "train: {iterations: 2, episodes: 8}\ncheckpoint: 1\n"
    )
    study = read_train_study(tmp_path / "s.yaml")
    with TrainingRun.open(study, tmp_path / "run", quiet=True) as run:
        run.run()
    with RunStore.read(tmp_path / "run") as view:
        refused = read_refusals(view)
        figures = view.rows("iterations").values()
        assert len(refused) == sum(row["guard_refused"] for row in figures) > 0
        assert {row["principal"] for row in refused} == {"trustor"}
        sent = [turn.action for episode in play_checkpoint(view, 0, 12) for turn in episode.turns[:1]]
    assert sent
    assert "send 3" not in sent
    lines = (tmp_path / "run" / "decisions.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == refused
    out = rolecraft("show", tmp_path / "run")[1]
    assert "guard_refused" in out
    assert "what guards decided" in out
