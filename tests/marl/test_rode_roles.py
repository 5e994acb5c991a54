from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")
pytest.importorskip("jax")

from rolecraft.errors import UserError
from rolecraft.marl._rode_roles import (
    RoleSpec,
    cluster_actions,
    discover_roles,
    extend_roles,
    likeness,
    role_latents,
    smac_rule,
)

LATENTS = np.array([[0.0, 0], [0.1, 0], [0, 0.1], [5, 5], [5, 5.1], [5.1, 5]])
"""Two groups of three."""


def masks(actions: int, *groups: tuple[int, ...]) -> Any:
    return np.array([[a in group for a in range(actions)] for group in groups])


def sets(mask: Any) -> list[list[int]]:
    return [np.flatnonzero(row).tolist() for row in mask]


def test_the_smac_rule_cleans_up_as_published() -> None:
    rule = smac_rule()
    # Two others than 0 and 1: kept, with 0. Three or more: all six basic ones. Fewer: dropped.
    found = rule(masks(11, (0, 2, 3), (1, 6, 7, 8), (4,), (5, 9), (10, 0, 1)))
    assert sets(found) == [[0, 2, 3], [0, 1, 2, 3, 4, 5, 6, 7, 8], [0, 5, 9]]
    two = rule(masks(9, (0, 1, 2, 3, 4, 5), (6, 7)))
    assert sets(two) == [[0, 1, 2, 3, 4, 5], [0, 6, 7]] * 2
    assert sets(rule(masks(8, (0, 1), (6, 7, 2)))) == [[0, 1, 2, 3, 4, 5, 6, 7]] * 3
    with pytest.raises(UserError, match=r"drops all 2 clusters.*lower clusters or use rule='identity'"):
        rule(masks(8, (0, 1), (6,)))
    with pytest.raises(UserError, match="needs 6 basic actions, the world has 4"):
        rule(masks(4, (0, 1), (2, 3)))


def test_roles_are_the_planted_groups_with_mean_latents() -> None:
    spec = discover_roles(LATENTS, 2)
    assert sorted(sets(spec.mask)) == [[0, 1, 2], [3, 4, 5]]
    for row, latent in zip(spec.mask, spec.latent, strict=True):
        np.testing.assert_allclose(latent, LATENTS[row].mean(0), atol=1e-6)
    np.testing.assert_allclose(role_latents([[1, 1, 0]], np.eye(3)), [[0.5, 0.5, 0]])
    dealt = [discover_roles(LATENTS, 2, shuffle=seed).mask for seed in range(20)]
    assert all(sorted(mask.sum(1)) == [3, 3] and (mask.sum(0) == 1).all() for mask in dealt)
    assert len({mask.tobytes() for mask in dealt}) > 5
    taken = discover_roles(LATENTS, 2, rule=lambda found: found | True)
    assert taken.mask.all()


def test_actions_hardly_tried_and_too_many_clusters_are_refused() -> None:
    visits = [100, 100, 100, 100, 29, 100]
    with pytest.raises(UserError, match=r"actions tried less than 30 times \(4: 29\).*force=True"):
        discover_roles(LATENTS, 2, visits=visits)
    assert len(discover_roles(LATENTS, 2, visits=visits, minimum=29).mask) == 2
    assert len(discover_roles(LATENTS, 2, visits=visits, force=True).mask) == 2
    with pytest.raises(UserError, match=r"visits have shape \(2,\), expected \(actions,\) = \(6,\)"):
        discover_roles(LATENTS, 2, visits=[1, 2])
    with pytest.raises(UserError, match="number of distinct action latents, 2, got k = 3"):
        cluster_actions([[0.0], [0.0], [1.0]], 3)
    with pytest.raises(UserError, match="NaN or infinity"):
        cluster_actions([[0.0], [np.nan]], 1)
    with pytest.raises(UserError, match=r"shape \(3,\), expected \(actions, d\)"):
        cluster_actions([0.0, 1.0, 2.0], 1)
    with pytest.raises(UserError, match=r"no clean-up rule 'smaxx'.*Did you mean 'smax'"):
        discover_roles(LATENTS, 2, rule="smaxx")
    with pytest.raises(UserError, match="left role 1 without an action"):
        discover_roles(LATENTS, 2, rule=lambda found: np.array([[1] * 6, [0] * 6]))
    with pytest.raises(UserError, match=r"masks \(2, 3\), expected \(R, actions\) = \(R, 6\)"):
        discover_roles(LATENTS, 2, rule=lambda found: found[:, :3])


def test_unseen_actions_get_the_mean_latent_of_their_type_and_the_nearest_role() -> None:
    # Action 0 belongs to both roles, as a basic action does after the clean-up.
    mask = np.array([[1, 1, 1, 0, 0, 0], [1, 0, 0, 1, 1, 1]], bool)
    spec = RoleSpec(mask, role_latents(mask, LATENTS))
    like: list[Any] = [0, 1, 2, 3, 4, 5, (3, 4, 5), (1, 2), 5]
    new, latents = extend_roles(spec, LATENTS, like)
    np.testing.assert_allclose(latents[6], LATENTS[3:].mean(0), rtol=1e-6)
    np.testing.assert_allclose(latents[7], [0.05, 0.05], rtol=1e-6)
    np.testing.assert_array_equal(new.mask[:, :6], mask)
    assert new.mask[:, 6:].T.tolist() == [[False, True], [True, False], [False, True]]
    np.testing.assert_array_equal(new.latent, spec.latent)
    same, kept = extend_roles(spec, LATENTS, list(range(6)))
    np.testing.assert_array_equal(same.mask, mask)
    np.testing.assert_allclose(kept, LATENTS, rtol=1e-6)
    np.testing.assert_allclose(likeness([1, (0, 2)], 3), [[0, 1, 0], [0.5, 0, 0.5]])
    for bad in (6, (), (0, -1)):
        with pytest.raises(UserError, match=r"like\[0\] = .*old actions 0 to 5"):
            extend_roles(spec, LATENTS, [bad])
    with pytest.raises(UserError, match=r"do not fit action latents \(5, 2\)"):
        extend_roles(spec, LATENTS[:5], [0])
