"""AvalonBench: a referee, rule bots and per-skill scores for the hidden-role game Avalon (arXiv 2310.05036).

Exact: the engine's constants and phases, private views, the rule bots (the Servant's posterior over placements with its
tie-break memory), deduction accuracy and cross-entropy, the split of evil's wins. The parts are `worlds.Avalon`,
`agents.AvalonBots` and `measures`; this file is their two studies.
Adapted: no talk; good players cannot fail a quest, as on the board (the paper's engine lets them); one generator per
decision that follows from the game's seed, where the published bots reseed a common one.
Added: a Servant that also weighs proposals and votes; the Servant without its memory; the naive Servant as control.
Small: `rolecraft systems run avalonbench` (bots, then servant). With a language model in the Servant's seat, choosing
among legal actions by log-probability: `--study servant --set model=local:smollm2`, or `openai:NAME@URL`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.systems._base import ROWS, Result, StudyConfig, System, Verdict, put_row, row_key
from rolecraft.worlds import Avalon, AvalonProposal, Episode, Policy, play

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.agents import AvalonBots
    from rolecraft.measures import Interval

SYSTEM = System(
    number=48,
    name="avalonbench",
    title="AvalonBench: Evaluating LLMs Playing the Game of Avalon",
    arxiv="2310.05036",
    family="worlds",
    claim="the benchmark's rule bots, played against each other, have the published win rates, assassination accuracy "
    "and deduction accuracy, and a Servant without inference does clearly worse",
    published="five players, bots only: good wins 38.2%, evil by missions 42.7%, by assassination 19.1%, assassination "
    "accuracy 33.3%, Servant's deduction accuracy 71.8%",
)

PUBLISHED: Mapping[str, float] = {
    "good": 0.382, "missions": 0.427, "killed": 0.191, "hit": 0.333, "deduction": 0.718,
}  # fmt: skip
"""Good's wins, evil's by three failed quests, evil's by naming Merlin, right names of all named, sides told right."""
TOLERANCE = 0.02


def play_block(world: Avalon, policies: Mapping[str, Policy], seeds: Sequence[int]) -> Iterator[Episode]:
    """Play one game per seed; the world is left at its end when each episode is handed out."""
    for seed in seeds:
        yield play(world, policies, seed, hashes=False)


def game_seeds(seed: int, block: int, games: int) -> list[int]:
    """Return the seeds of a block of games: the same in every arm, so that arms are pairs of the same deals."""
    return [derive_seed("avalon", seed, block, game) for game in range(games)]


def split(episodes: Sequence[Episode]) -> dict[str, float | None]:
    """Return the win rates of some games by who won and how, and `hit`; None where no game came to naming Merlin."""
    reasons = [episode.outcome["reason"] for episode in episodes]
    named = len(reasons) - reasons.count("three_fails")
    return {
        "good": reasons.count("good") / len(reasons),
        "missions": reasons.count("three_fails") / len(reasons),
        "killed": reasons.count("merlin_killed") / len(reasons),
        "hit": reasons.count("merlin_killed") / named if named else None,
    }


# (a) Bots among themselves: do they have the published strength?


@dataclass(frozen=True)
class BotsConfig(StudyConfig):
    """Five seats of rule bots; the control's Servants are naive."""

    games: int = 7000
    """Games per seed and arm. The paper does not say how many it played."""
    block: int = 100
    """Games per row."""

    def __post_init__(self) -> None:
        """Check the sizes."""
        _whole_blocks(self.games, self.block)


