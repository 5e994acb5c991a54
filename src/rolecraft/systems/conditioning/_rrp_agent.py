"""The two-step agent of RRP and the scenario it is given: function step, validator with one retry, dialogue step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rolecraft.errors import UserError
from rolecraft.models import LanguageModel, Message, Sampling, chat

if TYPE_CHECKING:
    from rolecraft.agents import Call, CallRules, ToolChooser, ToolRegistry, ToolResult, Violation
    from rolecraft.worlds import ShopTurn


@dataclass(frozen=True)
class PromptPair:
    """A prompt for each step. Placeholders: {functions}; {role}, {persona}, {worldview}, {knowledge}, {results}."""

    function: str
    dialogue: str

    @property
    def texts(self) -> dict[str, str]:
        """As the search takes them."""
        return {"function": self.function, "dialogue": self.dialogue}


@dataclass(frozen=True)
class Scenario:
    """What an agent is given.

    Raises:
        UserError: If a right call names a function that is not in the registry.
    """

    worldview: str
    role: str
    persona: str
    knowledge: str
    functions: ToolRegistry
    turns: Sequence[ShopTurn]

    def __post_init__(self) -> None:
        for turn in self.turns:
            for name, _ in turn.gold_calls:
                if name not in self.functions:
                    known = ", ".join(self.functions)
                    raise UserError(f"turn {turn.id}: the right call {name!r} names no function (known: {known}).")

    def filled(self, prompt: str, results: str = "", functions: str | None = None) -> str:
        """Return a prompt with its placeholders filled; `functions` stands in for the registry's text."""
        parts = {
            "{functions}": self.functions.text if functions is None else functions,
            "{role}": self.role,
            "{persona}": self.persona,
            "{worldview}": self.worldview,
            "{knowledge}": self.knowledge,
            "{results}": results or "none",
        }
        for placeholder, text in parts.items():
            prompt = prompt.replace(placeholder, text)
        return prompt


def shop_scenario(seed: int, turns: Sequence[ShopTurn]) -> Scenario:
    """Return the weapon shop; every turn should be served by a fresh one, since buying changes the stock."""
    from rolecraft.agents import Argument, Tool, ToolRegistry
    from rolecraft.worlds import FUNCTIONS, WeaponShop
    from rolecraft.worlds._weapon_shop import ITEMS, PURPOSES

    allowed = {"item": ITEMS, "other": ITEMS, "purpose": PURPOSES}
    run = WeaponShop.stocked(seed).functions()
    tools = []
    for name, (text, given) in FUNCTIONS.items():
        arguments = {key: Argument(type_, said, values=allowed.get(key, ())) for key, (type_, said) in given.items()}
        tools.append(Tool(name, text, arguments, run[name]))
    return Scenario(
        worldview="A weapon shop in a walled town, in the evening.",
        role="the keeper of a weapon shop",
        persona="Born in the shop, patient, fond of good steel.",
        knowledge="The shop has no other services than its functions.",
        functions=ToolRegistry(tools),
        turns=turns,
    )


@dataclass(frozen=True)
class TurnResult:
    """What an agent did in one turn."""

    calls: tuple[Call, ...]
    """As executed, or as asked for where nothing is enforced."""
    results: tuple[ToolResult, ...]
    reply: str
    violations: tuple[Violation, ...]


Stepped = tuple["tuple[Call, ...]", "tuple[Violation, ...]"]
"""The calls of one turn, and the rules broken on the way."""


