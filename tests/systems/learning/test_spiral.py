"""System 011: tic-tac-toe against a slow reference, credit by hand, arms, verdicts on made-up rows, resuming."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.learning.credit import NoSignalWarning, assign_credit, check_zero_sum, merge_baselines
from rolecraft.systems import Result, find_entry, put_row
from rolecraft.systems.learning import _spiral_language, spiral
from rolecraft.systems.learning._spiral_language import (
    GAMES,
    LanguageConfig,
    game_facts,
    make_worlds,
    run_language,
    verdict_language,
)
from rolecraft.systems.learning._tic_tac_toe import (
    DRAW,
    FAULT,
    INVALID,
    WIN,
    Games,
    Player,
    against_random,
    credit_batch,
    play,
    random_mover,
    won,
)
from rolecraft.systems.learning.spiral import (
    RULES,
    STUDIES,
    VALUE,
    KuhnConfig,
    TicTacToeConfig,
    Watch,
    credit_rule,
    gradient_scatter,
    make_kuhn,
    run_kuhn,
    run_tic_tac_toe,
    train_tic_tac_toe,
    verdict_kuhn,
    verdict_tic_tac_toe,
)
from rolecraft.testing import tiny_model
from rolecraft.worlds import Episode

SMALL = TicTacToeConfig(seeds=(1,), updates=6, games=16, hidden=8, probes=2, probe_every=3, test_games=20)
LINES = ("012", "345", "678", "036", "147", "258", "048", "246")


def of(cells: list[int]) -> Any:
    """Return a mover that takes these cells, its own first to last."""
    left = list(cells)
    return lambda seen, free, rng: torch.tensor([left.pop(0)] * len(free))


def anywhere(seen: torch.Tensor, free: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(rng.integers(0, 9, len(free)))


def referee(cells: list[int]) -> tuple[tuple[float, float], int, int]:
    """Play one game from the rules: the rewards, how it ends, and after how many moves."""
    board: dict[int, int] = {}
    for ply, cell in enumerate(cells):
        seat = ply % 2
        if cell in board:
            paid = [0.5, 0.5]
            paid[seat] = -1.5
            return (paid[0], paid[1]), FAULT, ply + 1
        board[cell] = seat
        if any(all(board.get(int(each)) == seat for each in line) for line in LINES):
            return (1.0, -1.0) if seat == 0 else (-1.0, 1.0), WIN, ply + 1
        if len(board) == 9:
            return (0.0, 0.0), DRAW, 9
    raise AssertionError("the game has not ended")


def moves(games: Games, number: int) -> list[int]:
    rows = np.flatnonzero(games.game == number)
    return [int(games.action[row]) for row in rows[np.argsort(games.ply[rows])]]


class TestTicTacToe:
    @given(st.integers(0, 10_000), st.booleans())
    @settings(max_examples=25, deadline=None)
    def test_games_are_those_of_the_rules(self, seed: int, free: bool) -> None:
        mover = anywhere if free else random_mover
        games = play((mover, mover), 20, np.random.default_rng(seed))
        for number in range(20):
            cells = moves(games, number)
            paid, ended, length = referee(cells)
            assert (tuple(games.rewards[number]), games.ended[number], len(cells)) == (paid, ended, length)
        if not free:
            assert FAULT not in games.ended
        check_zero_sum(games.rewards.ravel(), np.repeat(np.arange(20), 2))

    @pytest.mark.parametrize(
        ("first", "second", "paid", "ended"),
        [
            ([0, 1, 2], [3, 4], (1.0, -1.0), WIN),
            ([0, 1, 8], [3, 4, 5], (-1.0, 1.0), WIN),
            ([0, 2, 3, 7, 8], [1, 4, 5, 6], (0.0, 0.0), DRAW),
            ([4], [4], (0.5, -1.5), FAULT),
            ([4, 4], [0], (-1.5, 0.5), FAULT),
        ],
    )
    def test_exact_games(self, first: list[int], second: list[int], paid: tuple[float, float], ended: int) -> None:
        games = play((of(first), of(second)), 1, np.random.default_rng(0))
        assert tuple(games.rewards[0]) == paid
        assert games.ended[0] == ended
        assert games.ply.tolist() == list(range(len(first) + len(second)))

    def test_all_lines_win_and_nothing_else_does(self) -> None:
        boards = torch.tensor([[float(number >> cell & 1) for cell in range(9)] for number in range(512)])
        lines = [any(all(number >> int(each) & 1 for each in line) for line in LINES) for number in range(512)]
        assert won(boards).tolist() == lines

    def test_a_mover_sees_its_own_stones_first(self) -> None:
        games = play((of([0, 8]), of([4, 4])), 1, np.random.default_rng(0))
        last = games.seen[-1]
        assert last[:9].nonzero().ravel().tolist() == [4]
        assert last[9:].nonzero().ravel().tolist() == [0, 8]
        assert games.free[-1].nonzero().ravel().tolist() == [1, 2, 3, 5, 6, 7]

    def test_random_play_wins_as_often_as_is_known(self) -> None:
        """Exact over all games: 212256/362880 for the first player, 104544 for the second."""
        games = play((random_mover, random_mover), 20_000, np.random.default_rng(3))
        assert (games.rewards[:, 0] == 1).mean() == pytest.approx(212256 / 362880, abs=0.012)
        assert (games.rewards[:, 1] == 1).mean() == pytest.approx(104544 / 362880, abs=0.012)
        taken = np.bincount(games.action[games.ply == 0], minlength=9) / 20_000
        assert taken == pytest.approx(np.full(9, 1 / 9), abs=0.01)

    def test_a_player_draws_by_its_odds_and_its_loss_has_the_gradient_of_the_formula(self) -> None:
        player = Player(8, 1, masked=True)
        seen, free = torch.zeros(20_000, 18), torch.ones(20_000, 9, dtype=torch.bool)
        free[:, 3] = False
        drawn = player(seen, free, np.random.default_rng(0))
        odds = player.log_odds(seen[:1], free[:1])[0].exp()
        assert odds[3] == 0
        assert np.bincount(drawn, minlength=9) / 20_000 == pytest.approx(odds.detach().numpy(), abs=0.012)
        games = play((player, player), 3, np.random.default_rng(1))
        assert FAULT not in games.ended
        advantages = torch.linspace(-1, 1, len(games.ply))
        loss, _ = player.loss(games, advantages)
        total = torch.zeros_like(player.gradient(loss))
        for row in range(len(games.ply)):
            logp = player.log_odds(games.seen[row : row + 1], games.free[row : row + 1])[0, games.action[row]]
            total -= advantages[row] * player.gradient(logp) / len(games.ply)
        assert player.gradient(loss) == pytest.approx(total, abs=1e-6)

    def test_weights_follow_from_the_seed_and_leave_torch_alone(self) -> None:
        torch.manual_seed(0)
        expected = torch.rand(1)
        torch.manual_seed(0)
        one, two, other = Player(8, 1), Player(8, 1), Player(8, 2)
        assert torch.rand(1) == expected
        first = [each.network[0].weight for each in (one, two, other)]
        assert torch.equal(first[0], first[1])
        assert not torch.equal(first[0], first[2])

    def test_a_player_that_takes_any_cell_loses_for_it(self) -> None:
        player = Player(8, 1)
        found = against_random(player, 400, np.random.default_rng(0))
        assert found["margin_0"] < 0.3
        assert found["margin_1"] < -0.5


class TestCredit:
    def test_baselines_are_read_before_their_update(self) -> None:
        """Three games by hand, decay 0.5: 0, 0.5, 0.75 for the winner's role."""
        lines = [play((of([0, 1, 2]), of([3, 4])), 1, np.random.default_rng(0)) for _ in range(3)]
        state: Any = None
        for read in (0.0, 0.5, 0.75):
            credit = assign_credit(credit_batch(lines.pop()), credit_rule("rae", 0.5), state)
            state = credit.state
            expected = [1 - read, -1 + read, 1 - read, -1 + read, 1 - read]
            assert credit.advantages[:, 0] == pytest.approx(expected)
        assert state["ema_baseline(game, role)"]["0,0"] == {"baseline": 0.875, "count": 3}

    def test_one_baseline_for_both_roles_stays_at_zero_and_two_go_to_what_the_roles_earn(self) -> None:
        watch = Watch(SMALL)
        rng = np.random.default_rng(1)
        squares: dict[str, list[float]] = {rule: [] for rule in RULES}
        for _ in range(60):
            found = watch.advantages(play((random_mover, random_mover), 64, rng))
            for rule in RULES:
                squares[rule].append(float(np.square(found[rule]).mean()))
        assert np.mean(squares["none"]) == pytest.approx(0.87, abs=0.03)
        assert np.mean(squares["shared"]) > 0.97 * np.mean(squares["none"])
        assert np.mean(squares["rae"]) < 0.95 * np.mean(squares["none"])

    def test_a_seat_that_never_moved_updates_its_baseline_and_trains_nothing(self) -> None:
        games = play((of([4, 4]), of([0])), 1, np.random.default_rng(0))
        mute = replace(games, seen=games.seen[:1], free=games.free[:1], action=games.action[:1], game=games.game[:1],
                       ply=games.ply[:1])  # fmt: skip
        batch = credit_batch(mute)
        assert batch.mask[:, 0].tolist() == [True, False]
        credit = assign_credit(batch, credit_rule("rae", 0.5))
        table = credit.state["ema_baseline(game, role)"]
        assert {label: cell["baseline"] for label, cell in table.items()} == {"0,0": -0.75, "0,1": 0.25}
        assert credit.advantages[:, 0].tolist() == [-1.5, 0.0]
        assert len(credit_batch(mute, silent=False).mask) == 1

    def test_other_sums_than_zero_and_the_declared_exception_are_refused(self) -> None:
        games = play((of([0, 1, 2]), of([3, 4])), 1, np.random.default_rng(0))
        wrong = replace(games, rewards=np.array([[1.0, -0.5]]))
        with pytest.raises(UserError, match=r"do not add up to 0 \(trajectory 0: \[-0.5, 1.0\]\)"):
            assign_credit(credit_batch(wrong), credit_rule("rae"))
        assign_credit(credit_batch(replace(games, rewards=np.array([INVALID]))), credit_rule("rae"))

    def test_gamma_counts_own_turns_that_follow(self) -> None:
        games = play((of([0, 1, 2]), of([3, 4])), 1, np.random.default_rng(0))
        credit = assign_credit(credit_batch(games), credit_rule("rae", gamma=0.5))
        assert credit.advantages[:, 0] == pytest.approx([0.25, -0.5, 0.5, -1.0, 1.0])

    def test_tables_of_two_actors_are_merged_by_what_they_saw(self) -> None:
        states = []
        for count in (1, 3):
            games = play((random_mover, random_mover), count, np.random.default_rng(count))
            states.append(assign_credit(credit_batch(games), credit_rule("rae")).state["ema_baseline(game, role)"])
        merged = merge_baselines(states)
        expected = (states[0]["0,1"]["baseline"] + 3 * states[1]["0,1"]["baseline"]) / 4
        assert merged["0,1"] == {"baseline": pytest.approx(expected), "count": 4}

    def test_draws_alone_carry_no_signal(self) -> None:
        games = play((of([0, 2, 3, 7, 8]), of([1, 4, 5, 6])), 1, np.random.default_rng(0))
        with pytest.warns(NoSignalWarning, match="no signal"):
            assign_credit(credit_batch(games), credit_rule("rae"))

    @pytest.mark.parametrize("decay", [-0.1, 1.0, 1.5])
    def test_a_decay_outside_of_its_range_is_refused(self, decay: float) -> None:
        for config in (TicTacToeConfig, KuhnConfig):
            with pytest.raises(UserError, match=r"decay lies in \[0, 1\)"):
                config(decay=decay)

    def test_mistakes_are_said(self) -> None:
        with pytest.raises(UserError, match="no rule 'both'"):
            credit_rule("both")
        with pytest.raises(UserError, match="at least 1"):
            replace(SMALL, games=0)
        with pytest.raises(UserError, match="updates must be at least 2"):
            KuhnConfig(updates=1)


