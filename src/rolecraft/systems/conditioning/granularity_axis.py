"""Granularity Axis: a direction from micro to macro that orders social roles (arXiv 2605.06196).

Exact: five prompt variants from name and description, reply-mean pooling at every block, role vectors, the contrast of
levels 4 and 5 against 1 and 2, PC1 with its calibrated sign, the four endpoint definitions, held-out roles, the default
assistant's place, h + alpha a/|a| at all positions without a system text, random and assistant axes as controls.
Adapted: SmolLM2-135M for Qwen3-8B and Llama-3.1-8B; half depth for block 18; roles are held out in two halves, each
projected on the other's axis; term ratios and an embedding margin for the GPT-4.1-mini judge; alpha as a share of the
mean state norm. Confounds are reported: prompts with the name alone, and an axis of MiniLM vectors of the descriptions.
Small: `rolecraft systems run granularity-axis` (geometry, then steering). Paper's size: add `--full --set
model=local:PATH` on a GPU (Qwen3-8B: cos(axis, PC1) 0.972, PC1 share 52.6 %).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from rolecraft.conditioning._granularity import (
    ENDPOINTS,
    RoleVectors,
    axis_direction,
    contrast,
    halves,
    held_out,
    principal,
)
from rolecraft.errors import ExtractionError, UserError
from rolecraft.models import load_local
from rolecraft.systems._base import ROWS, Result, System, Verdict, row_key
from rolecraft.systems.conditioning._granularity_collect import CollectConfig, collect_roles, study_questions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from rolecraft._run import RunStore
    from rolecraft.conditioning import Direction, ReadableModel
    from rolecraft.measures import Interval

    Floats = NDArray[np.float64]

SYSTEM = System(
    number=53,
    name="granularity-axis",
    title="The Granularity Axis: A Micro-to-Macro Latent Direction for Social Roles in Language Models",
    arxiv="2605.06196",
    family="conditioning",
    claim="one direction orders roles from individual to nation, also roles it was not built from, and moving along it "
    "changes the social scale of answers",
    published="Qwen3-8B: |cos(axis, PC1)| 0.972, PC1 52.6% of the variance, projections rise over five levels; "
    "steering Llama-3.1-8B: 2.00 -> 3.17 on a five-point macro scale",
)

# (a) Geometry: does one direction order roles it was not built from?


@dataclass(frozen=True)
class GeometryConfig(CollectConfig):
    """Roles on the axis."""

    permutations: int = 200
    """Shuffles of the levels over the roles."""
    random_axes: int = 50
    """Random axes, their sign set on the half that sets the axis's."""


def run_geometry(config: GeometryConfig, store: RunStore) -> Result:
    """Keep a row per seed and role with its held-out projection, per random axis, and one with the seed's figures.

    Arms: `profile` (the paper's prompts), `name` (the role's name alone), `text` (an axis of MiniLM vectors of the
    descriptions, no model of roles at all), `random`.
    """
    from rolecraft.conditioning import default_site
    from rolecraft.models import Embedder

    model = load_local(config.model)
    site = default_site(model) if config.site is None else config.site
    for place, seed in enumerate(config.seeds):
        if not store.missing(ROWS, [row_key("done", seed)]):
            continue
        rows: dict[str, dict[str, Any]] = {}
        for arm in ("profile", "name"):
            found, default = collect_roles(model, config, place, store, name_only=arm == "name")
            rows |= _role_rows(arm, seed, found, found.vectors[:, site])
            figures = geometry(found, default, site, seed, config.permutations)
            rows[row_key(f"{arm}-axis", seed)] = {"arm": f"{arm}-axis", "seed": seed, **figures}
            if arm == "profile":
                texts = Embedder.load().encode([role.description for role in found.roles])
                rows |= _role_rows("text", seed, found, np.asarray(texts, dtype=float))
                rows |= _random_rows(seed, found, found.vectors[:, site], config.random_axes)
        rows[row_key("done", seed)] = {"arm": "done", "seed": seed}
        store.put_many(ROWS, rows)
    return Result.read(store)


