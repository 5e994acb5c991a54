"""The scripted talking scene in Concordia's and Sotopia's engines.

Neither installs beside our pins, so each has a folder of its own; ROLECRAFT_PEERS lists both, as PATH does, and they
come last on the path, so that what both need is taken as it is installed here:

    pip install --no-deps --target concordia gdm-concordia==2.1.0 absl-py termcolor reactivex
    python3 -m venv sotopia && sotopia/bin/pip install sotopia==0.1.5
    export ROLECRAFT_PEERS=$PWD/concordia:$PWD/sotopia/lib/python3.11/site-packages
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol

sys.path += [folder for folder in os.environ.get("ROLECRAFT_PEERS", "").split(os.pathsep) if folder]
os.environ.setdefault("SOTOPIA_STORAGE_BACKEND", "local")  # files instead of a redis server; none is written here

_LINE = re.compile(r"line (\d+)")


def line_after(heard: str) -> str:
    """Speak for every agent: count on from the last line heard."""
    found = _LINE.match(heard, max(heard.rfind("line "), 0))
    return f"line {int(found[1]) + 1 if found else 1}"


class Peer(Protocol):
    """An engine that can play the scene."""

    name: str
    conditions: str
    whole: bool
    """Each agent is shown all that was said in the last step, not the last line alone."""

    def missing(self) -> str:
        """Return why it cannot be imported; empty if it can."""
        ...

    def lines(self, agents: int, together: bool) -> int:
        """Return how many lines a run is to have, so that it takes some seconds at most."""
        ...

    def scene(self, agents: int, lines: int, together: bool) -> Callable[[], str]:
        """Return a call that plays the scene and returns the last line."""
        ...


def _unimportable(module: str) -> str:
    try:
        import_module(module)
    except Exception as error:  # a peer may fail in its own ways, and is left out then
        return f"{type(error).__name__}: {error}"
    return ""


class _Concordia:
    """What both ways to use Concordia share: its engine, and a game master that needs no model."""

    whole = False

    def missing(self) -> str:
        """Return why it cannot be imported."""
        return _unimportable("concordia.environment.engines.simultaneous")

    def scene(self, agents: int, lines: int, together: bool) -> Callable[[], str]:
        """Return a run of Concordia's engine with its log kept."""
        from concordia.environment.engines.sequential import Sequential
        from concordia.environment.engines.simultaneous import Simultaneous

        names = [f"agent-{place}" for place in range(agents)]
        engine = (Simultaneous if together else Sequential)()

        def run() -> str:
            master = self.master(names, together)
            players, log = [self.player(name) for name in names], []
            steps = lines // agents if together else lines
            engine.run_loop([master], players, max_steps=steps, log=log)
            assert len(log) == steps
            return str(self.last(master))

        return run

    def player(self, name: str) -> Any:
        """Make an entity."""
        raise NotImplementedError

    def master(self, names: list[str], together: bool) -> Any:
        """Make the game master."""
        raise NotImplementedError

    def last(self, master: Any) -> str:
        """Return the last line."""
        raise NotImplementedError


class _Narrator:
    """Answers a game master's questions by the script, whatever the specification."""

    def __init__(self, names: list[str], together: bool) -> None:
        self._names, self._together, self._turn = names, together, 0
        self.last = "(silence)"

    def told(self, observation: str) -> None:
        """Note what somebody wants to say, or what has been said."""
        self.last = observation.rsplit("\n", 1)[-1]

    def answer(self, kind: str) -> str:
        """Return what the engine asks for."""
        match kind:
            case "next_acting":
                name = self._names[self._turn % len(self._names)]
                self._turn += 1
                return ",".join(self._names) if self._together else name
            case "next_action_spec":
                return "prompt: Say one sentence.;;type: free"
            case "make_observation" | "resolve":
                return self.last
        return "No"


class BareConcordia(_Concordia):
    """The engine alone: entities and game master are classes of a few lines."""

    name = "Concordia's engine alone"
    conditions = (
        "gdm-concordia 2.1.0, its simultaneous or sequential engine and log; entities and game master are classes of "
        "a line or two without memory or components"
    )

    def lines(self, agents: int, together: bool) -> int:
        """Return how many lines a run has."""
        return 20 * agents if together else 100

    def player(self, name: str) -> Any:
        """Make an entity that holds the last observation."""
        from concordia.typing.entity import Entity

        class Player(Entity):  # type: ignore[misc]
            heard = ""

            @property
            def name(self) -> str:
                return name

            def observe(self, observation: str) -> None:
                self.heard = observation

            def act(self, action_spec: Any) -> str:
                return line_after(self.heard)

        return Player()

    def master(self, names: list[str], together: bool) -> Any:
        """Make the game master."""
        from concordia.typing.entity import Entity

        class Master(Entity):  # type: ignore[misc]
            name = "narrator"
            narrator = _Narrator(names, together)

            def observe(self, observation: str) -> None:
                self.narrator.told(observation)

            def act(self, action_spec: Any) -> str:
                return self.narrator.answer(action_spec.output_type.value)

            def get_last_log(self) -> dict[str, Any]:
                return {}

        return Master()

    def last(self, master: Any) -> str:
        """Return the last line."""
        return str(master.narrator.last)


