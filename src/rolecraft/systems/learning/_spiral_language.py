"""SPIRAL with a language model that thinks before it moves: the runner of the paper's size, and a smoke run of it.

Stated for the paper's size, not run here: Qwen3-4B-Base, all weights, three games, 400 updates of 128 turns, replies of
up to 4096 tokens, learning rate 1e-6, on 8 H100. Expected: without baselines replies shrink to next to no reasoning
after about 200 updates; with them they do not, and MATH500, AIME, OlympiadBench, AMC-23, Minerva, GPQA and MMLU-Pro,
which need their own evaluation, gain 8.6% in mathematics and 8.4% in general reasoning from Kuhn poker alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from rolecraft._run import derive_seed
from rolecraft.errors import UserError, did_you_mean
from rolecraft.systems._base import Result, StudyConfig, Verdict, missing_rows, put_row, row_key
from rolecraft.systems.learning._language_smoke import CURVES, load_policies

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.learning import FreeReply
    from rolecraft.learning.policy import TokenPolicy
    from rolecraft.learning.trainer import Trainer
    from rolecraft.worlds import Episode, World

INVALID = (-1.5, 0.5)
"""Rewards of whoever makes an invalid move, and of the other."""
KUHN_RULES = (
    "Kuhn poker. Three cards: 0, 1 and 2. Each of two players gets one and puts in 1 chip. In turn, a player passes or "
    "bets 1 chip; after a bet, to pass is to fold, and to bet is to call. The higher card wins. You see your card and "
    "the moves so far (p for pass, b for bet)."
)
TIC_TAC_TOE_RULES = (
    "Tic-tac-toe on a board of three rows; x begins, and three in a line win. A move is the number of a free cell."
)
SHRUNK, SILENT = 0.2, 0.5
"""A thinking collapse: replies below this share of their length at the start, or above this share without reasoning."""
LATE = 200
"""Updates before which the paper saw no collapse."""


def _kuhn() -> World:
    from rolecraft.worlds.adapters import OpenSpielWorld

    return OpenSpielWorld("kuhn_poker", rules=KUHN_RULES)


def _tic_tac_toe() -> World:
    from rolecraft.worlds.adapters import OpenSpielWorld

    return OpenSpielWorld("tic_tac_toe", numbered=True, see="observation", rules=TIC_TAC_TOE_RULES)


def _negotiation() -> World:
    from rolecraft.worlds import Negotiation

    return Negotiation(rules=True)


GAMES: Mapping[str, Callable[[], World]] = {"kuhn": _kuhn, "tic-tac-toe": _tic_tac_toe, "negotiation": _negotiation}
"""Games by name."""


@dataclass(frozen=True)
class LanguageConfig(StudyConfig):
    """A smoke run: adapters on the embedded model, a few games of Kuhn poker per arm."""

    seeds: tuple[int, ...] = (11,)
    arms: tuple[str, ...] = ("none", "shared", "rae")
    games: tuple[str, ...] = ("kuhn",)
    """One is drawn for each episode. Paper: tic-tac-toe, Kuhn poker, simple negotiation."""
    model: str = "local:smollm2"
    """Paper: Qwen3-4B-Base."""
    device: str = "cpu"
    rank: int = 8
    """Of the adapter; 0: all weights are trained, as in the paper."""
    updates: int = 2
    """Paper: 400."""
    episodes: int = 8
    """Per update. Paper: as many as make 128 turns."""
    epochs: int = 2
    """Paper: 2."""
    lr: float = 1e-4
    """Paper: 1e-6, of all weights."""
    clip: float = 0.2
    max_tokens: int = 48
    """Of a reply; the loss is divided by it. Paper: 4096."""
    temperature: float = 1.0
    """Paper: 1."""
    micro: int = 16
    """Turns per forward pass."""
    limit: int = 50
    """Turns after which a game is a draw. Paper: 50."""
    decay: float = 0.95
    """Paper: 0.95."""
    gamma: float = 1.0
    """Paper: 1."""
    drop_zero: bool = True
    """Leave turns without any advantage out. Paper: yes."""
    mask_truncated: bool = False
    """Leave turns that were cut at the longest reply out of the loss."""

    def __post_init__(self) -> None:
        """Refuse games and arms that are unknown."""
        rules = ("none", "shared", "rae")
        for field, given, known in (("games", self.games, tuple(GAMES)), ("arms", self.arms, rules)):
            for name in given:
                if name not in known:
                    raise UserError(f"{field}: {name!r} is none of {', '.join(known)}.{did_you_mean(name, known)}")
            if not given:
                raise UserError(f"{field}: expected at least one of {', '.join(known)}.")
        if min(self.updates, self.episodes, self.max_tokens) < 1 or self.rank < 0:
            raise UserError("updates, episodes and max_tokens must be at least 1, and rank at least 0.")

    @classmethod
    def full(cls) -> Self:
        """Return the paper's size; give the folder of the weights by `--set model=local:PATH`."""
        return cls(
            seeds=(11, 12, 13), arms=("none", "rae"), games=tuple(GAMES), model="local:Qwen3-4B-Base", device="cuda",
            rank=0, updates=400, episodes=32, lr=1e-6, max_tokens=4096,
        )  # fmt: skip