@dataclass
class ShopAgent:
    """Serves the turns of scenarios with two prompts; `rules` enforces HEF, None leaves it to the prompt."""

    model: LanguageModel
    max_tokens: int
    writes_json: bool = False
    """The function step writes JSON; otherwise it chooses by log-probability."""
    _choosers: dict[str, ToolChooser] = field(default_factory=dict, repr=False)
    _replies: dict[str, str] = field(default_factory=dict, repr=False)

    def calls(self, pair: PromptPair, scenario: Scenario, rules: CallRules | None) -> list[Stepped]:
        """Do the function step of every turn; what `rules` refuses gets one more try, with the reason."""
        asked = self._ask(pair, scenario, [[] for _ in scenario.turns])
        if rules is None:
            return [(tuple(calls), tuple(flaws)) for calls, flaws in asked]
        checked = [self._check(rules, turn, calls) for turn, (calls, _) in zip(scenario.turns, asked, strict=True)]
        failed = [
            row for row, (found, (_, flaws)) in enumerate(zip(checked, asked, strict=True)) if found.retry or flaws
        ]
        complaints: list[list[Message]] = [[] for _ in scenario.turns]
        for row in failed:
            said = ", ".join(call.name for call in asked[row][0]) or "none"
            why = " ".join(flaw.message for flaw in (*asked[row][1], *checked[row].retry))
            complaints[row] = [
                {"role": "assistant", "content": said}, {"role": "user", "content": f"Refused: {why} Choose again."},
            ]  # fmt: skip
        again = self._ask(pair, scenario, complaints, failed)
        outcome = [(found.calls, (*flaws, *found.violations)) for found, (_, flaws) in zip(checked, asked, strict=True)]
        for row, (calls, flaws) in zip(failed, again, strict=True):
            second = self._check(rules, scenario.turns[row], calls)
            outcome[row] = (second.calls, (*outcome[row][1], *flaws, *second.violations))
        return outcome

    def _check(self, rules: CallRules, turn: ShopTurn, calls: Sequence[Call]) -> Any:
        from rolecraft.agents import Call

        return rules.check(calls, dialogue(turn), [Call(name, given) for name, given in turn.answered])

    def _ask(
        self, pair: PromptPair, scenario: Scenario, more: Sequence[list[Message]], rows: Sequence[int] | None = None
    ) -> list[tuple[list[Call], list[Violation]]]:
        from rolecraft.agents import ToolChooser, Violation, parse_calls
        from rolecraft.worlds import MISSING_FUNCTIONS

        chosen = list(range(len(scenario.turns)) if rows is None else rows)
        system = scenario.filled(pair.function)
        chats = [[*_chat(scenario.turns[row], system), *more[row]] for row in chosen]
        if self.writes_json:
            wish = '\nWrite each call as JSON: {"name": NAME, "parameters": {...}}.'
            chats = [[{"role": "system", "content": system + wish}, *one[1:]] for one in chats]
            replies = self.model.generate(chats, Sampling(max_tokens=200, temperature=0.0, top_p=1.0))
            read = [parse_calls(reply.text) for reply in replies]
            return [(p.calls, [Violation("parse-error", None, p.error)] if p.error else []) for p in read]
        # The same neutral chat for every prompt, so that what a prompt's rules change is kept. It lists the decoys too,
        # so that in the agent's own chats a name gains by being listed.
        listed = f"{scenario.functions.text}\n" + "\n".join(
            f"{name}(item): {name} an item" for name in MISSING_FUNCTIONS
        )
        neutral = chat("...", f"Functions:\n{listed}\nReply with the name of one function, or none.")
        chooser = self._choosers.setdefault(
            scenario.functions.text, ToolChooser(self.model, scenario.functions, neutral, tuple(MISSING_FUNCTIONS))
        )
        brief = scenario.filled(pair.function, functions="the one below")
        filling = [_chat(scenario.turns[row], brief) for row in chosen]
        return [
            (calls, []) for calls in chooser.choose(chats, filling, [dialogue(scenario.turns[row]) for row in chosen])
        ]

    def replies(self, pair: PromptPair, scenario: Scenario, results: Sequence[Sequence[ToolResult]]) -> list[str]:
        """Do the dialogue step of every turn."""
        chats = [
            _chat(turn, scenario.filled(pair.dialogue, "; ".join(result.text for result in known)))
            for turn, known in zip(scenario.turns, results, strict=True)
        ]
        fresh = {repr(one): one for one in chats if repr(one) not in self._replies}
        sampling = Sampling(max_tokens=self.max_tokens, temperature=0.0, top_p=1.0)
        said = self.model.generate(list(fresh.values()), sampling)
        self._replies |= {key: completion.text for key, completion in zip(fresh, said, strict=True)}
        return [self._replies[repr(one)] for one in chats]


def _chat(turn: ShopTurn, system: str) -> list[Message]:
    history: list[Message] = []
    for user, reply in turn.history:
        history += [{"role": "user", "content": user}, {"role": "assistant", "content": reply}]
    return chat(turn.user, system, history)


def dialogue(turn: ShopTurn) -> str:
    """Return all that was said up to the customer's message, the newest last."""
    return "\n".join([*(line for pair in turn.history for line in pair), turn.user])


def serve(
    agent: ShopAgent, pair: PromptPair, scenario: Scenario, rules: CallRules | None = None,
    given: Sequence[Sequence[Call]] | None = None,
) -> list[TurnResult]:  # fmt: skip
    """Play every turn.

    Args:
        agent: Whoever serves.
        pair: Its prompts.
        scenario: The turns.
        rules: Enforced on the calls; None: calls are executed as they come, and unknown names are dropped.
        given: Calls to execute instead of the agent's own.
    """
    from rolecraft.agents import Call, execute

    asked = [(tuple(calls), ()) for calls in given] if given is not None else agent.calls(pair, scenario, rules)
    results = []
    for turn, (calls, _) in zip(scenario.turns, asked, strict=True):
        fresh = shop_scenario(int(turn.id.split("/")[1]), ()).functions
        known = [Call(name, arguments) for name, arguments in turn.answered]
        results.append([*execute(fresh, known)[0], *execute(fresh, calls)[0]])
    replies = agent.replies(pair, scenario, results)
    return [
        TurnResult(calls, tuple(found), reply, tuple(flaws))
        for (calls, flaws), found, reply in zip(asked, results, replies, strict=True)
    ]
