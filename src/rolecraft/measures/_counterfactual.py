"""The paired-counterfactual probe: the same item again with exactly one thing changed, such as who says it.

An item is a text with slots. A factor names a slot and the texts that may stand in it; one of them is the base. Asked
are the base, every other level of every factor with all other slots at their base, and the base itself once more
(`IDENTITY`), which shows how often answers change when nothing does. Where the text lists the options, each question
is asked with every option in every place, and the answers are averaged, so that a liking for a place cancels out.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from rolecraft._run import derive_seed
from rolecraft.errors import UserError, did_you_mean
from rolecraft.measures._counterfactual_report import BASE, IDENTITY, ProbeReport, ProbeRow, report_probe
from rolecraft.models._base import Chat, LanguageModel, chat

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.worlds import Policy

Style = Literal["texts", "letters"]
"""What is listed and replied: the options themselves, or A, B, ... before them."""
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
OPTIONS = "options"
"""The slot where the options are listed."""
_SLOT = re.compile(r"\{\{([\w-]+)\}\}")
_CHUNK = 256
"""Questions asked before the answers are stored."""


@dataclass(frozen=True)
class Factor:
    """One thing that is changed.

    Raises:
        UserError: If the name is taken, there are fewer than two levels, the base is none of them, or two levels of a
            factor that is no placebo have the same text.
    """

    name: str
    """The slot of the items that it fills."""
    levels: Mapping[str, str]
    """Level to the text that stands in the slot; an item may have texts of its own."""
    base: str
    """The level that stands there while other factors are changed."""
    placebo: bool = False
    """A change that should not matter, such as a paraphrase: its flips must be near those of `IDENTITY`."""

    def __post_init__(self) -> None:
        if self.name in (BASE, IDENTITY, OPTIONS) or not _SLOT.fullmatch("{{" + self.name + "}}"):
            raise UserError(
                f"factor {self.name!r}: a name is letters, digits, - and _, and none of {BASE}, {IDENTITY}, {OPTIONS}."
            )
        if len(self.levels) < 2 or self.base not in self.levels:
            raise UserError(
                f"factor {self.name!r}: expected at least two levels, one of them the base {self.base!r}, got "
                f"{', '.join(self.levels) or 'none'}.{did_you_mean(self.base, self.levels)}"
            )
        _check_different(f"factor {self.name!r}", self.levels, self.placebo)

    @property
    def others(self) -> tuple[str, ...]:
        """The levels but the base."""
        return tuple(level for level in self.levels if level != self.base)


@dataclass(frozen=True)
class ProbeItem:
    """One base item.

    Raises:
        UserError: If there are fewer than two options, one is empty or stands twice, or the target is none of them.
    """

    id: str
    text: str
    """What the user message says; `{{factor}}` is filled with a level's text, `{{options}}` with the options. An item
    without a factor's slot is not asked about that factor."""
    options: tuple[str, ...]
    system: str = ""
    """System text, with slots as in `text`."""
    target: int | None = None
    """Index of the option whose probability is followed, such as agreement with the speaker."""
    texts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Texts of this item in place of the factor's own: by factor and level."""

    def __post_init__(self) -> None:
        many = len(self.options)
        if not 2 <= many <= len(LETTERS) or not all(self.options) or len(set(self.options)) < many:
            raise UserError(
                f"item {self.id!r}: expected 2 to {len(LETTERS)} different non-empty options, got {self.options}."
            )
        if self.target is not None and not 0 <= self.target < many:
            raise UserError(f"item {self.id!r}: target {self.target} is no index of {many} options.")

    @classmethod
    def written(
        cls,
        id: str,
        base: str,
        span: str,
        factor: str,
        variants: Mapping[str, str],
        options: Sequence[str],
        **rest: Any,
    ) -> Self:
        """Make an item from texts written in full, which may differ from the base in one span only.

        Args:
            id: Of the item.
            base: The base text.
            span: The part of it that the factor changes; it stands there once.
            factor: Name of the factor.
            variants: Level to text; the level whose text is `base` is the factor's base.
            options: The options.
            rest: Other fields.

        Raises:
            UserError: If a variant differs from the base outside the span.
        """
        spans = {}
        for level, text in variants.items():
            try:
                spans[level] = changed_span(base, text, span)
            except UserError as error:
                raise UserError(f"item {id!r}, level {level!r}: {error}") from None
        head, _, tail = base.partition(span)
        return cls(id, f"{head}{{{{{factor}}}}}{tail}", tuple(options), texts={factor: spans}, **rest)

    @property
    def slots(self) -> tuple[str, ...]:
        """Slots in the order they first appear."""
        return tuple(dict.fromkeys(_SLOT.findall(self.system) + _SLOT.findall(self.text)))

    @property
    def orders(self) -> int:
        """In how many orders the options are shown: each option stands once in each place, or there is no list."""
        return len(self.options) if OPTIONS in self.slots else 1


