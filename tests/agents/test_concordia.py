"""Concordia both ways: our models drive its entities, and our agents enter its simulations."""

from __future__ import annotations

import re
import threading

import numpy as np
import pytest

pytest.importorskip("concordia.environment.engines.sequential")

from concordia.agents.entity_agent_with_logging import EntityAgentWithLogging
from concordia.associative_memory.basic_associative_memory import AssociativeMemoryBank
from concordia.components.agent.memory import AssociativeMemory
from concordia.components.agent.observation import LastNObservations, ObservationToMemory
from concordia.components.game_master import (
    event_resolution,
    make_observation,
    next_acting,
    switch_act,
    terminate,
)
from concordia.environment.engines.sequential import Sequential
from concordia.environment.engines.simultaneous import Simultaneous
from concordia.prefabs.entity import minimal
from concordia.prefabs.game_master import dialogic
from concordia.prefabs.simulation.generic import Simulation
from concordia.typing import entity as entities
from concordia.typing.prefab import Config, InstanceConfig, Role

from rolecraft.agents import ConcordiaEntity, ConcordiaModel, ConcordiaPrefab, RolePolicy, ScriptedPolicy
from rolecraft.errors import IllegalActionError, ModelError, ServerError, UserError
from rolecraft.models import Completion
from rolecraft.roles import Role as OurRole
from rolecraft.testing import ScriptedModel, tiny_model
from rolecraft.worlds import Act

FREE = entities.free_action_spec(call_to_action="What does {name} say?")
CHOICE = entities.choice_action_spec(call_to_action="Left or right?", options=("left", "right"))
FLOAT = entities.float_action_spec(call_to_action="How much does {name} give?")


def embed(text: str) -> np.ndarray:
    return np.ones(3)


def replying(text: str) -> ConcordiaModel:
    return ConcordiaModel(ScriptedModel(lambda chat, seed: text))


class TestModel:
    def test_text_ends_before_the_first_terminator(self):
        model = replying('one" two\nthree')
        assert model.sample_text("p") == 'one" two\nthree'
        assert model.sample_text("p", terminators=("\n", '" ')) == "one"
        assert model.sample_text("p", terminators=("\n", "absent", "")) == 'one" two'

    def test_the_shorter_of_both_lengths_counts(self):
        long = ScriptedModel(lambda chat, seed: " ".join(["word"] * 50))
        assert ConcordiaModel(long, most_tokens=7).sample_text("p").split() == ["word"] * 7
        assert ConcordiaModel(long, most_tokens=7).sample_text("p", max_tokens=3).split() == ["word"] * 3

    def test_the_prompt_and_the_system_text_reach_the_model(self):
        shown = ScriptedModel(lambda chat, seed: " | ".join(message["content"] for message in chat))
        model = ConcordiaModel(shown, system="Go on.")
        assert model.sample_text("Answer: Alice ") == "Go on. | Answer: Alice "

    def test_a_prompt_that_comes_again_is_drawn_anew_but_the_same_in_the_next_simulation(self):
        def draws(seed: int, order: str) -> list[str]:
            model = ConcordiaModel(ScriptedModel(lambda chat, seed: str(seed)), seed=seed)
            return [model.sample_text(prompt) for prompt in order]

        first = draws(1, "aab")
        assert len(set(first)) == 3
        assert sorted(draws(1, "aba")) == sorted(first)
        assert draws(2, "aab") != first
        assert replying("x").sample_text("p", seed=4) == "x"
        model = ConcordiaModel(ScriptedModel(lambda chat, seed: str(seed)))
        assert model.sample_text("p", seed=4) == model.sample_text("q", seed=4) == "4"

    def test_a_choice_follows_the_log_probabilities(self):
        model = replying("b")
        places = [model.sample_choice("Pick one: (", ("a", "b"))[0] for _ in range(20)]
        assert places.count(1) >= 18
        place, response, told = model.sample_choice("Pick one: (", ("b", "c"))
        assert (place, response) == (0, "b")
        assert told["probabilities"]["b"] > 0.9
        assert sum(told["probabilities"].values()) == pytest.approx(1)

    def test_an_undecided_model_draws_both_and_the_seed_decides(self):
        model = replying("neither")
        drawn = {model.sample_choice("x", ("a", "b"))[0] for _ in range(40)}
        assert drawn == {0, 1}
        assert len({model.sample_choice("x", ("a", "b"), seed=9)[0] for _ in range(20)}) == 1

    def test_a_local_model_replies_and_chooses(self):
        model = ConcordiaModel(tiny_model(), most_tokens=4)
        assert isinstance(model.sample_text("Once", seed=1), str)
        assert model.sample_choice("Once", ("a", "b"), seed=1)[1] in ("a", "b")

    def test_bad_input_is_named(self):
        with pytest.raises(UserError, match="all different"):
            replying("x").sample_choice("p", ("a", "a"))
        with pytest.raises(UserError, match="max_tokens"):
            ConcordiaModel(ScriptedModel("echo"), most_tokens=0)
        failing = ConcordiaModel(ScriptedModel(lambda chat, seed: Completion("", "error", note="out of memory")))
        with pytest.raises(ModelError, match="out of memory"):
            failing.sample_text("p")


