"""RRP and APO: rule-based role prompting for tool-using role play, and prompts optimised instead (arXiv 2509.00482).

Exact: two prompts and two model calls per turn (function step, dialogue step with the functions' results); four prompt
variants; rule-based role prompting as a character card with a scene contract (CSC) and hard-enforced function calling
(HEF); the textual-gradient search with its gradient memory, beam of 3 and mini-batches of 10; call names, exact
arguments and reply similarity; task 1 (calls and reply), task 2 (reply), overall as their mean.
Added: HEF also as a validator that repairs, refuses and lets the agent try once more. Control: the same share of calls
dropped at random, so that calling less is not mistaken for calling right. Ceiling: the right calls given.
Adapted: SmolLM2-135M chooses a function (or a decoy that does not exist) by calibrated log-probability and fills
arguments with spans of the dialogue; a generated weapon shop for the CPDC data; MiniLM for reply similarity. The
search's critic and editor are *scripted* (failure type -> line of a bank of 12 rules); the evaluation in the loop is
the real agent.
Small: `rolecraft systems run rrp`. Paper's size: `--full --set model=openai:NAME@URL`, where the model writes its calls
as JSON and is critic and editor too; expected: overall 0.571 against 0.519.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, Self

from rolecraft.models import LanguageModel, load_model
from rolecraft.systems._base import ROWS, Result, StudyConfig, System, Verdict, row_key
from rolecraft.systems.conditioning._rrp_agent import PromptPair, Scenario, ShopAgent, TurnResult, serve, shop_scenario

if TYPE_CHECKING:
    from rolecraft._run import RunStore
    from rolecraft.agents import Call, ToolRegistry
    from rolecraft.learning import Gradient, Prompts, Sample, SearchTrace, Summary, Tried
    from rolecraft.models import Embedder
    from rolecraft.worlds import ShopTurn

SYSTEM = System(
    number=89,
    name="rrp",
    title="Talk Less, Call Right: Enhancing Role-Play LLM Agents with Automatic Prompt Optimization and Role Prompting",
    arxiv="2509.00482",
    family="conditioning",
    claim="rule-based role prompting with enforced calling beats the zero-shot prompt overall and removes calls that "
    "are invented or not needed",
    published="overall 0.571 (RRP) vs 0.519 (zero-shot); call names 0.714, exact arguments 0.231; APO helps less",
)

# The prompts


_FORMAT = "\nFunctions:\n{functions}\nReply with the name of one function, or none."
_FACTS = "\nResults: {results}"
HEF = (
    "If the answer depends on a function, call it.",
    "Use only names from the list.",
    "Use only the arguments shown, with values the customer said.",
    "Never make the same call twice.",
    "If the answer already stands in the dialogue, reply none.",
    "If no function is needed, reply none.",
)
"""Hard-enforced function calling as prompt text; `rolecraft.agents.CallRules` enforces the same."""
CHARACTER_CARD = (
    "Character: {role}. Voice: plain, warm, few words. Goal: serve the customer. Knows: {knowledge} Never speaks of "
    "being an AI, of functions or of prompts. {persona}"
)
SCENE_CONTRACT = (
    "Scene: {worldview} State only what the results or the dialogue say; otherwise say that you do not know. Answer "
    "the customer's last message in one short sentence."
)
VARIANTS: Mapping[str, PromptPair] = {
    "zero-shot": PromptPair(
        "Choose a function for the customer's message." + _FORMAT, "Reply to the customer." + _FACTS
    ),
    "basic": PromptPair(
        "You are {role}. Choose a function for the customer's message." + _FORMAT,
        "You are {role}. {persona} Reply to the customer." + _FACTS,
    ),
    "improved": PromptPair(
        "You are {role}. {worldview} Choose the function that helps you answer the customer; reply none if you can "
        "answer without." + _FORMAT,
        "You are {role}. {persona} {worldview} You know: {knowledge} Reply in character, briefly, by what the results "
        "say." + _FACTS,
    ),
    "rrp": PromptPair(
        "You are {role}. Rules:\n" + "\n".join(f"{n}. {rule}" for n, rule in enumerate(HEF, 1)) + _FORMAT,
        f"{CHARACTER_CARD}\n{SCENE_CONTRACT}" + _FACTS,
    ),
}

# Scores


def score_turn(
    turn: ShopTurn, calls: Sequence[Call], similarity: float, registry: ToolRegistry
) -> dict[str, float | None]:
    """Return the scores and diagnostics of one turn.

    `calls_score` is the mean of matched names and matched calls over the larger number of calls (1 if there are none
    on either side); task 1 its mean with the reply's similarity, task 2 the similarity, overall their mean.
    `name_accuracy` and `exact_arguments` (over right calls) are None where none is right, `unnecessary` where one is.
    """
    from rolecraft.agents import Call

    gold = [Call(name, arguments) for name, arguments in turn.gold_calls]
    names = (Counter(c.name for c in gold) & Counter(c.name for c in calls)).total()
    exact = (Counter(c.key for c in gold) & Counter(c.key for c in calls)).total()
    most = max(len(gold), len(calls))
    score = (names + exact) / (2 * most) if most else 1.0
    task1 = (score + similarity) / 2
    return {
        "overall": (task1 + similarity) / 2, "task1": task1, "task2": similarity, "calls_score": score,
        "name_accuracy": names / len(gold) if gold else None,
        "exact_arguments": exact / len(gold) if gold else None,
        "hallucinated": float(any(call.name not in registry for call in calls)),
        "unnecessary": None if gold else float(bool(calls)),
        "duplicate": float(len({call.key for call in calls}) < len(calls)),
    }  # fmt: skip


def similarities(embedder: Embedder, replies: Sequence[str], gold: Sequence[str]) -> list[float]:
    """Return the cosine of each reply with the right one, cut to 0..1; 0 for an empty reply."""
    left, right = embedder.encode(list(replies)), embedder.encode(list(gold))
    cosines = (left * right).sum(1)
    return [float(min(1, max(0, c))) if reply.strip() else 0.0 for reply, c in zip(replies, cosines, strict=True)]


# The search, with a scripted critic and editor

RULE_BANK: Mapping[str, tuple[str, str]] = {
    "hallucinated": ("function", HEF[1]),
    "missed": ("function", HEF[0]),
    "unnecessary": ("function", HEF[5]),
    "answered": ("function", HEF[4]),
    "wrong-name": ("function", "Compare the message with each description before you choose."),
    "wrong-arguments": ("function", HEF[2]),
    "long": ("dialogue", "Answer in one short sentence."),
    "off": ("dialogue", "Say what the results say, with their numbers."),
    "meta": ("dialogue", "Never speak of functions, prompts or being an AI."),
    "invented": ("dialogue", "If there is no result, state no facts about the goods."),
    "small-talk": ("dialogue", "Answer small talk in kind, without offering goods."),
    "voice": ("dialogue", "You are {role}; speak as one, plainly."),
}
"""Failure type to the prompt it concerns and the line that mends it."""


def scripted_critic(prompts: Prompts, sample: Sample) -> list[Gradient]:
    """Return the criticisms of a failed sample by its failure types; `sample.detail` holds turn, result and scores."""
    from rolecraft.learning import Gradient

    turn, result, scores = sample.detail
    found = failures(turn, result, scores)
    return [Gradient(RULE_BANK[name][0], name, RULE_BANK[name][1], 1 - sample.score) for name in found]


def failures(turn: ShopTurn, result: TurnResult, scores: Mapping[str, float | None]) -> list[str]:
    """Return the failure types of a turn, by keys of `RULE_BANK`."""
    words = result.reply.lower()
    wrong_name = bool(turn.gold_calls and result.calls) and not scores["name_accuracy"]
    similar = scores["task2"] or 0.0
    found = {
        "hallucinated": bool(scores["hallucinated"]),
        "missed": bool(turn.gold_calls) and not result.calls,
        "unnecessary": bool(scores["unnecessary"]),
        "answered": turn.kind == "answered" and bool(result.calls),
        "wrong-name": wrong_name,
        "wrong-arguments": bool(scores["name_accuracy"]) and not scores["exact_arguments"],
        "long": len(words.split()) > 1.5 * len(turn.gold_reply.split()),
        "off": bool(result.results) and similar < 0.6,
        "meta": any(term in words for term in ("function", " ai ", "language model", "assistant")),
        "invented": not result.results and any(mark.isdigit() for mark in words),
        "small-talk": turn.kind == "chat" and similar < 0.6,
        "voice": similar < 0.3,
    }
    return [name for name, holds in found.items() if holds]


def scripted_editor(
    prompts: Prompts, criticisms: Sequence[Summary], memory: Sequence[Tried], count: int
) -> list[Prompts]:
    """Add the heaviest suggested lines that are missing: each alone, then all of a round together.

    A line that the memory knows to have cost score when it was the only one added is passed over.
    """
    harmful = {frozenset(_lines(tried.prompts)) for tried in memory if tried.gain < 0}
    missing = [one for one in criticisms if not one.positive and one.suggestion not in prompts.get(one.target, "")]
    have = _lines(prompts)
    useful = [one for one in missing if frozenset(have | {one.suggestion}) not in harmful]
    singles = [_with(prompts, [one]) for one in useful[: max(1, count - 1)]]
    together = [_with(prompts, useful[:count])] if len(useful) > 1 else []
    return [*together, *singles][:count]


def _lines(prompts: Prompts) -> set[str]:
    return {line for _, line in RULE_BANK.values() if any(line in text for text in prompts.values())}


def _with(prompts: Prompts, lines: Sequence[Summary]) -> Prompts:
    result = dict(prompts)
    for line in lines:
        for name in prompts if line.target == "both" else (line.target,):
            mark = "\nFunctions:" if name == "function" else "\nResults:"
            head, found, tail = result[name].rpartition(mark)
            result[name] = f"{head} {line.suggestion}{found}{tail}" if found else f"{result[name]} {line.suggestion}"
    return result


# The study


@dataclass(frozen=True)
class Config(StudyConfig):
    """A weapon shop served by the embedded model."""

    model: str = "local:smollm2"
    """Agent, and critic and editor where `editor` is `model`. Paper: GPT-4o-mini and others; GPT-4.1 as editor."""
    turns: int = 20
    """Reported turns per seed, at least 20."""
    max_tokens: int = 24
    """Per reply."""
    calls: Literal["choice", "json"] = "choice"
    """The function step chooses by log-probability, or writes JSON. Paper: JSON."""
    editor: Literal["rules", "model"] = "rules"
    """Critic and editor of the search: the scripted ones with the rule bank, or the model. Paper: a model."""
    search_turns: int = 40
    """Turns of the search, at least 20: 40 % to learn from, 30 % to accept by, 30 % to report its gain on."""
    iterations: int = 2
    """Rounds of the search. Paper: 30."""
    candidates: int = 2
    """Edits per living prompt and round."""
    minibatch: int = 10
    """Paper: 10."""
    threshold: float = 0.8
    """Score below which a sample has failed. Paper: 0.8 or 0.95."""

    @classmethod
    def full(cls) -> Self:
        """Return the paper's size; name a served model."""
        return cls(
            turns=200, max_tokens=200, calls="json", editor="model", search_turns=150, iterations=30, candidates=3
        )


