"""What a training run is asked to do: the study file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from rolecraft._options import read_model
from rolecraft.conditioning import Rung
from rolecraft.errors import UserError, did_you_mean
from rolecraft.guard import GuardChoice
from rolecraft.learning.credit import Stage, make_rule
from rolecraft.learning.trainer._config import TrainConfig
from rolecraft.learning.trainer._evaluate import EVALUATIONS
from rolecraft.learning.trainer._guard import TrainGuard, TrainGuardChoice
from rolecraft.roles import Role, load_inventory
from rolecraft.worlds import World, make_world

if TYPE_CHECKING:
    from rolecraft.learning.policy import TokenPolicy
    from rolecraft.models import LocalModel

Sharing = Literal["one", "role"]
"""Whether all seats have one policy, or every role its own (every agent, where there are no roles)."""


class NamedWorld(BaseModel):
    """A world, and its options beside its name."""

    model_config = ConfigDict(frozen=True, extra="allow")

    name: str

    def make(self) -> World:
        """Make the world.

        Raises:
            UserError: If there is no such world, or it refuses an option.
        """
        return make_world(self.name, dict(self.model_extra or {}))


class PolicyChoice(BaseModel):
    """What is trained."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["tiny", "lora", "full"] = "tiny"
    """A tiny transformer over the world's words; adapters on a language model; or all of a language model."""
    share: Sharing = "one"
    layers: int = Field(default=2, ge=1)
    """Of a tiny transformer."""
    hidden: int = Field(default=64, ge=8)
    heads: int = Field(default=4, ge=1)
    context: int = Field(default=256, ge=8)
    model: str = "local:smollm2"
    """Of `lora` and `full`: `local:smollm2` or `local:PATH`."""
    device: str = "cpu"
    """Of a language model: `cpu`, or `cuda` with an optional index."""
    rank: int = Field(default=8, ge=1)
    """Of the adapters."""
    rung: Rung = "instruction"
    """How a role is put on a language model by prompt."""
    max_tokens: int = Field(default=32, ge=1)
    temperature: float = Field(default=1.0, gt=0)
    critic: bool = False
    words: tuple[str, ...] = ()
    """Texts whose words a tiny transformer must know beside those that random episodes show."""