def _role_rows(arm: str, seed: int, found: RoleVectors, vectors: Floats) -> dict[str, dict[str, Any]]:
    scores = held_out(vectors, found.levels, halves(found.levels, seed))
    return {
        row_key(arm, seed, role.id): {
            "arm": arm, "seed": seed, "unit": role.id, "level": int(level), "projection": float(score),
        }
        for role, level, score in zip(found.roles, found.levels, scores, strict=True)
    }  # fmt: skip


def _random_rows(seed: int, found: RoleVectors, vectors: Floats, count: int) -> dict[str, dict[str, Any]]:
    from rolecraft.measures import spearman

    rows = {}
    axes = np.random.default_rng(seed).standard_normal((count, vectors.shape[1]))
    for number, axis in enumerate(axes):
        scores = held_out(vectors, found.levels, halves(found.levels, seed), axis)
        row = {"arm": "random", "seed": seed, "unit": f"axis-{number}", "rank": spearman(scores, found.levels).r}
        rows[row_key("random", seed, row["unit"])] = row
    return rows


def geometry(found: RoleVectors, default: Floats, site: int, seed: int, permutations: int) -> dict[str, Any]:
    """Return one seed's figures at a site: ranks and their null, PC1, level means, stability, the default's place."""
    from rolecraft.measures import spearman

    vectors, levels, first = found.vectors[:, site], found.levels, halves(found.levels, seed)
    axes = {name: contrast(vectors, levels, *ends) for name, ends in ENDPOINTS.items()}
    axis = axes["45-12"]
    pc1 = principal(vectors, levels)
    unit = axis / np.linalg.norm(axis)
    scores = held_out(vectors, levels, first)
    generator = np.random.default_rng(seed)
    shuffles = [generator.permutation(levels) for _ in range(permutations)]
    null = [spearman(held_out(vectors, mixed, halves(mixed, seed)), mixed).r for mixed in shuffles]
    by_site = [
        spearman(held_out(found.vectors[:, place], levels, first), levels).r for place in range(found.vectors.shape[1])
    ]
    means = {level: float(scores[levels == level].mean()) for level in np.unique(levels).tolist()}
    ordered = list(means.values())
    where = {level: float((vectors[levels == level] @ unit).mean()) for level in means}
    placed = float(default[site] @ unit)
    return {
        "rank": spearman(scores, levels).r,
        "null_95": float(np.quantile(null, 0.95)),
        "worst_site_rank": min(by_site),
        "cos_pc1": abs(float(pc1.vector @ unit)),
        "pc1_share": pc1.share,
        "sign_defined": float(pc1.signed),
        "endpoint_cos": min(_cosine(axis, other) for other in axes.values()),
        "half_cos": _cosine(contrast(vectors[first], levels[first]), contrast(vectors[~first], levels[~first])),
        "monotone": float(all(a <= b for a, b in pairwise(ordered))),
        "default_level": float(min(where, key=lambda level: abs(where[level] - placed))),
        "axis_norm_ratio": float(np.linalg.norm(axis) / np.linalg.norm(vectors, axis=1).mean()),
        "empty": float(found.empty),
        "dropped": float(len(found.dropped)),
        **{f"mean_{level}": mean for level, mean in means.items()},
    }


def _cosine(a: Floats, b: Floats) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def rank_interval(result: Result, arm: str, draws: int = 1000) -> Interval:
    """Return Spearman's r of level and held-out projection (mean over seeds), the roles resampled."""
    from rolecraft.measures import Interval, spearman

    roles: dict[str, list[float]] = {}
    level: dict[str, int] = {}
    for row in result.rows:
        if row["arm"] == arm:
            roles.setdefault(row["unit"], []).append(row["projection"])
            level[row["unit"]] = row["level"]
    scores = np.array([np.mean(values) for values in roles.values()])
    levels = np.array([level[role] for role in roles])
    generator = np.random.default_rng(0)
    picks = generator.integers(0, len(roles), size=(draws, len(roles)))
    drawn = [spearman(scores[pick], levels[pick]).r for pick in picks]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Interval(spearman(scores, levels).r, float(low), float(high), len(roles))


