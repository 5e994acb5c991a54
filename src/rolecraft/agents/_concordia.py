"""Our models and agents in simulations of Concordia (gdm-concordia 2.1)."""

from __future__ import annotations

import copy
import re
import threading
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from rolecraft._run import derive_seed
from rolecraft.agents._choices import option_probabilities
from rolecraft.errors import IllegalActionError, MissingDependencyError, ModelError, ServerError, UserError
from rolecraft.models import LanguageModel, Sampling, chat
from rolecraft.worlds import Act, OnIllegal, Policy, Receipt, Turn, View

INSTALL = "pip install --no-deps gdm-concordia==2.1.0 && pip install absl-py termcolor reactivex pandas"
"""What installs Concordia beside this package: of its own dependencies, google-generativeai wants protobuf below 6."""

try:
    from concordia.language_model import language_model as _models
    from concordia.typing import entity as _entities
    from concordia.typing import prefab as _prefabs
except ImportError as _error:
    raise MissingDependencyError(
        f"Concordia cannot be imported ({_error}). Its dependencies do not fit the versions here, and its engine does "
        f"not use most of them; so: {INSTALL}"
    ) from _error

CONTINUE = "Continue the text where it ends. Give the continuation alone and repeat nothing of the text."
"""Default system text: Concordia's prompts are documents that break off."""

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_ONE_AT_A_TIME = threading.RLock()
"""Concordia calls from a thread per entity; our local models are not made for that."""


class ConcordiaModel(_models.LanguageModel):  # type: ignore[misc,unused-ignore]
    """One of our language models as Concordia's: it drives entities and game masters of Concordia's own.

    A choice is drawn by the options' probabilities as replies, so no reply is parsed. Where Concordia gives no seed,
    which is its habit, the seed follows from ours, the prompt and how often that prompt came before; so a simulation
    comes out the same however its threads run. Calls wait for each other. `timeout` has no effect: served models have
    their own limits.
    """

    def __init__(
        self, model: LanguageModel, *, seed: int = 0, system: str = CONTINUE, most_tokens: int = 256, top_p: float = 1.0
    ) -> None:
        """Wrap a model.

        Args:
            model: Replies and scores.
            seed: Of all draws.
            system: System text of every prompt.
            most_tokens: Longest reply, whatever Concordia asks for: it asks for up to 5,000.
            top_p: Nucleus mass of free text.

        Raises:
            UserError: If `most_tokens` or `top_p` is out of range.
        """
        Sampling(most_tokens, 0.0, top_p)
        self._model, self._seed, self._system = model, seed, system
        self._most_tokens, self._top_p = most_tokens, top_p
        self._asked: Counter[tuple[str, str]] = Counter()

    def sample_text(
        self,
        prompt: str,
        *,
        max_tokens: int = _models.DEFAULT_MAX_TOKENS,
        terminators: Collection[str] = _models.DEFAULT_TERMINATORS,
        temperature: float = _models.DEFAULT_TEMPERATURE,
        timeout: float = _models.DEFAULT_TIMEOUT_SECONDS,
        seed: int | None = None,
    ) -> str:
        """Continue a prompt, and end before the first of the terminators.

        Raises:
            ModelError: If the model fails.
        """
        sampling = Sampling(max(1, min(max_tokens, self._most_tokens)), temperature, self._top_p)
        with _ONE_AT_A_TIME:
            drawn = self._draw("text", prompt) if seed is None else seed
            [reply] = self._model.generate([chat(prompt, self._system)], sampling, seeds=[drawn])
        if reply.finish == "error":
            raise ModelError(f"{self._model.name} did not reply: {reply.note}")
        ends = [place for mark in terminators if mark and (place := reply.text.find(mark)) >= 0]
        return reply.text[: min(ends, default=None)]

    def sample_choice(
        self, prompt: str, responses: Sequence[str], *, seed: int | None = None
    ) -> tuple[int, str, Mapping[str, Any]]:
        """Draw one of the responses by its probability as the reply.

        Returns:
            Its index, itself, and the probability of each response.

        Raises:
            UserError: If responses are missing, empty or not all different.
        """
        with _ONE_AT_A_TIME:
            drawn = self._draw("choice", prompt) if seed is None else seed
            [shares] = option_probabilities(self._model, [chat(prompt, self._system)], [responses])
        place = int(np.random.default_rng(drawn % 2**64).choice(len(shares), p=shares / shares.sum()))
        return place, responses[place], {"probabilities": dict(zip(responses, shares.tolist(), strict=True))}

    def _draw(self, kind: str, prompt: str) -> int:
        self._asked[kind, prompt] += 1
        return derive_seed(self._seed, kind, prompt, self._asked[kind, prompt])