def entity(choose, **settings) -> ConcordiaEntity:
    return ConcordiaEntity("Ada", ScriptedPolicy(choose), seed=1, **settings)


class TestEntity:
    def test_each_kind_of_answer(self):
        player = entity(lambda view: "right" if view.legal else "I give 2.5 coins")
        player.observe("It is noon.")
        assert player.act(FREE) == "I give 2.5 coins"
        assert player.act(CHOICE) == "right"
        assert player.act(FLOAT) == "2.5"
        for spec, turn in zip((FREE, CHOICE, FLOAT), player.turns, strict=True):
            spec.validate(turn.receipts[-1].action)
        assert player.act(entities.skip_this_step_action_spec()) == ""
        assert [turn.step for turn in player.turns] == [0, 1, 2]

    def test_it_sees_what_it_observed_and_the_call_to_action(self):
        player = entity(lambda view: view.observation, observations=2)
        for told in ("forgotten", "It is noon.", "Bob spoke:\nWhat does Ada say?"):
            player.observe(told)
        assert player.act(FREE) == (
            "What you noticed, oldest first:\n- It is noon.\n- Bob spoke:\n    What does Ada say?\n\nWhat does Ada say?"
        )

    def test_the_policy_gets_its_own_turns_seed_and_role(self):
        seen = []
        player = entity(lambda view: seen.append(view) or str(view.seed), role="pirate", recall=1)
        said = [player.act(FREE) for _ in range(3)]
        assert len(set(said)) == 3
        assert [[turn.action for turn in view.history] for view in seen] == [[], said[:1], said[1:2]]
        assert {view.role for view in seen} == {"pirate"}
        again = entity(lambda view: str(view.seed))
        assert [again.act(FREE) for _ in range(3)] == said

    def test_an_unfit_answer_is_asked_for_again_with_the_reason(self):
        player = entity(lambda view: "left" if view.refused else "straight on")
        assert player.act(CHOICE) == "left"
        assert [receipt.accepted for receipt in player.turns[0].receipts] == [False, True]
        assert "legal: 'left', 'right'" in player.turns[0].receipts[0].reason

    def test_what_stays_unfit_is_replaced_or_halts(self):
        player = entity(lambda view: "straight on", repairs=2)
        assert player.act(CHOICE) in ("left", "right")
        assert player.turns[0].fallback
        assert len(player.turns[0].receipts) == 3
        assert len({entity(lambda view: "no").act(CHOICE) for _ in range(3)}) == 1
        halting = entity(lambda view: "straight on", on_illegal="halt")
        with pytest.raises(IllegalActionError, match="Ada: may not do 'straight on'"):
            halting.act(CHOICE)
        assert halting.turns[0].fallback

    @pytest.mark.parametrize("said", ["plenty", "between 2 and 3", ""])
    def test_a_number_that_is_none_is_never_made_up(self, said: str):
        with pytest.raises(IllegalActionError, match="expected one number"):
            entity(lambda view: said).act(FLOAT)

    @pytest.mark.parametrize(("said", "read"), [("-3", -3.0), ("about .5", 0.5), ("1e3!", 1000.0), ("7.", 7.0)])
    def test_a_number_is_read_out_of_words(self, said: str, read: float):
        assert float(entity(lambda view: said).act(FLOAT)) == read

    def test_a_policy_without_an_answer_stops_the_simulation(self):
        class Gone:
            def act(self, views):
                return [Act("", failed="the server is gone")]

        player = ConcordiaEntity("Ada", Gone(), seed=1)
        with pytest.raises(ServerError, match="the server is gone"):
            player.act(CHOICE)
        assert not player.turns[0].fallback

    def test_bad_input_is_named(self):
        with pytest.raises(UserError, match="observations must be at least 1"):
            entity(lambda view: "", observations=0)
        with pytest.raises(UserError, match="on_illegal"):
            entity(lambda view: "", on_illegal="skip")
        resolve = entities.ActionSpec(call_to_action="?", output_type=entities.OutputType.RESOLVE)
        with pytest.raises(UserError, match=r"Ada is a player.*'resolve'"):
            entity(lambda view: "").act(resolve)

        class Two:
            def act(self, views):
                return [Act("a"), Act("b")]

        with pytest.raises(UserError, match="returned 2 actions for 1 view"):
            ConcordiaEntity("Ada", Two(), seed=1).act(FREE)

    def test_entities_that_share_a_policy_are_asked_one_at_a_time(self):
        inside, most = [0], [0]

        def choose(view):
            inside[0] += 1
            most[0] = max(most[0], inside[0])
            threading.Event().wait(0.002)
            inside[0] -= 1
            return "hello"

        policy = ScriptedPolicy(choose)
        players = [ConcordiaEntity(f"p{i}", policy, seed=1) for i in range(8)]
        threads = [threading.Thread(target=player.act, args=(FREE,)) for player in players]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert most == [1]