def verdict_geometry(result: Result) -> Verdict:
    """Demand ranks above the permutation null in most seeds and above random axes, and level means 1 < 3 < 5."""
    effect, control = rank_interval(result, "profile"), result.mean("rank", "random")
    figures = [row for row in result.rows if row["arm"] == "profile-axis"]
    above = sum(row["rank"] > row["null_95"] for row in figures)
    means = {level: float(np.mean([row[f"mean_{level}"] for row in figures])) for level in (1, 3, 5)}
    ordered = means[1] < means[3] < means[5]
    mean = {name: float(np.mean([row[name] for row in figures])) for name in figures[0] if name not in ("arm", "seed")}
    note = (
        f"Spearman r of level and held-out projection; control: random axes; above the permutation null in {above} of "
        f"{len(figures)} seeds; cos(axis, PC1) {mean['cos_pc1']:.2f}, PC1 share {mean['pc1_share']:.0%}; levels "
        f"{'rise' if ordered else 'do not rise'} from 1 over 3 to 5; names alone {rank_interval(result, 'name')}; "
        f"MiniLM of the descriptions {rank_interval(result, 'text')}; default assistant near level "
        f"{mean['default_level']:.0f}"
    )
    held = effect.low > control.estimate and effect.low > 0 and 3 * above >= 2 * len(figures) and ordered
    return Verdict.when(reproduced=held, effect=effect, control=control, note=note)


# (b) Steering: does moving along the axis change the scale of answers?


@dataclass(frozen=True)
class SteeringConfig(CollectConfig):
    """Answers to questions that admit a micro answer, moved along the axis."""

    prompts: int = 12
    """Per seed, disjoint between seeds. Paper: 40 general and 12 that admit a micro answer."""
    shares: tuple[float, ...] = (0.1, 0.2)
    """Strengths, as shares of the mean norm of a role's mean state at the site; the last decides. Paper: alpha 4."""
    answer_tokens: int = 60
    """Greedy. Paper: 1536."""

    def __post_init__(self) -> None:
        if not self.shares or not all(0 < share < float("inf") for share in self.shares):
            raise UserError(f"shares: expected one or more positive numbers, got {self.shares}.")


def steering_axes(
    model: ReadableModel, found: RoleVectors, default: Floats, site: int | None, seed: int
) -> dict[str, Direction]:
    """Return the axis and its controls as unit directions: random, and the assistant axis (default less roles)."""
    from rolecraft.conditioning import random_direction

    axis = axis_direction(model, found, site)
    away = default - found.vectors.mean(0)
    assistant = axis.map(lambda place, _: away[place].astype(np.float32), role="assistant-axis")
    axes = {"axis": axis, "random": random_direction(axis, seed), "assistant": assistant}
    place = axis.manifest.site
    return {name: direction.select([place]).unit() for name, direction in axes.items()}


