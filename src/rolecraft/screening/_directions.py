"""The directions of a screen: one per role and extracting seed, kept as files, with their controls beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rolecraft._run import Meter, Progress, RunStore
from rolecraft.conditioning import (
    Direction,
    Extraction,
    LikelihoodMarginFilter,
    assistant_axis,
    default_site,
    extract_default,
    extract_directions,
    norm_matched,
    random_direction,
    shuffled,
)
from rolecraft.conditioning._extraction import ReadableModel
from rolecraft.conditioning._presets import find_preset
from rolecraft.models import Embedder, LanguageModel
from rolecraft.screening._plan import Plan

STAGE = "directions"
BATCH_PAIRS = 64
"""Pairs under way together: faster than the default of `extract_directions`, for about 150 MiB more."""
DEFAULT = "(default)"
"""Stands for the default assistant among the extractions, where the preset needs it."""


def unit_key(role: str, seed: int) -> str:
    """Return the key of one extraction."""
    return f"{role}/{seed}"


def extraction_path(directory: Path, role: str, seed: int) -> Path:
    """Return where an extraction is kept."""
    return directory / "extractions" / str(seed) / f"{role}.safetensors"


def direction_path(directory: Path, role: str, seed: int) -> Path:
    """Return where the direction that a lock points to is kept."""
    return directory / "directions" / str(seed) / f"{role}.safetensors"


def extract_all(plan: Plan, store: RunStore, model: LanguageModel, meter: Meter | None, *, quiet: bool = False) -> None:
    """Extract what the run does not hold yet: one row and one file per role and extracting seed.

    A role without instructions or questions, or with too few accepted pairs, gets a row that says so and no direction.
    """
    impossible = plan.unextractable()
    seeds = plan.config.extraction_seeds
    keys = [unit_key(role.id, seed) for seed in seeds for role in plan.inventory]
    for seed in seeds:
        for role, reason in impossible.items():
            store.put(STAGE, unit_key(role, seed), {"note": reason, "file": None})
    done = len(keys) - len(store.missing(STAGE, keys))
    with store.timed(STAGE), Progress(len(keys), STAGE, done=done, quiet=quiet) as progress:
        for seed in seeds:
            for extraction in _extract(plan, store, model, seed):
                extraction.save(extraction_path(store.directory, extraction.role, seed))
                store.put(STAGE, unit_key(extraction.role, seed), _row(extraction))
                progress.advance()
                if meter:
                    meter.check()


def _extract(plan: Plan, store: RunStore, model: LanguageModel, seed: int) -> Iterator[Extraction]:
    config = plan.config
    recipe = find_preset(config.preset)
    readable: ReadableModel = model  # type: ignore[assignment]  # ScreenRun.open refuses models without activations
    site = default_site(readable) if config.site is None else config.site
    bank = [question.text for question in plan.bank.split("calibration")]
    if recipe.contrast != "empty" and store.missing(STAGE, [unit_key(DEFAULT, seed)]):
        yield extract_default(readable, bank, recipe, max_tokens=config.max_tokens, seed=seed, sites=[site], site=site)
    roles = [role for role in plan.inventory if store.missing(STAGE, [unit_key(role.id, seed)])]
    if roles:
        margin = config.accept == "likelihood-margin"
        accept = LikelihoodMarginFilter(model, Embedder.load(), plan.population) if margin else None
        yield from extract_directions(
            readable,
            roles,
            recipe,
            accept,
            instructions=config.instructions,
            questions=config.role_questions,
            max_tokens=config.max_tokens,
            bank=bank if recipe.contrast == "none" else None,
            seed=seed,
            sites=[site],
            site=site,
            batch_pairs=BATCH_PAIRS,
        )


def _row(extraction: Extraction) -> dict[str, object]:
    direction = extraction.direction
    return {
        "file": direction is not None,
        "pairs": extraction.n_pairs,
        "tried": extraction.n_tried,
        "acceptance": extraction.acceptance,
        "split_half": extraction.split_half,
        "norm": direction.norm() if direction else None,
        "note": f"{extraction.flag}: {extraction.note}" if extraction.flag else "",
    }


@dataclass(frozen=True)
class DirectionBook:
    """What every arm of a screen steers with."""

    directory: Path
    arms: Mapping[tuple[str, str, int], Direction]
    """(role, arm, seed) to the direction; the controls have the norm of the role's own."""
    missing: frozenset[str]
    """Roles that lack a direction of at least one extracting seed, and are screened by prompt alone."""

    @classmethod
    def load(cls, plan: Plan, store: RunStore) -> DirectionBook:
        """Read the extractions of a run and lay the controls beside them.

        Raises:
            UserError: If a file is missing or was changed.
        """
        rows = store.rows(STAGE)
        seeds = plan.config.extraction_seeds
        missing = {
            role.id for role in plan.inventory for seed in seeds if not rows[unit_key(role.id, seed)].get("file")
        }
        usable = [role.id for role in plan.inventory if role.id not in missing]
        if len(usable) == 1 and "shuffled" in plan.config.control:
            missing.update(usable)  # no other role's direction is there to hold it against
            usable = []
        arms: dict[tuple[str, str, int], Direction] = {}
        for seed in plan.config.seeds if usable else ():
            source = seed if seed in seeds else seeds[0]
            extractions = [Extraction.load(extraction_path(store.directory, role, source)) for role in usable]
            default_file = extraction_path(store.directory, DEFAULT, source)
            default = Extraction.load(default_file) if default_file.exists() else None
            for (role, arm), direction in _arms(extractions, default, plan, seed).items():
                arms[role, arm, seed] = direction
        return cls(store.directory, arms, frozenset(missing))

    def save(self, role: str, seed: int) -> Path:
        """Write the direction of a role as a file of its own, for `roles.lock`, and return its path."""
        path = direction_path(self.directory, role, seed)
        if not path.exists():
            self.arms[role, "role", seed].save(path)
        return path


def _arms(
    extractions: list[Extraction], default: Extraction | None, plan: Plan, seed: int
) -> dict[tuple[str, str], Direction]:
    raw_means = find_preset(plan.config.preset).contrast == "none"
    own = {
        extraction.role: extraction.direction - default.direction
        if raw_means and default is not None and default.direction is not None
        else extraction.direction
        for extraction in extractions
        if extraction.direction is not None
    }
    arms = {(role, "role"): direction for role, direction in own.items()}
    for control in plan.config.control:
        arms |= {(role, control): d for role, d in _control(control, own, extractions, default, seed).items()}
    return arms


def _control(
    name: str,
    own: Mapping[str, Direction],
    extractions: list[Extraction],
    default: Extraction | None,
    seed: int,
) -> dict[str, Direction]:
    if name == "axis":
        away = -assistant_axis(extractions, default)
        return {role: norm_matched(away, direction.norm()) for role, direction in own.items()}
    if name == "random":
        return {role: random_direction(direction, seed) for role, direction in own.items()}
    return shuffled(own, seed)