def run_bots(config: BotsConfig, store: RunStore) -> Result:
    """Play bots against bots; a row holds the rates of one block of games."""
    from rolecraft.agents import AvalonBots, NaiveBot

    world = Avalon()
    arms = {"bots": AvalonBots(world), "naive-servant": AvalonBots(world, {"servant": NaiveBot()})}
    for arm, seed, block in _missing(store, arms, config.seeds, config.games // config.block):
        policies = dict.fromkeys(world.agents, arms[arm])
        episodes, scores = [], []
        for episode in play_block(world, policies, game_seeds(seed, block, config.block)):
            episodes.append(episode)
            scores += [_deduction(world, arms[arm], seat) for seat, role in enumerate(world.roles) if role == "servant"]
        put_row(store, arm, seed, f"{seed}:{block}", **split(episodes), **_means(scores))
    return Result.read(store)


def deviations(result: Result, arm: str) -> dict[str, Interval]:
    """Return each rate of an arm less the published one; `hit` is left out where no game came to naming Merlin."""
    from rolecraft.measures import Interval

    known = {name for row in result.rows if row["arm"] == arm for name in PUBLISHED if row[name] is not None}
    found = {name: result.mean(name, arm) for name in PUBLISHED if name in known}
    return {
        name: Interval(rate.estimate - PUBLISHED[name], rate.low - PUBLISHED[name], rate.high - PUBLISHED[name], rate.n)
        for name, rate in found.items()
    }


def verdict_bots(result: Result) -> Verdict:
    """Demand every rate within two points of the published one, by its whole interval, and a clearly worse control."""
    found = deviations(result, "bots")
    far = max(found.values(), key=lambda each: abs(each.estimate))
    control = max(deviations(result, "naive-servant").values(), key=lambda each: abs(each.estimate))
    gap = result.difference("good", "bots", "naive-servant")
    within = len(found) == len(PUBLISHED) and all(
        each.low >= -TOLERANCE and each.high <= TOLERANCE for each in found.values()
    )
    outside = any(each.low > TOLERANCE or each.high < -TOLERANCE for each in found.values())
    rates = ", ".join(
        f"{name} {PUBLISHED[name] + each.estimate:.1%} ({PUBLISHED[name]:.1%})" for name, each in found.items()
    )
    return Verdict.when(
        reproduced=within and gap.low > TOLERANCE,
        inconclusive=not within and not outside,
        effect=far,
        control=control,
        note=f"largest deviation from the published rates, here {rates}; control: the same with naive Servants, where "
        f"good wins {gap.estimate:.1%} less often",
    )


# (b) The Servant's seat: what do inference, memory and votes add?


@dataclass(frozen=True)
class ServantConfig(StudyConfig):
    """Seat 0 is a Servant played by each arm in turn; the other four seats are rule bots."""

    games: int = 700
    """Games per seed and scripted arm."""
    block: int = 50
    """Games per row."""
    model: str | None = None
    """A language model for one more arm, such as `local:smollm2`. Paper: GPT-3.5, Llama 2."""
    model_games: int = 10
    """Games per seed of the model, in one row: the first of the scripted arms' games."""

    def __post_init__(self) -> None:
        """Check the sizes."""
        _whole_blocks(self.games, self.block)
        if not 1 <= self.model_games <= self.block:
            raise UserError(
                f"model_games must be 1 to block ({self.block}), so that they are games of the other arms too; "
                f"got {self.model_games}."
            )


SERVANTS = ("naive", "no-memory", "bot", "bayes")
SYSTEM_TEXT = (
    "You play Avalon as a Servant, on the side of good. Three passed quests win, unless the Assassin then names "
    "Merlin; three failed quests lose. Only evil players fail quests. Work out from quests and votes who is "
    "evil, propose and approve teams without them, and answer with one of the actions."
)


def run_servant(config: ServantConfig, store: RunStore) -> Result:
    """Play every arm in seat 0 on the same deals."""
    from rolecraft.agents import AvalonBots, BayesServantBot, NaiveBot, ServantBot

    world = Avalon(preset={0: "servant"})
    rules = dict(zip(SERVANTS, (NaiveBot(), ServantBot(memory=False), ServantBot(), BayesServantBot()), strict=True))
    for arm, seed, block in _missing(store, SERVANTS, config.seeds, config.games // config.block):
        bots = AvalonBots(world, seats={0: rules[arm]})
        policies = dict.fromkeys(world.agents, bots)
        seeds = game_seeds(seed, block, config.block)
        put_row(store, arm, seed, f"{seed}:{block}", **_seat_row(world, policies, seeds, bots))
    if config.model:
        _run_model(config.model, config, world, store)
    return Result.read(store)


def _run_model(model: str, config: ServantConfig, world: Avalon, store: RunStore) -> None:
    """Play the language model in seat 0, on the first of the other arms' deals."""
    from rolecraft.agents import AvalonBots, ChoicePolicy
    from rolecraft.models import load_model

    missing = list(_missing(store, ("model",), config.seeds, 1))
    if not missing:
        return
    policies: dict[str, Policy] = dict.fromkeys(world.agents, AvalonBots(world))
    policies[world.agents[0]] = ChoicePolicy(load_model(model), SYSTEM_TEXT)
    for arm, seed, block in missing:
        seeds = game_seeds(seed, block, config.block)[: config.model_games]
        put_row(store, arm, seed, f"{seed}:{block}", **_seat_row(world, policies, seeds, None))


def _seat_row(
    world: Avalon, policies: Mapping[str, Policy], seeds: Sequence[int], bots: AvalonBots | None
) -> dict[str, float | None]:
    """Return the rates of seat 0 over some games; a model is not asked for its beliefs."""
    from rolecraft.measures import influence, leadership

    episodes, scores = [], []
    voted: list[bool] = []
    came: list[bool] = []
    led: list[bool] = []
    for episode in play_block(world, policies, seeds):
        episodes.append(episode)
        proposals = [event for event in world.knows(world.agents[0]).record if isinstance(event, AvalonProposal)]
        voted += [proposal.votes[0] for proposal in proposals]
        came += [proposal.accepted for proposal in proposals]
        led += [proposal.accepted for proposal in proposals if proposal.leader == 0]
        scores += [_deduction(world, bots, 0)] if bots else []
    shares = {"influence": influence(voted, came), "leadership": leadership(led)}
    return {
        **split(episodes), **_means(scores), **{name: None if math.isnan(x) else x for name, x in shares.items()},
        "fallbacks": sum(episode.fallbacks for episode in episodes) / len(episodes),
    }  # fmt: skip


def verdict_servant(result: Result) -> Verdict:
    """Demand naive < bot <= exact Bayes in good's win rate, on the same deals."""
    gain = result.difference("good", "bot", "naive")
    votes = result.difference("good", "bayes", "bot")
    memory = result.difference("good", "bot", "no-memory")
    wins = ", ".join(f"{arm} {result.mean('good', arm).estimate:.1%}" for arm in result.arms)
    return Verdict.when(
        reproduced=gain.low > 0 and votes.low >= 0,
        inconclusive=not (gain.low > 0 and votes.low >= 0) and gain.high > 0 and votes.high >= 0,
        effect=gain,
        control=result.mean("good", "naive"),
        note=f"good's wins with the rule bot in a Servant's seat less those with the naive one ({wins}); proposals and "
        f"votes add {votes}, the tie-break memory {memory}; control: wins with the naive Servant",
    )


def _deduction(world: Avalon, bots: AvalonBots, seat: int) -> dict[str, float]:
    from rolecraft.measures import side_accuracy, side_cross_entropy

    beliefs = bots.beliefs(world.agents[seat])
    return {
        "deduction": side_accuracy(beliefs, world.good), "cross_entropy": side_cross_entropy(beliefs, world.good),
    }  # fmt: skip


def _means(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: sum(score[name] for score in scores) / len(scores) for name in scores[0]} if scores else {}


def _missing(
    store: RunStore, arms: Mapping[str, Any] | Sequence[str], seeds: Sequence[int], blocks: int
) -> Iterator[tuple[str, int, int]]:
    """Yield the arms, seeds and blocks without a row, arms innermost."""
    keys = {
        row_key(arm, seed, f"{seed}:{block}"): (arm, seed, block)
        for seed in seeds for block in range(blocks) for arm in arms
    }  # fmt: skip
    for key in store.missing(ROWS, keys):
        yield keys[key]


def _whole_blocks(games: int, block: int) -> None:
    if block < 1 or games < block or games % block:
        raise UserError(f"games must be a whole number of blocks, got {games} games in blocks of {block}.")


STUDIES = {
    "bots": (BotsConfig, run_bots, verdict_bots),
    "servant": (ServantConfig, run_servant, verdict_servant),
}
