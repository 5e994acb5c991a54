import numpy as np
import pytest

from rolecraft._run import RunStore
from rolecraft.conditioning import Intervention, Steering
from rolecraft.conditioning._granularity import (
    RoleVectors,
    axis_direction,
    check_levels,
    contrast,
    halves,
    held_out,
    principal,
    project,
    role_vectors,
)
from rolecraft.errors import ExtractionError, SteeringShapeError, UserError
from rolecraft.measures import spearman
from rolecraft.measures._scale import scale_of
from rolecraft.models import chat
from rolecraft.roles import Role
from rolecraft.systems import Result
from rolecraft.systems.conditioning import _granularity_collect as collecting
from rolecraft.systems.conditioning import granularity_axis as ga
from rolecraft.testing import tiny_model

LEVELS = np.repeat([1, 2, 3, 4, 5], 6)


def planted(signal: float, seed: int = 0, size: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Role vectors whose level lies on one known axis, in noise of deviation 1; the axis is returned too."""
    generator = np.random.default_rng(seed)
    axis = generator.standard_normal(size)
    axis /= np.linalg.norm(axis)
    return generator.standard_normal((len(LEVELS), size)) + signal * LEVELS[:, None] * axis, axis


def a_role(number: int, level: int | None) -> Role:
    return Role(id=f"role-{number}", name=f"Role {number}", description="You are one.", level=level)


def test_a_planted_axis_is_found_and_orders_roles_it_was_not_built_from():
    vectors, axis = planted(2.0)
    found = contrast(vectors, LEVELS)
    assert found @ axis / np.linalg.norm(found) > 0.85
    scores = held_out(vectors, LEVELS, halves(LEVELS, 0))
    assert spearman(scores, LEVELS).r > 0.9
    pc1 = principal(vectors, LEVELS)
    assert pc1.signed
    assert pc1.vector @ axis > 0.9, "the sign is set by the levels"
    assert pc1.share > 0.1
    assert (principal(-vectors, LEVELS).vector @ axis) < -0.9


def test_without_a_planted_axis_held_out_ranks_are_at_chance():
    ranks = []
    for seed in range(20):
        vectors, _ = planted(0.0, seed)
        ranks.append(spearman(held_out(vectors, LEVELS, halves(LEVELS, seed)), LEVELS).r)
    assert abs(np.mean(ranks)) < 0.2


def test_halves_share_every_level():
    first = halves(LEVELS, 3)
    assert [int(first[level == LEVELS].sum()) for level in (1, 2, 3, 4, 5)] == [3] * 5
    assert (halves(LEVELS, 3) == first).all()
    assert (halves(LEVELS, 4) != first).any()


def test_a_given_axis_is_only_signed_by_the_other_half():
    vectors, axis = planted(2.0)
    first = halves(LEVELS, 0)
    np.testing.assert_allclose(held_out(vectors, LEVELS, first, axis), held_out(vectors, LEVELS, first, -axis))


def test_levels_that_cannot_be_used_are_refused():
    with pytest.raises(UserError, match="role-1' has no level"):
        check_levels([a_role(0, 1), a_role(1, None)])
    with pytest.raises(UserError, match="two levels"):
        check_levels([a_role(0, 1), a_role(1, 1)])
    twice = a_role(0, 5).edited(id="other")
    with pytest.raises(UserError, match=r"more than once \(levels 1, 5\)"):
        check_levels([a_role(0, 1), twice])


def test_ends_that_cannot_be_used_are_refused():
    vectors, _ = planted(1.0)
    with pytest.raises(UserError, match=r"levels \[2\] stand at both ends"):
        contrast(vectors, LEVELS, (2, 5), (1, 2))
    with pytest.raises(UserError, match=r"no role of level \[5\]"):
        contrast(vectors[LEVELS < 5], LEVELS[LEVELS < 5])
    with pytest.raises(ExtractionError, match="zero or not finite"):
        contrast(np.ones((30, 4)), LEVELS)


def test_roles_with_few_replies_are_dropped_and_silent_ones_refused():
    roles = [a_role(n, n + 1) for n in range(3)]
    means = {role.id: np.full((2, 4), float(role.level)) for role in roles}
    found = role_vectors(roles, means, {"role-0": 5, "role-1": 2, "role-2": 5}, 3, min_count=4)
    assert found.dropped == ("role-1",)
    assert found.levels.tolist() == [1, 3]
    assert found.empty == 3
    with pytest.raises(ExtractionError, match="'role-1' has only empty replies"):
        role_vectors(roles, means, {"role-0": 5, "role-1": 0, "role-2": 5}, 3)


@pytest.fixture(scope="module")
def model():
    return tiny_model()


def tiny_vectors(model) -> RoleVectors:
    vectors, _ = planted(1.0, size=model.n_sites * model.hidden)
    roles = tuple(a_role(n, int(level)) for n, level in enumerate(LEVELS))
    return RoleVectors(roles, LEVELS, vectors.reshape(len(LEVELS), model.n_sites, model.hidden), (4,) * 30, 0, ())


def test_the_axis_reads_what_steering_writes(model):
    """Moving a reply by 2 along the unit axis at its site raises its projection by 2."""
    axis = axis_direction(model, tiny_vectors(model))
    site = axis.manifest.site
    unit = axis.select([site]).unit()
    chats, replies = [chat("Who are you?")] * 2, ["A tenant.", ""]
    before = project(axis, model, chats, replies)
    assert before[1] is None, "an empty reply has no state"
    steering = Steering.uniform([unit.steer(2.0, positions="all")], 1)
    ((_, moved),) = model.activations(chats[:1], replies[:1], [site], steering=steering)
    assert float(moved[0] @ unit.at(site)) - before[0] == pytest.approx(2, abs=1e-3)
    with pytest.raises(SteeringShapeError, match="does not fit this model"):
        project(axis, tiny_model(hidden=16), chats, replies)
    with pytest.raises(SteeringShapeError, match="no vector at site 9"):
        axis_direction(model, tiny_vectors(model), site=9)


def test_controls_of_the_axis_are_units_and_differ(model):
    found = tiny_vectors(model)
    default = found.vectors.mean(0) + 1
    axes = ga.steering_axes(model, found, default, None, seed=1)
    assert [round(axis.norm(), 5) for axis in axes.values()] == [1, 1, 1]
    assert axes["axis"].cosine(axes["random"]) < 0.6
    away = (default - found.vectors.mean(0))[axes["axis"].manifest.site]
    assert axes["assistant"].at() @ away == pytest.approx(np.linalg.norm(away), rel=1e-4)


def test_the_scale_of_a_text():
    assert scale_of("Our government sets national policy") == pytest.approx(2 / 5)
    assert scale_of("I lost my keys") == pytest.approx(-2 / 4)
    assert np.isnan(scale_of("..."))


def test_prompts_name_the_role_and_only_one_the_level():
    role = Role(id="dean", name="Dean", description="You run a faculty.", level=3)
    texts = [collecting.system_text(role, variant) for variant in range(5)]
    assert all("a Dean" in text and "You run a faculty." in text for text in texts)
    assert [("organization" in text) for text in texts] == [False, False, True, False, False]
    assert collecting.system_text(role, 0, name_only=True) == "You are a Dean."


def test_roles_and_questions_of_the_study():
    roles = collecting.select_roles("core-v1", 6)
    assert [role.level for role in roles] == [1, 2, 3, 4, 5] * 6
    assert all(len({role.ladder for role in roles[n : n + 5]}) == 1 for n in range(0, 30, 5))
    assert len(collecting.select_roles("core-v1", 0)) == 75
    blocks = [collecting.study_questions(4, place, micro=False) for place in range(3)]
    blocks.append(collecting.study_questions(12, 0, micro=True))
    assert len({text for block in blocks for text in block}) == 24, "no question twice"
    with pytest.raises(UserError, match="ladders: 11 were asked for"):
        collecting.select_roles("core-v1", 11)
    with pytest.raises(UserError, match="more than the 39"):
        collecting.study_questions(12, 3, micro=True)


@pytest.fixture
def tiny_studies(monkeypatch, model, hashed_embedder):
    monkeypatch.setattr(ga, "load_local", lambda spec: model)


SMALL = {"seeds": (0,), "ladders": 2, "variants": 1, "questions": 1, "max_tokens": 3, "min_count": 1}


def test_the_geometry_study_runs_and_resumes(tmp_path, tiny_studies, monkeypatch):
    config = ga.GeometryConfig(**SMALL, permutations=20, random_axes=4)
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        result = ga.run_geometry(config, store)
        monkeypatch.setattr(ga, "collect_roles", lambda *a, **k: pytest.fail("collected twice"))
        assert ga.run_geometry(config, store).rows == result.rows
        assert store.count("responses") == 2 * (10 + 1)
    verdict = ga.verdict_geometry(result)
    assert verdict.verdict != "reproduced", "a random model orders nothing"
    assert verdict.effect.n == 10
    assert result.mean("cos_pc1", "name-axis").estimate <= 1


def test_the_steering_study_runs(tmp_path, tiny_studies):
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        result = ga.run_steering(ga.SteeringConfig(**SMALL, prompts=3, shares=(0.2,), answer_tokens=8), store)
    assert set(result.arms) == {"done", "base", *(f"{a}{s}0.2" for a in ("axis", "random", "assistant") for s in "+-")}
    assert all(row["terms"] is None for row in result.rows if row.get("degenerate") == 1)
    with pytest.raises(UserError, match="shares"):
        ga.SteeringConfig(shares=(0.0,))


def geometry_rows(signal: float) -> Result:
    rows = []
    for seed in range(3):
        vectors, _ = planted(signal, seed)
        scores = held_out(vectors, LEVELS, halves(LEVELS, seed))
        means = {f"mean_{level}": float(scores[level == LEVELS].mean()) for level in range(1, 6)}
        figures = {"rank": spearman(scores, LEVELS).r, "null_95": 0.35, "cos_pc1": 0.9, "pc1_share": 0.4}
        rows.append({"arm": "profile-axis", "seed": seed, "default_level": 3.0, **figures, **means})
        for arm in ("profile", "name", "text"):
            rows += [
                {"arm": arm, "seed": seed, "unit": f"r{n}", "level": int(level), "projection": float(score)}
                for n, (level, score) in enumerate(zip(LEVELS, scores, strict=True))
            ]
        rows += [{"arm": "random", "seed": seed, "unit": f"axis-{n}", "rank": 0.1 * (n % 3)} for n in range(9)]
    return Result(tuple(rows))


def test_the_verdict_on_geometry_follows_the_truth():
    assert ga.verdict_geometry(geometry_rows(2.0)).verdict == "reproduced"
    assert ga.verdict_geometry(geometry_rows(0.0)).verdict == "not reproduced"


def steering_rows(axis: float, random: float) -> Result:
    generator = np.random.default_rng(0)
    rows = []
    for n in range(36):
        for arm, shift in (
            ("base", 0.0), ("axis+0.2", axis), ("axis-0.2", -axis), ("random+0.2", random), ("assistant+0.2", 0.0),
        ):  # fmt: skip
            broken = n == 0 and arm == "axis+0.2"
            value = float(generator.normal()) * 0.1 + shift
            rows.append(
                {"arm": arm, "seed": n % 3, "unit": f"q{n}", "degenerate": float(broken), "alpha": 2.0,
                 "terms": None if broken else value, "margin": None if broken else value}
            )  # fmt: skip
    return Result(tuple(rows))


def test_the_verdict_on_steering_follows_the_truth():
    moved = ga.verdict_steering(steering_rows(0.5, 0.0))
    assert moved.verdict == "reproduced"
    assert moved.effect.n == 35, "a degenerate answer does not count"
    assert "axis+0.2 3%" in moved.note
    assert ga.verdict_steering(steering_rows(0.0, 0.0)).verdict == "not reproduced"
    assert ga.verdict_steering(steering_rows(0.5, 0.5)).verdict == "not reproduced", "random moves it as far"


def test_the_axis_cannot_be_applied_as_a_zero_vector():
    with pytest.raises(SteeringShapeError, match="not zero"):
        Intervention(np.zeros(4, dtype=np.float32), 1.0, 0)
