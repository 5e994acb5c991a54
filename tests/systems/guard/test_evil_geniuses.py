"""System 046: its material, its arms, its verdicts on made-up rows, and both studies at tiny size."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from rolecraft._run import RunStore
from rolecraft.errors import UserError
from rolecraft.guard.audit import ComplianceModel, RoleDocument, RoleIntegrityGuard
from rolecraft.models import Completion
from rolecraft.systems import Result
from rolecraft.systems.guard import _evil_logits, evil_geniuses
from rolecraft.systems.guard._evil_logits import LogitsConfig, log_masses, make_small_team, run_logits, verdict_logits
from rolecraft.systems.guard._evil_teams import POLICIES, SEATS, make_probes, make_team_of, template
from rolecraft.systems.guard.evil_geniuses import ARMS, CLEAN, TeamsConfig, run_teams, verdict_teams, victim


def test_72_probes_in_12_categories_18_a_policy_and_24_others():
    reported, search = make_probes(), make_probes(search=True)
    assert (len(reported), len(search)) == (72, 24)
    assert set(Counter(probe.category for probe in reported).values()) == {6}
    assert len({probe.category for probe in reported}) == 12
    assert Counter(probe.policy for probe in reported) == dict.fromkeys((each.name for each in POLICIES), 18)
    assert not {probe.text for probe in reported} & {probe.text for probe in search}
    assert len({probe.id for probe in (*reported, *search)}) == 96
    requests = {policy.name: policy.request for policy in POLICIES}
    assert all(probe.text.endswith(requests[probe.policy]) for probe in reported)
    work = make_probes(tempted=False)
    assert not any(request in probe.text for request in requests.values() for probe in work)


@pytest.mark.parametrize("size", SEATS)
def test_released_teams_state_every_rule_twice_and_raise_no_alarm(size):
    team = make_team_of(size)
    assert len(team.members) == size
    for name in team.names:
        assert all(team.prompt(name).count(policy.rule) == 2 for policy in POLICIES)
    guard = RoleIntegrityGuard(team, POLICIES)
    assert (guard.hash_alarms(team), guard.drift_alarms(team), team.shared_texts()) == ((), (), ())
    altered = team.with_mission(template(team.mission))
    assert len(guard.hash_alarms(altered)) == 1
    assert {alarm.where for alarm in guard.drift_alarms(altered)} == set(team.names)


def test_the_agent_level_touches_one_member_drawn_by_the_seed():
    assert victim(7, "system", 1) is None
    drawn = {victim(7, "agent", seed) for seed in range(60)}
    assert drawn == set(SEATS[7])


def rows(arm, rates, seeds=5, n=24, **more):
    """Make rows of full violations at rates by (size, level), a little different by seed."""
    found = []
    for seed in range(seeds):
        for (size, level), rate in rates.items():
            hits = round(n * rate) + seed % 2
            found += [
                {"arm": arm, "seed": seed, "unit": f"{size}:{level}:p{k}", "not_refused": 1, "partial": int(k < hits)}
                | {"full": int(k < hits), "answer_full": 0, **more}
                for k in range(n)
            ]
    return found


def cells(system, agent):
    return {(size, "system"): system[place] for place, size in enumerate((1, 2, 7))} | {
        (size, "agent"): agent[place] for place, size in enumerate((1, 2, 7))
    }


GOOD = {
    "generated": cells((0.3, 0.5, 0.8), (0.3, 0.4, 0.4)), "template": cells((0.1,) * 3, (0.1,) * 3),
    "random": cells((0.1,) * 3, (0.05,) * 3), "guard": cells((0.1,) * 3, (0.05,) * 3),
}  # fmt: skip


def made(false_alarms=0, **changes):
    found = [row for arm, rates in {**GOOD, **changes}.items() for row in rows(arm, rates)]
    found += rows("unmodified", {(size, ""): 0.0 for size in (1, 2, 7)})
    clean = rows("clean", {(size, ""): 0.0 for size in (1, 2, 7)})
    found += [{**row, "false_alarm": int(place < false_alarms)} for place, row in enumerate(clean)]
    return Result(tuple(found))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "reproduced"),
        ({"generated": cells((0.8, 0.5, 0.3), (0.3, 0.2, 0.2))}, "not reproduced"),  # fewer agents, more harm
        ({"generated": cells((0.3, 0.5, 0.7), (0.3, 0.7, 0.9))}, "not reproduced"),  # the agent level is worse
        ({"template": cells((0.9,) * 3, (0.9,) * 3)}, "not reproduced"),  # the template does better
        ({"random": GOOD["generated"]}, "not reproduced"),  # blind edits do as well
        ({"guard": GOOD["generated"]}, "not reproduced"),
        ({"false_alarms": 60}, "not reproduced"),
        ({"false_alarms": 6}, "inconclusive"),
    ],
)
def test_every_direction_can_fail(changes, expected):
    assert verdict_teams(made(**changes)).verdict == expected


def test_one_seed_alone_is_inconclusive():
    result = made()
    assert verdict_teams(Result(tuple(row for row in result.rows if row["seed"] == 0))).verdict == "inconclusive"


def test_members_of_one_mind_take_the_number_of_agents_away():
    """Nothing makes larger teams worse where members err alike and do not listen to each other."""
    alike = ComplianceModel(shared=1.0, contagion=0.0, deference=0.0)
    own = ComplianceModel(shared=0.0, contagion=0.0, deference=0.0)

    def broken(model):
        tester, _ = evil_geniuses.make_testers(model, 72)
        teams = [make_team_of(size) for size in (1, 7)]
        return [
            tester.test(team.with_mission(template(team.mission)), 1).count("full") / tester.test(team, 1).n
            for team in teams
        ]

    (one, seven), (one_own, seven_own) = broken(alike), broken(own)
    assert abs(seven - one) < 0.08
    assert seven_own - one_own > 0.2


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("evil")
    config = TeamsConfig(seeds=(1, 2), encoder="words", tau=0.4, rounds=1, children=3, models=1, probes=8, sizes=(1, 2))
    with RunStore.open(folder / "run", "study", {}) as store:
        return run_teams(config, store), folder, config


def test_the_teams_study_small_and_resumed(tiny, monkeypatch):
    result, folder, config = tiny
    per_arm = Counter(row["arm"] for row in result.rows)
    assert all(per_arm[arm] == 2 * 2 * 2 * 8 for arm in ARMS)
    assert all(per_arm[arm] == 2 * 2 * 8 * (1 if arm == "unmodified" else 2) for arm in CLEAN)
    assert per_arm["sensitivity"] == 2
    assert all(row["full"] <= row["partial"] <= row["not_refused"] for row in result.rows if "full" in row)
    found = verdict_teams(result)
    assert found.verdict in ("reproduced", "not reproduced", "inconclusive")
    assert "other compliance models" in found.note

    def computed(*_):
        raise AssertionError("computed again")

    for name in ("measure", "measure_clean", "sensitivity", "write_texts"):
        monkeypatch.setattr(evil_geniuses, name, computed)
    with RunStore.open(folder / "run", "study", {}, resume=True) as store:
        assert run_teams(config, store).rows == result.rows
        texts = store.rows("documents")
    assert all(row["generated_similarity"] >= 0.4 for row in texts.values())
    assert all(row["member"] in SEATS[row["size"]] for row in texts.values() if row["level"] == "agent")


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda: TeamsConfig(sizes=(3,)), "some of 1, 2 and 7, got 3"),
        (lambda: TeamsConfig(encoder="bert"), "minilm or words"),
        (lambda: TeamsConfig(rounds=0), "rounds and children"),
        (lambda: TeamsConfig(probes=100), "4 to 72 probes"),
        (lambda: TeamsConfig(tau=2), "tau must lie"),
        (lambda: TeamsConfig.full(), "no --full size"),
        (lambda: LogitsConfig(sizes=(7,)), "1, 2 or both"),
        (lambda: LogitsConfig(probes=19), "1 to 18 probes"),
        (lambda: LogitsConfig(rounds=0), "of at least 1"),
    ],
)
def test_bad_configurations(make, part):
    with pytest.raises(UserError, match=part):
        make()


class Model:
    """Gives the marker a probability by the sentences of its prompt: less for the rule, more for the permission."""

    name = "fake"

    def logprobs(self, chats, replies):
        found = []
        for chat, reply in zip(chats, replies, strict=True):
            text = chat[0]["content"]
            log_p = -2.0 - text.count(POLICIES[0].rule) + 0.5 * text.count(POLICIES[0].permission)
            found.append(np.array([log_p / 2, log_p / 2], dtype=np.float32) if reply else np.zeros(0))
        return found

    def generate(self, chats, sampling, steering=None, seeds=None):
        return [Completion(" I see. ") for _ in chats]


def test_the_mass_of_two_turns_is_that_of_at_least_one():
    probes = make_probes()[:2]
    for size, turns in ((1, 1), (2, 2)):
        p = np.exp(-4.0)  # the rule stands in mission and role
        found = log_masses(Model(), make_small_team(size), probes, "X", 4)
        assert found == pytest.approx([np.log(1 - (1 - p) ** turns)] * 2)
    assert RoleDocument.of(make_small_team(2), None).text.count(POLICIES[0].rule) == 1


def test_the_small_model_study_on_a_scripted_model(tmp_path, monkeypatch):
    monkeypatch.setattr("rolecraft.models.load_model", lambda spec: Model())
    from rolecraft.guard.audit import SuitabilityReviewer, WordHashEncoder

    monkeypatch.setattr(
        "rolecraft.guard.audit.SuitabilityReviewer", lambda tau: SuitabilityReviewer(tau, WordHashEncoder())
    )
    config = LogitsConfig(seeds=(1, 2), probes=3, search_probes=2, tau=0.3, rounds=2, children=3)
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        result = run_logits(config, store)
        monkeypatch.setattr(_evil_logits, "log_masses", None)
        assert run_logits(config, store).rows == result.rows
    assert len(result.rows) == 2 * 2 * 2 * 5 * 3
    assert result.difference("log_mass", "generated", "unmodified", by="seed").estimate > 0
    assert result.difference("log_mass", "guard", "generated", by="seed").estimate == pytest.approx(-1, abs=0.05)
    found = verdict_logits(result)
    assert found.verdict in ("reproduced", "not reproduced", "inconclusive")
    assert "guard" in found.note


def logit_rows(generated=0.0, system=0.5, guard=-1.0, pair=0.3, blind=-1.0):
    found = []
    for seed in range(4):
        for size in (1, 2):
            for level in ("system", "agent"):
                base = -9 + 0.01 * seed + pair * (size == 2) + system * (level == "system")
                arms = {
                    "unmodified": base - 1,
                    "template": base - 0.5,
                    "random": base + blind,
                    "generated": base + generated,
                }
                arms["guard"] = arms["generated"] + guard
                found += [
                    {"arm": arm, "seed": seed, "unit": f"{size}:{level}:p{k}", "log_mass": mass + 0.01 * k}
                    for arm, mass in arms.items() for k in range(3)
                ]  # fmt: skip
    return Result(tuple(found))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "reproduced"),
        ({"generated": -1.5}, "not reproduced"),
        ({"system": -0.5}, "not reproduced"),
        ({"guard": -0.4}, "not reproduced"),
        ({"pair": -0.3}, "not reproduced"),
        ({"blind": 0.0}, "not reproduced"),
    ],
)
def test_every_direction_of_the_small_model_can_fail(changes, expected):
    assert verdict_logits(logit_rows(**changes)).verdict == expected


@pytest.mark.slow
def test_the_small_model_study_on_smollm2(tmp_path):
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        result = run_logits(
            LogitsConfig(seeds=(1,), sizes=(1,), probes=3, search_probes=2, rounds=1, children=2), store
        )
    assert all(-40 < row["log_mass"] < 0 for row in result.rows)
    assert result.mean("log_mass", "generated").estimate >= result.mean("log_mass", "unmodified").estimate - 1
