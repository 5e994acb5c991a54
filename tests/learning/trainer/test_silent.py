"""Seats that never moved: a running baseline per role moves on for them too, as in SPIRAL's program."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rolecraft.agents import RandomPolicy
from rolecraft.learning.credit import AuxLoss, CreditResult, EmaBaseline, Group, assign_credit, make_rule
from rolecraft.learning.policy import WordCodec, tiny_policy
from rolecraft.learning.trainer import TrainConfig, Trainer
from rolecraft.learning.trainer._silent import counts_silent, without_silent
from rolecraft.worlds import World

pytestmark = pytest.mark.filterwarnings("ignore::rolecraft.learning.credit.NoSignalWarning")
DECAY = 0.5


class Duel(World):
    """The first player may shoot at once, which ends it before the second has a turn; else the second may shoot."""

    name = "duel"
    agents = ("first", "second")
    actions = ("shoot", "wait")

    def __init__(self):
        self.reset(0)

    def reset(self, seed):
        self._seed, self._played = seed, []

    @property
    def acting(self):
        over = len(self._played) == 2 or "shoot" in self._played
        return () if over else (self.agents[len(self._played)],)

    def observe(self, agent):
        return "now"

    def legal(self, agent):
        return self.actions if agent in self.acting else ()

    def _apply(self, actions):
        self._played += actions.values()

    def state(self):
        return {"seed": self._seed, "played": self._played}

    def rewards(self):
        lead = 0.0 if "shoot" not in self._played else (1.0 if self._played[0] == "shoot" else -2.0)
        return {"first": lead, "second": -lead}


def trainer(rule, **options):
    policy = tiny_policy(WordCodec.of_world(Duel), hidden=16, heads=2, seed=0, max_tokens=2)
    return Trainer(Duel, policy, rule, TrainConfig(episodes=24, lr=0.01), seed=5, **options)


def played(made):
    starts = made.starts()
    episodes = made.collect(starts)
    return made.rows(episodes, starts), episodes


def by_hand(episodes, seats=("first", "second"), start=(0.0, 0.0), moved_only=False, decay=DECAY):
    """Return SPIRAL's advantages by game and seat and the baselines after them, game by game."""
    baseline, found = dict(zip(("first", "second"), start, strict=True)), {}
    for game, episode in enumerate(episodes):
        for seat in seats:
            if moved_only and not list(episode.of(seat)):
                continue
            reward = episode.rewards[seat]
            found[game, seat] = reward - baseline[seat]
            baseline[seat] = decay * baseline[seat] + (1 - decay) * reward
    return found, baseline


def test_a_seat_that_never_moved_moves_its_baseline_on_and_trains_nothing():
    made = trainer(make_rule({"name": "rae", "decay": DECAY, "zero_sum": True}))
    rows, episodes = played(made)
    quick = [game for game, episode in enumerate(episodes) if not list(episode.of("second"))]
    assert 0 < len(quick) < len(episodes)  # both kinds of game are there
    assert rows.silent.shape[0] == len(quick)
    assert rows.silent.keys["traj"].tolist() == quick
    assert rows.silent.row["outcome"].tolist() == [-1.0] * len(quick)
    assert not rows.silent.mask.any()

    credit = rows.credit(made.credit)
    expected, baseline = by_hand(episodes)
    assert credit.advantages.shape == rows.batch.shape
    for row, turn in enumerate(rows.turns):
        trained = rows.batch.mask[row]
        game = int(rows.batch.keys["traj"][row])
        np.testing.assert_allclose(credit.advantages[row][trained], expected[game, turn.agent], atol=1e-12)
    table = credit.state["ema_baseline(game, role)"]
    assert [table[f"0,{seat}"]["baseline"] for seat in (0, 1)] == pytest.approx(list(baseline.values()))
    assert [table[f"0,{seat}"]["count"] for seat in (0, 1)] == [24, 24]
    # Without them the second role would know of the games alone in which it had a turn.
    _, biased = by_hand(episodes, moved_only=True)
    assert abs(biased["second"] - baseline["second"]) > 0.1
    alone = assign_credit(rows.batch, make_rule({"name": "rae", "decay": DECAY})).state["ema_baseline(game, role)"]
    assert alone["0,1"]["baseline"] == pytest.approx(biased["second"])


