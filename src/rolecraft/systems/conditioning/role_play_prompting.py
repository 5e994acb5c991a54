"""Role-Play Prompting: better zero-shot reasoning by a role that the model accepts in its own words (arXiv 2308.07702).

Exact: stage A samples replies to a role-setting message and picks one on development questions; stage B asks in the
dialogue [role-setting, role-feedback, question]; stage C extracts the answer in the same dialogue; exact match; the
ladder no role < role in one turn < role and feedback; "think step by step" as the other baseline.
Adapted: SmolLM2-135M cannot be graded on free text, so the answer is the option of highest mean log-probability after
the prompt (`scoring=likelihood`); generated tasks for the twelve public sets; role settings in our own words. The
control is a role without bearing on the task, with feedback sampled and selected in the same way; few-shot answers
show whether there is room for an effect. Beside accuracy, the share of free replies that show intermediate steps.
Small: `rolecraft systems run role-play-prompting`. Paper's size: `--full --set model=openai:NAME@URL --set data=FOLDER`
with one file of questions per public set (see `rolecraft.worlds.read_items`); expected: role-play above zero-shot on
10 of 12.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from rolecraft.conditioning import RolePlayPrompt, sample_feedback
from rolecraft.errors import UserError
from rolecraft.models import Chat, LanguageModel, Message, Sampling, chat, load_model
from rolecraft.systems._base import ROWS, Result, StudyConfig, System, Verdict, row_key

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.measures import Interval
    from rolecraft.worlds import Asked, ClosedItem, ClosedTask, Frame

SYSTEM = System(
    number=98,
    name="role-play-prompting",
    title="Better Zero-Shot Reasoning with Role-Play Prompting",
    arxiv="2308.07702",
    family="conditioning",
    claim="a task-fitting role that the model has accepted in its own words answers better than the bare question",
    published="10 of 12 sets above zero-shot, e.g. AQuA 53.5 to 63.8, last letters 23.8 to 84.2 (gpt-3.5-turbo-0613)",
)

# The method; stage A's draws and the dialogue are `rolecraft.conditioning.sample_feedback` and `RolePlayPrompt`.

ROLE_SETTINGS: Mapping[str, tuple[str, str]] = {
    "maths teacher": (
        "You are a maths teacher who works every sum out correctly and shows how. I am your pupil with a problem.",
        "pupil",
    ),
    "calendar teacher": (
        "You are a teacher of calendars who never gets a date wrong. I am your pupil and ask you about dates.", "pupil",
    ),
    "coin": (
        "You are the coin itself: you feel every flip and always know which side is up. I am the player who asks you.",
        "player",
    ),
    "spelling teacher": (
        "You teach spelling and pick letters out of words without a slip. I am your pupil and give you the words.",
        "pupil",
    ),
    "recorder": (
        "You keep the record of a swapping game and always know who holds what. I am the game's host and ask you.",
        "host",
    ),
    "quiz champion": (
        "You are a quiz champion who has never missed a question. I am the quiz master and put the questions.",
        "quiz master",
    ),
    "florist": (
        "You are a florist who binds the loveliest bouquets in town. I am your customer and look at your flowers.",
        "customer",
    ),
}  # fmt: skip
"""Role to role-setting message and the user's counterpart; `florist` has no bearing on any task."""

TASK_ROLES: Mapping[str, str] = {
    "arithmetic": "maths teacher",
    "date": "calendar teacher",
    "coin-flip": "coin",
    "last-letters": "spelling teacher",
    "object-swap": "recorder",
}
"""The role that fits a generated task; public sets with numbers take the maths teacher, others the quiz champion."""
UNFIT = "florist"


