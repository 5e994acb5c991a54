"""SPIRAL's third game: two players trade what each values in private, and whoever gains more wins.

What a baseline per role can take away here is small by construction: the game is worth nothing to either seat, and who
knows that the other only accepts what is bad for oneself does best not to trade. So the study asks how much trade is
left when both seats have learnt, and whether any rule of credit changes that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.systems._base import Result, StudyConfig, Verdict, missing_rows, put_row, row_key

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.learning.trainer import Trainer

CURVES = "curves"
PART = 5
"""Figures called early and late are means over the first and the last 1 / PART of the updates."""


@dataclass(frozen=True)
class NegotiationConfig(StudyConfig):
    """A tiny transformer that plays both seats of `worlds.Negotiation`."""

    seeds: tuple[int, ...] = (11, 12, 13)
    updates: int = 40
    """Paper: 400 iterations."""
    games: int = 128
    """Per update. Paper: 128 turns."""
    turns: int = 6
    """Of both players together."""
    layers: int = 2
    hidden: int = 64
    lr: float = 1e-3
    """At the start, and down to 0. Paper: 1e-6, constant."""
    entropy: float = 0.02
    decay: float = 0.95
    """Paper: 0.95."""
    test_games: int = 200
    """Against a random player, per seat, before and after."""

    def __post_init__(self) -> None:
        """Refuse sizes that leave nothing to compare, and a decay that is none."""
        from rolecraft.systems.learning.spiral import credit_rule

        if self.updates < PART or self.games < 1 or self.test_games < 1 or self.turns < 2:
            raise UserError(
                f"updates must be at least {PART}, games and test_games at least 1 and turns at least 2, got "
                f"{self.updates}, {self.games}, {self.test_games} and {self.turns}."
            )
        credit_rule("rae", self.decay)


def make_negotiation(config: NegotiationConfig, arm: str, seed: int) -> Trainer:
    """Return the trainer of an arm; arms of a seed start from the same weights."""
    from rolecraft.learning.policy import WordCodec, tiny_policy
    from rolecraft.learning.trainer import MonitorConfig, TrainConfig, Trainer
    from rolecraft.systems.learning.spiral import credit_rule
    from rolecraft.worlds import Negotiation, World

    def make() -> World:
        return Negotiation(turns=config.turns)

    policy = tiny_policy(
        WordCodec.of_world(make), layers=config.layers, hidden=config.hidden, context=48, max_tokens=8,
        seed=derive_seed("spiral", seed, "weights"),
    )  # fmt: skip
    train = TrainConfig(
        iterations=config.updates, episodes=config.games, lr=config.lr, schedule="linear", entropy=config.entropy,
        monitor=MonitorConfig(action="off"),
    )  # fmt: skip
    return Trainer(make, policy, credit_rule(arm, config.decay), train, seed=derive_seed("spiral", seed, "negotiation"))


def run_negotiation(config: NegotiationConfig, store: RunStore) -> Result:
    """Train every arm; a row has trades per game early and late, squares of advantages, and skill by seat."""
    import numpy as np

    from rolecraft.learning.trainer import against_random
    from rolecraft.systems.learning.spiral import RULES

    for arm, seed in missing_rows(store, RULES, config.seeds):
        trainer, curves = make_negotiation(config, arm, seed), dict[str, list[float]]()
        test = derive_seed("spiral", seed, "test")
        before = against_random(trainer, config.test_games, test)
        for _ in range(config.updates):
            done = trainer.step()
            figures = {name: done.figures[name] for name in ("advantage_square", "entropy", "outcome/player_0")}
            figures["trades"] = float(np.mean([episode.outcome["trades"] for episode in done.episodes]))
            for name, value in figures.items():
                curves.setdefault(name, []).append(value)
        store.put(CURVES, row_key(arm, seed), {"arm": arm, "seed": seed, **curves})
        part = config.updates // PART
        row = {name: float(np.mean(found)) for name, found in curves.items()}
        row["first"] = row.pop("outcome/player_0")
        row |= {"early": float(np.mean(curves["trades"][:part])), "late": float(np.mean(curves["trades"][-part:]))}
        after = against_random(trainer, config.test_games, test)
        for seat in (0, 1):
            name = f"against_random/player_{seat}"
            row |= {f"skill_{seat}": after[name], f"gain_{seat}": after[name] - before[name]}
        put_row(store, arm, seed, **row)
    return Result.read(store)


def verdict_negotiation(result: Result) -> Verdict:
    """Demand of negotiation what tic-tac-toe shows: squares of advantages fall with a baseline per role alone."""
    from rolecraft.systems.learning.spiral import HELP, MOST, RULES

    effect = result.ratio("advantage_square", "rae", "none")
    control = result.ratio("advantage_square", "shared", "none")
    trades = ", ".join(f"{arm} {result.mean('early', arm)} to {result.mean('late', arm)}" for arm in RULES)
    skill = ", ".join(f"seat {seat} {result.mean(f'gain_{seat}', 'rae')}" for seat in (0, 1))
    return Verdict.when(
        reproduced=effect.high < MOST and control.low >= HELP,
        inconclusive=effect.low < MOST <= effect.high,
        effect=effect,
        control=control,
        note=f"mean squared advantage, rae over none; control: one baseline for both roles over none; trades per game "
        f"from the first to the last fifth: {trades}; gain against a random player with rae: {skill}; mean outcome of "
        f"the first seat {result.mean('first', 'none')}",
    )
