"""Credit rules by the name of the system they come from: each a function of its options that returns its stages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from rolecraft.errors import UserError, did_you_mean
from rolecraft.learning.credit._baselines import EmaBaseline, NoBaseline
from rolecraft.learning.credit._batch import Stage
from rolecraft.learning.credit._gae import Variant
from rolecraft.learning.credit._gae_stages import BilevelGae, Gae
from rolecraft.learning.credit._groups import Group, Scale, Singleton, Unit
from rolecraft.learning.credit._pivot import Elimination, Pivot
from rolecraft.learning.credit._returns import Discount, ReturnToGo
from rolecraft.learning.credit._rewards import How, Mix, Pool, ScaleReward
from rolecraft.learning.credit._rows import TRIAGE_CONSTANTS, AddRow, DropZero, Filter, FilterGroups, FlipRate, Weight
from rolecraft.learning.credit._scalarise import Ccrn, Ranges
from rolecraft.learning.credit._value import Vdn
from rolecraft.learning.credit._whiten import Whiten

Pooled = Literal["sum", "own", "competitive"]


def at_grpo(
    alpha: float = 1.0,
    keys: Sequence[str] = ("task", "agent", "turn"),
    scale: Scale = "std",
    ddof: int = 1,
    singleton: Singleton = "zero",
    same: str | None = None,
    filter: Filter | None = None,
    share: float = 0.5,
) -> list[Stage]:
    """AT-GRPO (037): alpha * team + own reward, compared among the candidates of one agent and turn."""
    group = Group(keys, scale=scale, ddof=ddof, singleton=singleton, same=same)
    filters: list[Stage] = [] if filter is None else [FilterGroups(keys, filter, share)]
    return [Mix(alpha), group, *filters]


def character_r1(
    keys: Sequence[str] = ("task",),
    character: Sequence[str] = ("role",),
    weights: Mapping[str, float] | None = None,
    decay: float = 0.99,
) -> list[Stage]:
    """Character-R1 (006): objectives each scaled for the row's character, added up, then compared within the task."""
    return [Ccrn(character, weights, decay), Group(keys)]


def collabuiagents(threshold: float = 0.5, pooled: bool = True) -> list[Stage]:
    """CollabUIAgents (091): a critic's scores, joined by `or` over a step's agents, then compared within the task."""
    pool: list[Stage] = [Pool(("traj", "step"), "or", threshold=threshold)] if pooled else []
    return [Mix(team=None, local="score"), *pool, Group(("task", "step"))]


def cory(
    mode: Pooled = "sum",
    kl: float = 0.2,
    gamma: float = 1.0,
    lam: float = 0.95,
    reward: str = "reward",
    whiten: bool = False,
) -> list[Stage]:
    """CORY (096): both agents are paid the sum of their rewards, at the last token, with the KL at every token.

    `whiten` brings the advantages of each policy to mean 0 and deviation 1 over its own tokens.
    """
    hows: dict[Pooled, list[How]] = {"sum": ["sum"], "own": [], "competitive": ["versus"]}
    if mode not in hows:
        raise UserError(f"cory: mode is 'sum', 'own' or 'competitive', got {mode!r}.{did_you_mean(mode, hows)}")
    pools = [Pool(("traj",), how, per=("agent",)) for how in hows[mode]]
    after: list[Stage] = [Whiten("tokens", ("policy",))] if whiten else []
    return [Mix(team=None, local=reward), *pools, Gae(gamma, lam, kl=kl), *after]


def dr_grpo(keys: Sequence[str] = ("task",), singleton: Singleton = "zero", unit: Unit = "row") -> list[Stage]:
    """GRPO without the division by the standard deviation (arXiv 2503.20783)."""
    return [Group(keys, scale="none", singleton=singleton, unit=unit)]


def envace(keys: Sequence[str] = ("task", "role"), singleton: Singleton = "zero") -> list[Stage]:
    """EnvACE (036): callers and simulators of a task each compared with their like, without a standard deviation."""
    return [Group(keys, scale="none", singleton=singleton)]


def gae(
    gamma: float = 1.0,
    lam: float = 0.95,
    keys: Sequence[str] = (),
    kl: float = 0.0,
    terminal: bool = True,
    whiten: bool = True,
) -> list[Stage]:
    """PPO's advantage, over the tokens of each row, or of chains of rows."""
    after: list[Stage] = [Whiten("tokens")] if whiten else []
    return [Gae(gamma, lam, keys=keys, kl=kl, terminal=terminal), *after]


def grpo(
    keys: Sequence[str] = ("task",),
    scale: Scale = "std",
    ddof: int = 1,
    eps: float = 1e-6,
    singleton: Singleton = "zero",
    unit: Unit = "row",
    same: str | None = None,
    filter: Filter | None = None,
    share: float = 0.5,
) -> list[Stage]:
    """GRPO (arXiv 2402.03300): the reward compared with the others of its task."""
    filters: list[Stage] = [] if filter is None else [FilterGroups(keys, filter, share)]
    return [Group(keys, scale=scale, ddof=ddof, eps=eps, singleton=singleton, unit=unit, same=same), *filters]