def changed_span(base: str, variant: str, span: str) -> str:
    """Return what stands in the variant instead of a span of the base.

    Raises:
        UserError: If the span does not stand in the base exactly once, or the variant differs outside it.
    """
    if not span or base.count(span) != 1:
        raise UserError(f"the span {span!r} stands {base.count(span) if span else 0} times in the base; expected once.")
    head, _, tail = base.partition(span)
    if variant.startswith(head) and variant[len(head) :].endswith(tail):
        return variant[len(head) : len(variant) - len(tail)]
    shared = enumerate(zip(head, variant, strict=False))
    before = next((i for i, (a, b) in shared if a != b), min(len(head), len(variant)))
    where = f"before it, at {variant[before : before + 30]!r}" if before < len(head) else "after it"
    raise UserError(
        f"the variant must differ from the base in {span!r} alone, and differs {where}; change nothing else, or "
        "declare a longer span."
    )


@dataclass(frozen=True)
class ProbeQuestion:
    """One question as the answerer gets it."""

    item: str
    factor: str
    """`BASE`, `IDENTITY`, or a factor's name."""
    level: str
    order: int
    """How far the options are rotated: option (place + order) stands in a place, counted modulo how many there are."""
    chat: Chat
    shown: tuple[str, ...]
    """What may be replied, in the order shown."""
    seed: int
    """For answerers that draw; follows from the probe's seed and the question alone."""

    @property
    def key(self) -> str:
        """Key of the stored answer."""
        return f"{self.item}/{self.factor}/{self.level}/{self.order}"


Answer = int | str | Sequence[float] | None
"""Place of a reply among those shown, the reply itself, a probability for each, or None: no answer."""
Answerer = Callable[[Sequence[ProbeQuestion]], Sequence[Answer]]


def answer_by_logprob(model: LanguageModel) -> Answerer:
    """Return an answerer that gives a model's probabilities of the replies, given that it is one of them.

    Probabilities are of whole replies, which favours short ones. That is the same in base and variant; where it drowns
    the effect, ask in the style `letters`.
    """

    def answer(questions: Sequence[ProbeQuestion]) -> list[Answer]:
        from rolecraft.agents import option_probabilities

        chats, shown = [question.chat for question in questions], [question.shown for question in questions]
        return [[float(share) for share in shares] for shares in option_probabilities(model, chats, shown)]

    return answer


def answer_by_policy(policy: Policy, role: str | None = None) -> Answerer:
    """Return an answerer that lets a policy choose among the replies as among legal actions.

    Args:
        policy: Sees the user message only: how its role is put on is its own affair.
        role: Id of the role it plays.
    """

    def answer(questions: Sequence[ProbeQuestion]) -> list[Answer]:
        from rolecraft.worlds import View

        for question in questions:
            if question.chat[0]["role"] == "system" and question.chat[0]["content"]:
                raise UserError(f"item {question.item!r}: a policy sees no system text; leave `system` empty.")
        views = [View("subject", q.chat[-1]["content"], q.shown, q.seed, role=role) for q in questions]
        return [act.action for act in policy.act(views)]

    return answer


