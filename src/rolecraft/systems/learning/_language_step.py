"""One update of a smoke study: what was played, the credit it got, and what the step did to every reply."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from rolecraft.learning.credit import CreditResult
    from rolecraft.learning.policy import Reply, TokenPolicy
    from rolecraft.learning.trainer import Rows, Trainer
    from rolecraft.worlds import Episode

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Taught:
    """One update: what was played, the credit it got, and what the step did to every reply."""

    episodes: Sequence[Episode]
    rows: Rows
    credit: CreditResult
    shift: Floats
    """Shape (N, T): change of each trained token's log-probability; 0 off the mask."""
    figures: Mapping[str, Any]
    unit: str = "traj"
    """Key of the rows that are a unit of the study."""

    @property
    def advantage(self) -> Floats:
        """Mean over each reply's trained tokens, shape (N,)."""
        return _row_mean(self.credit.advantages, self.rows.batch.mask)

    @property
    def pushed(self) -> Floats:
        """Mean change of log-probability over each reply's trained tokens, shape (N,)."""
        return _row_mean(self.shift, self.rows.batch.mask)

    def by_episode(self, values: NDArray[Any], where: NDArray[np.bool_] | None = None) -> dict[int, float]:
        """Return the mean of row values of shape (N,) by episode (or other unit), over the rows where `where` holds."""
        unit = self.rows.batch.keys[self.unit]
        used = np.ones(len(unit), dtype=bool) if where is None else where
        return {int(one): float(np.mean(values[used & (unit == one)])) for one in np.unique(unit[used])}


def take_step(trainer: Trainer, amend: Callable[[Rows, Sequence[Episode]], Rows] | None = None) -> Taught:
    """Take one iteration of a trainer, and score its replies again afterwards.

    Args:
        trainer: Counts on by one.
        amend: Adds what the rule needs, such as labels, to the rows before credit is given.
    """
    from rolecraft.learning.credit import NoSignalWarning

    starts = trainer.starts()
    episodes = trainer.collect(starts)
    rows = trainer.rows(episodes, starts)
    rows = amend(rows, episodes) if amend else rows
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoSignalWarning)  # counted in the curves
        credit = rows.credit(trainer.credit, trainer.state)
    figures = {**trainer.describe(rows, credit, episodes), **trainer.update(rows, credit)}
    trainer.state = credit.state
    trainer.iteration += 1
    shift = shifts(trainer.policies, rows.replies, rows.policies, rows.batch.token["logp_old"], rows.batch.mask)
    return Taught(episodes, rows, credit, shift, figures)


def shifts(
    policies: Mapping[str, TokenPolicy],
    replies: Sequence[Reply],
    names: Sequence[str],
    logp_old: Floats,
    mask: NDArray[np.bool_],
    micro: int = 16,
) -> Floats:
    """Return how far the log-probability of each token under `mask` has moved since `logp_old`, shape (N, T)."""
    from rolecraft.learning.trainer import score_all

    now = logp_old.copy()
    for name, policy in policies.items():
        own = [row for row, each in enumerate(names) if each == name]
        if own:
            now[own] = score_all(policy, [replies[row] for row in own], mask.shape[1], micro)[0].double().numpy()
    return np.where(mask, now - logp_old, 0.0)


def products(a: Floats, b: Floats) -> Floats:
    """Return the products of two standardised columns, shape (N,), whose mean is Pearson's r; 0 if one is constant."""

    def standard(values: Floats) -> Floats:
        spread = values.std()
        return (values - values.mean()) / spread if spread > 1e-12 else np.zeros_like(values)

    return standard(a) * standard(b)


def distinct_share(texts: Sequence[str], size: int = 2) -> float:
    """Return the share of runs of `size` words that are the first of their kind, over all texts; 0 without any."""
    runs = [run for text in texts for words in [text.split()] for run in zip(*(words[n:] for n in range(size)))]  # noqa: B905
    return len(set(runs)) / len(runs) if runs else 0.0


def _row_mean(values: Floats, mask: NDArray[np.bool_]) -> Floats:
    mean: Floats = (values * mask).sum(1) / np.maximum(mask.sum(1), 1)
    return mean
