"""Roles as restricted sets of actions, found by clustering actions by their effects (RODE, arXiv 2010.01523)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rolecraft.errors import UserError, did_you_mean

Masks = NDArray[np.bool_]
Rule = Callable[[Masks], Masks]
"""From the clusters' masks (k, actions) to the roles' masks (R, actions)."""
FEWEST = 3
"""Roles of the SMAC rule at least, and roles before any are found."""


class RoleSpec(NamedTuple):
    """R roles over a set of actions; row j is role j."""

    mask: Masks
    """(R, actions): which actions a role has."""
    latent: NDArray[np.float32]
    """(R, d): the mean of the latents of the role's actions."""


def identity_rule(masks: Masks) -> Masks:
    """Take every cluster as a role."""
    return masks


def smac_rule(ignored: Sequence[int] = (0, 1), basic: int = 6, always: int = 0) -> Rule:
    """Return the published clean-up for StarCraft, whose first six actions are no-op, stop and four moves.

    Of a cluster the `ignored` actions do not count. One with two others stays as it is, one with three or more gets all
    basic actions, smaller ones are dropped. `always` is added to every role. Where fewer than three roles are left,
    the first two follow once more (one role three times, or two twice).

    Args:
        ignored: Actions that do not count.
        basic: The first so many actions are basic ones.
        always: An action that every role has.
    """

    def rule(masks: Masks) -> Masks:
        masks = np.asarray(masks, bool)
        if masks.shape[1] < max(basic, always + 1, *(a + 1 for a in ignored)):
            raise UserError(
                f"the clean-up rule needs {basic} basic actions, the world has {masks.shape[1]} actions; "
                "use rule='identity'."
            )
        kept = []
        for mask in masks:
            others = int(mask.sum() - mask[list(ignored)].sum())
            if others < 2:
                continue
            role = mask.copy()
            if others > 2:
                role[list(ignored)] = False
                role[:basic] = True
            role[always] = True
            kept.append(role)
        if not kept:
            raise UserError(
                f"the clean-up rule drops all {len(masks)} clusters: none has two actions beside {list(ignored)}; "
                "lower clusters or use rule='identity'."
            )
        if len(kept) < FEWEST:
            kept.append(kept[0])
            kept.append(kept[1])
        return np.stack(kept)

    return rule


RULES: dict[str, Rule] = {
    "identity": identity_rule,
    "smac": smac_rule(),
    "smax": smac_rule(ignored=(4,), basic=5, always=4),
}
"""Clean-up rules by name; `smax` is the published one for SMAX, whose first five actions are four moves and stop."""


def make_rule(rule: str | Rule) -> Rule:
    """Return a clean-up rule by name, or the one given.

    Raises:
        UserError: If the name is unknown.
    """
    if not isinstance(rule, str):
        return rule
    if rule not in RULES:
        raise UserError(f"there is no clean-up rule {rule!r}; expected {', '.join(RULES)}.{did_you_mean(rule, RULES)}")
    return RULES[rule]


def cluster_actions(latents: ArrayLike, k: int) -> NDArray[np.int64]:
    """Return the k-means cluster of each action, (actions,), from latents (actions, d); always the same for the same.

    Raises:
        UserError: If the latents have another shape or are not finite, or there are fewer distinct ones than clusters.
    """
    from sklearn.cluster import KMeans

    array = np.asarray(latents, float)
    if array.ndim != 2 or not len(array):
        raise UserError(f"action latents have shape {array.shape}, expected (actions, d).")
    if not np.isfinite(array).all():
        raise UserError("action latents hold NaN or infinity; lower the encoder's learning rate.")
    distinct = len(np.unique(array, axis=0))
    if not 1 <= k <= distinct:
        raise UserError(
            f"clusters must be 1 to the number of distinct action latents, {distinct}, got k = {k}; give fewer."
        )
    found: NDArray[np.int64] = KMeans(k, n_init=10, random_state=0).fit(array).labels_.astype(np.int64)
    return found


