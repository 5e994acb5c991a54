"""RoleRef: refusing what a character cannot know, by editing representations (arXiv 2409.16913).

Exact: five kinds of question, the state at the last prompt token after every block, probes per layer, per-role patterns
s(l) = mean difference (answerable - out of series) on the share of dimensions of lowest variance, h + c s(l) at every
block and position, the piecewise-linear operator, the prompt that names a detected conflict as the other training-free
arm, nine grades of 0 to 2 whose unreadable records are counted.
Adapted: SmolLM2-135M for 7-8B models; 3 characters of our own and 2 public-domain figures for 14 of films and novels; a
logistic probe for the small network; how likely a reply opens with a refusal for the judge's grades. The list of
states begins with the embedding output, so that block b's is item b + 1: the default here. The released script
adds item b at block b (`offset=0`).
Small: `rolecraft systems run roleref` (probes, then edit). Paper's size: `--full --set model=local:PATH`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from rolecraft.errors import UserError
from rolecraft.models import load_local
from rolecraft.systems._base import ROWS, Result, StudyConfig, System, Verdict, row_key
from rolecraft.systems.conditioning._roleref_edit import (
    Pattern,
    agent_chat,
    build_pattern,
    collect,
    edit,
    graded,
    judge_chat,
    scrambled,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rolecraft._run import RunStore
    from rolecraft.conditioning import Intervention
    from rolecraft.measures import Interval
    from rolecraft.models import LocalModel
    from rolecraft.roles._conflicts import Character, ConflictKey

    States = NDArray[np.float32]

SYSTEM = System(
    number=120,
    name="roleref",
    title="Tell Me What You Don't Know: Enhancing Refusal Capabilities of Role-Playing Agents via Representation Space "
    "Analysis and Editing",
    arxiv="2409.16913",
    family="conditioning",
    claim="states tell clear conflicts from answerable questions better than altered facts, and pushing them away from "
    "the answer region raises refusal of conflicts",
    published="probes separate contextual conflicts but not altered facts; the edit raises refusal on conflicts and "
    "keeps general role-play (abstract; no table as text)",
)


# (a) Probes: which conflicts do the states tell from answerable questions?

CONFLICTS = ("context_conflict", "absent", "out_series", "fake")


@dataclass(frozen=True)
class ProbeConfig(StudyConfig):
    """Probes per block; a seed sets the folds."""

    model: str = "local:smollm2"
    """Paper: Llama-3(.1)-8B, Mistral-7B, Qwen2(.5)-7B."""
    bank: str = "conflicts-v1"
    """Paper: 14 roles, about 50 questions per kind."""
    folds: int = 5
    shuffles: int = 5
    """Shuffles of the labels that the control averages over."""

    @classmethod
    def full(cls) -> Self:
        """Return the paper's size of model; the bank is what one has."""
        return cls(seeds=(42,))


def run_probes(config: ProbeConfig, store: RunStore) -> Result:
    """Keep per seed, kind and question how often the blocks' probes are right, with three references.

    Only characters with all five kinds enter, so that the kinds are compared on the same answerable questions.
    References: `text/` a probe of the question's MiniLM vector, `shuffled/` a probe of shuffled labels. Stage `sites`
    keeps the accuracy of every block, and what the probe of `out_series` says of the other kinds.
    """
    from rolecraft.measures._probes import balanced_accuracy, probe, probe_others, probe_sites
    from rolecraft.models import Embedder
    from rolecraft.roles._conflicts import load_conflicts

    model = load_local(config.model)
    characters = [c for c in load_conflicts(config.bank) if set(CONFLICTS) <= set(c.queries)]
    if not characters:
        raise UserError(f"bank {config.bank!r} has no character with every kind of question: {', '.join(CONFLICTS)}.")
    states = [collect(model, character) for character in characters]
    by_key = {key: np.concatenate([found[key][:, 1:] for found in states]) for key in ("answerable", *CONFLICTS)}
    texts = {key: [query.question for c in characters for query in c.queries[key]] for key in by_key}  # type: ignore[index]
    encode = Embedder.load().encode
    middle = model.n_sites // 2
    for seed in config.seeds:
        for key in CONFLICTS:
            if not store.missing(ROWS, [row_key(f"shuffled/{key}", seed, f"{key}/{len(texts[key]) - 1}")]):
                continue
            features = np.concatenate([by_key["answerable"], by_key[key]])
            labels = np.arange(len(features)) >= len(by_key["answerable"])
            per_site = probe_sites(features, labels.tolist(), config.folds, seed)
            generator = np.random.default_rng(seed)
            mixed = [generator.permutation(labels).tolist() for _ in range(config.shuffles)]
            guesses = [probe(features[:, middle], order, config.folds, seed) for order in mixed]
            right = {
                key: per_site.mean(0),
                f"text/{key}": probe(encode(texts["answerable"] + texts[key]), labels.tolist(), config.folds, seed),
                f"shuffled/{key}": np.mean(guesses, axis=0),
            }
            accuracy = [balanced_accuracy(row, labels.tolist()) for row in per_site]
            flagged = {
                other: float(probe_others(features[:, middle], labels.tolist(), by_key[other][:, middle]).mean())
                for other in CONFLICTS
                if other != key
            }
            store.put("sites", row_key(key, seed), {"accuracy": accuracy, "flagged": flagged})
            store.put_many(ROWS, _probe_rows(seed, key, right, labels, accuracy, flagged))
    return Result.read(store)


