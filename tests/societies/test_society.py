"""Societies of learners: every turn replayed in plain Python, and the learners against their formulas."""

from __future__ import annotations

import jax
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import numpy as jnp

from rolecraft.errors import UserError
from rolecraft.societies import (
    Graph,
    Learning,
    ReputationLedger,
    Sanction,
    SocialMechanism,
    Society,
    caveman,
    train_society,
)
from rolecraft.societies._learners import (
    DqnHead,
    Exploration,
    LinearHead,
    Step,
    TableHead,
    faded,
    greedy,
    standard_scores,
)
from rolecraft.societies._society import Engine, Rules
from rolecraft.societies._train import measures

OPTIONS = ("play-punish", "play", "punish", "individual")
LANES = [
    *(SocialMechanism.named(name) for name in ("none", "S", "DP-S", "TPP", "TPPDP-S")),
    SocialMechanism.named("DP", costly=True),
    *(SocialMechanism.named("TPPDP", information=name, state="both") for name in OPTIONS),
]
AGENTS, ROUNDS, EPISODES = 4, 3, 12
SOCIETY = Society(AGENTS, ROUNDS)


@pytest.fixture(scope="module")
def lived():
    """Return the states and turns of some societies, episode by episode, first axis lanes."""
    engine, rules = Engine(SOCIETY, EPISODES), Rules.of(LANES)
    start = jax.vmap(lambda number: engine.init(jax.random.key(number)))(jnp.arange(len(LANES)))

    def one(state, _):
        later, (turns, partners) = jax.vmap(engine.episode)(rules, state)
        kept = (later.views, later.play.values, later.punish.values, turns, partners)
        return later, (*kept, jax.vmap(measures)(state, later, turns, partners))

    final, kept = jax.jit(lambda state: jax.lax.scan(one, state, length=EPISODES))(start)
    return jax.tree.map(lambda array: np.asarray(array).swapaxes(0, 1), kept), final


def turns_of(lived, lane):
    """Yield every turn of a lane as a record, with its episode."""
    turns = jax.tree.map(lambda array: array[lane], lived[0][3])
    for episode in range(EPISODES):
        for chooser in range(AGENTS):
            for number in range(ROUNDS):
                yield episode, type(turns)(*(field[episode, chooser, number] for field in turns))


@pytest.mark.parametrize("lane", range(len(LANES)))
def test_the_ledger_comes_to_the_same_reputations_and_rewards(lived, lane) -> None:
    mechanism = LANES[lane]
    ledger = ReputationLedger(AGENTS, mechanism)
    views, figures = lived[0][0][lane], {name: value[lane] for name, value in lived[0][5].items()}
    before = -1
    for episode, turn in turns_of(lived, lane):
        if episode != before and before >= 0:
            assert views[before] == pytest.approx(ledger.views)
        before = episode
        a, b = (int(player) for player in turn.players)
        bad = [bool(action) for action in turn.action]
        payoffs = {(0, 0): (3, 3), (0, 1): (0, 4), (1, 0): (4, 0), (1, 1): (1, 1)}[int(bad[0]), int(bad[1])]
        ledger.play((a, b), bad, payoffs)
        for slot, (target, other) in enumerate(((a, b), (b, a))):
            third = int(turn.third[slot])
            assert third not in (a, b)
            expected = [0.0, 0.0]
            if mechanism.direct:
                event = Sanction(other, target, other, bool(turn.direct[slot]), bad[slot], direct=True)
                expected[0] = ledger.sanction(event)
            if mechanism.third_party:
                event = Sanction(third, target, other, bool(turn.by_third[slot]), bad[slot], direct=False)
                expected[1] = ledger.sanction(event)
            assert turn.punisher_reward[slot] == pytest.approx(expected)
    assert views[-1] == pytest.approx(ledger.views)
    assert figures["agent_reward"].sum(0) == pytest.approx(ledger.rewards)
    assert figures["reward"].sum() == pytest.approx(ledger.rewards.sum())
    assert figures["punisher_reward"].sum() == pytest.approx(ledger.sanction_rewards.sum())
    punished = sum(event.punished for event in ledger.sanctions)
    assert figures["direct_punished"].sum() + figures["third_punished"].sum() == punished
    just = sum(bool(event.just) for event in ledger.sanctions)
    assert figures["direct_just"].sum() + figures["third_just"].sum() == just
    off = ~np.eye(AGENTS, dtype=bool)
    assert figures["reputation"][-1] == pytest.approx(ledger.views[off].mean(), abs=1e-4)


