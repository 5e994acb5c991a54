"""OMAR: one model plays every participant, with credit over turns and over tokens (arXiv 2602.03109).

Exact: one policy with a critic in all seats, each with its own view; the terminal reward of each participant; GAE over
its own turns with the critic at each turn's last token, then inside each turn, whose last token is paid the turn's
advantage; whitening over all trained tokens; clipped policy and value loss; the filter of degenerate turns (`filter`).
The parts are `worlds.Bargaining`, `learning.judge_turns`, `evaluate_rows`, `social_reward`, and
`learning.credit.BilevelGae`, which links the rows of a participant by trajectory and agent.
Adapted: bargaining in words with exact optima for SOTOPIA and Werewolf; a transformer of some 12,000 weights for Qwen.
No discount pushes for a deal, and the last to offer may ask for all: a seat that takes everything still leaves about
0.7 of the best surplus, as random divisions do; what is above that takes care of the other's values.
The arms differ in the credit rule alone. `grpo` is what the paper warns of: the participants of a conversation as the
group of samples, which makes any game of two a zero-sum one; where the game is zero-sum, it changes nothing.
Small: `rolecraft systems run omar`; `--study smollm2` is a smoke run of a language model that bargains with itself. The
paper's size needs GPUs and served models: see `Config.NO_FULL`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rolecraft._run import derive_seed
from rolecraft.errors import UserError
from rolecraft.systems._base import Result, StudyConfig, System, Verdict, missing_rows, put_row
from rolecraft.systems.learning._omar_smoke import SMOLLM2

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.learning.credit import Carry, CreditBatch, Stage
    from rolecraft.learning.trainer import Rows, Trainer
    from rolecraft.systems.learning._omar_smoke import SmokeConfig
    from rolecraft.worlds import Episode

SYSTEM = System(
    number=43,
    name="omar",
    title="One Model, All Roles: Multi-Turn, Multi-Agent Self-Play Reinforcement Learning for Conversational Social "
    "Intelligence",
    arxiv="2602.03109",
    family="learning",
    claim="credit over turns and tokens trains one model in all seats of a conversation at least as fast as credit at "
    "one level, and taking the participants as a group of samples spoils cooperation",
    published="SOTOPIA (Qwen2.5-7B): better compromise, persuasion, empathy and mutual benefit than before training; "
    "Werewolf (Qwen3-4B): win rate about 55% to about 72% (third-party note)",
)

RULES = ("flat", "turn", "hierarchical", "grpo")
"""Token GAE over all a participant's tokens; over its turns only; over both; participants as a group of samples."""
CONTROL = ("zero-sum/hierarchical", "zero-sum/grpo")
ARMS = (*RULES, *CONTROL)
OPPONENTS = ("tough", "fair", "random")
MARGIN = 0.03
"""A loss of less than three points of the best surplus, or of the pay, is none."""


@dataclass(frozen=True)
class Config(StudyConfig):
    """Two seats divide three lots in six utterances."""

    NO_FULL = SMOLLM2.config.NO_FULL
    seeds: tuple[int, ...] = tuple(range(5))
    seats: int = 2
    """2 or 3."""
    turns: int = 6
    """Utterances of a conversation. Paper: up to 20 turns in SOTOPIA."""
    joint_weight: float = 0.2
    """What the share of the best surplus adds to a seat's own utility."""
    updates: int = 80
    episodes: int = 64
    """Per update."""
    epochs: int = 1
    """Passes over the rows of an update."""
    learning_rate: float = 1e-2
    """Falls to 0 along the run."""
    entropy: float = 0.01
    layers: int = 1
    hidden: int = 32
    turn_gamma: float = 1.0
    turn_lam: float = 0.95
    """The paper's figures are not known; these are the dossier's."""
    gamma: float = 1.0
    lam: float = 1.0
    """Inside a turn, as in the dossier."""
    flat_lam: float = 0.95
    """Along all tokens, in the arm `flat`."""
    filter: bool = False
    """Give degenerate turns no credit in the arm `hierarchical`. Paper: yes; in the study the arms' rules are compared
    alone, and what would be flagged is counted."""
    repeats: int = 2
    """Of an utterance before it counts as degenerate."""
    tests: int = 128
    """Conversations after training, among themselves and with each scripted opponent."""

    def __post_init__(self) -> None:
        """Refuse sizes that leave nothing to compare."""
        if min(self.updates, self.episodes, self.tests, self.epochs) < 1:
            raise UserError(
                "updates, episodes, epochs and tests must be at least 1, got "
                f"{self.updates}, {self.episodes}, {self.epochs} and {self.tests}."
            )


