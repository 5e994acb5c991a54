"""OpenSpiel games as worlds: exact values of Kuhn poker, chance from the seed, and policies as tables."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from pettingzoo.test import api_test

from rolecraft._run import derive_seed
from rolecraft.agents import RandomPolicy
from rolecraft.errors import IllegalActionError, UserError
from rolecraft.measures import bootstrap_mean
from rolecraft.worlds import Rules, Table, View, WorldEnv, play, play_all
from rolecraft.worlds.adapters import OpenSpielWorld, TablePolicy, policy_of_table, table_of_episodes, table_of_policy

pyspiel = pytest.importorskip("pyspiel")


def kuhn_table(alpha: float = 0.2) -> dict[str, dict[str, float]]:
    """Return the equilibrium of Kuhn poker in which the first player bets a jack with probability alpha."""
    bets = {
        "0": alpha, "1": 0.0, "2": 3 * alpha, "0pb": 0.0, "1pb": 1 / 3 + alpha, "2pb": 1.0,
        "0p": 1 / 3, "1p": 0.0, "2p": 1.0, "0b": 0.0, "1b": 1 / 3, "2b": 1.0,
    }  # fmt: skip
    return {text: {"Pass": 1 - bet, "Bet": bet} for text, bet in bets.items()}


def episodes_of(tables: list[Any], count: int, seed: int) -> list[Any]:
    policies = dict(zip(("player_0", "player_1"), map(TablePolicy, tables), strict=True))
    seats = [Table(OpenSpielWorld("kuhn_poker"), policies, derive_seed(seed, place)) for place in range(count)]
    return play_all(seats, Rules(hashes=False))


@pytest.fixture(scope="module")
def played() -> list[Any]:
    return episodes_of([kuhn_table(), kuhn_table()], 4000, 1)


@pytest.mark.parametrize("alpha", [0.0, 0.2, 1 / 3])
def test_kuhn_poker_is_worth_minus_one_eighteenth(alpha: float) -> None:
    from open_spiel.python.algorithms import expected_game_score, exploitability

    world = OpenSpielWorld("kuhn_poker")
    policy = policy_of_table(world, kuhn_table(alpha))
    values = expected_game_score.policy_value(world.game.new_initial_state(), [policy, policy])
    assert values == pytest.approx([-1 / 18, 1 / 18], abs=1e-12)
    assert exploitability.exploitability(world.game, policy) == pytest.approx(0.0, abs=1e-12)


def test_what_is_no_equilibrium_can_be_exploited() -> None:
    from open_spiel.python.algorithms import exploitability

    world = OpenSpielWorld("kuhn_poker")
    uniform = policy_of_table(world, {}, unseen="uniform")
    assert exploitability.nash_conv(world.game, uniform) == pytest.approx(11 / 12)
    timid = kuhn_table() | {"2b": {"Pass": 1.0, "Bet": 0.0}}
    assert exploitability.exploitability(world.game, policy_of_table(world, timid)) > 0.05


def test_our_engine_plays_the_equilibrium_to_its_value(played: list[Any]) -> None:
    interval = bootstrap_mean([episode.rewards["player_0"] for episode in played], seed=1)
    assert interval.low < -1 / 18 < interval.high
    assert interval.high - interval.low < 0.1
    # The control: a second player that never bets or calls gives the first 2/15.
    meek = {text: {"Pass": 1.0, "Bet": 0.0} for text in kuhn_table()}
    control = bootstrap_mean([one.rewards["player_0"] for one in episodes_of([kuhn_table(), meek], 1000, 2)], seed=1)
    assert control.low > -1 / 18
    assert control.low < 2 / 15 < control.high


def test_play_shows_the_table_that_was_played(played: list[Any]) -> None:
    from open_spiel.python.algorithms import exploitability

    world, table = OpenSpielWorld("kuhn_poker"), table_of_episodes(played)
    assert set(table) == set(kuhn_table())
    for text, row in table.items():
        assert row == pytest.approx(kuhn_table()[text], abs=0.12), text
    assert exploitability.exploitability(world.game, policy_of_table(world, table)) < 0.05


def test_all_six_deals_are_equally_likely(played: list[Any]) -> None:
    deals = Counter()
    for seed in range(1200):
        world = OpenSpielWorld("kuhn_poker")
        world.reset(seed)
        deals[tuple(world.state()["moves"])] += 1
    assert len(deals) == 6
    assert all(150 < count < 250 for count in deals.values())


def test_tables_go_to_openspiel_and_back() -> None:
    world = OpenSpielWorld("kuhn_poker")
    back = table_of_policy(world, policy_of_table(world, kuhn_table()))
    assert set(back) == set(kuhn_table())
    assert all(back[text] == pytest.approx(row) for text, row in kuhn_table().items())
    named = OpenSpielWorld("kuhn_poker", rules="Three cards.", numbered=True)
    numbered = table_of_policy(named, policy_of_table(world, kuhn_table()))
    assert numbered["Three cards.\n2b\n0: Pass\n1: Bet"] == {"0": 0.0, "1": 1.0}
    from open_spiel.python.algorithms import exploitability

    assert exploitability.exploitability(world.game, policy_of_table(named, numbered)) == pytest.approx(0, abs=1e-12)


def test_a_solver_of_openspiels_plays_in_our_engine() -> None:
    from open_spiel.python.algorithms import cfr

    world = OpenSpielWorld("kuhn_poker")
    solver = cfr.CFRSolver(world.game)
    for _ in range(50):
        solver.evaluate_and_update_policy()
    policy = TablePolicy(table_of_policy(world, solver.average_policy()))
    episode = play(world, dict.fromkeys(world.agents, policy), 3)
    assert sum(episode.rewards.values()) == 0
    assert episode.rewards["player_0"] != 0


def test_a_whole_hand_step_by_step() -> None:
    world = OpenSpielWorld("kuhn_poker")
    world.reset(5)
    first, second = world.state()["moves"]
    assert (world.observe("player_0"), world.observe("player_1")) == (str(first), str(second))
    assert world.acting == ("player_0",)
    assert world.legal("player_0") == ("Pass", "Bet")
    assert world.actions is None
    assert world.legal("player_1") == ()
    before = world.state_hash()
    for wrong in ({"player_0": "Fold"}, {"player_1": "Pass"}, {}, {"player_0": "Pass", "player_1": "Pass"}):
        with pytest.raises(IllegalActionError):
            world.act(wrong)
    assert world.state_hash() == before
    world.act({"player_0": "Bet"})
    assert world.rewards() == {"player_0": 0.0, "player_1": 0.0}
    assert world.observe("player_1") == f"{second}b"
    world.act({"player_1": "Bet"})
    sign = 1 if first > second else -1
    assert world.acting == ()
    assert world.rewards() == {"player_0": 2.0 * sign, "player_1": -2.0 * sign}
    assert world.outcome() == {"best": ["player_0" if sign > 0 else "player_1"]}
    assert world.state()["moves"] == [first, second, 1, 1]
    with pytest.raises(IllegalActionError, match="over"):
        world.act({})


def test_names_that_need_no_position_make_a_fixed_list() -> None:
    world = OpenSpielWorld("tic_tac_toe")
    world.reset(0)
    assert world.actions == tuple(f"{mark}({row},{column})" for mark in "xo" for row in range(3) for column in range(3))
    world.act({"player_0": "x(1,1)"})
    assert world.legal("player_1") == tuple(name for name in world.actions[9:] if name != "o(1,1)")


def test_at_simultaneous_nodes_all_act_at_once_and_unseen() -> None:
    world = OpenSpielWorld("matrix_rps")
    world.reset(0)
    assert world.acting == ("player_0", "player_1")
    world.act({"player_0": "Rock", "player_1": "Paper"})
    assert world.rewards() == {"player_0": -1.0, "player_1": 1.0}
    game = OpenSpielWorld("goofspiel", params={"num_cards": 3, "imp_info": True, "points_order": "descending"})
    game.reset(0)
    assert game.actions is None
    hand = game.legal("player_0")
    assert len(hand) == 3
    game.act({"player_0": hand[2], "player_1": game.legal("player_1")[0]})
    assert game.rewards() != {}
    assert hand[2] not in game.legal("player_0")


def test_chance_follows_the_seed_alone() -> None:
    world = OpenSpielWorld("leduc_poker")
    for seed in range(5):
        first = play(world, dict.fromkeys(world.agents, RandomPolicy()), seed)
        np.random.seed(seed)  # noqa: NPY002 - nothing global may matter
        assert play(OpenSpielWorld("leduc_poker"), dict.fromkeys(world.agents, RandomPolicy()), seed) == first
    deals = {tuple(_reset(world, seed)["moves"]) for seed in range(30)}
    assert len(deals) > 5


def _reset(world: OpenSpielWorld, seed: int) -> Any:
    world.reset(seed)
    return world.state()


def test_a_numbered_game_goes_through_pettingzoo() -> None:
    world = OpenSpielWorld("connect_four", numbered=True)
    world.reset(0)
    assert world.actions == tuple("0123456")
    assert world.observe("player_0").endswith("6: x6")
    api_test(WorldEnv(world), num_cycles=20)


@pytest.mark.parametrize(
    ("game", "message"),
    [
        ("kuhn_pocker", "cannot load 'kuhn_pocker'"),
        ("kuhn_poker(players=99)", "cannot load"),
        ("mfg_crowd_modelling", "mean-field"),
    ],
)
def test_games_that_cannot_be_played(game: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        OpenSpielWorld(game)


def test_a_game_without_numbered_actions_is_refused() -> None:
    with pytest.raises(UserError, match="cannot be played: LegalActions unimplemented"):
        OpenSpielWorld("crossword").reset(0)


def test_a_game_that_draws_its_own_chance_is_refused() -> None:
    sampled = [
        kind.short_name
        for kind in pyspiel.registered_games()
        if kind.chance_mode == pyspiel.GameType.ChanceMode.SAMPLED_STOCHASTIC and kind.default_loadable
    ]
    assert sampled
    with pytest.raises(UserError, match="draws its chance itself"):
        OpenSpielWorld(sampled[0])


def test_bad_tables() -> None:
    world = OpenSpielWorld("kuhn_poker")
    with pytest.raises(UserError, match="no row for"):
        policy_of_table(world, {})
    with pytest.raises(UserError, match="'Fold' is not legal"):
        policy_of_table(world, kuhn_table() | {"2b": {"Fold": 1.0}})
    with pytest.raises(UserError, match="add up to 1"):
        TablePolicy({"0": {"Pass": 0.5, "Bet": 0.4}})
    with pytest.raises(UserError, match="add up to 1"):
        TablePolicy({"0": {"Pass": 1.5, "Bet": -0.5}})
    with pytest.raises(UserError, match="no row for what player_0 sees: '9'"):
        TablePolicy(kuhn_table()).act([View("player_0", "9", ("Pass", "Bet"), 0)])
    with pytest.raises(UserError, match="no information states"):
        policy_of_table(OpenSpielWorld("backgammon"), {})


def test_a_board_can_be_seen_in_place_of_the_moves() -> None:
    world = OpenSpielWorld("tic_tac_toe", see="observation", numbered=True, legend=False)
    world.reset(0)
    for action in ("4", "0", "8"):
        world.act({world.acting[0]: action})
    assert world.observe("player_1") == "o..\n.x.\n..x"
    assert world.legal("player_1") == ("1", "2", "3", "5", "6", "7")
    told = OpenSpielWorld("tic_tac_toe", see="observation", numbered=True)
    told.reset(0)
    assert told.observe("player_0").startswith("...\n...\n...\n0: x(0,0)\n")
    moves = OpenSpielWorld("tic_tac_toe", numbered=True, legend=False)
    moves.reset(0)
    moves.act({"player_0": "4"})
    assert moves.observe("player_1") == "4"


def test_what_is_to_be_seen_must_exist() -> None:
    with pytest.raises(UserError, match="see must be 'information' or 'observation', got 'board'"):
        OpenSpielWorld("tic_tac_toe", see="board")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"liars_dice.*no observation strings"):
        OpenSpielWorld("liars_dice", see="observation")