class ConcordiaEntity(_entities.EntityWithLogging):  # type: ignore[misc,unused-ignore]
    """One of our policies as an entity: our agents, under roles of a lock, enter a simulation of Concordia.

    The policy sees what the entity has observed and the call to action, and answers free, choice and float
    specifications. An answer that does not fit is asked for again with the reason, as in our own worlds. Nothing that
    was observed can pass for the call to action: further lines of an observation are indented.

    Attributes:
        turns: All that was decided, as our own episodes record it.
    """

    def __init__(
        self, name: str, policy: Policy, *, seed: int, role: str | None = None, repairs: int = 1,
        on_illegal: OnIllegal = "random", observations: int = 32, recall: int = 8,
    ) -> None:  # fmt: skip
        """Seat a policy.

        Args:
            name: Of the entity.
            policy: Acts; it may be shared with other entities.
            seed: Of every decision.
            role: Id of the role that it plays; a `RolePolicy` puts it on.
            repairs: How often it is asked again.
            on_illegal: What follows: a random option (free text never gets there), or `IllegalActionError`, which also
                follows where a number is asked for and none is given.
            observations: Most observations that it sees again.
            recall: Most turns in a view's history.

        Raises:
            UserError: If a number is out of range, or `on_illegal` is unknown.
        """
        if repairs < 0 or observations < 1 or recall < 0:
            raise UserError(
                f"observations must be at least 1, repairs and recall at least 0, got {observations}, {repairs} and "
                f"{recall}."
            )
        if on_illegal not in ("halt", "random"):
            raise UserError(f"on_illegal must be 'halt' or 'random', got {on_illegal!r}.")
        self._name, self._policy, self._seed, self._role = name, policy, seed, role
        self._repairs, self._on_illegal = repairs, on_illegal
        self._observed: deque[str] = deque(maxlen=observations)
        self._recall = recall
        self.turns: list[Turn] = []

    @property
    def name(self) -> str:
        """Name of the entity."""
        return self._name

    def observe(self, observation: str) -> None:
        """Take in what the game master tells."""
        if observation.strip():
            self._observed.append(observation.strip())

    def act(self, action_spec: Any = _entities.DEFAULT_ACTION_SPEC) -> str:
        """Decide.

        Args:
            action_spec: What is asked for: free text, one of several options, or a number.

        Returns:
            Text, an option word for word, or a number as text; nothing for a step that is skipped.

        Raises:
            UserError: If it is asked to do a game master's work.
            IllegalActionError: If no answer fits, see `on_illegal`.
            ServerError: If the policy says that it has none.
        """
        kind = action_spec.output_type
        if kind == _entities.OutputType.SKIP_THIS_STEP:
            return ""
        if kind not in _entities.PLAYER_ACTION_TYPES:
            raise UserError(f"{self._name} is a player, but was asked for {kind.value!r}: a game master's work.")
        legal = tuple(action_spec.options) if kind == _entities.OutputType.CHOICE else None
        turn = self._decide(self._shown(action_spec.call_to_action), legal, kind == _entities.OutputType.FLOAT)
        self.turns.append(turn)
        if "failed" in turn.notes:
            raise ServerError(f"{self._name} has no answer: {turn.notes['failed']}")
        if turn.fallback and (legal is None or self._on_illegal == "halt"):
            raise IllegalActionError(f"{self._name}: {turn.receipts[-1].reason}")
        return turn.action

    def get_last_log(self) -> dict[str, Any]:
        """Return the last turn as Concordia's logs show it."""
        if not self.turns:
            return {}
        turn = self.turns[-1]
        shown = turn.observation.splitlines()
        return {"__act__": {"Summary": f"Action: {turn.action}", "Value": turn.action, "Prompt": shown}}

    def _shown(self, call_to_action: str) -> str:
        lines = ["- " + text.replace("\n", "\n    ") for text in self._observed] or ["(nothing yet)"]
        return "\n".join(["What you noticed, oldest first:", *lines, "", call_to_action.replace("{name}", self._name)])

    def _decide(self, observation: str, legal: tuple[str, ...] | None, number: bool) -> Turn:
        step, receipts, notes = len(self.turns), list[Receipt](), dict[str, Any]()
        for attempt in range(self._repairs + 1):
            act = self._ask(observation, legal, derive_seed(self._seed, self._name, step, attempt), receipts)
            notes = {**act.notes, "failed": act.failed} if act.failed else dict(act.notes)
            receipts.append(_checked(act.action, legal, number))
            if receipts[-1].accepted or act.failed:
                break
        lost = not receipts[-1].accepted and "failed" not in notes
        action = receipts[-1].action
        if lost and legal:
            drawn = np.random.default_rng(derive_seed(self._seed, self._name, step, "fallback")).integers(len(legal))
            action = legal[int(drawn)]
        return Turn(step, self._name, observation, action, legal, tuple(receipts), lost, notes=notes)

    def _ask(self, observation: str, legal: tuple[str, ...] | None, seed: int, refused: Sequence[Receipt]) -> Act:
        history = tuple(self.turns[-self._recall :]) if self._recall else ()
        view = View(self._name, observation, legal, seed, tuple(refused), self._role, history)
        with _ONE_AT_A_TIME:
            acts = self._policy.act([view])
        if len(acts) != 1:
            raise UserError(f"the policy of {self._name} returned {len(acts)} actions for 1 view.")
        return acts[0]