@dataclass(frozen=True)
class ParticipantsAsGroup:
    """GRPO that takes each participant of a conversation for one of the samples of a prompt: invalid, to be shown so.

    The mean that is subtracted is that of the participants, so that what is good for all is worth nothing to any.
    """

    scale: bool = True
    """Divide by the deviation within the group, as GRPO does."""

    def __call__(self, batch: CreditBatch, carry: Carry) -> Carry:
        """Add the advantage."""
        from rolecraft.learning.credit import Group

        participant, _ = batch.group_index(("traj", "agent"), "participants as group")
        keys = {**batch.keys, "conversation": batch.keys["traj"], "traj": participant}
        group = Group(("conversation",), unit="traj", scale="std" if self.scale else "none")
        return group(replace(batch, keys=keys), carry)


def credit_rule(config: Config | SmokeConfig, rule: str) -> list[Stage]:
    """Return the stages of a rule."""
    from rolecraft.learning import TURN_KEEP
    from rolecraft.learning.credit import BilevelGae, Gae, Whiten

    own = ("traj", "agent")
    if rule == "grpo":
        return [ParticipantsAsGroup()]
    if rule == "hierarchical":
        levels = BilevelGae(
            config.turn_gamma,
            config.turn_lam,
            config.gamma,
            config.lam,
            quality=TURN_KEEP if config.filter else None,
        )
        return [levels, Whiten("tokens")]
    if rule == "turn":
        return [Gae(config.turn_gamma, config.turn_lam, level="turn", keys=own), Whiten("tokens")]
    return [Gae(config.gamma, config.flat_lam, keys=own), Whiten("tokens")]


@dataclass
class Curves:
    """What was seen in each update."""

    surplus: list[float] = field(default_factory=list)
    agreed: list[float] = field(default_factory=list)
    reward: list[float] = field(default_factory=list)
    explained: list[float] = field(default_factory=list)
    """The critic's explained variance; empty without a critic."""
    entropy: list[float] = field(default_factory=list)
    flagged: list[float] = field(default_factory=list)

    def add(self, episodes: Sequence[Episode], figures: Mapping[str, Any], flagged: float) -> None:
        """Take in an update."""
        found = [episode.outcome for episode in episodes]
        self.surplus.append(_mean(each["surplus_share"] for each in found))
        self.agreed.append(_mean(each["agreed"] for each in found))
        self.reward.append(_mean(reward for episode in episodes for reward in episode.rewards.values()))
        self.explained += [value for name, value in figures.items() if name.endswith("gae/explained_variance")]
        self.entropy.append(float(figures["entropy"]))
        self.flagged.append(flagged)

    def summary(self) -> dict[str, float]:
        """Return the area under the curve of the surplus, and the means over the last quarter of the updates."""
        last = -max(1, len(self.surplus) // 4)
        found = {"auc": _mean(self.surplus), "entropy": _mean(self.entropy[last:]), "flagged": _mean(self.flagged)}
        return found | ({"explained": _mean(self.explained[last:])} if self.explained else {})


def make_trainer(config: Config, arm: str, seed: int) -> Trainer:
    """Return one model for all seats, untrained; its weights and its scenes are the same in every arm of a seed."""
    from functools import partial

    from rolecraft.learning.policy import WordCodec, tiny_policy
    from rolecraft.learning.trainer import MonitorConfig, TrainConfig, Trainer
    from rolecraft.worlds import Bargaining

    control, _, rule = arm.rpartition("/")
    make = partial(
        Bargaining,
        config.seats,
        config.turns,
        joint_weight=config.joint_weight,
        motive="zero-sum" if control else "mixed",
    )
    policy = tiny_policy(
        WordCodec.of_world(make),
        layers=config.layers,
        hidden=config.hidden,
        seed=derive_seed("omar", seed, "weights") % 2**31,
        critic=True,
        max_tokens=5,
    )
    training = TrainConfig(
        iterations=config.updates,
        episodes=config.episodes,
        epochs=config.epochs,
        lr=config.learning_rate,
        schedule="linear",
        entropy=config.entropy,
        micro=1024,
        monitor=MonitorConfig(action="off"),
    )
    return Trainer(make, policy, credit_rule(config, rule), training, seed=derive_seed("omar", seed, "train"))


def judged(config: Config | SmokeConfig, rows: Rows) -> tuple[Rows, float]:
    """Flag degenerate turns; return rows with `turn_keep` and the share that is flagged.

    Raises:
        UserError: If the filter is on and more than 30% are.
    """
    from rolecraft.learning import RuleTurnJudge, judge_turns

    found, log = judge_turns(rows, RuleTurnJudge(config.repeats), max_filtered=0.3 if config.filter else 1.0)
    return found, log.share


def train(config: Config, arm: str, seed: int) -> tuple[Trainer, Curves]:
    """Train one model in all seats."""
    from rolecraft.learning.credit import DegenerateTurnsWarning, NoSignalWarning, assign_credit

    trainer, curves = make_trainer(config, arm, seed), Curves()
    for _ in range(config.updates):
        starts = trainer.starts()
        episodes = trainer.collect(starts)
        rows, flagged = judged(config, trainer.rows(episodes, starts))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoSignalWarning)
            warnings.simplefilter("ignore", DegenerateTurnsWarning)
            credit = assign_credit(rows.batch, trainer.credit, trainer.state)
        figures = {**trainer.describe(rows, credit, episodes), **trainer.update(rows, credit)}
        trainer.iteration += 1
        curves.add(episodes, {"entropy": 0.0} | figures, flagged)
    return trainer, curves