@pytest.mark.parametrize("lane", [0, 2, 3, 4])
def test_the_tables_are_those_of_plain_q_learning(lived, lane) -> None:
    """The states see no reputation here, so that a cell is the pair of last actions."""
    mechanism, how = LANES[lane], SOCIETY.learning
    play = np.zeros((AGENTS, 36, 2))
    punish = np.zeros((AGENTS, 36, 2))
    last = [2] * AGENTS

    def learn(table, lr, agent, cell, action, reward, after) -> None:
        table[agent, cell, action] += lr * (reward + how.gamma * table[agent, after].max() - table[agent, cell, action])

    for _, turn in turns_of(lived, lane):
        pair = [int(player) for player in turn.players]
        action = [int(each) for each in turn.action]
        cells = [4 * (3 * last[pair[1 - slot]] + last[pair[slot]]) for slot in (0, 1)]
        for slot in (0, 1):
            last[pair[slot]] = action[slot]
        judged = [4 * (3 * action[slot] + action[1 - slot]) for slot in (0, 1)]
        for slot in (0, 1):
            after = 4 * (3 * action[1 - slot] + action[slot])
            learn(play, how.lr[1], pair[slot], cells[slot], action[slot], turn.reward[slot], after)
        for kind, used in enumerate((mechanism.direct, mechanism.third_party)):
            for slot in (0, 1):
                by = pair[1 - slot] if kind == 0 else int(turn.third[slot])
                hit = int((turn.direct, turn.by_third)[kind][slot])
                if used:
                    reward = turn.punisher_reward[slot, kind]
                    learn(punish, how.lr[2], by, judged[slot], hit, reward, judged[slot])
    assert lived[0][1][lane, -1] == pytest.approx(play, abs=1e-3)
    assert lived[0][2][lane, -1] == pytest.approx(punish, abs=1e-3)
    assert np.abs(play).max() > 0.1


def test_nobody_chooses_itself_and_only_the_chooser_learns_to(lived) -> None:
    partners = lived[0][4]
    assert (partners != np.arange(AGENTS)).all()
    assert len(np.unique(partners[0], axis=0)) > 3, "drawn partners change"
    updates = np.asarray(lived[1].select.updates)
    chooses = np.array([mechanism.selection for mechanism in LANES])
    assert (updates[chooses] == EPISODES * ROUNDS).all()
    assert (updates[~chooses] == 0).all()
    assert (np.asarray(lived[1].punish.updates)[~chooses][0] == 0).all(), "without punishment nobody learns to punish"


def test_a_killed_society_resumes_to_the_same_numbers_in_the_centipede_game_in_caves(tmp_path) -> None:
    """Turns alternate, a stop ends the match, and partners and third parties are neighbours."""
    society = Society(8, 6, "centipede", graph=caveman(2, 4))
    near = society.adjacency()
    lanes = [SocialMechanism.named("TPP-S"), SocialMechanism.named("TPPDP")]
    given = {"episodes": 6, "chunk": 3, "keep_turns": True}
    log = train_society(society, lanes, [1, 2], folder=tmp_path / "run", **given)
    turns = log.turns
    assert turns is not None
    a, b = turns.players[..., 0], turns.players[..., 1]
    assert near[a, b].all()
    third = turns.third
    assert (near[a[..., None], third] | near[b[..., None], third]).all()
    assert (third != a[..., None]).all()
    assert (third != b[..., None]).all()
    acted = turns.acted.any(-1)
    assert (turns.acted.sum(-1) <= 1).all()
    assert (turns.acted[..., 0] <= (np.arange(6) % 2 == 0)).all()
    stopped = (turns.acted & (turns.action == 1)).any(-1)
    assert (acted[..., 1:] == (acted & ~stopped)[..., :-1]).all(), "a match goes on until somebody stops"
    gave = turns.acted & (turns.action == 0)
    hits = turns.direct.astype(int) + turns.by_third
    expected = -1 * gave + 5 * gave[..., ::-1] - 3 * hits
    assert (turns.gained == expected).all()
    assert (turns.reward == np.cumsum(expected, axis=3)).all(), "learners get the running reward"
    assert log.figures["length"] == pytest.approx(acted.sum(-1).mean(-1))
    again = train_society(society, lanes, [1, 2], folder=tmp_path / "run", **given)
    assert (again.figures["reward"] == log.figures["reward"]).all()
    with pytest.raises(UserError, match="another lanes"):
        train_society(society, lanes, [1, 3], folder=tmp_path / "run", **given)


def test_societies_that_cannot_be_are_refused() -> None:
    pair = Graph.of_edges(4, [(0, 1), (2, 3)])
    with pytest.raises(UserError, match="agents 0 and 1 have no neighbour beside each other"):
        Society(4, graph=pair).check(SocialMechanism.named("TPP"))
    Society(4, graph=pair).check(SocialMechanism.named("DP"))
    with pytest.raises(UserError, match="at least 3 agents"):
        train_society(Society(2), [SocialMechanism.named("TPP")], [1], episodes=2)
    with pytest.raises(UserError, match="one mechanism and one seed per lane, got 1 and 2"):
        train_society(Society(), [SocialMechanism()], [1, 2], episodes=2)
    with pytest.raises(UserError, match="one node per agent, 5, got 4"):
        Society(5, graph=pair)
    with pytest.raises(UserError, match="game"):
        Society(game="chess")  # type: ignore[arg-type]
    with pytest.raises(UserError, match="learning rates"):
        Learning(lr=(0.1, -0.1, 0.1))
    with pytest.raises(UserError, match="gamma"):
        Learning(gamma=1.0)