class TestTicTacToeStudy:
    def test_arms_train_on_their_own_rule(self) -> None:
        weights = {}
        for arm in ("none", "shared", "rae"):
            player, curves = train_tic_tac_toe(replace(SMALL, updates=4), arm, 1)
            weights[arm] = torch.cat([each.detach().ravel() for each in player.network.parameters()])
            assert curves["invalid"] == [0.0] * 4
            assert len(curves["scatter_rae"]) == 1
        assert not torch.equal(weights["none"], weights["rae"])
        assert not torch.equal(weights["shared"], weights["rae"])
        free = train_tic_tac_toe(SMALL, "rae-free", 1)[1]
        assert min(free["invalid"]) > 0.2
        assert free["won_by_fault"][0] >= free["invalid"][0]

    def test_self_play_learns_to_beat_a_random_player(self) -> None:
        config = replace(SMALL, updates=120, games=64, hidden=32, lr=1e-2, probe_every=1000)
        player, curves = train_tic_tac_toe(config, "rae", 2)
        assert train_tic_tac_toe(replace(config, updates=3), "rae", 2)[1]["first"] == curves["first"][:3]
        margin = against_random(player, 1000, np.random.default_rng(0))["margin_0"]
        assert margin > 0.3 + 0.15  # 0.297 is what random play has

    def test_gradients_scatter_less_under_right_baselines_and_more_under_wrong_ones(self) -> None:
        player = Player(8, 1, masked=True)
        name = "ema_baseline(game, role)"
        found = {}
        for worth in (0.3, -2.0):
            watch = Watch(SMALL)
            watch.state["rae"] = {name: {f"0,{seat}": {"baseline": sign * worth, "count": 9}
                                         for seat, sign in ((0, 1), (1, -1))}}  # fmt: skip
            found[worth] = gradient_scatter(
                player, watch, replace(SMALL, probes=40, decay=0.99), np.random.default_rng(2)
            )
            assert watch.baselines() == (worth, -worth)
        assert found[0.3]["none"] == found[-2.0]["none"]
        assert found[0.3]["shared"] == pytest.approx(found[0.3]["none"], rel=0.1)
        assert found[0.3]["rae"] < found[0.3]["none"] < 0.5 * found[-2.0]["rae"]

    def test_all_arms_are_run_and_resumed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with RunStore.open(tmp_path / "whole", "study", {}) as store:
            result = run_tic_tac_toe(SMALL, store)
        assert sorted(result.arms) == sorted(SMALL.arms) == sorted([*RULES, *(f"{rule}-free" for rule in RULES)])
        for row in result.rows:
            assert row["advantage_square"] == row[f"square_{row['arm'].removesuffix('-free')}"]
            assert (row["invalid"] > 0) == row["arm"].endswith("-free")
        with RunStore.open(tmp_path / "halved", "study", {}) as store:
            for row in result.rows[:4]:
                put_row(store, **row)
            trained, real = [], spiral.train_tic_tac_toe
            monkeypatch.setattr(spiral, "train_tic_tac_toe", lambda *given: trained.append(given[1]) or real(*given))
            assert sorted(map(str, run_tic_tac_toe(SMALL, store).rows)) == sorted(map(str, result.rows))
        assert len(trained) == len(result.rows) - 4
        assert verdict_tic_tac_toe(result).verdict == "inconclusive"  # of one seed there is no interval

    @staticmethod
    def rows(**squares: list[float]) -> Result:
        rest = dict.fromkeys(
            ("square_none", "square_shared", "square_rae", "gradient_norm", "margin_0", "margin_1"), 1.0
        )
        return Result(tuple(
            {"arm": arm, "seed": seed, "advantage_square": square, **rest}
            for arm, found in squares.items() for seed, square in enumerate(found)
        ))  # fmt: skip

    @pytest.mark.parametrize(
        ("squares", "expected"),
        [
            ({"none": [1.0, 0.9, 1.0], "shared": [1.0, 0.95, 1.0], "rae": [0.4, 0.3, 0.5]}, "reproduced"),
            ({"none": [1.0, 0.9, 1.0], "shared": [1.0, 0.95, 1.0], "rae": [0.7, 0.8, 0.7]}, "not reproduced"),
            ({"none": [1.0, 0.9, 1.0], "shared": [0.4, 0.3, 0.5], "rae": [0.4, 0.3, 0.5]}, "not reproduced"),
            ({"none": [1.0] * 11 + [0.3], "shared": [1.0] * 12, "rae": [0.3] * 11 + [0.31]}, "not reproduced"),
            ({"none": [1.0, 0.9, 1.0], "shared": [1.0, 0.95, 1.0], "rae": [0.4, 0.8, 0.4]}, "inconclusive"),
        ],
    )
    def test_the_verdict(self, squares: dict[str, list[float]], expected: str) -> None:
        assert verdict_tic_tac_toe(self.rows(**squares)).verdict == expected


