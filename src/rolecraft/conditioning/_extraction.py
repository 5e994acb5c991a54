"""Extraction of directions: responses with and without the role, filtered, read and averaged as a stream.

Rows of many roles share every forward pass; of the activations only running moments are kept. Each response has its own
seed, derived from role, instruction, question and pass, so that neither the order of the roles nor the size of a batch
changes what is drawn.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypedDict, Unpack, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rolecraft.conditioning._direction import Direction, Manifest, Residual, default_site
from rolecraft.conditioning._filters import AcceptAll, PairFilter, SideFilter
from rolecraft.conditioning._outcome import Extraction, Flag
from rolecraft.conditioning._presets import ExtractionPreset, ReplyPooling, find_preset
from rolecraft.conditioning._tally import BASE, PROMPTED, Tally, by_site
from rolecraft.conditioning._trials import Subject, Trial, default_subject, plan, role_subject
from rolecraft.errors import ExtractionError, ModelError, RoleError, SteeringShapeError, UserError
from rolecraft.models._base import Chat, Completion, Sampling

if TYPE_CHECKING:
    from rolecraft.conditioning._steering import Steering
    from rolecraft.roles import Role


@runtime_checkable
class ReadableModel(Residual, Protocol):
    """A model that replies and whose block outputs can be read: `LocalModel`."""

    def generate(
        self,
        chats: Sequence[Chat],
        sampling: Sampling,
        steering: Steering | None = None,
        seeds: Sequence[int] | None = None,
    ) -> list[Completion]:
        """Reply to each chat."""
        ...

    def activations(
        self,
        chats: Sequence[Chat],
        replies: Sequence[str],
        sites: Sequence[int] | None = None,
        pooling: ReplyPooling = ...,
    ) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Yield (row, pooled block outputs of shape (sites, hidden)) in any order."""
        ...


class ExtractionOptions(TypedDict, total=False):
    """The keyword arguments of `extract_directions`."""

    instructions: int | None
    questions: int | None
    max_tokens: int | None
    bank: Sequence[str] | None
    seed: int
    sites: Sequence[int] | None
    site: int | None
    allow_partial: bool
    batch_pairs: int


def extract_direction(
    model: ReadableModel,
    role: Role,
    preset: str | ExtractionPreset = "cast-vectors",
    accept: PairFilter | None = None,
    **options: Unpack[ExtractionOptions],
) -> Extraction:
    """Extract the direction of one role; see `extract_directions`, which does many at a time much faster.

    Raises:
        ExtractionError: If the vector is zero or not finite.
        RoleError: If the role has no instructions or no questions.
        UserError: If an argument is out of its range.
    """
    return _sound(extract_directions(model, [role], preset, accept, **options))


def extract_directions(
    model: ReadableModel,
    roles: Iterable[Role],
    preset: str | ExtractionPreset = "cast-vectors",
    accept: PairFilter | None = None,
    *,
    instructions: int | None = None,
    questions: int | None = None,
    max_tokens: int | None = None,
    bank: Sequence[str] | None = None,
    seed: int = 0,
    sites: Sequence[int] | None = None,
    site: int | None = None,
    allow_partial: bool = False,
    batch_pairs: int = 16,
) -> Iterator[Extraction]:
    """Extract the directions of many roles, in batches that run across roles.

    Args:
        model: A local model.
        roles: With instructions, and with questions unless there is a `bank`.
        preset: Name in `PRESETS`, or a preset of your own.
        accept: Which pairs are kept. Default: all.
        instructions: Instead of the preset's number.
        questions: Instead of the preset's number.
        max_tokens: Instead of the preset's number.
        bank: Role-agnostic questions asked of every role instead of its own (Assistant Axis: 240).
        seed: Of the choice of questions and of sampling.
        sites: Sites to read. Default: all, in one pass.
        site: Default site of the directions. Default: half depth, or the nearest of `sites`.
        allow_partial: Give the direction also where too few pairs were kept.
        batch_pairs: Pairs generated together; more are somewhat faster. Peak resident size above SmolLM2 and MiniLM
            with 32 new tokens and the likelihood filter: 16 pairs 180 MiB, 64 pairs 290.

    Returns:
        An iterator over one extraction per role, each as soon as its role is complete. A role with too few pairs, or
        with a zero or non-finite vector, is flagged and does not stop the others.

    Raises:
        RoleError: Before anything runs, if a role has no instructions or questions, or an id occurs twice.
        UserError: If an argument is out of its range.
        SteeringShapeError: If a site is out of range.
    """
    recipe = _sized(preset, instructions, questions, max_tokens)
    subjects = [role_subject(role, recipe, bank) for role in roles]
    twice = [role_id for role_id, count in Counter(subject.id for subject in subjects).items() if count > 1]
    if twice:
        raise RoleError(f"role id {twice[0]!r} is given more than once.")
    return _Extractor(model, recipe, accept or AcceptAll(), seed, sites, site, allow_partial, batch_pairs).run(subjects)