class ConcordiaPrefab(_prefabs.Prefab):  # type: ignore[misc,unused-ignore]
    """What a configuration of Concordia's `Simulation` names where one of our agents is to take part.

    The instance's `params` hold `name` and, for an agent with a role, `role`. Concordia's model and memory for it are
    not used.

    Example:
        ```python
        prefabs = {"ours": ConcordiaPrefab(RolePolicy(model, cast), seed=1)}
        instances = [InstanceConfig(prefab="ours", role=Role.ENTITY, params={"name": "Ada", "role": "pirate"})]
        ```
    """

    description = "An agent of Rolecraft: a policy, perhaps under a role."

    def __init__(self, policy: Policy, *, seed: int, **settings: Any) -> None:
        """Note who acts.

        Args:
            policy: Shared by all entities of this prefab.
            seed: With the entity's name, of its decisions.
            settings: Further arguments of `ConcordiaEntity`.
        """
        super().__init__()
        self._policy, self._seed, self._settings = policy, seed, settings

    def __deepcopy__(self, memo: Mapping[int, Any]) -> ConcordiaPrefab:
        """Copy without the policy, which holds a model: Concordia copies the prefab for each entity."""
        return copy.copy(self)

    def build(self, model: Any = None, memory_bank: Any = None) -> ConcordiaEntity:
        """Make the entity that `params` describe.

        Raises:
            UserError: If `params` hold no name, or a key that is unknown.
        """
        params = dict(self.params)
        name, role = params.pop("name", None), params.pop("role", None)
        if not name or params:
            raise UserError(f"params of a Rolecraft entity hold 'name' and perhaps 'role', got {dict(self.params)!r}.")
        return ConcordiaEntity(name, self._policy, seed=self._seed, role=role, **self._settings)


def _checked(action: str, legal: tuple[str, ...] | None, number: bool) -> Receipt:
    if legal is not None and action not in legal:
        return Receipt(action, False, f"may not do {action!r}; legal: {', '.join(map(repr, legal))}.")
    if not number:
        return Receipt(action, True)
    found = _NUMBER.findall(action)
    if len(found) != 1:
        return Receipt(action, False, f"expected one number, got {action[:60]!r}.")
    return Receipt(str(float(found[0])), True)