class Concordia(_Concordia):
    """As a user has it: the smallest entity that Concordia ships, with memory, on a scripted model."""

    name = "Concordia"
    conditions = (
        "gdm-concordia 2.1.0, its simultaneous or sequential engine and log, its `minimal` entity prefab with memory "
        "and a scripted language model; the game master is Concordia's component agent with one component that knows "
        "the scene and asks no model"
    )

    def lines(self, agents: int, together: bool) -> int:
        """Return how many lines a run has: in turn, every entity observes before each line."""
        return 2 * agents if together else 200 // agents

    def player(self, name: str) -> Any:
        """Make an entity of the prefab."""
        import numpy as np
        from concordia.associative_memory.basic_associative_memory import AssociativeMemoryBank
        from concordia.language_model.no_language_model import NoLanguageModel
        from concordia.prefabs.entity import minimal

        class Script(NoLanguageModel):  # type: ignore[misc]
            def sample_text(self, prompt: str, **settings: Any) -> str:
                return line_after(prompt)

        params = {"name": name, "goal": "", "custom_instructions": "Talk."}
        return minimal.Entity(params=params).build(Script(), AssociativeMemoryBank(lambda text: np.ones(1)))

    def master(self, names: list[str], together: bool) -> Any:
        """Make the game master: Concordia's agent with one component under the keys that its act component reads."""
        from concordia.agents.entity_agent_with_logging import EntityAgentWithLogging
        from concordia.components.game_master import switch_act
        from concordia.language_model.no_language_model import NoLanguageModel
        from concordia.typing.entity_component import ContextComponent

        class Part(ContextComponent):  # type: ignore[misc]
            narrator = _Narrator(names, together)

            def pre_observe(self, observation: str) -> str:
                self.narrator.told(observation)
                return ""

            def pre_act(self, action_spec: Any) -> str:
                return self.narrator.answer(action_spec.output_type.value)

            def get_state(self) -> dict[str, Any]:
                return {}

            def set_state(self, state: Any) -> None:
                return None

        keys = ("TERMINATE", "MAKE_OBSERVATION", "NEXT_ACTING", "NEXT_ACTION_SPEC", "RESOLUTION")
        parts = dict.fromkeys((getattr(switch_act, f"DEFAULT_{key}_COMPONENT_KEY") for key in keys), Part())
        return EntityAgentWithLogging("narrator", switch_act.SwitchAct(NoLanguageModel(), names), None, parts)

    def last(self, master: Any) -> str:
        """Return the last line."""
        return str(next(iter(master.get_all_context_components().values())).narrator.last)


class Sotopia:
    """Sotopia's environment and its loop over an episode, with scripted agents and no database."""

    name = "Sotopia"
    conditions = (
        "sotopia 0.1.5, ParallelSotopiaEnv and arun_one_episode without a database, its rule-based evaluator and no "
        "judge; each agent is shown all that was said in the last turn, for the environment has no other way, and so "
        "in ours; in turn the others are asked too and do nothing"
    )
    whole = True

    def missing(self) -> str:
        """Return why it cannot be imported."""
        return _unimportable("sotopia.server")

    def lines(self, agents: int, together: bool) -> int:
        """Return how many lines a run has: at once, Sotopia's own limit of 20 turns."""
        return 20 * agents if together else 50

    def scene(self, agents: int, lines: int, together: bool) -> Callable[[], str]:
        """Return a run of one episode."""
        from sotopia.agents import BaseAgent
        from sotopia.database import AgentProfile, EnvironmentProfile
        from sotopia.envs import ParallelSotopiaEnv
        from sotopia.envs.evaluators import Evaluator, RuleBasedTerminatedEvaluator
        from sotopia.messages import AgentAction
        from sotopia.server import arun_one_episode

        class Speaker(BaseAgent):  # type: ignore[misc,type-arg]
            async def aact(self, obs: Any) -> Any:
                if obs.available_actions == ["none"]:
                    return AgentAction(action_type="none", argument="")
                return AgentAction(action_type="speak", argument=line_after(obs.last_turn))

        class NoJudge(Evaluator):  # type: ignore[misc]
            prompt = ""

            def __call__(self, turn_number: int, messages: Any) -> list[Any]:
                return []

            async def __acall__(self, turn_number: int, messages: Any) -> list[Any]:
                return []

        people = [
            AgentProfile(pk=f"agent-{place}", first_name=f"agent-{place}", last_name="x", age=30, gender="Man")
            for place in range(agents)
        ]
        turns = lines // agents if together else lines
        rules = RuleBasedTerminatedEvaluator(max_turn_number=turns, max_stale_turn=lines * agents)

        def run() -> str:
            profile = EnvironmentProfile(
                pk="scene", codename="scene", scenario="People talk.", agent_goals=["Talk."] * agents, source="script",
                age_constraint="", occupation_constraint="", agent_constraint=None,
            )  # fmt: skip
            env = ParallelSotopiaEnv(
                env_profile=profile, action_order="simultaneous" if together else "round-robin",
                evaluators=[rules], terminal_evaluators=[NoJudge()],
            )  # fmt: skip
            speakers = [Speaker(agent_profile=person) for person in people]
            messages = asyncio.run(arun_one_episode(env, speakers))
            said = [one for *_, one in messages if isinstance(one, AgentAction) and one.action_type == "speak"]
            assert len(said) == lines
            return str(said[-1].argument)

        return run


PEERS: tuple[Peer, ...] = (Concordia(), BareConcordia(), Sotopia())