def evaluate(config: Config, trainer: Trainer, seed: int) -> dict[str, float]:
    """Play among copies of the model, and with scripted opponents in the other seats; the same scenes in every arm.

    Returns:
        `surplus`, `agreed`, `nash`, `reward` and `efficient` (of the deals) among copies; `with/NAME`: the model's own
        utility beside opponents of that name, and `pay/NAME`: its reward there.
    """
    from rolecraft.agents import SCRIPTED_BARGAINERS
    from rolecraft.learning.trainer import Start, play_starts

    def played(name: str, seat: str = "") -> list[Episode]:
        count = config.tests if not seat else -(-config.tests // config.seats)
        starts = [Start(0, n, derive_seed("omar", seed, name, seat, n), 0) for n in range(count)]
        others = None
        if seat:
            scripted = SCRIPTED_BARGAINERS[name](config.seats)
            given = {agent: scripted for agent in trainer.worlds[0]().agents if agent != seat}

            def others(_: Start) -> Mapping[str, Any]:
                return given

        return play_starts(trainer.worlds, starts, trainer.seats, trainer.route, trainer.config.limit, others)

    copies = played("copies")
    deals = [episode.outcome["efficient"] for episode in copies if episode.outcome["agreed"]]
    figures = {
        "surplus": _mean(episode.outcome["surplus_share"] for episode in copies),
        "agreed": _mean(episode.outcome["agreed"] for episode in copies),
        "nash": _mean(episode.outcome["nash_share"] for episode in copies),
        "reward": _mean(reward for episode in copies for reward in episode.rewards.values()),
        "efficient": _mean(deals) if deals else 0.0,
    }
    for name in OPPONENTS:
        beside = [(seat, episode) for seat in trainer.worlds[0]().agents for episode in played(name, seat)]
        figures[f"with/{name}"] = _mean(episode.outcome["utilities"][seat] for seat, episode in beside)
        figures[f"pay/{name}"] = _mean(episode.rewards[seat] for seat, episode in beside)
    return figures


def run(config: Config, store: RunStore) -> Result:
    """Train and test every arm; a row each, and the curves beside it."""
    for arm, seed in missing_rows(store, ARMS, config.seeds):
        trainer, curves = train(config, arm, seed)
        store.put("curves", f"{arm}/{seed}", {"arm": arm, "seed": seed, **vars(curves)})
        put_row(store, arm, seed, **curves.summary(), **evaluate(config, trainer, seed))
    return Result.read(store)


def verdict(result: Result) -> Verdict:
    """Demand that both levels together lose to neither alone, and beat the group of participants, but not at zero sum.

    Losing is judged by the area under the curve of the joint surplus, with a margin; the group of participants by the
    joint surplus after training. Control: pay beside a random opponent in the zero-sum game, where the group of
    participants is no worse.
    """
    gaps = {rule: result.difference("auc", "hierarchical", rule) for rule in ("flat", "turn")}
    effect = result.difference("surplus", "hierarchical", "grpo")
    control = result.difference("pay/random", *CONTROL)
    equal = control.low <= MARGIN
    holds = equal and effect.low > 0 and all(gap.low > -MARGIN for gap in gaps.values())
    may_hold = equal and effect.high > MARGIN and all(gap.high > -MARGIN for gap in gaps.values())
    means = {
        rule: (result.mean("surplus", rule).estimate, result.mean("agreed", rule).estimate, spread(result, rule))
        for rule in RULES
    }
    table = ", ".join(f"{rule} {a:.2f}, {b:.2f}, {c:.3f}" for rule, (a, b, c) in means.items())
    return Verdict.when(
        reproduced=holds,
        inconclusive=may_hold and not holds,
        effect=effect,
        control=control,
        note="joint surplus of both levels less that of participants as a group; area under the curve of both levels "
        f"less flat {gaps['flat']}, less turns only {gaps['turn']}; surplus, agreement, deviation of the reward over "
        f"seeds: {table}; control: pay beside a random opponent at zero sum, same difference",
    )


def spread(result: Result, arm: str, metric: str = "reward") -> float:
    """Return the standard deviation of a metric over seeds; 0 for a single one."""
    import numpy as np

    found = [float(row[metric]) for row in result.rows if row["arm"] == arm]
    return float(np.std(found, ddof=1)) if len(found) > 1 else 0.0


def _mean(values: Any) -> float:
    import numpy as np

    return float(np.mean(list(values)))


STUDIES = {"bargaining": (Config, run, verdict), "smollm2": SMOLLM2}