def make_worlds(config: LanguageConfig) -> list[Callable[[], FreeReply]]:
    """Return makers of the games, in which a reply is any text with the move in a box."""
    from rolecraft.learning import FreeReply

    def maker(name: str) -> Callable[[], FreeReply]:
        return lambda: FreeReply(GAMES[name](), invalid=INVALID)

    return [maker(name) for name in config.games]


def make_policy(config: LanguageConfig, seed: int) -> TokenPolicy:
    """Load the model anew, with a fresh adapter or whole."""
    return load_policies(
        config.model, ["policy"], rank=config.rank, device=config.device, seed=seed, temperature=config.temperature,
        max_tokens=config.max_tokens,
    )["policy"]  # fmt: skip


def make_trainer(config: LanguageConfig, arm: str, seed: int) -> Trainer:
    """Return the trainer of an arm."""
    from rolecraft.learning.trainer import MonitorConfig, TrainConfig, Trainer
    from rolecraft.systems.learning.spiral import credit_rule

    train = TrainConfig(
        iterations=config.updates,
        episodes=config.episodes,
        epochs=config.epochs,
        lr=config.lr,
        clip=config.clip,
        micro=config.micro,
        limit=config.limit,
        normaliser=float(config.max_tokens),
        drop_zero=config.drop_zero,
        mask_truncated=config.mask_truncated,
        monitor=MonitorConfig(action="off"),
    )
    # Sums are checked on the episodes, in the arm without a baseline too.
    rule = credit_rule(arm, config.decay, config.gamma, zero_sum=False)
    policy = make_policy(config, derive_seed("spiral", seed, "adapter") % 2**31)
    return Trainer(make_worlds(config), policy, rule, train, seed=derive_seed("spiral", seed, "language"))


def game_facts(episodes: Sequence[Episode]) -> dict[str, float]:
    """Check that games are zero-sum, but for invalid moves, and return shares of games and turns.

    Returns:
        `invalid`: games that an invalid move ended; `won_by_fault`: those among the games that somebody won; `silent`:
        turns without reasoning.

    Raises:
        UserError: If the rewards of a game do not add up to 0; its number and rewards are named.
    """
    import numpy as np

    from rolecraft.learning import silent_share
    from rolecraft.learning.credit import check_zero_sum

    paid = [list(episode.rewards.values()) for episode in episodes]
    check_zero_sum(np.ravel(paid), np.repeat(np.arange(len(paid)), [len(each) for each in paid]), (INVALID,))
    faults = sum(bool(episode.outcome.get("invalid")) for episode in episodes)
    decided = sum(any(rewards) for rewards in paid)
    return {
        "invalid": faults / len(episodes),
        "won_by_fault": faults / max(1, decided),
        "silent": silent_share(episodes),
    }


def run_language(config: LanguageConfig, store: RunStore) -> Result:
    """Train every arm; a row compares reply length and silent turns of the last tenth of updates with the first."""
    import warnings

    import numpy as np

    from rolecraft.learning.credit import NoSignalWarning

    for arm, seed in missing_rows(store, config.arms, config.seeds):
        trainer = make_trainer(config, arm, seed)
        curves: dict[str, list[float]] = {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoSignalWarning)
            for _ in range(config.updates):
                done = trainer.step()
                figures = {name: float(done.figures[name]) for name in ("length", "advantage_square", "rows")}
                for name, value in {**figures, **game_facts(done.episodes)}.items():
                    curves.setdefault(name, []).append(value)
        store.put(CURVES, row_key(arm, seed), {"arm": arm, "seed": seed, **curves, "baselines": dict(trainer.state)})
        part = max(1, config.updates // 10)
        figures = {name: float(np.mean(found)) for name, found in curves.items()}
        for name in ("length", "silent"):
            figures |= {
                f"{name}_first": float(np.mean(curves[name][:part])),
                f"{name}_last": float(np.mean(curves[name][-part:])),
            }
        shrunk = figures["length_last"] < SHRUNK * figures["length_first"]
        collapsed = shrunk or figures["silent_last"] > SILENT >= figures["silent_first"]
        put_row(store, arm, seed, updates=config.updates, collapsed=bool(collapsed), **figures)
    return Result.read(store)


def verdict_language(result: Result) -> Verdict:
    """Demand more collapses of thought without baselines than with them, once there were updates enough for any."""
    effect = result.difference("collapsed", "none", "rae")
    control = result.difference("collapsed", "none", "shared") if "shared" in result.arms else None
    enough = min(row["updates"] for row in result.rows) >= LATE
    silent = ", ".join(
        f"{arm} {result.mean('silent_first', arm).estimate:.2f} to {result.mean('silent_last', arm).estimate:.2f}"
        for arm in result.arms
    )
    invalid = ", ".join(f"{arm} {result.mean('invalid', arm).estimate:.0%}" for arm in result.arms)
    return Verdict.when(
        reproduced=effect.low > 0 and (control is None or control.low <= 0),
        inconclusive=not enough or effect.low <= 0 < effect.high,
        effect=effect,
        control=control,
        note="share of seeds in which thinking collapses, none less rae; control: none less one shared baseline; turns "
        f"without reasoning, first to last: {silent}; games ended by an invalid move: {invalid}"
        + ("" if enough else f"; fewer than {LATE} updates show nothing but that it runs"),
    )