class Probe:
    r"""Items and factors, laid out as questions.

    Example:
        ```python
        speaker = Factor("speaker", {"nurse": "A nurse", "judge": "A judge"}, base="nurse")
        text = "{{speaker}} says the bridge is safe. Is it?\n{{options}}"
        probe = Probe([ProbeItem("bridge", text, ("yes", "no"), target=0)], [speaker])
        print(probe.report(probe.ask(answer_by_logprob(model))).text())
        ```
    """

    def __init__(self, items: Sequence[ProbeItem], factors: Sequence[Factor], style: Style = "texts") -> None:
        """Check that every question can be laid out.

        Args:
            items: The base items.
            factors: What is changed, one at a time.
            style: How options are listed and replied.

        Raises:
            UserError: If there are no items, an id or a factor comes twice, an item has a slot or texts of no factor,
                or no item has a factor's slot.
        """
        if style not in get_args(Style):
            raise UserError(f"style must be one of {', '.join(get_args(Style))}, got {style!r}.")
        self.items, self.factors, self.style = tuple(items), {factor.name: factor for factor in factors}, style
        if not items:
            raise UserError("a probe needs at least one item, got none.")
        for what, names in (("item", [item.id for item in items]), ("factor", [factor.name for factor in factors])):
            if twice := [name for name, count in Counter(names).items() if count > 1]:
                raise UserError(f"{what} {twice[0]!r} is given twice; give each its own name.")
        for item in items:
            self._check(item)
        for name in self.factors:
            if not any(name in item.slots for item in items):
                raise UserError(f"no item has the slot {{{{{name}}}}}, so the factor {name!r} would change nothing.")

    def _check(self, item: ProbeItem) -> None:
        where = f"item {item.id!r}"
        for slot in item.slots:
            if slot != OPTIONS and slot not in self.factors:
                raise UserError(f"{where}: {{{{{slot}}}}} is no factor.{did_you_mean(slot, self.factors)}")
        if self.style == "letters" and OPTIONS not in item.slots:
            raise UserError(
                f"{where}: the style 'letters' needs the slot {{{{{OPTIONS}}}}}, or nobody knows what A is."
            )
        for name, texts in item.texts.items():
            if name not in self.factors:
                raise UserError(f"{where}: texts of {name!r}, which is no factor.{did_you_mean(name, self.factors)}")
            factor = self.factors[name]
            for level in texts:
                if level not in factor.levels:
                    raise UserError(f"{where}: {name} has no level {level!r}.{did_you_mean(level, factor.levels)}")
            _check_different(f"{where}: {name}", {**factor.levels, **texts}, factor.placebo)

    def render(self, item: ProbeItem, factor: str = BASE, level: str = "", order: int = 0) -> Chat:
        """Return the chat in which one factor has a level and all others their base."""
        fill = {
            name: {**each.levels, **item.texts.get(name, {})}[level if name == factor else each.base]
            for name, each in self.factors.items()
        }
        shown = _rotated(item.options, order)
        lines = [f"{LETTERS[i]}. {text}" if self.style == "letters" else f"- {text}" for i, text in enumerate(shown)]
        fill[OPTIONS] = "\n".join(lines)
        user, system = (_SLOT.sub(lambda slot: fill[slot[1]], text) for text in (item.text, item.system))
        return chat(user, system)

    def questions(self, seed: int = 0) -> list[ProbeQuestion]:
        """Return every question: base, identity, and each other level of each factor, in all orders of the options."""
        return [
            ProbeQuestion(
                item.id,
                factor,
                level,
                order,
                self.render(item, factor, level, order),
                tuple(LETTERS[: len(item.options)]) if self.style == "letters" else _rotated(item.options, order),
                derive_seed(seed, "probe", item.id, factor, level, order),
            )
            for item in self.items
            for factor, level in self._variants(item)
            for order in range(item.orders)
        ]

    def _variants(self, item: ProbeItem) -> list[tuple[str, str]]:
        kept = [factor for name, factor in self.factors.items() if name in item.slots]
        return [(BASE, ""), (IDENTITY, ""), *((factor.name, level) for factor in kept for level in factor.others)]

    def ask(
        self, answer: Answerer, *, seed: int = 0, store: RunStore | None = None, stage: str = "probe"
    ) -> list[ProbeRow]:
        """Ask every question, or with a store those that have no answer yet.

        Args:
            answer: Answers questions in batches; what it says of one must not depend on its neighbours.
            seed: Of answerers that draw.
            store: Where answers are kept as they come.
            stage: Of the store.

        Raises:
            UserError: If the number of answers is not that of the questions, or one is no answer.
        """
        questions = self.questions(seed)
        done: dict[str, Any] = store.rows(stage) if store else {}
        todo = [question for question in questions if question.key not in done]
        for start in range(0, len(todo), _CHUNK):
            part = todo[start : start + _CHUNK]
            answers = answer(part)
            if len(answers) != len(part):
                raise UserError(f"got {len(answers)} answers to {len(part)} questions; give one per question.")
            fresh = {q.key: _shares(q, given) for q, given in zip(part, answers, strict=True)}
            if store:
                store.put_many(stage, fresh)
            done |= fresh
        return [
            ProbeRow(q.item, q.factor, q.level, q.order, None if (p := done[q.key]) is None else tuple(map(float, p)))
            for q in questions
        ]

    def report(self, rows: Sequence[ProbeRow], *, draws: int = 2000, seed: int = 0) -> ProbeReport:
        """Return what the answers say; see `ProbeReport`.

        Args:
            rows: What `ask` returned, in any order.
            draws: Bootstrap resamples of the items.
            seed: Of the resampling.
        """
        variants = {
            (factor, level): self.factors[factor].placebo if factor in self.factors else True
            for item in self.items
            for factor, level in self._variants(item)
            if factor != BASE
        }
        targets = {item.id: item.target for item in self.items}
        orders = {item.id: item.orders for item in self.items}
        return report_probe(rows, variants, targets, orders, draws=draws, seed=seed)