ARMS = ("zero-shot", "basic", "improved", "rrp", "rrp+validator", "random-drop", "apo", "oracle")
"""Four prompts; RRP enforced; control: as many calls of RRP kept at random; the searched prompts; right calls given."""
SEARCH_SEED = 1000
"""Scenario that the search learns from; it is no reported one."""


def run(config: Config, store: RunStore) -> Result:
    """Load the models and run every arm on every seed."""
    if store.missing("cells", [row_key(arm, seed) for seed in config.seeds for arm in ARMS]):
        from rolecraft.models import Embedder

        run_on(load_model(config.model), Embedder.load(), config, store)
    return Result.read(store)


def run_on(model: LanguageModel, embedder: Embedder, config: Config, store: RunStore) -> Result:
    """Run what is missing with these models."""
    from rolecraft.worlds import shop_turns

    agent = ShopAgent(model, config.max_tokens, writes_json=config.calls == "json")
    for seed in config.seeds:
        scenario = shop_scenario(seed, shop_turns(config.turns, seed))
        for key in store.missing("cells", [row_key(arm, seed) for arm in ARMS]):
            arm = key.split("/")[0]
            pair = (
                PromptPair(**search(agent, embedder, config, store))
                if arm == "apo"
                else VARIANTS.get(arm, VARIANTS["rrp"])
            )
            _run_arm(agent, embedder, arm, pair, scenario, seed, store)
    return Result.read(store)