def _probe_rows(
    seed: int,
    key: str,
    right: Mapping[str, NDArray[Any]],
    labels: NDArray[np.bool_],
    accuracy: list[float],
    flagged: dict[str, float],
) -> dict[str, dict[str, Any]]:
    """Lay out one row per arm and question; the n-th question of any kind is the unit `conflict/n`, for pairing."""
    start = int((~labels).sum())
    rows: dict[str, dict[str, Any]] = {
        row_key(f"{key}-blocks", seed): {
            "arm": f"{key}-blocks", "seed": seed, "best": max(accuracy), "first": accuracy[0], "last": accuracy[-1],
            **{f"flags_{other}": share for other, share in flagged.items()},
        }
    }  # fmt: skip
    for arm, values in right.items():
        for number, value in enumerate(values):
            place = number - start if labels[number] else number
            unit = f"{'conflict' if labels[number] else 'answerable'}/{place}"
            stored = f"{key}/{place}" if labels[number] else unit
            rows[row_key(arm, seed, stored)] = {"arm": arm, "seed": seed, "unit": unit, "right": float(value)}
    return rows


def verdict_probes(result: Result) -> Verdict:
    """Demand that the states tell `out_series` better than `fake`, and that shuffled labels show no such gap."""
    effect = result.difference("right", "out_series", "fake")
    control = result.difference("right", "shuffled/out_series", "shuffled/fake")
    text = result.difference("right", "text/out_series", "text/fake")
    shares = ", ".join(
        f"{key} {result.mean('right', key).estimate:.0%} (text {result.mean('right', f'text/{key}').estimate:.0%}, "
        f"best block {result.mean('best', f'{key}-blocks').estimate:.0%})"
        for key in CONFLICTS
    )
    flags = result.mean("flags_fake", "out_series-blocks").estimate
    note = (
        f"right answers of probes, mean over blocks, out_series less fake; control: shuffled labels; {shares}; the "
        f"same gap from the question's text alone {text}; the out_series probe flags {flags:.0%} of fake"
    )
    return Verdict.when(reproduced=effect.low > 0 and control.low <= 0, effect=effect, control=control, note=note)


# (b) Edit: does pushing away from the answer region raise refusal, and of what?

NEUTRAL = (
    "The morning market opens at six. Farmers bring apples, bread and cheese, and people from the nearby streets walk "
    "between the stalls with their baskets."
)


@dataclass(frozen=True)
class EditConfig(ProbeConfig):
    """The edit on questions its pattern was not built from; a seed sets which."""

    pairs: int = 10
    """Pairs of questions behind a pattern. Paper: up to 50."""
    held_out: int = 2
    """Questions per kind and role; answerable and out-of-series ones are never those of the pairs."""
    ratio: float = 0.5
    """Share of dimensions kept. Paper: 0.3, 0.5, 1."""
    coefficients: tuple[float, ...] = (-0.1, -0.3, -1.0, 0.3)
    """c; the effect is that of the lowest, the positive ones must do the opposite. Paper: -0.1, documented from -0.3 to
    0.3."""
    offset: int = 1
    """1: a block's own output. 0: the released script."""
    judge: str = ""
    """Model string of an LLM judge, which then grades the replies on the nine scales of 0 to 2."""
    answer_tokens: int = 24
    """Greedy replies without the edit and with the mildest one (the paper's -0.1), read for words of refusal."""

    @classmethod
    def full(cls) -> Self:
        """Return the paper's size."""
        return cls(seeds=(42,), pairs=50, held_out=20, answer_tokens=256)