class TestKuhn:
    def test_arms_are_run_and_resumed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        config = KuhnConfig(seeds=(1,), updates=2, games=8, hidden=16)
        with RunStore.open(tmp_path / "run", "study", {}) as store:
            result = run_kuhn(config, store)
            made = []
            monkeypatch.setattr(spiral, "make_kuhn", lambda *given: made.append(given))
            assert run_kuhn(config, store).rows == result.rows
            assert not made
        rows = {row["arm"]: row for row in result.rows}
        assert set(rows) == set(RULES)
        assert rows["rae"]["baseline_0"] == pytest.approx(-rows["rae"]["baseline_1"])
        assert "baseline" in rows["shared"]
        assert len({row["exploitability_before"] for row in rows.values()}) == 1
        assert verdict_kuhn(result).verdict == "inconclusive"

    def test_baselines_of_equilibrium_play_go_to_the_value_of_the_game(self) -> None:
        """The trainer's own credit on games of the exact equilibrium: -1/18 for the first seat."""
        config = KuhnConfig(updates=2, games=4, hidden=16)
        trainer = make_kuhn(config, "rae", 1)
        bets = {
            "0": 0.2, "1": 0.0, "2": 0.6, "0pb": 0.0, "1pb": 1 / 3 + 0.2, "2pb": 1.0,
            "0p": 1 / 3, "1p": 0.0, "2p": 1.0, "0b": 0.0, "1b": 1 / 3, "2b": 1.0,
        }  # fmt: skip
        rng = np.random.default_rng(5)
        rewards = []
        for _ in range(40_000):
            cards = rng.permutation(3)[:2]
            history = ""
            while history not in ("pp", "pbp", "pbb", "bp", "bb"):
                seat = len(history) % 2
                history += "b" if rng.random() < bets[f"{cards[seat]}{history}"] else "p"
            stake = 2 if history.endswith("bb") else 1
            lead = {"bp": 1, "pbp": -1}.get(history, 1 if cards[0] > cards[1] else -1)
            rewards.append(stake * lead)
        from rolecraft.learning.credit import CreditBatch, ema_advantage

        mean = ema_advantage(np.array(rewards), np.zeros(40_000, int), np.zeros(1), 0.95)[1].mean()
        assert mean == pytest.approx(VALUE, abs=0.02)
        traj = np.repeat(np.arange(40_000), 2)
        seat = np.tile([0, 1], 40_000)
        outcome = np.stack([rewards, np.negative(rewards)], 1).ravel().astype(float)
        keys = {"traj": traj, "agent": seat, "role": seat, "game": np.zeros_like(traj), "turn": np.zeros_like(traj)}
        batch = CreditBatch(np.ones((80_000, 1), dtype=bool), keys, {"outcome": outcome})
        credit = assign_credit(batch, trainer.credit)
        read = (outcome - credit.advantages[:, 0]).reshape(-1, 2).mean(0)
        assert read == pytest.approx([VALUE, -VALUE], abs=0.02)
        shared = assign_credit(batch, credit_rule("shared"))
        assert (outcome - shared.advantages[:, 0]).mean() == pytest.approx(0.0, abs=0.01)

    @pytest.mark.parametrize(
        ("first", "shared", "expected"),
        [
            ([-0.05, -0.06, -0.04], [0.001, -0.002, 0.0], "reproduced"),
            ([0.05, 0.06, 0.04], [0.001, -0.002, 0.0], "not reproduced"),
            ([-0.05, 0.06, -0.04], [0.001, -0.002, 0.0], "inconclusive"),
            ([-0.05, -0.06, -0.04], [-0.05, -0.06, -0.04], "not reproduced"),
        ],
    )
    def test_the_verdict(self, first: list[float], shared: list[float], expected: str) -> None:
        same = {"exploitability": 0.1, "exploitability_before": 0.5, "advantage_square": 1.5}
        rows = [{"arm": "none", "seed": seed, **same} for seed in range(3)]
        rows += [{"arm": "shared", "seed": seed, "baseline": value, **same} for seed, value in enumerate(shared)]
        rows += [
            {"arm": "rae", "seed": seed, "baseline_0": value, "baseline_1": -value, **same}
            for seed, value in enumerate(first)
        ]
        assert verdict_kuhn(Result(tuple(rows))).verdict == expected


