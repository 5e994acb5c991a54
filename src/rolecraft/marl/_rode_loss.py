"""What RODE fits: one-step values of actions, and values of roles over windows of several steps (arXiv 2010.01523)."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax import numpy as jnp

from rolecraft.marl._mixers import Mixer
from rolecraft.marl._networks import best
from rolecraft.marl._qlearn import lambda_returns
from rolecraft.marl._rode_net import Look, action_values, held


class RodeStretch(NamedTuple):
    """Stretches of play with the roles in force; fields as in `Stretch` first."""

    obs: jax.Array
    avail: jax.Array
    world: jax.Array
    fresh: jax.Array
    role: jax.Array
    """(T + 1, n)"""
    chosen: jax.Array
    """(T + 1,) bool: roles were chosen at this step, the first one of its window."""
    action: jax.Array
    reward: jax.Array
    done: jax.Array


def window_returns(
    reward: jax.Array, done: jax.Array, chosen: jax.Array, following: jax.Array, gamma: float
) -> tuple[jax.Array, jax.Array]:
    """Return the role selector's targets: sum_{k<c} r_{t+k} + gamma (1 - d) V_{t+c}.

    As published, there is no discount within a window. A window begins where roles are chosen and ends before the next
    choice; one that ends an episode is shorter.

    Args:
        reward: (T, ..., 1)
        done: (T, ..., 1), 0 or 1.
        chosen: (T + 1, ...) bool.
        following: (T, ..., m): V_{t+1}, the value of what follows step t.
        gamma: Discount.

    Returns:
        Targets (T, ..., m), of use where roles are chosen; and whether the window that holds step t is whole, (T, ...).
    """

    def back(carry: Any, now: Any) -> tuple[Any, Any]:
        total, tail, whole = carry
        reward, done, ends, value = now
        last = ends[..., None]
        total = reward + jnp.where(last, 0.0, total)
        tail = jnp.where(last, (1.0 - done) * value, tail)
        whole = ends | whole
        return (total, tail, whole), (total + gamma * tail, whole)

    start = (jnp.zeros_like(reward[0]), jnp.zeros_like(following[0]), jnp.zeros(chosen.shape[1:], bool))
    _, found = jax.lax.scan(back, start, (reward, done, chosen[1:], following), reverse=True)
    target, whole = found
    return target, whole


def rode_losses(
    mixer: Mixer, online: Look, fixed: Look, params: Any, target: Any, data: RodeStretch, gamma: float, double: bool
) -> dict[str, jax.Array]:
    """Return the losses of actions and of roles, whose sum is fitted.

    Actions: mean (r_t + gamma Q_tot'(t + 1) - Q_tot(t))^2 under the roles in force, the next action chosen among all
    available ones: the roles' masks are for acting only. Roles: the same over windows; see `window_returns`. Moments
    with a role that there is no longer, and windows that the stretch cuts off, do not count.

    Args:
        mixer: Of both; each has its own parameters.
        online: What the networks make of the stretches.
        fixed: What the target networks make of them.
        params: With `net`, `mixer` and `role_mixer`.
        target: The same of the targets.
        data: Leaves (T, B, ...) and (T + 1, B, ...).
        gamma: Discount.
        double: Choose by the online networks, and value by the targets.

    Returns:
        `loss` and `role_loss`, () each.
    """
    roles = held(params["net"])
    known = (roles.real[data.role] > 0).all(-1)
    reward, done = data.reward[..., None], data.done[..., None].astype(jnp.float32)

    def bound(chooser: jax.Array, valued: jax.Array, avail: jax.Array, own: Any) -> jax.Array:
        greedy = best(jax.lax.stop_gradient(chooser), avail)
        following = jnp.take_along_axis(valued, greedy[..., None], -1)[..., 0]
        return mixer.mix(own, following, data.world[1:])

    def taken(values: jax.Array, which: jax.Array, own: Any) -> jax.Array:
        chosen = jnp.take_along_axis(values, which[..., None], -1)[..., 0]
        return mixer.mix(own, chosen, data.world[:-1])

    def mean(y: jax.Array, mixed: jax.Array, counts: jax.Array) -> jax.Array:
        error = jnp.square(jax.lax.stop_gradient(y) - mixed)
        return (error * counts[..., None]).sum() / jnp.maximum(counts.sum(), 1)

    mine = action_values(online.keys, data.role, roles.action)
    theirs = action_values(fixed.keys, data.role, held(target["net"]).action)
    chooser = mine if double else theirs
    following = bound(chooser[1:], theirs[1:], data.avail[1:], target["mixer"])
    y = lambda_returns(reward, done, following, gamma, 0.0)
    mixed = taken(mine[:-1], data.action, params["mixer"])
    chooser = online.role if double else fixed.role
    following = bound(chooser[1:], fixed.role[1:], jnp.ones_like(chooser[1:], bool), target["role_mixer"])
    role_y, whole = window_returns(reward, done, data.chosen, following, gamma)
    # A role that there is no longer has a huge negative value: keep it out of the mixer.
    safe = jnp.where(known[:-1, :, None], data.role[:-1], 0)
    role_mixed = taken(online.role[:-1], safe, params["role_mixer"])
    return {
        "loss": mean(y, mixed, known[:-1] & known[1:]),
        "role_loss": mean(role_y, role_mixed, data.chosen[:-1] & whole & known[:-1]),
    }


__all__ = ["RodeStretch", "rode_losses", "window_returns"]
