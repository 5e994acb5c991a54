"""One episode of a society of learners as a pure function: choose a partner, play, punish, learn.

The order of one turn follows the paper's code (arXiv 2301.08278): both act, reputations change, punishers decide for
each player apart, payoffs, then every learner takes in its transition and updates once. All conditions and seeds of a
study are lanes of one compiled program: a mechanism is a row of numbers (`Rules`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import numpy as jnp

from rolecraft.societies._learners import DqnHead, Exploration, Head, LinearHead, Step, TableHead, standard_scores
from rolecraft.societies._mechanism import SocialMechanism
from rolecraft.societies._settings import Society

UNKNOWN = 2
"""The last action of an agent that has not acted."""
COOPERATE, DEFECT = 0, 1
PLAY_BUFFER, PUNISH_BUFFER = 131072, 524288


class Rules(NamedTuple):
    """A mechanism as numbers, each of shape (lanes,)."""

    direct: Any
    third: Any
    selection: Any
    penalty: Any
    just_reward: Any
    unjust_reward: Any
    cooperate: Any
    defect: Any
    just: Any
    unjust: Any
    individual: Any
    punished_view: Any
    avenged_view: Any
    see_play: Any
    see_punish: Any

    @classmethod
    def of(cls, mechanisms: Sequence[SocialMechanism]) -> Rules:
        """Collect the numbers of some mechanisms."""
        rows = [
            (
                m.direct, m.third_party, m.selection, m.penalty, m.just_reward, m.unjust_reward,
                m.cooperate * m.counts_play, m.defect * m.counts_play,
                m.just * m.counts_punishing, m.unjust * m.counts_punishing,
                m.information == "individual", m.punisher_seen, m.avenger_seen,
                m.state in ("play", "both"), m.state in ("punish", "both"),
            )
            for m in mechanisms
        ]  # fmt: skip
        return cls(*(jnp.asarray(column) for column in zip(*rows, strict=True)))


class State(NamedTuple):
    """A society between two matches."""

    views: Any
    """Shape (agents, agents): row agent's view of column agent."""
    last: Any
    """Shape (agents,): last action, 2 if none."""
    sanctioned: Any
    """Shape (agents,): last decision as a punisher: 0 none or spared, 1 just, 2 unjust."""
    select: Any
    play: Any
    punish: Any
    key: Any


class Turn(NamedTuple):
    """What happened in one turn; two slots: the chooser and its partner."""

    players: Any
    acted: Any
    """Whether a slot acted; false after the end of a match and for the one who waits."""
    action: Any
    third: Any
    """The bystander that judges each player."""
    direct: Any
    """Whether the other player punished it."""
    by_third: Any
    reward: Any
    """What the player's learner was given, shape (2,): payoffs less penalties, of the match so far in the centipede."""
    punisher_reward: Any
    """Shape (2, 2): slot, direct or third party."""
    gained: Any
    """Shape (2,): payoffs less penalties of this turn alone."""


class Moment(NamedTuple):
    """What the learners take in of a turn; first axis: the two players, of punishments also the kind."""

    players: Any
    punishers: Any
    chosen_on: Any
    """The views on which the partner was chosen."""
    seen: Any
    punish_seen: Any
    action: Any
    decided: Any
    reward: Any
    fee: Any
    """What each punisher got for its decision."""
    acted: Any
    asked: Any
    ended: Any
    over: Any
    """Whether the match had ended before this turn."""


def heads(society: Society, episodes: int) -> tuple[Head, Head, Head]:
    """Return the three heads of a society's agents."""
    n, how = society.agents, society.learning
    select, play, punish = (
        Exploration(floor=floor, rate=rate) for floor, rate in zip(how.floor, how.fade, strict=True)
    )
    if how.kind == "tabular":
        return (
            LinearHead(n, how.lr[0], how.gamma, select),
            TableHead(n, 4, 2, 2, how.lr[1], how.gamma, play),
            TableHead(n, 4, 2, 2, how.lr[2], how.gamma, punish),
        )
    most = episodes * society.rounds
    made = partial(DqnHead, n, gamma=how.gamma, hidden=how.hidden, batch=how.batch, target_every=how.target_every)
    return (
        made(n, n, how.lr[0], exploration=select, capacity=min(PLAY_BUFFER, most)),
        made(4, 2, how.lr[1], exploration=play, capacity=min(PLAY_BUFFER, most * n)),
        made(4, 2, how.lr[2], exploration=punish, capacity=min(PUNISH_BUFFER, 2 * most * n)),
    )