def extract_default(
    model: ReadableModel,
    bank: Sequence[str],
    preset: str | ExtractionPreset = "assistant-axis",
    *,
    questions: int | None = None,
    max_tokens: int | None = None,
    seed: int = 0,
    sites: Sequence[int] | None = None,
    site: int | None = None,
    allow_partial: bool = False,
    batch_pairs: int = 16,
) -> Extraction:
    """Extract the default pseudo-role: the mean of the model's responses under five neutral system texts.

    Args:
        model: A local model.
        bank: Role-agnostic questions, the same as the roles were asked.
        preset: For sampling and sizes; there is never another side and never a filter.
        questions: Instead of the preset's number.
        max_tokens: Instead of the preset's number.
        seed: Of the choice of questions and of sampling.
        sites: Sites to read. Default: all.
        site: Default site.
        allow_partial: Give the direction also where too few responses could be pooled.
        batch_pairs: Responses generated together.

    Returns:
        An extraction of kind `default-mean`: its direction is the raw mean, one end of the axis.

    Raises:
        UserError: If the bank is empty or an argument is out of its range.
        ExtractionError: If the mean is zero or not finite.
    """
    recipe = replace(_sized(preset, None, questions, max_tokens), contrast="none")
    extractor = _Extractor(model, recipe, AcceptAll(), seed, sites, site, allow_partial, batch_pairs)
    return _sound(extractor.run([default_subject(model.name, bank)]))


def _sound(extractions: Iterator[Extraction]) -> Extraction:
    (extraction,) = extractions
    if extraction.flag in ("zero", "non_finite"):
        raise ExtractionError(extraction.note)
    return extraction


def _sized(
    preset: str | ExtractionPreset, instructions: int | None, questions: int | None, max_tokens: int | None
) -> ExtractionPreset:
    recipe = find_preset(preset)
    return replace(
        recipe,
        instructions=recipe.instructions if instructions is None else instructions,
        questions=recipe.questions if questions is None else questions,
        max_tokens=recipe.max_tokens if max_tokens is None else max_tokens,
    )