def _check_different(where: str, levels: Mapping[str, str], placebo: bool) -> None:
    first: dict[str, str] = {}
    for level, text in levels.items():
        if first.setdefault(text, level) != level and not placebo:
            raise UserError(
                f"{where}: the levels {first[text]!r} and {level!r} have the same text, so nothing would change; say "
                "placebo=True if that is meant."
            )


def _rotated(options: tuple[str, ...], order: int) -> tuple[str, ...]:
    return options[order:] + options[:order]


def _shares(question: ProbeQuestion, given: Answer) -> list[float] | None:
    """Return the probability of each option, in the item's own order; None for no answer."""
    many, where = len(question.shown), f"{question.key}: answer {given!r}"
    if isinstance(given, str):
        shown = [reply.casefold() for reply in question.shown]
        given = shown.index(given.strip().casefold()) if given.strip().casefold() in shown else None
    if given is None:
        return None
    if isinstance(given, int):
        if isinstance(given, bool) or not 0 <= given < many:
            raise UserError(f"{where} is no place among {many} replies.")
        shares = [float(place == given) for place in range(many)]
    else:
        shares = [float(share) for share in given]
        total = math.fsum(shares) if all(share >= 0 for share in shares) else math.nan
        if len(shares) != many or not abs(total - 1) <= 1e-6:
            raise UserError(f"{where}: expected {many} probabilities that sum to 1.")
    return [shares[(option - question.order) % many] for option in range(many)]