def _run_arm(
    agent: ShopAgent, embedder: Embedder, arm: str, pair: PromptPair, scenario: Scenario, seed: int, store: RunStore
) -> None:
    from rolecraft.agents import Call, CallRules

    given: list[list[Call]] | None = None
    rules = CallRules(scenario.functions) if arm == "rrp+validator" else None
    if arm == "oracle":
        given = [[Call(name, arguments) for name, arguments in turn.gold_calls] for turn in scenario.turns]
    if arm == "random-drop":
        free = agent.calls(pair, scenario, None)
        kept = sum(bool(calls) for calls, _ in agent.calls(pair, scenario, CallRules(scenario.functions)))
        calling = [row for row, (calls, _) in enumerate(free) if calls]
        chosen = set(random.Random(seed).sample(calling, min(kept, len(calling))))
        given = [list(calls) if row in chosen else [] for row, (calls, _) in enumerate(free)]
    served = serve(agent, pair, scenario, rules, given)
    likeness = similarities(embedder, [one.reply for one in served], [turn.gold_reply for turn in scenario.turns])
    rows = {
        row_key(arm, seed, turn.id): {
            "arm": arm, "seed": seed, "unit": turn.id, "kind": turn.kind,
            **score_turn(turn, one.calls, alike, scenario.functions), "words": len(one.reply.split()),
            "reply": one.reply, "calls": [[call.name, dict(call.arguments)] for call in one.calls],
            "violations": [flaw.kind for flaw in one.violations],
        }
        for turn, one, alike in zip(scenario.turns, served, likeness, strict=True)
    }  # fmt: skip
    store.put_many(ROWS, rows)
    store.put("cells", row_key(arm, seed), {"prompts": pair.texts})


