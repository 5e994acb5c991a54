"""Settings of RODE (arXiv 2010.01523)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rolecraft.errors import UserError
from rolecraft.marl._action_effects import effect_config
from rolecraft.marl._qlearn import QConfig
from rolecraft.marl._rode_roles import make_rule

LABELS = ("effects", "shuffled")


class RoleIntervalWarning(UserWarning):
    """An episode is shorter than the time between two choices of roles: there is one choice in it."""


@dataclass(frozen=True)
class RodeConfig(QConfig):
    """Settings of RODE; those of `QConfig` come first."""

    mixer: str = "qmix"
    """Of actions and, a second one, of roles. Paper: QMIX."""
    roles: Any = "agent"
    """What the networks are told of the agents; see `role_features`. Paper: the agent's number."""
    dueling: bool = False
    lr: float = 5e-4
    """Paper: 5e-4."""
    optimiser: str = "rmsprop"
    """`rmsprop` as published, or `adam`."""
    clusters: int = 5
    """Of k-means. Paper: 2 to 5."""
    rule: Any = "smac"
    """How clusters become roles: `smac`, `smax`, `identity`, or a function; see `discover_roles`."""
    role_interval: int = 5
    """Steps that a role is kept, c. Paper: 5."""
    role_steps: int = 50_000
    """Steps of the world before roles are found, up to the next test. Paper: 50,000."""
    anneal: int = 70_000
    """Steps in which exploration falls, once from the start and once from when roles are found. Paper: 70,000."""
    effects: str = "published"
    """How action effects are learnt; see `effect_config`."""
    effect_fits: int = 1
    """Gradient steps of the action encoder for each one of the values. Paper: 1."""
    latent: int = 20
    """Numbers in a latent. Paper: 20."""
    minimum: int = 30
    """An action tried less often before roles are found has an arbitrary latent, and training stops there."""
    force: bool = False
    """Go on all the same."""
    labels: str = "effects"
    """`effects`, or `shuffled`: the clusters dealt out at random among the actions, a control."""

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        super().__post_init__()
        effect_config(self.effects)
        make_rule(self.rule)
        for name in ("clusters", "role_interval", "role_steps", "anneal", "effect_fits", "latent"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}.")
        for name, known in (("labels", LABELS), ("optimiser", ("rmsprop", "adam"))):
            if getattr(self, name) not in known:
                raise UserError(f"{name}: expected one of {', '.join(known)}, got {getattr(self, name)!r}.")
        if self.role_steps >= self.steps or self.tests < 2:
            raise UserError(
                f"role_steps ({self.role_steps}) must leave some of the steps ({self.steps}), and tests be at least 2, "
                f"got {self.tests}: roles are found at one of them."
            )
        if not self.share or self.channels or self.lam or self.dueling:
            raise UserError("RODE takes share=True, no channels, lam=0 and dueling=False.")

    def tests_before(self, horizon: int) -> int:
        """Return how many tests of a world of this horizon there are before roles are found, one at least."""
        block = self.envs * horizon
        per_test = max(1, self.steps // (block * self.tests)) * block
        return min(self.tests - 1, -(-self.role_steps // per_test))


__all__ = ["RodeConfig", "RoleIntervalWarning"]
