"""What a training run is told."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from rolecraft.errors import UserError
from rolecraft.learning.losses import KlForm

Schedule = Literal["constant", "linear", "cosine"]


class MonitorConfig(BaseModel):
    """When a run counts as collapsing; see `CollapseMonitor`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    action: Literal["warn", "stop", "off"] = "warn"
    window: int = Field(default=10, ge=1)
    """Iterations whose mean is looked at; the first so many are what it is compared with."""
    length: float = Field(default=0.2, ge=0)
    """Reply length below this share of what it was at the start."""
    entropy: float = Field(default=0.02, ge=0)
    """Entropy per token below this share of what it was at the start."""
    repeated: float = Field(default=0.95, gt=0, le=1)
    """Share of replies that say nothing new beyond this, where it was lower at the start; free text only."""
    flat: int = Field(default=20, ge=1)
    """Iterations in a row without any difference in reward."""


class TrainConfig(BaseModel):
    """How a policy is trained.

    Raises:
        ValidationError: If a field is unknown or out of range.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    iterations: int = Field(default=100, ge=1)
    episodes: int = Field(default=64, ge=1)
    """Per iteration."""
    group: int = Field(default=1, ge=1)
    """Episodes from the same start (key `task`), whose rewards can be compared; divides `episodes`."""
    epochs: int = Field(default=1, ge=1)
    """Passes over the rows of an iteration."""
    minibatch: int = Field(default=0, ge=0)
    """Rows per step of the optimiser; 0: all of a policy's."""
    micro: int = Field(default=256, ge=1)
    """Rows per forward pass: gradients are accumulated over a minibatch. Decides memory, not what comes out."""
    lr: float = Field(default=3e-3, gt=0)
    schedule: Schedule = "constant"
    """Of the learning rate, down to 0 after the last iteration."""
    warmup: int = Field(default=0, ge=0)
    """Iterations over which the learning rate rises to `lr`."""
    weight_decay: float = Field(default=0.0, ge=0)
    betas: tuple[float, float] = (0.9, 0.999)
    max_grad_norm: float = Field(default=1.0, gt=0)
    clip: float = Field(default=0.2, gt=0)
    clip_high: float | None = Field(default=None, gt=0)
    """Upper clip, where it differs from the lower."""
    kl: float = Field(default=0.0, ge=0)
    """Weight of the KL to the reference, which is the policy before training."""
    kl_form: KlForm = "k3"
    reference: bool = False
    """Give rows `logp_ref` where `kl` is 0 too, for a rule that pays the KL as a reward."""
    entropy: float = Field(default=0.0, ge=0)
    """Weight of the entropy bonus."""
    value: float = Field(default=0.5, ge=0)
    """Weight of the critic's loss, where the rule gives targets."""
    value_clip: float | None = Field(default=0.2, gt=0)
    normaliser: Literal["tokens", "rows"] | float = "tokens"
    """See `rolecraft.learning.losses.clipped_surrogate`."""
    rescore: bool = True
    """Score replies again for `logp_old`. False saves that pass where it can: what was noted as a reply was drawn
    serves, equal but for rounding, as long as the weights have not changed since and no critic has to be asked. Runs
    then differ in the last digits."""
    drop_zero: bool = False
    """Leave rows without any advantage out of the loss, and out of what it is divided by."""
    mask_truncated: bool = False
    """Leave replies that were cut at the longest length out of the loss."""
    limit: int = Field(default=200, ge=1)
    """Most steps of an episode."""
    on_limit: Literal["keep", "drop"] = "keep"
    """Whether rows of an episode that was cut count with what it had earned, or are left out."""
    illegal: tuple[float, float] = (-1.5, 0.5)
    """Rewards of the offender and of everyone else where an illegal action ends an episode."""
    monitor: MonitorConfig = MonitorConfig()

    @field_validator("normaliser")
    @classmethod
    def _positive(cls, value: Literal["tokens", "rows"] | float) -> Literal["tokens", "rows"] | float:
        if isinstance(value, float) and value <= 0:
            raise ValueError("must be 'tokens', 'rows' or a number above 0")
        return value

    def model_post_init(self, _: object) -> None:
        """Check what fields say together."""
        if self.episodes % self.group:
            raise UserError(f"episodes: {self.episodes} cannot be cut into groups of {self.group}.")

    def rate(self, iteration: int) -> float:
        """Return the learning rate of an iteration, counted from 0."""
        rise = min(1.0, (iteration + 1) / self.warmup) if self.warmup else 1.0
        done = iteration / self.iterations
        fall = {"constant": 1.0, "linear": 1 - done, "cosine": (1 + math.cos(math.pi * done)) / 2}[self.schedule]
        return self.lr * rise * fall