class Evaluation(BaseModel):
    """What is measured while training goes on."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    every: int = Field(default=25, ge=1)
    """Iterations; the start and the end are measured as well."""
    measures: tuple[str, ...] = ()
    """Of `rolecraft.learning.trainer.EVALUATIONS`."""
    episodes: int = Field(default=128, ge=1)

    @model_validator(mode="after")
    def _known(self) -> Self:
        for name in self.measures:
            if name not in EVALUATIONS:
                raise ValueError(f"no measure {name!r} (measures: {', '.join(EVALUATIONS)})")
        return self


class TrainStudy(BaseModel):
    """A study file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    worlds: tuple[NamedWorld, ...] = Field(min_length=1)
    """One is drawn for each task; `world` stands for a single one."""
    policy: PolicyChoice = PolicyChoice()
    credit: Any = "grpo"
    """See `rolecraft.learning.credit.make_rule`."""
    train: TrainConfig = TrainConfig()
    roles: dict[str, str] = Field(default_factory=dict)
    """Role id by agent; of a language model these are roles of the inventory."""
    inventory: str = "core-v1"
    lock: Path | None = None
    """`roles.lock` that must let in the roles of a language model; relative to the study file."""
    allow_unscreened: bool = False
    guard: TrainGuardChoice = TrainGuardChoice()
    """Policies of roles (of agents, where they play none) beside or instead of those in the lock: `lock`, `none`, a
    file, or the fields of `TrainGuardChoice`."""
    evaluate: Evaluation = Evaluation()
    checkpoint: int = Field(default=25, ge=1)
    """Iterations between checkpoints."""
    keep: int = Field(default=5, ge=1)
    """Checkpoints that are kept: the last so many."""
    keep_episodes: int = Field(default=2, ge=0)
    """Episodes of each iteration that are stored."""
    tensorboard: bool = False
    """Write event files for TensorBoard into the run directory."""
    seed: int = 0

    @field_validator("guard", mode="before")
    @classmethod
    def _short(cls, value: Any) -> Any:
        return GuardChoice.parse(value)

    @model_validator(mode="before")
    @classmethod
    def _single(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and "world" in data:
            if "worlds" in data:
                raise ValueError("give world or worlds, not both")
            data = {**{key: value for key, value in data.items() if key != "world"}, "worlds": [data["world"]]}
        return data

    def rule(self) -> list[Stage]:
        """Return the credit rule.

        Raises:
            UserError: If it cannot be read.
        """
        return make_rule(self.credit)

    def makers(self) -> list[Callable[[], World]]:
        """Return what makes each world."""
        return [world.make for world in self.worlds]

    def policies(self) -> dict[str, TokenPolicy]:
        """Make the policies, untrained.

        Raises:
            UserError: If a role is not in the inventory or not screened, or a model cannot be used.
            LockError: If the lock refuses a role.
        """
        names = self._names()
        return self._tiny(names) if self.policy.kind == "tiny" else self._language(names)

    def guards(self) -> TrainGuard | None:
        """Return the guards of all roles and of agents that play none; None if nobody has one.

        Raises:
            UserError: If a policy cannot be read, or is named for nobody.
            LockError: If the lock cannot be read, or a policy that it names is missing or was altered.
        """
        agents = dict.fromkeys(agent for make in self.makers() for agent in make().agents)
        roles = list(dict.fromkeys(self.roles.get(agent, agent) for agent in agents))
        locked, caps = {}, {}
        if self.lock is not None and self.guard.lock:
            from rolecraft.screening import load_lock

            lock = load_lock(self.lock)
            locked = {role: lock.guard(role) for role in roles}
            caps = {role: cap.model_dump(exclude_none=True) for role in roles if (cap := lock.cap(role))}
        found = self.guard.build(roles, locked, caps)
        for role, policy in (found.policies if found else {}).items():
            if policy.cap or policy.caps.get(role):
                raise UserError(
                    f"guard: the policy {policy.name!r} of {role!r} caps activations, for which a policy under "
                    "training has no part; name one without `cap`, or `guard: none`."
                )
        choice = self.guard
        return None if found is None else TrainGuard(found, choice.blocked, choice.penalty, choice.tries)

    def _names(self) -> list[str]:
        if self.policy.share == "one":
            return ["policy"]
        agents = dict.fromkeys(agent for make in self.makers() for agent in make().agents)
        return list(dict.fromkeys(self.roles.get(agent, agent) for agent in agents))

    def _tiny(self, names: list[str]) -> dict[str, TokenPolicy]:
        from rolecraft.learning.policy import WordCodec, tiny_policy, words

        found = {
            word
            for make in self.makers()
            for word in WordCodec.of_world(make, extra=[*self.policy.words, *self.roles.values()]).vocabulary
        } | {word for text in self.policy.words for word in words(text)}
        choice = self.policy
        sizes = {name: getattr(choice, name) for name in ("layers", "hidden", "heads", "context")}
        options = {name: getattr(choice, name) for name in ("temperature", "max_tokens", "critic")}
        codec = WordCodec(sorted(found))
        return {
            name: tiny_policy(codec, **sizes, **options, seed=self.seed + place) for place, name in enumerate(names)
        }

    def _language(self, names: list[str]) -> dict[str, TokenPolicy]:
        from rolecraft.learning.policy import lora_policies, model_policy
        from rolecraft.models._load import load_local

        choice = self.policy
        options: dict[str, Any] = {
            name: getattr(choice, name) for name in ("temperature", "max_tokens", "critic", "rung")
        }
        if choice.kind == "lora":
            model = load_local(choice.model, device=choice.device)
            return lora_policies(model, names, rank=choice.rank, roles=self._admitted(model), seed=self.seed, **options)
        found = {}
        for name in names:
            model = load_local(choice.model, dtype="float32", device=choice.device)
            found[name] = model_policy(model, roles=self._admitted(model), **options)
        return found

    def _admitted(self, model: LocalModel) -> dict[str, Role]:
        """Return the roles that may be trained, by id."""
        wanted = list(dict.fromkeys(self.roles.values()))
        if not wanted:
            return {}
        known = {role.id: role for role in load_inventory(self.inventory)}
        for name in wanted:
            if name not in known:
                raise UserError(f"roles: {self.inventory} has no role {name!r}.{did_you_mean(name, known)}")
        if self.lock is not None:
            from rolecraft.screening import load_lock

            load_lock(self.lock).admit_all(
                [known[name] for name in wanted], model.name, model.revision, allow_unscreened=self.allow_unscreened
            )
        elif not self.allow_unscreened:
            raise UserError(
                "roles: a language model plays screened roles only; give the lock that lets them in, or "
                "allow_unscreened: true."
            )
        return {name: known[name] for name in wanted}


def read_train_study(path: str | Path) -> TrainStudy:
    """Read a study file.

    Raises:
        UserError: If it cannot be read, or a field is unknown, missing or out of range; file and field are named.
    """
    path = Path(path)
    try:
        study = read_model(path, TrainStudy, also=("world",))
        study.rule()
    except UserError as error:
        raise UserError(str(error) if str(error).startswith(str(path)) else f"{path}: {error}") from None
    below = {"guard": study.guard.below(path.parent)}
    return study.model_copy(update=below if study.lock is None else {**below, "lock": path.parent / study.lock})