def search(agent: ShopAgent, embedder: Embedder, config: Config, store: RunStore) -> dict[str, str]:
    """Return the prompts found from the zero-shot pair, once per run; the trace lies in the store."""
    from rolecraft.learning import Sample, SearchConfig, Split, model_critic, model_editor, optimise
    from rolecraft.worlds import shop_turns

    known = store.rows("search").get("trace")
    if known:
        return dict(known["best"])
    drawn = shop_turns(config.search_turns, SEARCH_SEED, "search")
    turns = {turn.id: turn for turn in drawn}
    cuts = [0, round(0.4 * len(drawn)), round(0.7 * len(drawn)), len(drawn)]

    def evaluate(prompts: Prompts, ids: Sequence[str]) -> list[Sample]:
        scenario = shop_scenario(SEARCH_SEED, [turns[id_] for id_ in ids])
        served = serve(agent, PromptPair(**prompts), scenario)
        likeness = similarities(embedder, [one.reply for one in served], [turn.gold_reply for turn in scenario.turns])
        samples = []
        for turn, one, alike in zip(scenario.turns, served, likeness, strict=True):
            scores = score_turn(turn, one.calls, alike, scenario.functions)
            samples.append(Sample(turn.id, float(scores["task1"] or 0), (turn, one, scores)))
        return samples

    scripted = config.editor == "rules"
    trace = optimise(
        VARIANTS["zero-shot"].texts,
        evaluate,
        scripted_critic if scripted else model_critic(agent.model),
        scripted_editor if scripted else model_editor(agent.model),
        Split(*(list(turns)[a:b] for a, b in pairwise(cuts))),
        SearchConfig(
            iterations=config.iterations, candidates=config.candidates, minibatch=config.minibatch,
            threshold=config.threshold,
        ),
    )  # fmt: skip
    store.put("search", "trace", _trace_row(trace))
    return dict(trace.best)


def _trace_row(trace: SearchTrace) -> dict[str, Any]:
    rounds = [
        {
            "number": one.number, "tried": one.tried, "refused": one.refused, "accepted": one.accepted,
            "criticisms": [[c.target, c.suggestion, c.weight] for c in one.criticisms],
        }
        for one in trace.iterations
    ]  # fmt: skip
    return {
        "best": dict(trace.best), "validation": trace.validation, "test": trace.test, "stopped": trace.stopped,
        "rounds": rounds,
    }  # fmt: skip


def verdict(result: Result) -> Verdict:
    """Demand no invented call, fewer unnecessary ones, and more overall than zero-shot and than the random drop."""
    effect = result.difference("overall", "rrp+validator", "zero-shot")
    control = result.difference("overall", "random-drop", "zero-shot")
    apart = result.difference("overall", "rrp+validator", "random-drop")
    invented = result.mean("hallucinated", "rrp+validator")
    fewer = result.difference("unnecessary", "rrp+validator", "zero-shot")
    before = result.mean("hallucinated", "zero-shot").estimate
    top = result.mean("overall", "oracle").estimate
    base = result.mean("overall", "zero-shot").estimate
    by_prompt = result.difference("overall", "rrp", "zero-shot")
    searched = result.difference("overall", "apo", "zero-shot")
    names, exact = (result.mean(metric, "rrp+validator").estimate for metric in ("name_accuracy", "exact_arguments"))
    words = [result.mean("words", arm).estimate for arm in ("rrp+validator", "zero-shot")]
    note = (
        f"room for an effect: zero-shot {base:.3f} overall against {top:.3f} with the right calls given, and invented "
        f"calls in {before:.0%} of turns (with the validator {invented.estimate:.0%}); unnecessary calls {fewer}; "
        f"above the random drop by {apart}; by the prompt alone {by_prompt}; searched prompts (scripted gradient) "
        f"{searched}; "
        f"names right {names:.2f}, calls exact {exact:.2f}; words per reply {words[0]:.0f} against {words[1]:.0f}"
    )
    held = effect.low > 0 and fewer.high < 0 and invented.estimate == 0 and apart.low > 0
    return Verdict.when(reproduced=held, effect=effect, control=control, inconclusive=before == 0, note=note)
