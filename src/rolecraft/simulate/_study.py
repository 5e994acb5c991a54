"""What a simulation is asked to do: the study file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator

from rolecraft._options import read_model
from rolecraft._run import Budget
from rolecraft.agents import Form
from rolecraft.errors import UserError
from rolecraft.guard import GuardChoice
from rolecraft.simulate._drift import DriftRule
from rolecraft.simulate._interventions import PlannedIntervention
from rolecraft.simulate._mind import MemoryChoice
from rolecraft.worlds import Asynchronous, Limit, OnIllegal, TimeLimit, TokenLimit, TurnLimit, World, make_world

Conditioning = Literal["locked", "prompt", "none"]
CONDITIONINGS: tuple[Conditioning, ...] = get_args(Conditioning)
"""How an arm puts its roles on: as the lock says, all by prompt, or not at all."""


class WorldChoice(BaseModel):
    """Which world, and its options."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str

    @property
    def options(self) -> dict[str, Any]:
        """Every other key: arguments of the world."""
        return dict(self.model_extra or {})


class Serving(BaseModel):
    """How a served model is asked: what decides time and money, not what comes out."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    concurrency: int = Field(default=8, ge=1)
    timeout: float = Field(default=120.0, gt=0)
    """Seconds until a request without an answer counts as stalled and is tried again."""
    retries: int = Field(default=6, ge=0)
    """Tries after the first, for each request."""
    backoff: float = Field(default=0.5, gt=0)
    prices: tuple[float, float] | None = None
    """USD per million prompt tokens and per million new tokens."""


class EpisodeLimits(BaseModel):
    """What ends an episode beside the most steps; the episode says which it was. None: no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    turns: int | None = Field(default=None, ge=1)
    """Of single agents: where several act at once, a step is several turns."""
    tokens: int | None = Field(default=None, ge=1)
    """Read and written, counted as in the cost of a run."""
    seconds: float | None = Field(default=None, gt=0)
    """Of wall clock: the only one that cannot be replayed, see `rolecraft.worlds.TimeLimit`."""

    def build(self) -> tuple[Limit, ...]:
        """Return the limits that are set."""
        turns = () if self.turns is None else (TurnLimit(self.turns),)
        tokens = () if self.tokens is None else (TokenLimit(self.tokens),)
        return (*turns, *tokens, *(() if self.seconds is None else (TimeLimit(self.seconds),)))


class SimulationGuard(GuardChoice):
    """Which policies hold for whom in a simulation."""

    arms: tuple[str, ...] = ()
    """Where they hold; empty: in every arm. An arm without them shows what they change."""
    on_stop: Literal["episode", "run"] = "episode"
    """What a rule with the fallback `stop` ends. `run` stops the simulation too, with everything stored."""


class SimulationStudy(BaseModel):
    """A study file.

    Raises:
        UserError: If the budget cannot be read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    world: WorldChoice
    lock: Path
    """`roles.lock` of the screen that let the roles in; relative to the study file."""
    inventory: str = "core-v1"
    """Where the roles stand: name, file or folder."""
    model: str = "local:smollm2"
    """Plays all roles."""
    roles: tuple[str, ...] = ()
    """Population; empty: every role that the lock lets in."""
    seats: dict[str, str] = Field(default_factory=dict)
    """Agents of the world that always play the same role; all others are drawn anew for each episode."""
    arms: dict[str, Conditioning] = {"roles": "locked", "bare": "none"}
    """Name to conditioning. Episode i has the same cast and the same seed in every arm."""
    episodes: int = Field(default=8, ge=1)
    """Per arm."""
    seed: int = 0
    pace: float | dict[str, float] | None = None
    """Mean ticks between an agent's acts, of all or by agent: agents act when they are ready, see
    `rolecraft.worlds.Asynchronous`. None: in turn or all at once, as the world has it."""
    limit: int = Field(default=200, ge=1)
    """Most steps of an episode."""
    limits: EpisodeLimits = EpisodeLimits()
    """What else ends an episode: `{turns, tokens, seconds}`, each may be left out."""
    repairs: int = Field(default=1, ge=0)
    on_illegal: OnIllegal = "random"
    max_tokens: int = Field(default=64, ge=1)
    """Per message, where actions are free text."""
    temperature: float = Field(default=0.7, ge=0)
    top_p: float = Field(default=0.95, gt=0, le=1)
    together: int = Field(default=32, ge=1)
    """Episodes played side by side: how fast it goes, not what comes out."""
    memory: MemoryChoice | None = None
    """What agents remember of their own earlier turns, within a bound; None: what the world shows them."""
    think: Form | None = None
    """A form in which agents think before they act, where text is free; nobody else sees the thought."""
    allow_unscreened: bool = False
    """Let roles in that the lock refuses, by prompt; every episode with one says so."""
    interventions: tuple[PlannedIntervention, ...] = ()
    """What is done to agents from outside the world; arms may differ by it."""
    guard: SimulationGuard = SimulationGuard()
    """Policies of roles beside or instead of those in the lock: `lock`, `none`, a file, or the fields of
    `SimulationGuard`. Every action of a role whose policy has rules for the tool `act` passes them."""
    drift: DriftRule | None = None
    """Whether, and how, agents are watched for leaving their roles."""
    retries: int = Field(default=1, ge=0)
    """How often a model that gave no reply (a refusal, an empty one) is asked again, with another seed."""
    on_failure: Literal["mark", "halt"] = "mark"
    """Where the model gives no answer: `mark` records it; a refusal is then a turn in which nothing is said, and a
    server that is gone ends the episode, which is played on by --resume, and the run goes on. `halt` stops the run."""
    most_failed: int = Field(default=8, ge=1)
    """So many episodes that fail one after the other stop the run all the same."""
    budget: str = ""
    """Stops the run when it is used up: `100ktok`, `10min`, `2.50usd`, or several by a comma."""
    serving: Serving = Serving()

    def make_world(self) -> World:
        """Make a world of this study.

        Raises:
            UserError: If there is no such world, or it refuses an option or a pace.
        """
        world = make_world(self.world.name, self.world.options)
        return world if self.pace is None else Asynchronous(world, self.pace)

    @field_validator("guard", mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return GuardChoice.parse(value)

    @field_validator("budget")
    @classmethod
    def _readable(cls, text: str) -> str:
        if text:
            Budget.parse(text)
        return text


def read_study(path: str | Path, lock: str | Path | None = None) -> SimulationStudy:
    """Read a study file.

    Args:
        path: The file.
        lock: Instead of the one that the file names.

    Raises:
        UserError: If it cannot be read, or a field is unknown, missing or out of range; file and field are named.
    """
    path = Path(path)
    study = read_model(path, SimulationStudy, given={} if lock is None else {"lock": str(Path(lock).absolute())})
    if not study.arms:
        raise UserError(f"{path}: arms: give at least one, such as 'roles: locked'.")
    return study.model_copy(update={"lock": path.parent / study.lock, "guard": study.guard.below(path.parent)})
