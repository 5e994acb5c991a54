"""System 048: both studies small, their verdicts on made-up rows, and resuming."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.systems import Result, put_row
from rolecraft.systems.worlds import avalon
from rolecraft.systems.worlds.avalon import (
    PUBLISHED,
    BotsConfig,
    ServantConfig,
    game_seeds,
    run_bots,
    run_servant,
    split,
    verdict_bots,
    verdict_servant,
)
from rolecraft.worlds import Episode


def test_bots_come_near_the_published_rates_and_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = BotsConfig(seeds=(11, 12), games=100, block=25)
    with RunStore.open(tmp_path / "whole", "study", {}) as store:
        result = run_bots(config, store)
    assert len(result.rows) == 2 * 2 * 4
    for name, published in PUBLISHED.items():
        assert result.mean(name, "bots").estimate == pytest.approx(published, abs=0.1)
    assert all(row["good"] + row["missions"] + row["killed"] == pytest.approx(1) for row in result.rows)
    assert result.mean("good", "naive-servant").estimate < 0.1
    assert result.mean("deduction", "naive-servant").estimate == pytest.approx(0.6)
    with RunStore.open(tmp_path / "halved", "study", {}) as store:
        for row in result.rows:
            if row["seed"] == 11:
                put_row(store, **row)
        played, real = [], avalon.play_block
        monkeypatch.setattr(avalon, "play_block", lambda *given: played.append(1) or real(*given))
        resumed = run_bots(config, store)
    assert len(played) == 2 * 4, "only the second seed is played"
    assert sorted(map(str, resumed.rows)) == sorted(map(str, result.rows))


def rows(arm: str, changes: Mapping[str, float], spread: float = 0.005, blocks: int = 60) -> list[dict[str, object]]:
    """Blocks of made-up rates around the published ones, moved by some changes."""
    return [
        {"arm": arm, "seed": 0, "unit": f"0:{block}"}
        | {name: rate + changes.get(name, 0.0) + spread * (-1) ** block for name, rate in PUBLISHED.items()}
        for block in range(blocks)
    ]


NAIVE = rows("naive-servant", {"good": -0.35})


@pytest.mark.parametrize(
    ("bots", "expected"),
    [
        (rows("bots", {}), "reproduced"),
        (rows("bots", {"hit": 0.015}), "reproduced"),
        (rows("bots", {"deduction": 0.05}), "not reproduced"),
        (rows("bots", {"killed": -0.05}), "not reproduced"),
        (rows("bots", {"missions": 0.02}), "inconclusive"),
        (rows("bots", {}, spread=0.3, blocks=6), "inconclusive"),
    ],
)
def test_every_rate_must_lie_near_the_published_one(bots: list[dict[str, object]], expected: str) -> None:
    assert verdict_bots(Result((*bots, *NAIVE))).verdict == expected


def test_a_control_as_good_as_the_bots_refutes() -> None:
    found = verdict_bots(Result((*rows("bots", {}), *rows("naive-servant", {"good": -0.01}))))
    assert found.verdict == "not reproduced"


def test_a_rate_that_no_game_gave_leaves_it_open() -> None:
    """Few games of naive Servants come to naming Merlin, which is no fault; if none of the bots' do, it is open."""
    naive = [{**row, "hit": None} for row in NAIVE]
    assert verdict_bots(Result((*rows("bots", {}), *naive))).verdict == "reproduced"
    bots = [{**row, "hit": None} for row in rows("bots", {})]
    assert verdict_bots(Result((*bots, *NAIVE))).verdict == "inconclusive"


def test_the_effect_is_the_rate_that_is_farthest_off() -> None:
    found = verdict_bots(Result((*rows("bots", {"hit": -0.012, "good": 0.01}), *NAIVE)))
    assert found.effect.estimate == pytest.approx(-0.012)
    assert found.control is not None
    assert found.control.estimate == pytest.approx(-0.35)


def test_the_servants_seat(tmp_path: Path) -> None:
    config = ServantConfig(seeds=(5,), games=100, block=50, model="scripted:echo", model_games=3)
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        result = run_servant(config, store)
        assert run_servant(config, store).rows == result.rows, "a second call finds all rows there"
    assert result.arms == ["naive", "no-memory", "bot", "bayes", "model"]
    good = {arm: result.mean("good", arm).estimate for arm in result.arms}
    assert good["naive"] < good["bot"] < good["bayes"]
    assert result.mean("deduction", "bayes").estimate > result.mean("deduction", "bot").estimate
    assert result.mean("cross_entropy", "bayes").estimate < result.mean("cross_entropy", "bot").estimate
    assert all(row["fallbacks"] == 0 for row in result.rows)
    assert all("deduction" not in row for row in result.rows if row["arm"] == "model")
    lead = {arm: result.mean("leadership", arm).estimate for arm in result.arms}
    assert lead["bot"] < lead["bayes"]


def seat_rows(naive: float, memory: float, bot: float, bayes: float, spread: float = 0.02) -> Result:
    arms = {"naive": naive, "no-memory": memory, "bot": bot, "bayes": bayes}
    return Result(
        tuple(
            {"arm": arm, "seed": 0, "unit": f"0:{block}", "good": rate + spread * ((block * step) % 5 - 2)}
            for step, (arm, rate) in enumerate(arms.items(), 1) for block in range(40)
        )
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rates", "spread", "expected"),
    [
        ((0.1, 0.3, 0.4, 0.6), 0.02, "reproduced"),
        ((0.4, 0.3, 0.1, 0.6), 0.02, "not reproduced"),
        ((0.1, 0.3, 0.6, 0.4), 0.02, "not reproduced"),
        ((0.39, 0.4, 0.4, 0.6), 0.2, "inconclusive"),
    ],
)
def test_the_order_of_the_servants_decides(
    rates: tuple[float, float, float, float], spread: float, expected: str
) -> None:
    assert verdict_servant(seat_rows(*rates, spread=spread)).verdict == expected


def test_wins_are_split_by_how_they_came() -> None:
    def ended(reason: str) -> Episode:
        return Episode("avalon", 0, {}, (), {}, {"reason": reason}, "over")

    games = [ended(r) for r in ("good", "merlin_killed", "three_fails", "three_fails", "good")]
    assert split(games) == pytest.approx({"good": 0.4, "missions": 0.4, "killed": 0.2, "hit": 1 / 3})
    assert split(games[2:4])["hit"] is None


def test_arms_share_their_deals_and_blocks_do_not() -> None:
    assert game_seeds(1, 0, 5) == game_seeds(1, 0, 5)
    drawn = [seed for s in (1, 2) for block in (0, 1) for seed in game_seeds(s, block, 50)]
    assert len(set(drawn)) == 200


def test_bad_sizes_are_named() -> None:
    with pytest.raises(UserError, match="whole number of blocks, got 150 games in blocks of 100"):
        BotsConfig(games=150)
    with pytest.raises(UserError, match="whole number of blocks, got 0"):
        ServantConfig(games=0)
    with pytest.raises(UserError, match="model_games must be 1 to block"):
        ServantConfig(model_games=51)