def run_steering(config: SteeringConfig, store: RunStore) -> Result:
    """Keep a row per seed, arm (`base`, `axis+0.2`, `random-0.1`, ...) and question."""
    from rolecraft.conditioning import Steering
    from rolecraft.measures import text_health
    from rolecraft.measures._scale import scale_of
    from rolecraft.models import Embedder, Sampling, chat

    model = load_local(config.model)
    for place, seed in enumerate(config.seeds):
        if not store.missing(ROWS, [row_key("done", seed)]):
            continue
        found, default = collect_roles(model, config, place, store)
        axes = steering_axes(model, found, default, config.site, seed)
        site = axes["axis"].manifest.site
        norm = float(np.linalg.norm(found.vectors[:, site], axis=1).mean())
        arms: dict[str, tuple[Any, ...]] = {"base": ()}
        for name, axis in axes.items():
            for share in config.shares:
                for sign, mark in ((1, "+"), (-1, "-")):
                    arms[f"{name}{mark}{share:g}"] = (axis.steer(sign * share * norm, positions="all"),)
        questions = study_questions(config.prompts, place, micro=True)
        cells = [(arm, question) for arm in arms for question in questions]
        chats = [chat(question) for _, question in cells]
        steering = Steering(tuple(arms[arm] for arm, _ in cells))
        answers = model.generate(chats, Sampling(config.answer_tokens, 0.0, 1.0), steering)
        margins = _margins(Embedder.load().encode, found, [answer.text for answer in answers])
        rows: dict[str, dict[str, Any]] = {row_key("done", seed): {"arm": "done", "seed": seed}}
        for (arm, question), answer, margin in zip(cells, answers, margins, strict=True):
            broken = text_health(answer.text).degenerate
            rows[row_key(arm, seed, question)] = {
                "arm": arm, "seed": seed, "unit": question, "answer": answer.text, "degenerate": float(broken),
                "terms": None if broken else scale_of(answer.text),
                "margin": None if broken else float(margin),
                "truncated": float(answer.finish == "length"),
                "alpha": 0.0 if arm == "base" else abs(arms[arm][0].strength),
            }  # fmt: skip
        store.put_many(ROWS, rows)
    return Result.read(store)


def _margins(encode: Any, found: RoleVectors, answers: Sequence[str]) -> Floats:
    """Return each answer's mean cosine to the descriptions of levels 4 and 5 less that to levels 1 and 2."""
    vectors = np.asarray(encode([role.description for role in found.roles]), dtype=float)
    margins: Floats = np.asarray(encode(list(answers)), dtype=float) @ contrast(vectors, found.levels)
    return margins


def with_scale(result: Result) -> Result:
    """Add `scale`: the mean of `terms` and `margin`, each over its deviation among the unsteered answers."""
    base = [row for row in result.rows if row["arm"] == "base"]
    spread = {name: float(np.nanstd([_number(row[name]) for row in base])) for name in ("terms", "margin")}
    if not all(spread.values()):
        raise ExtractionError("the unsteered answers do not differ, so that changes have no unit.")
    return Result(
        tuple(
            {**row, "scale": None if row["terms"] is None else sum(row[n] / spread[n] for n in spread) / 2}
            for row in result.rows
            if "terms" in row
        )
    )


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def verdict_steering(result: Result) -> Verdict:
    """Demand that the largest step to macro raises the scale above no step and above the same step at random."""
    scaled = with_scale(result)
    share = max(float(arm.removeprefix("axis+")) for arm in scaled.arms if arm.startswith("axis+"))
    up, down = (scaled.difference("scale", f"axis{mark}{share:g}", "base") for mark in "+-")
    control = scaled.difference("scale", f"random+{share:g}", "base")
    over = scaled.difference("scale", f"axis+{share:g}", f"random+{share:g}")
    assistant = scaled.difference("scale", f"assistant+{share:g}", "base")
    parts = {name: scaled.difference(name, f"axis+{share:g}", "base") for name in ("terms", "margin")}
    broken = {arm: scaled.mean("degenerate", arm).estimate for arm in (f"axis+{share:g}", f"axis-{share:g}", "base")}
    note = (
        f"change of scale (policy less first-person terms, and embedding margin, in deviations) at {share:g} of the "
        f"mean state norm (alpha {scaled.mean('alpha', f'axis+{share:g}').estimate:.1f}); control: random axis; axis "
        f"over random {over}; to micro {down}; assistant axis {assistant}; terms {parts['terms']}; margin "
        f"{parts['margin']}; degenerate {', '.join(f'{arm} {rate:.0%}' for arm, rate in broken.items())}"
    )
    return Verdict.when(reproduced=up.low > 0 and over.low > 0, effect=up, control=control, note=note)


STUDIES = {
    "geometry": (GeometryConfig, run_geometry, verdict_geometry),
    "steering": (SteeringConfig, run_steering, verdict_steering),
}