@dataclass(frozen=True)
class QuestionSet:
    """A task, questions to choose a role-feedback by, and those to report on.

    Raises:
        UserError: If a question stands in both sets, by id or by text.
    """

    task: ClosedTask
    dev: Sequence[ClosedItem]
    test: Sequence[ClosedItem]

    def __post_init__(self) -> None:
        from rolecraft.learning import refuse_overlap

        refuse_overlap(dev=[item.id for item in self.dev], test=[item.id for item in self.test])
        shared = {item.question for item in self.dev} & {item.question for item in self.test}
        if shared:
            raise UserError(
                f"dev and test share {len(shared)} question(s) under other ids ({min(shared)[:60]!r}): choosing on "
                "what is reported is leakage; keep them apart."
            )


def select_feedback(
    candidates: Sequence[RolePlayPrompt], questions: QuestionSet, solve: Callable[[Sequence[Asked]], Sequence[bool]]
) -> tuple[RolePlayPrompt, list[float]]:
    """Choose the candidate with the best accuracy on the development questions; the first, if several have it.

    Args:
        candidates: At least one.
        questions: Only the development questions are asked.
        solve: Answers questions: right or wrong.

    Returns:
        The chosen prompt, and the accuracy of each candidate.

    Raises:
        UserError: If there is no candidate or no development question.
    """
    from rolecraft.worlds import Asked

    if not candidates or not questions.dev:
        raise UserError(
            f"got {len(candidates)} candidates and {len(questions.dev)} development questions; give at least one each."
        )
    asked = [Asked(item, questions.task, candidate.frame) for candidate in candidates for item in questions.dev]
    right = list(solve(asked))
    size = len(questions.dev)
    table = [sum(right[n * size : (n + 1) * size]) / size for n in range(len(candidates))]
    return candidates[table.index(max(table))], table


_STEP = re.compile(r"\d\s*[-+*/x×=]\s*\d|=\s*\d")


def shows_steps(reply: str) -> bool:
    """Return whether a reply holds intermediate steps: two whole sentences or more, or an equation."""
    return bool(_STEP.search(reply)) or len(re.findall(r"\w[^.!?\n]*[.!?\n](?=\s|$)", reply)) >= 2


# The study