def game_master(names: list[str]) -> EntityAgentWithLogging:
    """A game master of Concordia's components that lets all speak in turn and tells all what was said."""
    model = replying("nothing new")
    parts = {
        "__memory__": AssociativeMemory(memory_bank=AssociativeMemoryBank(embed)),
        "to_memory": ObservationToMemory(),
        "__observation__": LastNObservations(history_length=10),
        make_observation.DEFAULT_MAKE_OBSERVATION_COMPONENT_KEY: make_observation.MakeObservation(model, names),
        next_acting.DEFAULT_NEXT_ACTING_COMPONENT_KEY: next_acting.NextActingInFixedOrder(names),
        next_acting.DEFAULT_NEXT_ACTION_SPEC_COMPONENT_KEY: next_acting.FixedActionSpec(FREE),
        switch_act.DEFAULT_RESOLUTION_COMPONENT_KEY: event_resolution.EventResolution(model, ()),
        terminate.DEFAULT_TERMINATE_COMPONENT_KEY: terminate.Terminate(),
        "send": event_resolution.SendEventToRelevantPlayers(
            replying("Yes"), names, make_observation.DEFAULT_MAKE_OBSERVATION_COMPONENT_KEY
        ),
    }
    return EntityAgentWithLogging("Narrator", switch_act.SwitchAct(model, names), context_components=parts)


def theirs(name: str, model: ConcordiaModel) -> EntityAgentWithLogging:
    return minimal.Entity(params={"name": name, "custom_instructions": "Talk."}).build(
        model, AssociativeMemoryBank(embed)
    )


class Narrator(entities.Entity):
    """A game master that lets all speak at once and tells each what was said in the round before."""

    name = "Narrator"

    def __init__(self, names: list[str]) -> None:
        self.names, self.told = names, ["nothing yet"]

    def observe(self, observation: str) -> None:
        self.told.append(observation)

    def act(self, action_spec: entities.ActionSpec) -> str:
        kind = action_spec.output_type
        return {
            "terminate": "No",
            "next_acting": ",".join(self.names),
            "next_action_spec": "prompt: What does {name} say?;;type: free",
            "make_observation": self.told[-1],
            "resolve": self.told[-1],
        }[kind.value]