class _Extractor:
    """Runs subjects through a model, a batch of pairs at a time."""

    def __init__(
        self,
        model: ReadableModel,
        recipe: ExtractionPreset,
        accept: PairFilter,
        seed: int,
        sites: Sequence[int] | None,
        site: int | None,
        allow_partial: bool,
        batch_pairs: int,
    ) -> None:
        if batch_pairs < 1:
            raise UserError(f"batch_pairs must be at least 1, got {batch_pairs}.")
        self.model, self.recipe, self.accept, self.seed = model, recipe, accept, seed
        self.allow_partial, self.batch_pairs = allow_partial, batch_pairs
        self.sites = tuple(range(model.n_sites)) if sites is None else tuple(sorted(set(sites)))
        if not self.sites or not 0 <= self.sites[0] <= self.sites[-1] < model.n_sites:
            raise SteeringShapeError(f"sites must be among 0 to {model.n_sites - 1}, got {list(self.sites)}.")
        half_depth = default_site(model)
        self.site = min(self.sites, key=lambda s: abs(s - half_depth)) if site is None else site
        if self.site not in self.sites:
            raise SteeringShapeError(f"site {site} is not among the sites to read: {list(self.sites)}.")

    def run(self, subjects: Iterable[Subject]) -> Iterator[Extraction]:
        """Yield each subject's outcome when it is complete; subjects not yet begun hold no memory."""
        waiting = iter(subjects)
        active: list[Tally] = []
        while True:
            batch = self._fill(active, waiting)
            if not batch:
                return
            self._try(batch)
            for tally in [tally for tally in active if tally.done]:
                active.remove(tally)
                yield self._finish(tally)

    def _fill(self, active: list[Tally], waiting: Iterator[Subject]) -> list[tuple[Tally, list[Trial]]]:
        """Take trials from the roles under way, then from new ones, until the batch is full."""
        batch: list[tuple[Tally, list[Trial]]] = []
        room = self.batch_pairs
        for tally in active:
            batch.append((tally, tally.next_trials(room)))
            room -= len(batch[-1][1])
        while room > 0 and (subject := next(waiting, None)) is not None:
            tally = Tally(subject, plan(subject, self.recipe, self.seed), self.recipe, self.sites, self.model.hidden)
            active.append(tally)
            batch.append((tally, tally.next_trials(room)))
            room -= len(batch[-1][1])
        return [(tally, trials) for tally, trials in batch if trials]

    def _try(self, batch: list[tuple[Tally, list[Trial]]]) -> None:
        """Generate, filter, read."""
        rows = [
            (chat_, seed) for _, trials in batch for t in trials for chat_, seed in zip(t.chats, t.seeds, strict=True)
        ]
        replies = self.model.generate([c for c, _ in rows], self.recipe.sampling, seeds=[s for _, s in rows])
        texts = iter([reply.text for reply in replies])
        kept: list[tuple[Tally, int, int, Chat, str]] = []
        for tally, trials in batch:
            said = [tuple(itertools.islice(texts, len(trial.chats))) for trial in trials]
            usable = [place for place, pair in enumerate(said) if all(text.strip() for text in pair)]
            tally.tried += len(trials)
            tally.empty += len(trials) - len(usable)
            sides = self._judge(tally.subject, [trials[i] for i in usable], [said[i] for i in usable])
            for side, verdicts in enumerate(sides[: len(trials[0].chats)]):
                chosen = [i for i, verdict in zip(usable, verdicts, strict=True) if verdict]
                tally.kept[side] += len(chosen)
                kept += [(tally, side, trials[i].half, trials[i].chats[side], said[i][side]) for i in chosen]
        self._read(kept)

    def _judge(
        self, subject: Subject, trials: list[Trial], said: list[tuple[str, ...]]
    ) -> tuple[list[bool], list[bool]]:
        """Return which responses of each side are kept."""
        if subject.role is None or not trials:
            return [True] * len(trials), [True] * len(trials)
        asked = [trial.question for trial in trials]
        as_role, other = [pair[PROMPTED] for pair in said], [pair[BASE] if len(pair) > 1 else "" for pair in said]
        if self.recipe.contrast == "opposite" and isinstance(self.accept, SideFilter):
            sides = self.accept.accept_sides(subject.role, asked, as_role, other)
        else:
            verdicts = self.accept.accept(subject.role, asked, as_role, other)
            sides = (verdicts, verdicts)
        if any(len(verdicts) != len(trials) for verdicts in sides):
            raise UserError(
                f"the filter {self.accept.name!r} returned {len(sides[0])} verdicts for {len(trials)} pairs; "
                "expected one per pair."
            )
        return sides

    def _read(self, kept: list[tuple[Tally, int, int, Chat, str]]) -> None:
        """Stream the pooled activations of the kept responses into the moments."""
        if not kept:
            return
        seen = 0
        chats, replies = [row[3] for row in kept], [row[4] for row in kept]
        for row, values in self.model.activations(chats, replies, sites=self.sites, pooling=self.recipe.pooling):
            tally, side, half, *_ = kept[row]
            seen += 1
            if np.isfinite(values).all():
                tally.moments[side][half].add(values)
            else:
                tally.non_finite = True
        if seen != len(kept):
            raise ModelError(f"{self.model.name} gave activations for {seen} of {len(kept)} responses.")

    def _finish(self, tally: Tally) -> Extraction:
        vector, split_halves = tally.vector(), tally.split_halves()
        flag, note = tally.verdict()
        manifest = self._manifest(tally, flag, split_halves.get(self.site))
        usable = not flag or (flag == "too_few_pairs" and self.allow_partial)
        return Extraction(
            role=tally.subject.id,
            direction=Direction(by_site(self.sites, vector), manifest) if usable and vector is not None else None,
            manifest=manifest,
            sites=self.sites,
            prompted=tally.side(PROMPTED),
            base=tally.side(BASE),
            n_pairs=tally.pairs,
            n_tried=tally.tried,
            n_empty=tally.empty,
            acceptance=tally.acceptance,
            split_halves=split_halves,
            flag=flag,
            note=note,
        )

    def _manifest(self, tally: Tally, flag: Flag, split_half: float | None) -> Manifest:
        recipe, subject = self.recipe, tally.subject
        return Manifest(
            role=subject.id,
            kind=subject.kind,
            model=self.model.name,
            revision=self.model.revision,
            site=self.site,
            n_sites=self.model.n_sites,
            n=tally.pairs,
            role_hash=subject.role.hash if subject.role else "",
            extra={
                "preset": recipe.name,
                "pooling": recipe.pooling,
                "filter": self.accept.name,
                "acceptance": tally.acceptance,
                "n_tried": tally.tried,
                "n_empty": tally.empty,
                "partial": flag == "too_few_pairs",
                "seed": self.seed,
                "temperature": recipe.temperature,
                "top_p": recipe.top_p,
                "max_tokens": recipe.max_tokens,
                "split_half": split_half,
            },
        )