@dataclass(frozen=True)
class Config(StudyConfig):
    """Four generated tasks on the embedded model."""

    model: str = "local:smollm2"
    """Paper: gpt-3.5-turbo-0613, Llama 2."""
    tasks: tuple[str, ...] = ("coin-flip", "arithmetic", "object-swap", "last-letters")
    """Generated tasks (see `rolecraft.worlds.TASKS`). Paper: twelve public sets."""
    data: str = ""
    """Folder of public sets, one file each, instead of generated tasks."""
    items: int = 24
    """Test questions per task and seed. Paper: the whole set."""
    dev_items: int = 10
    """Questions the feedback is chosen by; never among the test questions."""
    feedbacks: int = 3
    """Replies sampled to the role-setting. Paper: several."""
    scoring: Literal["likelihood", "decode"] = "likelihood"
    """Choose among options by log-probability, or decode and extract. Paper: decode."""
    free_items: int = 6
    """Test questions per task and seed that are also answered in free text (likelihood scoring only)."""
    max_tokens: int = 48
    """Of a free reply. Paper: 512."""

    def __post_init__(self) -> None:
        """Refuse sizes that leave nothing to measure."""
        for name in ("items", "dev_items", "feedbacks", "max_tokens"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.scoring not in ("likelihood", "decode"):
            raise UserError(f"scoring must be likelihood or decode, got {self.scoring!r}.")

    @classmethod
    def full(cls) -> Self:
        """Return the paper's size; name a served model and the folder of the public sets."""
        return cls(seeds=(0,), items=100_000, dev_items=50, feedbacks=5, scoring="decode", max_tokens=512)


ARMS = ("zero-shot", "step-by-step", "role-line", "role-feedback", "unfit-role", "few-shot")
"""Bare question; with the trigger; role in the same message; role accepted; control: a role without bearing; ceiling:
three development questions with their answers as earlier turns."""
SHOWN = 3
STEP_BY_STEP = "Let us think step by step."


def run(config: Config, store: RunStore) -> Result:
    """Load the model and run every arm on every seed."""
    if store.missing("cells", [row_key(arm, seed) for seed in config.seeds for arm in ARMS]):
        run_on(load_model(config.model), config, store)
    return Result.read(store)


def run_on(model: LanguageModel, config: Config, store: RunStore) -> Result:
    """Run what is missing with this model."""
    for seed in config.seeds:
        sets = [_questions(config, name, seed) for name in _names(config)]
        for key in store.missing("cells", [row_key(arm, seed) for arm in ARMS]):
            _run_cell(model, config, store, key.split("/")[0], seed, sets)
    return Result.read(store)


def _run_cell(
    model: LanguageModel, config: Config, store: RunStore, arm: str, seed: int, sets: Sequence[QuestionSet]
) -> None:
    from rolecraft.worlds import Asked, solve_by_choice, solve_freely

    free = Sampling(max_tokens=config.max_tokens, temperature=0.0, top_p=1.0)
    decode = config.scoring == "decode"

    def solve(asked: Sequence[Asked]) -> list[bool]:
        if decode:
            return [solved.grade.correct for solved in solve_freely(model, asked, free)]
        return solve_by_choice(model, asked)

    frames = {}
    for one in sets:
        frames[one.task.name], told = _frame(model, config, arm, seed, one, solve)
        store.put("feedback", row_key(arm, seed, one.task.name), told)
    shown = {item.id for one in sets for item in (one.test if decode else one.test[: config.free_items])}
    asked = [Asked(item, one.task, frames[one.task.name]) for one in sets for item in one.test]
    spoken = {s.item.id: s for s in solve_freely(model, [a for a in asked if a.item.id in shown], free)}
    right = [spoken[a.item.id].grade.correct for a in asked] if decode else solve_by_choice(model, asked)
    rows: dict[str, Any] = {}
    for (item, task, _), correct in zip(asked, right, strict=True):
        row: dict[str, Any] = {
            "arm": arm, "seed": seed, "unit": item.id, "task": task.name, "correct": float(correct),
            "chance": 1 / len(item.options) if item.options else None,
        }  # fmt: skip
        if item.id in spoken:
            said = spoken[item.id]
            row |= {
                "exact": float(said.grade.correct), "unparsed": float(said.grade.unparsed),
                "steps": float(shows_steps(said.reasoning)), "words": len(said.reasoning.split()),
                "reasoning": said.reasoning, "raw": said.grade.raw, "cleaned": said.grade.cleaned,
            }  # fmt: skip
        rows[row_key(arm, seed, item.id)] = row
    store.put_many(ROWS, rows)
    store.put("cells", row_key(arm, seed), {"rows": len(rows)})


def _frame(
    model: LanguageModel, config: Config, arm: str, seed: int, given: QuestionSet,
    solve: Callable[[Sequence[Asked]], Sequence[bool]],
) -> tuple[Frame, dict[str, Any]]:  # fmt: skip
    """Return how an arm asks the questions of a task, and what there is to tell about it."""
    if arm == "zero-shot":
        return chat, {}
    if arm == "step-by-step":
        return _step_by_step, {}
    if arm == "few-shot":
        from rolecraft.worlds import right_option

        history: list[Message] = []
        for item in given.dev[:SHOWN]:
            shown = item.options[right_option(item)] if item.options else item.answer
            history += [{"role": "user", "content": item.question}, {"role": "assistant", "content": shown}]
        return lambda question: chat(question, history=history), {}
    fallback = "maths teacher" if given.task.answer_type == "number" else "quiz champion"
    role = UNFIT if arm == "unfit-role" else TASK_ROLES.get(given.task.name, fallback)
    setting, counterpart = ROLE_SETTINGS[role]
    prompt = RolePlayPrompt(setting, user_counter_role=counterpart)
    if arm == "role-line":
        return prompt.frame, {"role": role}
    replies = sample_feedback(model, setting, config.feedbacks, seed=seed)
    candidates = [replace(prompt, role_feedback=reply) for reply in replies]
    chosen, table = select_feedback(candidates, given, solve)
    return chosen.frame, {"role": role, "feedback": chosen.role_feedback, "candidates": replies, "dev_accuracy": table}


def _step_by_step(question: str) -> Chat:
    return chat(f"{question}\n{STEP_BY_STEP}")


def _names(config: Config) -> list[str]:
    if not config.data:
        return list(config.tasks)
    names = sorted(path.name for path in Path(config.data).glob("*") if path.is_file())
    if not names:
        raise UserError(f"data: {config.data!r} holds no files; give a folder with one file of questions per set.")
    return names


def _questions(config: Config, name: str, seed: int) -> QuestionSet:
    """Return a task with its development and its test questions."""
    from rolecraft.worlds import make_items, read_items, task_named

    if config.data:
        task, items = read_items(Path(config.data) / name)
        if len(items) <= config.dev_items:
            raise UserError(
                f"{name}: {len(items)} questions, of which {config.dev_items} are for choosing; none is left."
            )
    else:
        task, items = task_named(name), make_items(name, config.dev_items + config.items, seed)
    return QuestionSet(task, items[: config.dev_items], items[config.dev_items : config.dev_items + config.items])


def verdict(result: Result) -> Verdict:
    """Demand a gain over the bare question, by items and by task x seed cells, and over the unfit role."""
    effect = result.difference("correct", "role-feedback", "zero-shot")
    control = result.difference("correct", "unfit-role", "zero-shot")
    specific = result.difference("correct", "role-feedback", "unfit-role")
    cells = over_cells(result, "role-feedback", "zero-shot")
    base, top = result.mean("correct", "zero-shot"), result.mean("correct", "few-shot")
    known = [row["chance"] for row in result.rows if row["arm"] == "zero-shot" and row["chance"] is not None]
    chance = f" where chance is {sum(known) / len(known):.2f}" if known else ""
    parts = [
        f"room for an effect: zero-shot {base}{chance}, few-shot {top}",
        "by task " + ", ".join(f"{name} {gain:+.2f}" for name, gain in gains(result).items()),
    ]
    steps = result.difference("steps", "role-feedback", "zero-shot")
    parts += [
        f"over task x seed cells {cells}",
        f"against the unfit role {specific}",
        f"role in one message {result.difference('correct', 'role-line', 'zero-shot')}",
        f"step by step {result.difference('correct', 'step-by-step', 'zero-shot')}",
        f"replies with intermediate steps {result.mean('steps', 'role-feedback').estimate:.2f} "
        f"against {result.mean('steps', 'zero-shot').estimate:.2f}: {steps}",
    ]
    return Verdict.when(
        reproduced=effect.low > 0 and cells.low > 0 and specific.low > 0, effect=effect, control=control,
        note="; ".join(parts),
    )  # fmt: skip


def gains(result: Result) -> dict[str, float]:
    """Return, per task, the accuracy of role and feedback less that of the bare question."""
    found: dict[str, dict[str, list[float]]] = {}
    for row in result.rows:
        found.setdefault(row["task"], {}).setdefault(row["arm"], []).append(row["correct"])
    means = {task: {arm: sum(v) / len(v) for arm, v in arms.items()} for task, arms in found.items()}
    return {task: arms["role-feedback"] - arms["zero-shot"] for task, arms in means.items()}


def over_cells(result: Result, a: str, b: str) -> Interval:
    """Bootstrap the difference over task x seed cells, whose questions share one role-feedback."""
    from rolecraft.measures import paired_bootstrap

    scores: dict[tuple[Any, Any], dict[str, float]] = {}
    for row in result.rows:
        scores.setdefault((row["seed"], row["unit"]), {})[row["arm"]] = row["correct"]
    tasks = {(row["seed"], row["unit"]): f"{row['task']}/{row['seed']}" for row in result.rows}
    pairs = {key: found for key, found in scores.items() if {a, b} <= set(found)}
    return paired_bootstrap([found[a] - found[b] for found in pairs.values()], [tasks[key] for key in pairs])