def test_a_step_uses_them_and_counts_them():
    made = trainer(make_rule({"name": "rae", "decay": 0.95}))
    done = made.step()
    _, first = by_hand(done.episodes, decay=0.95)
    assert done.figures["silent_seats"] == sum(not list(each.of("second")) for each in done.episodes) > 0
    again = made.step()
    _, second = by_hand(again.episodes, start=tuple(first.values()), decay=0.95)
    table = made.state["ema_baseline(game, role)"]
    assert [table[f"0,{seat}"]["baseline"] for seat in (0, 1)] == pytest.approx(list(second.values()))


def test_an_opponents_seat_has_no_baseline():
    made = trainer(make_rule({"name": "rae", "decay": DECAY}), opponents=lambda start: {"second": RandomPolicy()})
    rows, episodes = played(made)
    assert any(not list(each.of("second")) for each in episodes)
    assert rows.silent is None
    state = rows.credit(made.credit).state["ema_baseline(game, role)"]
    assert list(state) == ["0,0"]


def test_keys_and_objectives_of_silent_seats():
    made = trainer(
        [EmaBaseline()],
        keys=lambda episode, agent: {"side": 7 if agent == "second" else 3},
        objectives=lambda episode, agent: {"won": float(episode.rewards[agent] > 0)},
    )
    rows, _ = played(made)
    assert set(rows.silent.keys) == set(rows.batch.keys)
    assert rows.silent.keys["side"].tolist() == [7] * rows.silent.shape[0]
    assert rows.silent.objectives["won"].tolist() == [0.0] * rows.silent.shape[0]


@pytest.mark.parametrize("rule", [[Group(("game",))], [EmaBaseline(silent=False)], make_rule("reinforce")])
def test_rules_that_do_not_count_them_see_none(rule):
    made = trainer(rule)
    rows, _ = played(made)
    assert rows.silent is None
    assert not counts_silent(rule)
    counting, _ = played(trainer([EmaBaseline()]))
    assert counting.silent is not None
    given = replace(counting, policies=rows.policies).credit(rule)
    np.testing.assert_array_equal(given.advantages, assign_credit(rows.batch, rule).advantages)


def test_unknown_rewards_of_silent_seats_move_nothing():
    made = trainer(make_rule({"name": "rae", "decay": DECAY}))
    starts = made.starts()
    episodes = [replace(each, ended="failed") if not list(each.of("second")) else each for each in made.collect(starts)]
    rows = made.rows(episodes, starts)
    assert not rows.silent.known.any()
    fine = [each for each in episodes if each.ended != "failed"]
    _, baseline = by_hand(fine)
    table = rows.credit(made.credit).state["ema_baseline(game, role)"]
    assert table["0,1"]["baseline"] == pytest.approx(baseline["second"])


def test_every_part_of_a_credit_is_cut_to_the_rows_that_moved():
    whole = np.arange(6.0).reshape(3, 2)
    kept = np.array([True, True, False])
    credit = CreditResult(whole, whole[:, 0], kept, whole + 1, (AuxLoss("kl", 0.1, whole + 2),), {"rows": 3}, {"a": 1})
    cut = without_silent(credit, 2)
    np.testing.assert_array_equal(cut.advantages, whole[:2])
    np.testing.assert_array_equal(cut.weights, [0.0, 2.0])
    assert cut.keep.tolist() == [True, True]
    np.testing.assert_array_equal(cut.targets, whole[:2] + 1)
    np.testing.assert_array_equal(cut.aux[0].token, whole[:2] + 2)
    assert cut.state == {"a": 1}
