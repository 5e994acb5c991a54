"""The heavy half of the FrozenLake study of 040: data, counted arms, fitted arms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import jax
import numpy as np
from jax import numpy as jnp

from rolecraft._run import derive_seed
from rolecraft.control._doc import DoC, DoCConfig, draw_plans, fit_doc, to_device
from rolecraft.control._doc_data import (
    Episodes,
    count_policy,
    exact_returns,
    frozen_lake,
    join_episodes,
    sample_episodes,
)
from rolecraft.control.tabular import Mdp, value_iteration

if TYPE_CHECKING:
    from rolecraft.systems.control.doc import FrozenLakeConfig

Figures = dict[str, float]


def lake_data(config: FrozenLakeConfig, world: str, slip: float) -> tuple[Mdp, dict[int, Episodes]]:
    """Return the lake and each seed's episodes under the mixture of the plan and uniform actions."""
    mdp = frozen_lake(slip)
    plan, anything = value_iteration(mdp).policy, mdp.uniform_policy()
    planned = max(1, min(config.episodes - 1, round(config.alpha * config.episodes)))
    parts = [(plan, planned), (anything, config.episodes - planned)]
    if config.mixture == "step":
        parts = [(config.alpha * plan + (1 - config.alpha) * anything, config.episodes)]
    episodes = {}
    for seed in config.seeds:
        rng = np.random.default_rng(derive_seed("doc", seed, world))
        episodes[seed] = join_episodes([sample_episodes(mdp, policy, n, config.horizon, rng) for policy, n in parts])
    return mdp, episodes


def count_rows(config: FrozenLakeConfig, mdp: Mdp, data: Episodes) -> dict[str, Figures]:
    """Return the rows of cloning, which promises the data's mean, and of conditioning on the best return, 1."""
    everything = np.ones(len(data.returns), bool)
    rows = {}
    for arm, kept, promised in (("bc", everything, float(data.returns.mean())), ("dt", data.returns == 1, 1.0)):
        got = float(exact_returns(mdp, count_policy(data, kept), config.horizon))
        rows[arm] = {"achieved": got, "promised": promised, "gap": abs(got - promised)}
    return rows


def fit_rows(config: FrozenLakeConfig, arm: str, mdp: Mdp, episodes: Mapping[int, Episodes]) -> dict[int, Figures]:
    """Fit an arm on several seeds at once and take the latent that promises most; the return is that of keeping it."""
    if not episodes:
        return {}
    weight = {"vae": 0.0, "doc": config.information, "as-released": 1.0}[arm]
    mode = "as_released" if arm == "as-released" else "min-max"
    model = DoC(DoCConfig(mode=mode, information=weight, updates=config.updates), mdp.states, mdp.actions)  # type: ignore[arg-type]
    data = jax.tree.map(lambda *leaves: jnp.stack(leaves), *map(to_device, episodes.values()))
    keys = jnp.stack([jax.random.key(derive_seed("doc", seed, arm) % 2**31) for seed in episodes])
    parts, found = fit_doc(model, data, keys)
    rows: dict[int, Figures] = {}
    for i, seed in enumerate(episodes):
        plans = draw_plans(
            model, jax.tree.map(lambda leaf, i=i: leaf[i], parts), jnp.asarray(mdp.start),
            jax.random.key(derive_seed("doc", seed, arm, "plans") % 2**31), config.samples,
        )  # fmt: skip
        returns, best = exact_returns(mdp, plans.policies, config.horizon), plans.nearest()
        rows[seed] = {
            "achieved": float(returns[best]), "promised": float(plans.values[best]),
            "gap": float(abs(returns[best] - plans.values[best])),
            "gap_all": float(np.abs(returns - plans.values).mean()),
        } | {name: float(values[i]) for name, values in found.items()}  # fmt: skip
    return rows