def discover_roles(
    latents: ArrayLike,
    k: int,
    *,
    rule: str | Rule = "identity",
    visits: ArrayLike | None = None,
    minimum: int = 30,
    force: bool = False,
    shuffle: int | None = None,
) -> RoleSpec:
    """Cluster actions by their latents, and make a role of each cluster.

    Args:
        latents: (actions, d), of `ActionEffects.latents`.
        k: Clusters; paper: 2 to 5.
        rule: The clean-up: `identity`, `smac`, `smax`, or a function.
        visits: (actions,): how often each was tried. The latent of an action that was hardly ever tried is arbitrary.
        minimum: Refuse actions tried less often.
        force: Take them all the same.
        shuffle: Seed; deals the clusters out at random among the actions, a control.

    Raises:
        UserError: If an action was tried too seldom, `cluster_actions` refuses, or the rule leaves no role or an empty
            one.
    """
    array = np.asarray(latents, np.float32)
    if visits is not None and not force:
        _check_visits(np.asarray(visits), len(array), minimum)
    label = cluster_actions(array, k)
    if shuffle is not None:
        label = np.random.default_rng(shuffle).permutation(label)
    mask = np.asarray(make_rule(rule)(label == np.arange(k)[:, None]), bool)
    if mask.ndim != 2 or mask.shape[1] != len(array) or not len(mask):
        raise UserError(f"the clean-up rule gave masks {mask.shape}, expected (R, actions) = (R, {len(array)}).")
    if not mask.any(1).all():
        raise UserError(f"the clean-up rule left role {int(np.argmin(mask.any(1)))} without an action.")
    return RoleSpec(mask, role_latents(mask, array))


def _check_visits(visits: NDArray[Any], actions: int, minimum: int) -> None:
    if visits.shape != (actions,):
        raise UserError(f"visits have shape {visits.shape}, expected (actions,) = ({actions},).")
    seldom = np.flatnonzero(visits < minimum)
    if len(seldom):
        counts = ", ".join(f"{a}: {int(visits[a])}" for a in seldom)
        raise UserError(
            f"actions tried less than {minimum} times ({counts}) have arbitrary latents; play longer at random, lower "
            "the minimum, or set force=True."
        )


def role_latents(mask: ArrayLike, latents: ArrayLike) -> NDArray[np.float32]:
    """Return the mean latent of each role's actions, (R, d)."""
    weight = np.asarray(mask, np.float32)
    mean: NDArray[np.float32] = weight @ np.asarray(latents, np.float32) / weight.sum(1, keepdims=True)
    return mean


def likeness(like: Sequence[int | Sequence[int]], actions: int) -> NDArray[np.float32]:
    """Return the matrix that makes a quantity of new actions from that of old ones, rows of means, (new, actions).

    Args:
        like: For each action of the new world the old action that it is, or the old ones of its type.
        actions: Of the old world.

    Raises:
        UserError: If an action is like none, or like one that does not exist.
    """
    matrix = np.zeros((len(like), actions), np.float32)
    for new, old in enumerate(like):
        known = [old] if isinstance(old, int | np.integer) else list(old)
        if not known or not all(0 <= a < actions for a in known):
            raise UserError(f"like[{new}] = {old!r}: expected one or more of the old actions 0 to {actions - 1}.")
        matrix[new, known] = 1 / len(known)
    return matrix


def extend_roles(
    spec: RoleSpec, latents: ArrayLike, like: Sequence[int | Sequence[int]]
) -> tuple[RoleSpec, NDArray[np.float32]]:
    """Carry roles over to a world with other actions, without learning.

    An action that is an old one keeps its latent and its roles. An unseen one gets the mean latent of the old actions
    of its type, and joins the role whose latent is nearest. Roles keep their latents.

    Args:
        spec: The old world's roles.
        latents: (actions, d), the old world's.
        like: For each new action the old one that it is (a number), or the old ones of its type (numbers).

    Returns:
        The new world's roles, and its action latents (new actions, d).

    Raises:
        UserError: If shapes do not fit, or an action is like none.
    """
    old = np.asarray(latents, np.float32)
    if spec.mask.shape != (len(spec.latent), len(old)) or spec.latent.shape[1] != old.shape[1]:
        raise UserError(
            f"roles with masks {spec.mask.shape} and latents {spec.latent.shape} do not fit action latents "
            f"{old.shape}; expected (R, actions), (R, d) and (actions, d)."
        )
    new = likeness(like, len(old)) @ old
    return RoleSpec(assign_roles(spec, new, like), spec.latent), new


def assign_roles(spec: RoleSpec, latents: ArrayLike, like: Sequence[int | Sequence[int]]) -> Masks:
    """Return the masks (R, new actions) of new actions with given latents; see `extend_roles`."""
    gap = np.square(np.asarray(latents)[None] - spec.latent[:, None]).sum(-1)
    mask = np.arange(len(spec.latent))[:, None] == gap.argmin(0)
    for new, old in enumerate(like):
        if isinstance(old, int | np.integer):
            mask[:, new] = spec.mask[:, old]
    return np.asarray(mask, bool)


__all__ = [
    "RULES", "RoleSpec", "Rule", "assign_roles", "cluster_actions", "discover_roles", "extend_roles", "identity_rule",
    "likeness", "make_rule", "role_latents", "smac_rule",
]  # fmt: skip
