"""Taking RODE's policies to a world with more agents and other actions, without learning (arXiv 2010.01523)."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from rolecraft.errors import UserError
from rolecraft.marl._rode import RodeLearner
from rolecraft.marl._rode_net import held, with_held
from rolecraft.marl._rode_roles import RoleSpec, assign_roles, extend_roles, likeness
from rolecraft.marl._team import TeamEnv


def transfer_rode(
    learner: RodeLearner,
    params: Any,
    env: TeamEnv,
    like: Sequence[int | Sequence[int]],
    *,
    latents: Any = None,
) -> tuple[RodeLearner, Any]:
    """Carry a trained team over to another world: more agents, other actions, the same observations.

    As published, an unseen action gets the mean latent of the known actions of its type and joins the nearest role; all
    networks stay. Agents see their last action in terms of the known ones (our choice: the paper does not say).

    Args:
        learner: What was trained; its settings are kept.
        params: Of one seed.
        env: The other world. Its observations, and what the networks are told of an agent, must have the same length:
            train with `roles="none"` where the number of agents differs.
        like: For each action of `env` the known action that it is (a number), or the known ones of its type (numbers).
        latents: (actions, d), other latents than the means: for controls.

    Returns:
        A learner for `env`, for its `policy` or to learn on, and parameters for it. Mixers are new: they depend on the
        number of agents, and acting needs none.

    Raises:
        UserError: If the observations' lengths differ, or `like` does not name a known action for every action.
    """
    if len(like) != env.actions:
        raise UserError(f"like names {len(like)} actions, {env.name} has {env.actions}; name what each is like.")
    config = learner.config
    # The clean-up has been done: no rule may ask for actions that the new world lacks.
    other = RodeLearner(env, dataclasses.replace(config, rule="identity"), likeness(like, learner.env.actions))
    if other._size != learner._size:
        raise UserError(
            f"{env.name}: agents see {other._size} numbers (observation, last action, agent), the trained networks "
            f"take {learner._size}; use a world with observations of the same length, and roles='none'."
        )
    spec, roles = learner.spec(params), held(params["net"])
    new, made = extend_roles(spec, roles.action, like)
    if latents is not None:
        made = np.asarray(latents, np.float32)
        if made.shape != (env.actions, config.latent):
            raise UserError(
                f"latents have shape {made.shape}, expected (actions, d) = ({env.actions}, {config.latent})."
            )
        new = RoleSpec(assign_roles(spec, made, like), spec.latent)
    key = jax.random.PRNGKey(0)
    fresh = {
        name: other.mixer.init(jax.random.fold_in(key, at), other.n, env.world_size)
        for at, name in enumerate(("mixer", "role_mixer"))
    }
    return other, {"net": with_held(params["net"], other.fill(new, made)), **fresh}


__all__ = ["transfer_rode"]