class Engine:
    """The episode of a society as a pure function."""

    def __init__(self, society: Society, episodes: int) -> None:
        self.society, self.n = society, society.agents
        self.near = jnp.asarray(society.adjacency())
        self.select, self.play, self.punish = heads(society, episodes)
        self.payoffs = jnp.asarray(society.dilemma.actions())
        self.either = jnp.ones(2, bool)
        n, select, play, punish = self.n, self.select, self.play, self.punish
        self.shapes = (
            (2, play.act_draws), (2, n), (2, 2, punish.act_draws),
            (select.learn_draws,), (2, play.learn_draws), (4, punish.learn_draws),
        )  # fmt: skip
        self.draws = sum(map(math.prod, self.shapes))
        """Random numbers of one turn."""

    def parts(self, draws: Any) -> list[Any]:
        """Split the random numbers of a turn: to act, to pick third parties, to judge, to learn three times."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        return [part.reshape(shape) for part, shape in zip(jnp.split(draws, ends), self.shapes, strict=True)]

    def init(self, key: Any) -> State:
        """Return a society that knows nothing."""
        key, *parts = jax.random.split(key, 4)
        n = self.n
        return State(
            jnp.zeros((n, n)), jnp.full(n, UNKNOWN), jnp.zeros(n, int),
            self.select.init(parts[0]), self.play.init(parts[1]), self.punish.init(parts[2]), key,
        )  # fmt: skip

    def scaled(self, view: Any) -> Any:
        """Return a view of everyone as the learners get it."""
        if self.society.learning.scale == "raw":
            return view
        return standard_scores(view, jnp.ones(self.n, bool))

    def choice_seen(self, views: Any, agent: Any) -> Any:
        """Return what an agent sees when it chooses: its view of itself and its neighbours."""
        shown = self.near[agent] | (jnp.arange(self.n) == agent)
        return jnp.where(shown, self.scaled(views[agent]), 0.0)

    def play_seen(self, rules: Rules, state: State, agent: Any, other: Any) -> Any:
        """Return what a player sees: the other's and its own last action and reputation."""
        view = self.scaled(state.views[agent]) * rules.see_play
        return jnp.stack([state.last[other], state.last[agent], view[other], view[agent]]).astype(float)

    def punish_seen(self, rules: Rules, state: State, punisher: Any, target: Any, other: Any) -> Any:
        """Return what a punisher sees: what the target and the other did, and its view of both."""
        view = self.scaled(state.views[punisher]) * rules.see_punish
        return jnp.stack([state.last[target], state.last[other], view[target], view[other]]).astype(float)

    def episode(self, rules: Rules, state: State) -> tuple[State, tuple[Turn, Any]]:
        """Let every agent choose and play one match; return all turns (agents, rounds, ...) and the partners."""
        n, rounds = self.n, self.society.rounds
        key, choosing, acting = jax.random.split(state.key, 3)
        everyone, draws = jnp.arange(n), jax.random.uniform(choosing, (n, self.select.act_draws + n))
        seen = jax.vmap(partial(self.choice_seen, state.views))(everyone)
        chosen = jax.vmap(self.select.act, (None, 0, 0, 0, 0))(state.select, everyone, seen, self.near, draws[:, n:])
        drawn = jnp.argmax(jnp.where(self.near, 1 + draws[:, :n], 0.0), axis=1)
        partners = jnp.where(rules.selection, chosen, drawn)

        def match(state: State, given: Any) -> tuple[State, Turn]:
            agent, partner, seen, draws = given
            turn = partial(self.turn, rules, jnp.stack([agent, partner]), seen)
            carry = (state, jnp.zeros(2), jnp.asarray(False))
            (state, _, _), turns = jax.lax.scan(turn, carry, (jnp.arange(rounds), draws))
            return state, turns

        given = (everyone, partners, seen, jax.random.uniform(acting, (n, rounds, self.draws)))
        state, turns = jax.lax.scan(match, state._replace(key=key), given)
        return state, (turns, partners)

    def turn(self, rules: Rules, players: Any, chosen_on: Any, carry: Any, given: Any) -> tuple[Any, Turn]:
        """Play one turn of a match."""
        (state, running, over), (number, draws) = carry, given
        to_act, to_pick, to_judge, *to_learn = self.parts(draws)
        others = players[::-1]
        both = self.society.game == "dilemma"
        acted = (self.either if both else jnp.arange(2) == number % 2) & ~over
        seen = jax.vmap(partial(self.play_seen, rules, state))(players, others)
        action = jax.vmap(self.play.act, (None, 0, 0, None, 0))(state.play, players, seen, self.either, to_act)
        action = jnp.where(acted, action, state.last[players])
        state = state._replace(last=state.last.at[players].set(action))
        state = self._play_reputation(rules, state, players, action, acted)
        beside = (self.near[players[0]] | self.near[players[1]]).at[players].set(False)
        third = jnp.argmax(jnp.where(beside, 1 + to_pick, 0.0), axis=1)
        punishers = jnp.stack([others, third], axis=1)
        asked = acted[:, None] & jnp.stack([rules.direct, rules.third])
        look = jax.vmap(partial(self.punish_seen, rules, state), (0, None, None))
        punish_seen = jax.vmap(look)(punishers, players, others)
        decide = jax.vmap(self.punish.act, (None, 0, 0, None, 0))
        decided = jax.vmap(decide, (None, 0, 0, None, 0))(state.punish, punishers, punish_seen, self.either, to_judge)
        hit = (decided == 1) & asked
        bad = (action == DEFECT)[:, None]
        fee = jnp.where(hit, jnp.where(bad, rules.just_reward, rules.unjust_reward), 0.0)
        state = self._sanction_reputation(rules, state, players, punishers, hit, asked, bad)
        gained = self._payoffs(action, acted) - rules.penalty * hit.sum(1)
        running = jnp.where(over, running, gained if both else running + gained)
        stop = jnp.asarray(False) if both else over | (acted & (action == DEFECT)).any()
        ended = jnp.asarray(False) if both else stop | (number == self.society.rounds - 1)
        now = Moment(
            players, punishers, chosen_on, seen, punish_seen, action, decided, running, fee, acted, asked, ended, over
        )
        state = self._learn(rules, state, now, to_learn)
        turn = Turn(players, acted, action, third, hit[:, 0], hit[:, 1], running, fee, gained)
        return (state, running, stop), turn

    def _payoffs(self, action: Any, acted: Any) -> Any:
        if self.society.game == "dilemma":
            return self.payoffs[action, action[::-1]]
        gives = acted & (action == COOPERATE)
        return self.society.giver * gives + self.society.receiver * gives[::-1]

    def _play_reputation(self, rules: Rules, state: State, players: Any, action: Any, acted: Any) -> State:
        change = jnp.where(action == COOPERATE, rules.cooperate, rules.defect) * acted
        return state._replace(views=self._changed(rules, state.views, players, change))

    def _sanction_reputation(
        self, rules: Rules, state: State, players: Any, punishers: Any, hit: Any, asked: Any, bad: Any
    ) -> State:
        views = self._changed(rules, state.views, punishers, jnp.where(bad, rules.just, rules.unjust) * hit)
        own_views = hit * rules.individual
        views = views.at[players[:, None], punishers].add(rules.punished_view * own_views)
        # A victim that punishes for itself is no avenger to itself.
        avenged = (own_views * bad)[:, 1]
        views = views.at[players[::-1], punishers[:, 1]].add(rules.avenged_view * avenged)
        mark = jnp.where(hit, jnp.where(bad, 1, 2), 0)
        sanctioned = state.sanctioned
        for slot in range(2):
            for kind in range(2):
                by = punishers[slot, kind]
                sanctioned = sanctioned.at[by].set(jnp.where(asked[slot, kind], mark[slot, kind], sanctioned[by]))
        return state._replace(views=views, sanctioned=sanctioned)

    def _changed(self, rules: Rules, views: Any, agents: Any, change: Any) -> Any:
        """Change how everyone sees some agents; with individual views nobody keeps one of itself."""
        total = jnp.zeros(self.n).at[agents].add(change)
        return views + total * jnp.where(rules.individual, 1.0 - jnp.eye(self.n), 1.0)

    def _learn(self, rules: Rules, state: State, now: Moment, draws: Any) -> State:
        """Give every learner its transition, in the order of the paper's code."""
        chooser, final = now.players[0], now.ended.astype(float)
        after = self.choice_seen(state.views, chooser)
        step = Step(now.chosen_on, now.players[1], now.reward[0], after, final, self.near[chooser])
        matters = rules.selection & ~now.over & (True if self.society.game == "dilemma" else now.ended)
        select = self.select.learn(state.select, chooser, step, draws[0], matters)
        after = jax.vmap(partial(self.play_seen, rules, state))(now.players, now.players[::-1])
        steps = (now.seen, now.action, now.reward, after, jnp.full(2, final))
        play = self._each(self.play, state.play, now.players, steps, draws[1], now.acted)
        # Direct punishers first. The paper's code takes the state that was judged for the next one as well.
        steps = (now.punish_seen, now.decided, now.fee, now.punish_seen, jnp.full((2, 2), final))

        def flat(array: Any) -> Any:
            return array.swapaxes(0, 1).reshape(4, *array.shape[2:])

        agents, active = flat(now.punishers), flat(now.asked)
        punish = self._each(self.punish, state.punish, agents, tuple(map(flat, steps)), draws[2], active)
        return state._replace(select=select, play=play, punish=punish)

    def _each(self, head: Head, learners: Any, agents: Any, steps: Any, draws: Any, active: Any) -> Any:
        """Let some agents learn one after the other: the same one may come twice."""

        def learn(learners: Any, given: Any) -> tuple[Any, None]:
            agent, (seen, action, reward, after, ended), draws, active = given
            step = Step(seen, action, reward, after, ended, self.either)
            return head.learn(learners, agent, step, draws, active), None

        return jax.lax.scan(learn, learners, (agents, steps, draws, active))[0]
