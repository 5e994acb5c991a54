"""Policy-gradient training of language policies that act in worlds under roles."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rolecraft._run import derive_seed
from rolecraft.errors import ModelError, UserError
from rolecraft.learning.credit import CreditBatch, CreditResult, Stage
from rolecraft.learning.losses import LOSSES
from rolecraft.learning.policy import LearnerSeat, TokenPolicy
from rolecraft.learning.trainer._checkpoint import load_checkpoint, save_checkpoint
from rolecraft.learning.trainer._config import TrainConfig
from rolecraft.learning.trainer._guard import TrainGuard, guard_figures
from rolecraft.learning.trainer._monitors import CollapseMonitor
from rolecraft.learning.trainer._rollouts import (
    Keys,
    Numbering,
    Objectives,
    Route,
    Rows,
    Start,
    gather,
    outcomes,
    play_starts,
    silent_seats,
)
from rolecraft.learning.trainer._silent import counts_silent
from rolecraft.learning.trainer._update import AuxFunction, Lesson, score_all, teach
from rolecraft.learning.trainer._workers import RolloutWorkers
from rolecraft.worlds import Episode, Policy, World


class CollapseWarning(UserWarning):
    """Training shows a sign of collapse."""


class CollapseError(ModelError):
    """Training was stopped because it collapses."""


@dataclass(frozen=True)
class Iteration:
    """What came of one iteration."""

    number: int
    episodes: Sequence[Episode]
    figures: Mapping[str, Any]
    """For the log, as JSON holds them."""
    alarms: Sequence[str] = ()


class Trainer:
    """Plays, gives credit, and updates; `step` does all three, and each can be called alone.

    Everything follows from the seed and the number of the iteration, so that a run that goes on from a checkpoint has
    the numbers that it would have had without the break.

    Args:
        worlds: Make the worlds; one is drawn for each task.
        policies: By name.
        credit: The rule: stages for `rolecraft.learning.credit.assign_credit`.
        config: How it is trained.
        seed: Of everything.
        route: Which policy acts for an agent under a role; it may change between iterations. None: the only policy, or
            the one that is named as the role, else as the agent.
        roles: Role id by agent; fixed, or drawn for a task by a function of a generator.
        opponents: Policies that are not trained, by agent, at a start.
        objectives: Rewards of an agent in an episode that a rule wants kept apart by name (Character-R1, MOA).
        keys: Further keys of an agent's rows in an episode, such as the group of its character.
        columns: Adds token columns, such as a teacher's log-probabilities, before credit is given.
        losses: Losses beside the policy gradient, by the names that stages use; those of this package are there.
        guard: What every action passes before the world sees it; None: nothing.

    Raises:
        UserError: If there is no world or policy.
    """

    def __init__(
        self,
        worlds: Sequence[Callable[[], World]] | Callable[[], World],
        policies: Mapping[str, TokenPolicy] | TokenPolicy,
        credit: Sequence[Stage],
        config: TrainConfig | None = None,
        *,
        seed: int = 0,
        route: Route | None = None,
        roles: Mapping[str, str] | Callable[[np.random.Generator], Mapping[str, str]] | None = None,
        opponents: Callable[[Start], Mapping[str, Policy]] | None = None,
        objectives: Objectives | None = None,
        keys: Keys | None = None,
        columns: Callable[[Rows], Mapping[str, Any]] | None = None,
        losses: Mapping[str, AuxFunction] | None = None,
        guard: TrainGuard | None = None,
    ) -> None:
        self.worlds = [worlds] if callable(worlds) else list(worlds)
        self.policies = {"policy": policies} if isinstance(policies, TokenPolicy) else dict(policies)
        if not self.worlds or not self.policies:
            raise UserError("training needs at least one world and one policy.")
        self.credit = list(credit)
        self.config = config or TrainConfig()
        self.seed = seed
        self.route = route or self._route
        self.opponents = opponents
        self.objectives = objectives
        self.keys = keys
        self.columns = columns
        self.losses: dict[str, AuxFunction] = {**LOSSES, **(losses or {})}
        self.guard = guard
        self.iteration = 0
        self.state: Mapping[str, Any] = {}
        """The credit rule's."""
        self.monitor = CollapseMonitor(self.config.monitor)
        self.workers: RolloutWorkers | None = None
        """Who plays; None: this process."""
        self._roles = roles
        self._drawn_by: dict[str, int] = {}
        """How often the weights had changed when the last episodes were begun, by policy."""
        self.seats = {name: LearnerSeat(policy, name) for name, policy in self.policies.items()}
        self.optimisers: dict[str, torch.optim.Optimizer] = {
            name: torch.optim.AdamW(
                list(policy.parameters().values()),
                lr=self.config.lr,
                betas=self.config.betas,
                weight_decay=self.config.weight_decay,
            )
            for name, policy in self.policies.items()
        }
        if self.config.kl or self.config.reference:
            for policy in self.policies.values():
                policy.keep_reference()
        self._numbering = self._number()

    def starts(self) -> list[Start]:
        """Return where the episodes of this iteration begin."""
        found = []
        for task in range(self.config.episodes // self.config.group):
            seed = derive_seed(self.seed, "task", self.iteration, task)
            rng = np.random.default_rng(seed)
            game = int(rng.integers(len(self.worlds)))
            roles = self._roles(rng) if callable(self._roles) else (self._roles or {})
            number = self.iteration * self.config.episodes + task
            found += [Start(game, number, seed, sample, roles) for sample in range(self.config.group)]
        return found

    def collect(self, starts: Sequence[Start]) -> list[Episode]:
        """Play an episode from each start, by the workers where there are any."""
        self._drawn_by = {name: _version(policy) for name, policy in self.policies.items()}
        return self.play(starts) if self.workers is None else self.workers.collect(self, starts)

    def play(self, starts: Sequence[Start]) -> list[Episode]:
        """Play an episode from each start in this process."""
        limit = self.config.limit
        return play_starts(self.worlds, starts, self.seats, self.route, limit, self.opponents, self.guard)

    def rows(self, episodes: Sequence[Episode], starts: Sequence[Start]) -> Rows:
        """Turn episodes into rows, with what the policies, their critics and references say of every token."""
        config = self.config
        rows = gather(
            episodes,
            starts,
            self.policies,
            self._numbering,
            illegal=config.illegal,
            keep_cut=config.on_limit == "keep",
            mask_truncated=config.mask_truncated,
            objectives=self.objectives,
            more_keys=self.keys,
            guard=self.guard,
        )
        if not rows.replies:
            raise UserError("no policy under training had a turn: is every agent an opponent?")
        if counts_silent(self.credit):
            rows = replace(rows, silent=self._silent(episodes, starts, rows))
        shape = rows.batch.shape
        tokens = {"logp_old": np.zeros(shape)}
        for name, policy in self.policies.items():
            own = rows.of(name)
            if not own:
                continue
            replies = [rows.replies[row] for row in own]
            if self._drawn_will_do(name):
                tokens["logp_old"][own] = rows.batch.token["logp_old"][own]
            else:
                logp, value = score_all(policy, replies, shape[1], config.micro)
                tokens["logp_old"][own] = logp
                if value is not None:
                    tokens.setdefault("value", np.zeros(shape))[own] = value
            if config.kl or config.reference:
                ref, _ = score_all(policy, replies, shape[1], config.micro, reference=True)
                tokens.setdefault("logp_ref", np.zeros(shape))[own] = ref
        rows = rows.with_tokens(logp_sampled=rows.batch.token["logp_old"], **tokens)
        return rows.with_tokens(**self.columns(rows)) if self.columns else rows

    def update(self, rows: Rows, credit: CreditResult) -> dict[str, float]:
        """Take the optimisers' steps, and return the mean figures of each policy."""
        config = self.config
        figures: dict[str, float] = {}
        for name, policy in self.policies.items():
            own = rows.of(name)
            lesson = self._lesson(rows, credit, own, policy.network.device)
            if not own or not bool(lesson.mask.any()):
                continue
            for group in self.optimisers[name].param_groups:
                group["lr"] = config.rate(self.iteration)
            rng = np.random.default_rng(derive_seed(self.seed, "update", self.iteration, name))
            with policy.active():
                found = teach(policy, self.optimisers[name], lesson, config, rng)
            prefix = "" if len(self.policies) == 1 else f"{name}/"
            figures |= {f"{prefix}{key}": value for key, value in found.items()}
        return figures

    def step(self) -> Iteration:
        """Play, give credit, update, and count on.

        Raises:
            ModelError: If a loss is not finite.
            CollapseError: If the monitor says so and is told to stop; the iteration is done then.
        """
        starts = self.starts()
        episodes = self.collect(starts)
        rows = self.rows(episodes, starts)
        credit = rows.credit(self.credit, self.state)
        figures = {**self.describe(rows, credit, episodes), **self.update(rows, credit)}
        self.state = credit.state
        free = [reply for reply in rows.replies if reply.options is None]
        alarms = self.monitor.look(
            float(figures["length"]),
            float(np.mean([value for key, value in figures.items() if key.endswith("entropy")] or [0.0])),
            1 - len({reply.tokens for reply in free}) / len(free) if free else 0.0,
            max([float(figures["outcome_std"]), *(float(each.std()) for each in rows.batch.objectives.values())]),
        )
        done = Iteration(self.iteration, episodes, figures, alarms)
        self.iteration += 1
        if alarms and self.config.monitor.action == "stop":
            raise CollapseError(f"iteration {done.number}: {'; '.join(alarms)}.")
        if alarms:
            warnings.warn(f"iteration {done.number}: {'; '.join(alarms)}.", CollapseWarning, stacklevel=2)
        return done

    def describe(self, rows: Rows, credit: CreditResult, episodes: Sequence[Episode]) -> dict[str, Any]:
        """Return the figures of what was played: rewards by agent, lengths, ends, advantages."""
        batch = rows.batch
        outcome = batch.row["outcome"]
        figures: dict[str, Any] = {
            "episodes": len(episodes),
            "rows": len(rows.replies),
            "tokens": int(batch.mask.sum()),
            "silent_seats": 0 if rows.silent is None else rows.silent.shape[0],
            "length": float(batch.row["duration"].mean()),
            "outcome": float(outcome.mean()),
            "outcome_std": float(outcome.std()),
            "advantage_square": float(np.square(credit.advantages[batch.mask]).mean()) if batch.mask.any() else 0.0,
            "engine_gap": float(
                np.abs(batch.token["logp_old"] - batch.token["logp_sampled"])[batch.mask].max(initial=0)
            ),
        }
        if self.guard is not None:
            figures |= guard_figures(episodes)
        for end in ("limit", "illegal", "failed"):
            figures[f"ended_{end}"] = sum(episode.ended == end for episode in episodes) / len(episodes)
        earned: dict[str, list[float]] = {}
        for episode in episodes:
            paid = outcomes(episode, self.config.illegal)
            for agent, reward in paid.items():
                earned.setdefault(agent, []).append(reward)
                if agent in episode.roles:
                    earned.setdefault(episode.roles[agent], []).append(reward)
        figures |= {f"outcome/{name}": float(np.mean(rewards)) for name, rewards in sorted(earned.items())}
        if batch.known.any():
            figures |= {f"objective/{name}": float(each[batch.known].mean()) for name, each in batch.objectives.items()}
        plain = {key: value for key, value in credit.info.items() if isinstance(value, bool | int | float)}
        return figures | {f"credit/{key}": value for key, value in plain.items()}

    def save(self, folder: Path) -> None:
        """Write a checkpoint."""
        state = {"iteration": self.iteration, "credit": dict(self.state), "monitor": self.monitor.state()}
        save_checkpoint(folder, self.policies, self.optimisers, state)

    def load(self, folder: Path) -> None:
        """Go on from a checkpoint.

        Raises:
            UserError: If it is of other policies.
        """
        state = load_checkpoint(folder, self.policies, self.optimisers)
        self.iteration, self.state = int(state["iteration"]), state["credit"]
        self.monitor = CollapseMonitor(self.config.monitor, state["monitor"])

    def _lesson(self, rows: Rows, credit: CreditResult, own: Sequence[int], device: Any = "cpu") -> Lesson:
        batch = rows.batch
        mask = batch.mask[own] & credit.keep[own, None]
        if self.config.drop_zero:
            mask &= (credit.advantages[own] != 0).any(1)[:, None]

        def tensor(values: Any) -> torch.Tensor:
            return torch.as_tensor(np.asarray(values)[own], dtype=torch.float32, device=device)

        token = batch.token
        return Lesson(
            [rows.replies[row] for row in own],
            torch.from_numpy(mask).to(device),
            tensor(credit.advantages),
            tensor(credit.weights),
            tensor(token["logp_old"]),
            tensor(token["logp_ref"]) if self.config.kl else None,
            tensor(token["value"]) if "value" in token else None,
            None if credit.targets is None else tensor(credit.targets),
            [(aux.name, aux.weight, tensor(aux.token)) for aux in credit.aux],
            self.losses,
        )

    def _drawn_will_do(self, name: str) -> bool:
        """Return whether the log-probabilities that a policy's replies were drawn with are those of the policy now."""
        policy = self.policies[name]
        seat = self.seats[name]
        own = type(seat) is LearnerSeat and seat.policy is policy  # a server draws with a precision of its own
        same = self._drawn_by.get(name) == _version(policy)
        return not self.config.rescore and policy.critic is None and own and same

    def _silent(self, episodes: Sequence[Episode], starts: Sequence[Start], rows: Rows) -> CreditBatch | None:
        def learner(start: Start, agent: str) -> str | None:
            others = self.opponents(start) if self.opponents else {}
            return None if agent in others else self.route(agent, start.roles.get(agent))

        return silent_seats(
            episodes,
            starts,
            rows,
            self._numbering,
            learner,
            illegal=self.config.illegal,
            keep_cut=self.config.on_limit == "keep",
            objectives=self.objectives,
            more_keys=self.keys,
        )

    def _route(self, agent: str, role: str | None) -> str:
        if len(self.policies) == 1:
            return next(iter(self.policies))
        for name in (role, agent):
            if name in self.policies:
                return str(name)
        raise UserError(
            f"no policy is named for agent {agent!r} or role {role!r} (policies: {', '.join(self.policies)}); name one "
            "so, or pass route."
        )

    def _number(self) -> Numbering:
        made = [make() for make in self.worlds]
        agents = list(dict.fromkeys(agent for world in made for agent in world.agents))
        drawn = (
            [self._roles(np.random.default_rng(n)) for n in range(64)] if callable(self._roles) else [self._roles or {}]
        )
        roles = sorted({role for each in drawn for role in each.values()})
        games = [world.name for world in made]
        return Numbering(games, agents, [*agents, *(role for role in roles if role not in agents)], list(self.policies))


def _version(policy: TokenPolicy) -> int:
    """Return how often what is trained has been changed, as torch counts it for each tensor."""
    return sum(parameter._version for parameter in policy.parameters().values())