ENGINES = {"in turn": (Sequential, game_master, 3), "at once": (Simultaneous, Narrator, 2)}


@pytest.mark.parametrize("order", ENGINES)
def test_our_agent_and_concordias_talk_in_concordias_engine(order: str) -> None:
    engine, master, steps = ENGINES[order]
    bob = theirs("Bob", replying("says: the password is heron"))
    ada = ConcordiaEntity(
        "Ada", ScriptedPolicy(lambda view: "heron it is" if "heron" in view.observation else "what is it?"), seed=1
    )
    log: list[dict] = []
    engine().run_loop([master(["Ada", "Bob"])], [ada, bob], max_steps=steps, log=log)
    assert [turn.action for turn in ada.turns] == ["what is it?", "heron it is"]
    assert "password is heron" in ada.turns[1].observation
    heard = bob.get_component("__memory__").get_all_memories_as_text()
    assert any("what is it?" in memory for memory in heard)
    assert "Action: heron it is" in str(log)


def test_a_tiny_model_drives_concordias_entity_and_ours_under_a_role() -> None:
    class Admitted:
        role = OurRole(id="pirate", name="Pirate", description="A pirate.", instructions=["You are a pirate."])
        conditioner, rung = "prompt", "instruction"

    model = tiny_model()
    ada = ConcordiaEntity("Ada", RolePolicy(model, {"pirate": Admitted()}), seed=1, role="pirate")
    bob = theirs("Bob", ConcordiaModel(model, most_tokens=4))
    choice = entities.choice_action_spec(call_to_action="Stay or go?", options=("stay", "go"))
    assert ada.act(choice) in ("stay", "go")
    Sequential().run_loop([game_master(["Ada", "Bob"])], [ada, bob], max_steps=2)
    assert len(ada.turns) == 2
    with pytest.raises(UserError, match="not in the cast"):
        ConcordiaEntity("Eve", RolePolicy(model, {"pirate": Admitted()}), seed=1, role="poet").act(choice)


def test_a_simulation_of_concordias_builds_our_agent_from_its_configuration(capsys: pytest.CaptureFixture) -> None:
    def answer(chat, seed: int) -> str:
        options = dict(re.findall(r"\((\w)\) (\w+)$", chat[-1]["content"], re.M))
        return next((key for key, option in options.items() if option == "No"), "Ada, Bob")

    policy = ScriptedPolicy(lambda view: f"I am {view.agent} as {view.role}")
    config = Config(
        prefabs={"ours": ConcordiaPrefab(policy, seed=3), "theirs": minimal.Entity(), "gm": dialogic.GameMaster()},
        instances=[
            InstanceConfig("ours", Role.ENTITY, {"name": "Ada", "role": "pirate"}),
            InstanceConfig("theirs", Role.ENTITY, {"name": "Bob", "custom_instructions": "Talk."}),
            InstanceConfig("gm", Role.GAME_MASTER, {"name": "rules", "acting_order": "fixed"}),
        ],
    )
    simulation = Simulation(config, ConcordiaModel(ScriptedModel(answer)), embed)
    ada, bob = simulation.get_entities()
    assert isinstance(ada, ConcordiaEntity)
    assert ada._policy is policy
    simulation.play(premise="They meet.", max_steps=2)
    assert [turn.action for turn in ada.turns] == ["I am Ada as pirate"]
    assert any("I am Ada" in memory for memory in bob.get_component("__memory__").get_all_memories_as_text())


def test_a_prefab_without_a_name_is_refused() -> None:
    prefab = ConcordiaPrefab(ScriptedPolicy(lambda view: ""), seed=3)
    for params in ({}, {"name": "Ada", "goal": "gold"}):
        prefab.params = params
        with pytest.raises(UserError, match="'name' and perhaps 'role'"):
            prefab.build()