def episode(rewards: tuple[float, float], invalid: bool) -> Episode:
    outcome = {"invalid": {"player_0": "no action"} if invalid else {}}
    return Episode("free-reply", 1, {}, (), dict(zip(("player_0", "player_1"), rewards, strict=True)), outcome, "over")


class TestLanguage:
    def test_a_tiny_model_runs_through_all_games(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("rolecraft.models._load.load_local", lambda *_, **__: tiny_model())
        config = LanguageConfig(
            seeds=(1,), arms=("none", "rae"), games=tuple(GAMES), updates=2, episodes=3, max_tokens=4, rank=2
        )
        with RunStore.open(tmp_path / "run", "study", {}) as store:
            result = run_language(config, store)
            monkeypatch.setattr(_spiral_language, "make_trainer", None)
            assert run_language(config, store).rows == result.rows
        row = result.rows[0]
        assert row["invalid"] == row["won_by_fault"] == 1.0  # four random bytes are no move
        assert 1 <= row["length"] <= 4
        found = verdict_language(result)
        assert found.verdict == "inconclusive"
        assert "nothing but that it runs" in found.note

    def test_whole_models_are_trained_at_rank_zero(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("rolecraft.models._load.load_local", lambda *_, **__: tiny_model())
        whole = _spiral_language.make_policy(LanguageConfig(rank=0), 1)
        adapted = _spiral_language.make_policy(LanguageConfig(rank=2), 1)
        assert not any("lora" in name for name in whole.parameters())
        assert all("lora" in name for name in adapted.parameters())

    def test_every_game_says_its_rules_and_takes_a_boxed_move(self) -> None:
        for make in make_worlds(LanguageConfig(games=tuple(GAMES))):
            world = make()
            world.reset(3)
            (agent,) = world.acting
            legal = world.world.legal(agent)
            assert "\\boxed" in world.observe(agent)
            assert all(action in world.observe(agent) for action in legal)
            world.act({agent: f"I think. \\boxed{{{legal[-1]}}}"})
            assert not world.outcome()["invalid"]

    def test_facts_of_games_and_their_sums(self) -> None:
        found = game_facts([episode((1.0, -1.0), False), episode((0.5, -1.5), True), episode((0.0, 0.0), False)])
        assert (found["invalid"], found["won_by_fault"]) == (1 / 3, 1 / 2)
        with pytest.raises(UserError, match="trajectory 1"):
            game_facts([episode((1.0, -1.0), False), episode((1.0, 1.0), False)])

    def test_the_full_size_is_the_papers(self) -> None:
        full = LanguageConfig.full()
        assert (full.updates, full.lr, full.max_tokens, full.epochs, full.decay) == (400, 1e-6, 4096, 2, 0.95)
        assert set(full.games) == {"tic-tac-toe", "kuhn", "negotiation"}

    @pytest.mark.parametrize(
        ("none", "rae", "updates", "expected"),
        [
            ([1, 1, 1], [0, 0, 0], 400, "reproduced"),
            ([1, 1, 1], [0, 0, 0], 20, "inconclusive"),
            ([0, 0, 0], [0, 0, 0], 400, "not reproduced"),
            ([0, 1, 0], [0, 0, 0], 400, "inconclusive"),
            ([0, 0, 0], [1, 1, 1], 400, "not reproduced"),
        ],
    )
    def test_the_verdict(self, none: list[int], rae: list[int], updates: int, expected: str) -> None:
        rest = {"silent_first": 0.1, "silent_last": 0.5, "invalid": 0.2, "updates": updates}
        rows = [
            {"arm": arm, "seed": seed, "collapsed": bool(value), **rest}
            for arm, found in (("none", none), ("rae", rae)) for seed, value in enumerate(found)
        ]  # fmt: skip
        assert verdict_language(Result(tuple(rows))).verdict == expected

    @pytest.mark.parametrize(("field", "value"), [("games", ("kun",)), ("arms", ("ema",)), ("games", ())])
    def test_mistakes_are_said(self, field: str, value: tuple[str, ...]) -> None:
        with pytest.raises(UserError, match=f"^{field}: "):
            LanguageConfig(**{field: value})


def test_the_system_is_found() -> None:
    assert list(find_entry("spiral").studies) == list(STUDIES) == ["tic-tac-toe", "kuhn", "negotiation", "language"]