def moa(
    keys: Sequence[str] = ("task",),
    window: int = 10,
    beta: float = 10.0,
    eliminate: Elimination = "below_mean",
    ranges: Ranges | None = None,
    singleton: Singleton = "zero",
) -> list[Stage]:
    """MOA (031): objectives weighted by their trend, conflicting rows left out, then compared within the task."""
    return [Pivot(keys, window, beta, eliminate, ranges), Group(keys, singleton=singleton)]


def omar(
    turn_gamma: float = 1.0,
    turn_lam: float = 0.95,
    gamma: float = 1.0,
    lam: float = 1.0,
    kl: float = 0.0,
    variant: Variant = "plain",
    quality: str | None = None,
    whiten: bool = True,
) -> list[Stage]:
    """OMAR (043): advantages over each participant's turns, then over a turn's tokens; participants are no group."""
    after: list[Stage] = [Whiten("tokens")] if whiten else []
    return [BilevelGae(turn_gamma, turn_lam, gamma, lam, kl=kl, variant=variant, quality=quality), *after]


def rae(
    decay: float = 0.95,
    keys: Sequence[str] = ("game", "role"),
    per: Sequence[str] = ("traj", "agent"),
    gamma: float = 1.0,
    zero_sum: bool = False,
    drop_zero: bool = False,
) -> list[Stage]:
    """Role-conditioned advantage estimation of SPIRAL (011): a running baseline per game and role."""
    drop: list[Stage] = [DropZero()] if drop_zero else []
    return [EmaBaseline(keys, decay, per, zero_sum=zero_sum), Discount(gamma), *drop]


def reinforce(gamma: float | None = None, reward: str = "reward") -> list[Stage]:
    """The outcome itself as advantage; with gamma, the discounted return of each row's own rewards."""
    if gamma is None:
        return [NoBaseline()]
    return [Mix(team=None, local=reward), ReturnToGo(gamma), NoBaseline()]


def rft() -> list[Stage]:
    """Rejection fine-tuning (A3T 018, Self-Challenging 099): each row is imitated with its reward as weight."""
    return [NoBaseline(1.0), Weight("reward", normalise=False)]


def rl4mle(clip: float | None = None, base: Literal["none", "group"] = "none") -> list[Stage]:
    """Duration-aware gradient (086): rows weigh as long as their action took, with mean one."""
    return [Group(("task",)) if base == "group" else NoBaseline(), Weight("duration", clip=clip)]


def role_agent(
    k: float = 1.0, weight: float = 1.0, gamma: float = 0.95, scale: Scale = "std", terminal: bool = True
) -> list[Stage]:
    """Role-Agent (014), over GiGPO: the scaled outcome within its task, and returns among steps from one state."""
    return [
        *([ScaleReward(k, when="positive")] if k else []),
        Group(("task",), scale=scale, unit="traj"),
        ReturnToGo(gamma, terminal=terminal),
        Group(("task", "anchor"), scale=scale, weight=weight),
    ]


def triage(
    lam: float = 0.5,
    constants: Mapping[str, float] | None = None,
    score: str | None = None,
    keys: Sequence[str] = ("task",),
    unit: Unit = "traj",
    ddof: int = 1,
    drop_zero_outcome_groups: bool = False,
    whiten_unit: Unit = "row",
    allow_any_constants: bool = False,
) -> list[Stage]:
    """TRIAGE (008): the outcome within its task, a bonus by the role of each segment, whitened over the batch.

    `constants` changes some of `TRIAGE_CONSTANTS`; `score` names a column of numbers that takes their place.
    """
    for name in constants or {}:
        if name not in TRIAGE_CONSTANTS:
            raise UserError(
                f"triage: constants are for {', '.join(TRIAGE_CONSTANTS)}, got {name!r}."
                f"{did_you_mean(name, TRIAGE_CONSTANTS)}"
            )
    bonus = AddRow(lam, {**TRIAGE_CONSTANTS, **(constants or {})}, score=score, allow_any_constants=allow_any_constants)
    drop: list[Stage] = [FilterGroups(keys, "dapo")] if drop_zero_outcome_groups else []
    flips: list[Stage] = [] if score is not None else [FlipRate(keys, unit)]
    return [*drop, Group(keys, unit=unit, ddof=ddof), bonus, Whiten("rows", unit=whiten_unit), *flips]


def vdn(gamma: float = 0.99, keys: Sequence[str] = ("traj", "step"), team: str | None = "team_reward") -> list[Stage]:
    """VDN (059): every agent of a joint step gets the team's temporal difference."""
    return [Vdn(gamma, keys, team)]