def run_edit(config: EditConfig, store: RunStore) -> Result:
    """Keep a row per seed, arm and held-out question (and neutral text) of every character.

    Arms: `base`, `c=-0.1` and so on, `random=c` (the strongest edit with scrambled dimensions), `signal` (the prompt
    that says a conflict was detected).
    """
    from rolecraft.roles._conflicts import load_conflicts

    model = load_local(config.model)
    for character in load_conflicts(config.bank):
        states: dict[str, States] = {}
        for seed in config.seeds:
            done = row_key("done", seed, character.role.id)
            if not store.missing(ROWS, [done]):
                continue
            states = states or collect(model, character, ("answerable", "out_series"))
            train, test = split_questions(character, config, seed)
            pattern = build_pattern(
                character.role.id, states["answerable"][train], states["out_series"][train], config.ratio
            )
            rows = _edit_rows(config, model, character, pattern, test, seed)
            store.put_many(ROWS, {**rows, done: {"arm": "done", "seed": seed, "unit": character.role.id}})
    return Result.read(store)


def split_questions(
    character: Character, config: EditConfig, seed: int
) -> tuple[list[int], list[tuple[ConflictKey, int]]]:
    """Return the indices of the pairs, and the held-out questions as (kind, index).

    Raises:
        UserError: If no question is left to hold out.
    """
    from rolecraft._run import derive_seed

    generator = np.random.default_rng(derive_seed("roleref", character.role.id, seed))
    count = min(len(character.queries["answerable"]), len(character.queries["out_series"]))
    order = generator.permutation(count).tolist()
    train, rest = order[: config.pairs], order[config.pairs :]
    if not rest:
        raise UserError(f"pairs: {config.pairs} of {count} leave no question of role {character.role.id!r} held out.")
    test: list[tuple[ConflictKey, int]] = []
    for key, queries in character.queries.items():
        left = rest if key in ("answerable", "out_series") else generator.permutation(len(queries)).tolist()
        test += [(key, index) for index in left[: config.held_out]]
    return train, test


def _edit_rows(
    config: EditConfig,
    model: LocalModel,
    character: Character,
    pattern: Pattern,
    test: list[tuple[ConflictKey, int]],
    seed: int,
) -> dict[str, dict[str, Any]]:
    from rolecraft.conditioning import Steering
    from rolecraft.measures._refusal import refusal_margins
    from rolecraft.models import Sampling

    role, strongest = character.role, min(config.coefficients)
    arms: dict[str, tuple[Intervention, ...]] = {"base": (), "signal": ()}
    for c in config.coefficients:
        arms[f"c={c:g}"] = edit(pattern, model, role.id, c, offset=config.offset)
    arms[f"random={strongest:g}"] = edit(scrambled(pattern, seed), model, role.id, strongest, offset=config.offset)
    spoken = ("base", _mildest(config.coefficients))
    questions = [character.queries[key][index].question for key, index in test]
    rows: dict[str, dict[str, Any]] = {}
    for arm, change in arms.items():
        chats = [agent_chat(role, question, signal=arm == "signal") for question in questions]
        margins = refusal_margins(model, chats, Steering.uniform(change, len(chats)))
        said: list[dict[str, Any]] = [{} for _ in chats]
        if arm in spoken and config.answer_tokens:
            sampling = Sampling(config.answer_tokens, 0.0, 1.0)
            replies = model.generate(chats, sampling, Steering.uniform(change, len(chats)))
            said = _replies(config.judge, character, test, [reply.text for reply in replies])
        for (key, index), margin, reply in zip(test, margins, said, strict=True):
            unit = f"{role.id}/{key}/{index}"
            rows[row_key(arm, seed, unit)] = {
                "arm": arm, "seed": seed, "unit": unit, "key": key, **reply,
                "margin": None if np.isnan(margin) else float(margin),
            }  # fmt: skip
        scored = model.logprobs([agent_chat(role, "Describe a market.")], [NEUTRAL], Steering.uniform(change, 1))[0]
        loss = -float(scored.mean())
        unit = f"{role.id}/neutral"
        rows[row_key(arm, seed, unit)] = {
            "arm": arm, "seed": seed, "unit": unit, "key": "neutral", "loss": loss if math.isfinite(loss) else None,
        }  # fmt: skip
    return rows