@given(st.lists(st.integers(-3, 3), min_size=4, max_size=4), st.integers(1, 15), st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_greedy_takes_a_best_open_action(values: list[int], mask: int, seed: int) -> None:
    open_ = np.array([bool(mask >> bit & 1) for bit in range(4)])
    draws = np.random.default_rng(seed).random(5)
    array = np.array(values, dtype=float)
    chosen = int(greedy(jnp.asarray(array), jnp.asarray(open_), 0.0, jnp.asarray(draws)))
    assert open_[chosen]
    assert array[chosen] == array[open_].max()
    assert open_[int(greedy(jnp.asarray(array), jnp.asarray(open_), 1.0, jnp.asarray(draws)))]


def test_exploration_and_scores() -> None:
    assert float(faded(0.8889, 0.01, 0.3000667, 1)) == pytest.approx(0.8889 - 0.8789 * 0.3000667)
    assert float(faded(0.8889, 0.01, 0.3000667, 4)) == pytest.approx(0.01), "the published floor after four updates"
    open_ = jnp.array([True, True, False])
    assert standard_scores(jnp.array([1.0, 3.0, 100.0]), open_)[:2].tolist() == pytest.approx([-1, 1])
    assert standard_scores(jnp.array([2.0, 2.0, 9.0]), open_)[:2].tolist() == [0, 0]


def test_a_linear_head_learns_whom_reputation_favours() -> None:
    head = LinearHead(3, 0.1, 0.0, Exploration(floor=0.0, rate=1.0))
    state = head.init(jax.random.key(0))
    seen, open_ = jnp.array([0.0, 5.0, -5.0]), jnp.array([False, True, True])
    for action, reward in ((1, 3.0), (2, 0.0)) * 60:
        step = Step(seen, action, reward, seen, 0.0, open_)
        state = head.learn(state, 0, step, jnp.zeros(0), True)
    assert head.values(state, 0, seen, open_)[1:].tolist() == pytest.approx([3.0, 0.0], abs=0.05)
    assert int(head.act(state, 0, seen, open_, jnp.full(4, 0.5))) == 1
    assert int(head.act(state, 0, -seen, open_, jnp.full(4, 0.5))) == 2
    assert (np.asarray(state.values[1:]) == 0).all()


def test_a_dqn_update_is_the_one_written_out() -> None:
    """Nothing happens before a full batch; then Adam on the smooth L1 loss of one agent, and a hard target update."""
    head = DqnHead(2, 3, 2, 0.01, 0.9, Exploration(), capacity=4, hidden=5, batch=2, target_every=2)
    state = head.init(jax.random.key(1))
    bound = 1 / np.sqrt(3)
    kernel = np.asarray(state.params["params"]["Dense_0"]["kernel"])
    assert np.abs(kernel).max() <= bound
    assert kernel.min() < 0 < kernel.max()
    rng = np.random.default_rng(0)
    steps = [
        Step(*(jnp.asarray(rng.normal(size=3), jnp.float32) for _ in range(1)), number % 2, float(number),
             jnp.asarray(rng.normal(size=3), jnp.float32), 0.0, jnp.ones(2, bool))
        for number in range(4)
    ]  # fmt: skip
    learn = jax.jit(head.learn)
    idle = learn(state, 1, steps[0], jnp.array([0.1, 0.9]), False)
    assert int(idle.stored[1]) == int(idle.updates[1]) == 0
    first = learn(state, 1, steps[0], jnp.array([0.1, 0.9]), True)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), first.params, state.params))
    second = learn(first, 1, steps[1], jnp.array([0.1, 0.9]), True)

    def loss(params):
        total = 0.0
        for step in steps[:2]:
            ahead = head.network.apply(jax.tree.map(lambda leaf: leaf[1], state.target), step.after).max()
            error = head.network.apply(params, step.seen)[step.action] - (step.reward + 0.9 * ahead)
            total += jnp.where(jnp.abs(error) < 1, 0.5 * error**2, jnp.abs(error) - 0.5) / 2
        return total

    own = jax.tree.map(lambda leaf: leaf[1], state.params)
    change, _ = optax.adam(0.01).update(jax.grad(loss)(own), optax.adam(0.01).init(own))
    for name, expected in jax.tree_util.tree_leaves_with_path(optax.apply_updates(own, change)):
        found = dict(jax.tree_util.tree_leaves_with_path(jax.tree.map(lambda leaf: leaf[1], second.params)))[name]
        assert np.asarray(found) == pytest.approx(np.asarray(expected), abs=1e-5)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a[0] == b[0]).all()), second.params, state.params)), "agent 0"
    third = learn(second, 1, steps[2], jnp.array([0.1, 0.9]), True)
    same = jax.tree.map(lambda a, b: bool((a[1] == b[1]).all()), third.target, third.params)
    assert jax.tree.all(same), "hard update after two"
    assert int(third.stored[1]) == 3
    assert int(third.updates[1]) == 2


def test_tables_share_no_cells() -> None:
    head = TableHead(1, 4, 2, 2, 0.1, 0.9, Exploration())
    seen = [(a, b, x, y) for a in range(3) for b in range(3) for x in (-1, 1) for y in (-1, 1)]
    cells = {int(head.cell(jnp.array(each, float))) for each in seen}
    assert cells == set(range(36))
