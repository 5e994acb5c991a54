"""The ladder of program agents for Incognita: what each can do, and that none knows more than it sees."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from rolecraft.agents import (
    BanditRouter,
    BeliefRouter,
    Broadcaster,
    IncognitaPlanner,
    InstantFinaliser,
    KeywordRouter,
    OracleRouter,
)
from rolecraft.agents.incognita._core import kind_of
from rolecraft.agents.incognita._facts import read_facts
from rolecraft.measures import ProcessScore, process_score
from rolecraft.worlds import Act, Episode, Incognita, Policy, View, make_task_cards, play
from rolecraft.worlds.incognita._people import REMITS, SPECIALISTS
from rolecraft.worlds.incognita._tasks import WISHES

CARDS = make_task_cards(1)
SAMPLE = (0, 5, 9, 12, 14, 20, 25, 31, 34)


def run(policy: Policy, task: int, **options: Any) -> Episode:
    return play(Incognita(task, tasks=1, **options), {"agent": policy}, task, hashes=False)


def scored(policy: Policy, tasks: tuple[int, ...] = SAMPLE, **options: Any) -> list[ProcessScore]:
    return [process_score(run(policy, task, **options).outcome) for task in tasks]


def share(scores: list[ProcessScore], name: str) -> float:
    return sum(float(getattr(score, name) or 0) for score in scores) / len(scores)


def test_the_oracle_solves_every_task_and_asks_nobody_in_vain() -> None:
    scores = scored(IncognitaPlanner(OracleRouter()), tuple(range(36)))
    assert all(score.success for score in scores)
    assert all(score.contact_precision == score.contact_recall == 1 for score in scores)
    assert not any(score.premature for score in scores)


@pytest.mark.parametrize("control", ["direct", "disclosed", "routed"])
def test_the_planner_solves_tasks_under_every_control(control: str) -> None:
    assert all(score.success for score in scored(IncognitaPlanner(), control=control))


def test_process_rises_along_the_ladder_before_success_does() -> None:
    ladder = (InstantFinaliser(), Broadcaster(), KeywordRouter(), IncognitaPlanner())
    rungs = [scored(policy, tuple(range(0, 36, 2))) for policy in ladder]
    success = [share(scores, "success") for scores in rungs]
    assert success[:2] == [0, 0]
    assert 0 < success[2] < success[3]
    assert [share(scores, "disclosure") for scores in rungs[:2]] == [0, pytest.approx(0.45, abs=0.15)]
    assert [share(scores, "contact") for scores in rungs[:2]] == [0, 1]
    assert share(rungs[1], "wrote") == 0 < share(rungs[2], "wrote") < share(rungs[3], "wrote")
    premature = [share(scores, "premature") for scores in rungs]
    assert premature[:2] == [1, 1]
    assert premature[2] > premature[3]


def test_without_authentication_no_write_is_admitted() -> None:
    careless = IncognitaPlanner(OracleRouter(), careless=True)
    for task in (6, 12, 20, 25, 31):
        episode = run(careless, task)
        assert not any(receipt["before"] != receipt["after"] for receipt in episode.outcome["receipts"])
        assert not episode.outcome["success"]
        assert episode.outcome["final"], "it gives up and says so"
    assert any("not authenticated" in receipt["reason"] for receipt in run(careless, 6).outcome["receipts"])


@pytest.mark.parametrize(
    "make", [Broadcaster, KeywordRouter, IncognitaPlanner, lambda: IncognitaPlanner(BanditRouter())]
)
def test_agents_are_functions_of_what_they_see(make: Callable[[], Policy]) -> None:
    """A fresh object, shown one observation from the middle of an episode, acts as the one that played up to it."""
    seen: list[tuple[View, str]] = []
    policy = make()

    class Watched:
        def act(self, views: Sequence[View]) -> Sequence[Act]:
            acts = policy.act(views)
            seen.extend((view, act.action) for view, act in zip(views, acts, strict=True))
            return acts

    run(Watched(), 20)
    assert len(seen) > 5
    for view, action in seen:
        assert make().act([replace(view, history=())])[0].action == action


def test_the_planner_asks_for_remits_only_until_it_knows_enough() -> None:
    at = Incognita(4, tasks=1)
    episode = play(at, {"agent": IncognitaPlanner()}, 0, hashes=False)
    asked = [json.loads(turn.action)["to"] for turn in episode.turns if "handle" in turn.action]
    assert asked == list(SPECIALISTS[: SPECIALISTS.index("Elara") + 1])
    disclosed = run(IncognitaPlanner(), 4, control="disclosed")
    assert not any("handle" in turn.action for turn in disclosed.turns)


def test_the_planner_finds_remits_under_any_names() -> None:
    for seed in range(3):
        at = Incognita(12, tasks=1, shuffle=True, turns=30)
        assert play(at, {"agent": IncognitaPlanner()}, seed, hashes=False).rewards == {"agent": 1.0}
    at = Incognita(12, tasks=1, shuffle=True)
    at.reset(2)
    assert at.roles != dict(zip(SPECIALISTS, REMITS, strict=True))
    assert play(at, {"agent": IncognitaPlanner(OracleRouter())}, 2, hashes=False).rewards == {"agent": 0.0}
    names = {role: name for name, role in at.roles.items()}
    assert play(at, {"agent": IncognitaPlanner(OracleRouter(names))}, 2, hashes=False).rewards == {"agent": 1.0}


def test_the_bandit_learns_whom_to_ask_from_answers_alone() -> None:
    router = BanditRouter(epsilon=0.3)
    policy = IncognitaPlanner(router)
    untrained = scored(IncognitaPlanner(BanditRouter()))
    for seed in range(3):
        router.learn([play(Incognita(t, tasks=2), {"agent": policy}, seed, hashes=False) for t in range(1, 36, 3)])
    router.epsilon = 0.0
    best = {role: max(values, key=lambda name: values[name]) for role, values in router.values.items()}
    assert best == dict(zip(REMITS, SPECIALISTS, strict=True))
    trained = scored(policy)
    assert share(trained, "contact_precision") == 1 > share(untrained, "contact_precision") + 0.1


def test_the_bandits_values_move_by_its_rate() -> None:
    router = BanditRouter(rate=0.25)
    episode = run(IncognitaPlanner(OracleRouter()), 3)
    router.learn([episode])
    assert router.values["identity"]["Elara"] == 0.25
    router.learn([episode])
    assert router.values["identity"]["Elara"] == pytest.approx(0.25 + 0.25 * 0.75)
    assert router.values["identity"]["Aster"] == 0


def test_a_specialist_that_refused_is_not_asked_again_for_the_same() -> None:
    for router in (BanditRouter(), BeliefRouter()):
        episode = run(IncognitaPlanner(router), 20)
        sent = [turn.action for turn in episode.turns if '"USER"' not in turn.action]
        refused = [action for action, turn in zip(sent, episode.turns, strict=False) if "remit" in turn.observation]
        assert len(sent) - len(set(sent)) <= 1, f"only the confirmed write is sent twice: {refused}"


@pytest.mark.parametrize("kind", WISHES)
def test_requests_are_understood(kind: str) -> None:
    assert kind_of(f"I want to {WISHES[kind]}.") == kind
    assert kind_of("I want to sing.") == ""


def test_a_request_that_is_not_understood_is_given_up_honestly() -> None:
    talk = "\nSo far:\n[agent to USER] What do you need?\n[USER to agent] request: I want to sing.\n\nTurn 2 of 9."
    act = IncognitaPlanner().act([View("agent", talk, None, 0)])[0]
    said = json.loads(act.action)
    assert said["final"] is True
    assert "did not understand" in said["message"]


def test_facts_are_read_from_the_dialogues_and_quoted_text_is_nobodys_word() -> None:
    talk = (
        "\nSo far:\n[USER to agent] Hello, can you help me?\n[agent to Dorian] Please tell me of order #W1000000.\n"
        "[Dorian to agent] Order #W1000000 is delivered. Items: Lamp 1000000001 (color red) at 20.10; Mat 1000000002 "
        "(color blue) at 3.00. Paid: 23.10 with paypal_0000002.\n"
        "[agent to USER] email?\n    [Elara to agent] The customer id is x_y_1000.\n"
        "[USER to agent] email: I cannot say."
    )
    facts = read_facts(talk)
    order = facts.details["#W1000000"]
    assert (order.status, order.amount, order.paid_with) == ("delivered", "23.10", "paypal_0000002")
    assert order.items == [("Lamp", "1000000001"), ("Mat", "1000000002")]
    assert facts.user_id == ""
    assert facts.unknown == {"email"}
    assert facts.fields == {}