def _replies(
    judge: str, character: Character, test: list[tuple[ConflictKey, int]], texts: Sequence[str]
) -> list[dict[str, Any]]:
    """Say of each reply whether its words refuse, and how the judge grades it if there is one."""
    from rolecraft.measures._refusal import is_refusal
    from rolecraft.models import Sampling, load_model

    rows: list[dict[str, Any]] = [{"reply": text, "refused": float(is_refusal(text))} for text in texts]
    if judge:
        chats = [
            judge_chat(character.role, character.queries[key][index].question, text, conflict=key != "answerable")
            for (key, index), text in zip(test, texts, strict=True)
        ]
        verdicts = load_model(judge).generate(chats, Sampling(400, 0.0, 1.0))
        rows = [row | graded(verdict.text) for row, verdict in zip(rows, verdicts, strict=True)]
    return rows


def _mildest(coefficients: Sequence[float]) -> str:
    return f"c={max(c for c in coefficients if c < 0):g}"


SPOKEN = {
    "refused": "share of replies that refuse",
    "refusal_ability": "judge's refusal ability, 0 to 2",
    "role_play": "judge's general role-play, 0 to 2",
    "unread": "share of gradings that could not be read",
}


def of_key(result: Result, *keys: str) -> Result:
    """Return the rows of some kinds of question."""
    return Result(tuple(row for row in result.rows if row.get("key") in keys))


def verdict_edit(result: Result) -> Verdict:
    """Demand a rise on conflicts that grows with -c, turns round with c > 0, and exceeds that of random dimensions."""
    conflicts, own = of_key(result, *CONFLICTS), of_key(result, "answerable")
    values = sorted(float(arm[2:]) for arm in result.arms if arm.startswith("c="))
    strongest, mildest, upward = values[0], _mildest(values), [c for c in values if c > 0]

    def rise(rows: Result, arm: str, metric: str = "margin") -> Interval:
        return rows.difference(metric, arm, "base")

    effect, control = rise(conflicts, f"c={strongest:g}"), rise(conflicts, f"random={strongest:g}")
    over = conflicts.difference("margin", f"c={strongest:g}", f"random={strongest:g}")
    curve = {c: rise(conflicts, f"c={c:g}") for c in values}
    monotone = all(a >= b for a, b in pairwise([*(curve[c].estimate for c in values if c < 0), 0.0]))
    steps = ", ".join(f"c = {c:g}: {found}" for c, found in reversed(curve.items()) if c != strongest)
    flips = all(rise(conflicts, f"c={c:g}").high < 0 for c in upward)
    loss = of_key(result, "neutral").difference("loss", f"c={strongest:g}", "base")
    base_loss = of_key(result, "neutral").mean("loss", "base").estimate
    by_key = ", ".join(f"{key} {rise(of_key(result, key), f'c={strongest:g}').estimate:+.2f}" for key in CONFLICTS)
    said = ""
    for metric, words in SPOKEN.items():
        if metric in result.metrics:
            figures = [
                f"{name} {rows.mean(metric, 'base').estimate:.2f} -> {rows.mean(metric, mildest).estimate:.2f}"
                for name, rows in (("conflicts", conflicts), ("answerable", own))
            ]
            said += f"; {words} at {mildest}: {', '.join(figures)}"
    note = (
        f"rise of the refusal margin (nats per token) on conflicts at c = {strongest:g}; control: random dimensions, "
        f"edit over control {over}; {by_key}; answerable {rise(own, f'c={strongest:g}')} (over-refusal); "
        f"{'grows' if monotone else 'does not grow'} with -c, {'turns' if flips else 'does not turn'} with c > 0 "
        f"({steps}); answerable at {mildest} {rise(own, mildest)}; "
        f"prompt signal {rise(conflicts, 'signal')}; neutral text {base_loss:.2f} nats per token, {loss} more{said}"
    )
    held = effect.low > 0 and over.low > 0 and monotone and flips
    return Verdict.when(reproduced=held, effect=effect, control=control, note=note)


STUDIES = {
    "probes": (ProbeConfig, run_probes, verdict_probes),
    "edit": (EditConfig, run_edit, verdict_edit),
}
