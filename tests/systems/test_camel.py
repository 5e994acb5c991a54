"""CAMEL: sessions, the society's records, and both studies on scripted speakers."""

import json
from dataclasses import replace

import pytest

from rolecraft._run import RunStore
from rolecraft.agents import Brief, ScriptedPolicy, bare_prompts, inception_prompts, rule_critic
from rolecraft.errors import UserError
from rolecraft.systems import Result, find_entry
from rolecraft.systems.conditioning import camel
from rolecraft.systems.conditioning._camel_scripts import KINDS, PlantedPair, obedient
from rolecraft.systems.conditioning._camel_session import RolePlaySession, generate_society
from rolecraft.testing import ScriptedModel, tiny_model
from rolecraft.worlds import Dialogue, Markers, replay

SMALL = camel.RulesConfig(seeds=(1, 2), pairs=2, meaning=False)
SMOL = camel.SmolConfig(seeds=(1, 2), pairs=2, tasks=2, max_messages=6, max_tokens=40)


def open_store(path, config):
    return RunStore.open(path, "study", {"seeds": list(config.seeds)})


def session(**options):
    return RolePlaySession(ScriptedModel(obedient), **({"specify": False} | options))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("arm", camel.RULE_ARMS)
def test_each_planted_fault_is_stopped_at_its_message_and_measured(kind, arm):
    row = camel.planted_row(arm, 3, kind, 1)
    ends_by_itself = kind == "endless" if arm == "off" else not (arm == "per-word" and kind == "farewell")
    assert row["stopped"] == float(ends_by_itself)
    assert row["measured"] == 1
    assert row["mixed_up"] == 0


def test_a_pair_is_the_same_in_every_arm_and_differs_by_seed():
    one, other = PlantedPair.drawn("flip", 1), PlantedPair.drawn("flip", 2)
    assert one == PlantedPair.drawn("flip", 1)
    assert len({(p.first, p.turns) for p in (PlantedPair.drawn("flip", n) for n in range(30))}) > 10
    assert [one.says("user", turn) for turn in range(4)] != [other.says("user", turn) for turn in range(4)]


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """The result of the study of the rules, small."""
    with open_store(tmp_path_factory.mktemp("planted"), SMALL) as store:
        return camel.run_rules(SMALL, store)


def test_the_study_of_the_rules_is_reproduced_and_fails_where_a_rule_is_broken(planted, tmp_path, monkeypatch):
    result = planted
    assert len(result.rows) == 2 * 2 * (3 * len(KINDS) + 2)
    verdict = camel.verdict_rules(result)
    assert verdict.verdict == "reproduced"
    assert verdict.effect.estimate == 1
    assert verdict.control is not None
    assert verdict.control.estimate == pytest.approx(1 / len(KINDS))
    assert "misses 4 of 4 loops" in verdict.note
    monkeypatch.setitem(camel.RULE_ARMS, "rules", {"no_instruction": 4})
    with open_store(tmp_path / "b", SMALL) as store:
        assert camel.verdict_rules(camel.run_rules(SMALL, store)).verdict == "not reproduced"


@pytest.mark.parametrize(("metric", "arm", "value"), [("measured", "off", 0.0), ("mixed_up", "rules", 1.0),
                                                      ("form", "obedient", 0.0), ("form", "obedient-bare", 1.0),
                                                      ("stopped", "off", 1.0)])  # fmt: skip
def test_the_verdict_on_the_rules_hangs_on_every_figure(planted, metric, arm, value):
    broken = [dict(row) | ({metric: value} if row["arm"] == arm else {}) for row in planted.rows]
    assert camel.verdict_rules(Result(tuple(broken))).verdict == "not reproduced"


def test_the_study_of_the_rules_goes_on_where_it_was(planted, tmp_path, monkeypatch):
    stopped = camel.planted_row
    calls = []

    def counted(*given):
        calls.append(given)
        if len(calls) == 10:
            raise KeyboardInterrupt
        return stopped(*given)

    monkeypatch.setattr(camel, "planted_row", counted)
    with open_store(tmp_path / "b", SMALL) as store, pytest.raises(KeyboardInterrupt):
        camel.run_rules(SMALL, store)
    with open_store(tmp_path / "b", SMALL) as store:
        resumed = camel.run_rules(SMALL, store)
    assert len(calls) == 1 + 2 * 2 * 3 * len(KINDS)
    key = lambda row: (row["arm"], row["seed"], row["unit"])  # noqa: E731
    assert sorted(resumed.rows, key=key) == sorted(planted.rows, key=key)


@pytest.mark.parametrize(
    ("without", "seat"),
    [("with input", None), ("without input", "user"), ("opening", "assistant"), ("closing", "assistant"),
     ("end token", "end"), ("decline", None)],
)  # fmt: skip
def test_a_speaker_that_obeys_its_prompt_fails_by_the_clause_that_is_missing(without, seat):
    found = session(prompts=inception_prompts(without=[without])).run("Chef", "Teacher", "Plan a lunch.")
    adherence = found.adherence
    assert adherence.instruction_form == (0 if seat == "user" else 0.5 if seat == "end" else 1)
    assert adherence.solution_form == (0 if seat == "assistant" else 1)
    assert found.reason == ("no_instruction" if seat in ("user", "end") else "end_token")


def test_a_session_gives_its_dialogue_with_reason_tokens_and_measures():
    found = session().run("Chef", "Teacher", "Plan a lunch.", seed=5)
    assert found.reason == "end_token"
    assert [turn.agent for turn in found.messages] == ["user", "assistant"] * 3 + ["user"]
    assert all(turn.notes["tokens"] > 0 for turn in found.messages)
    assert found.adherence.form == 1
    assert found.adherence.turns_to_end == 4
    replay(Dialogue(found.task, {"user": "Teacher", "assistant": "Chef"}), found.episode)
    assert session().run("Chef", "Teacher", "Plan a lunch.", seed=5) == found
    assert session().run("Chef", "Teacher", "Plan a lunch.", seed=6) != found


def test_a_dialogue_comes_out_alone_as_it_does_beside_others():
    briefs = [Brief("Chef", "Teacher", f"Task {n}") for n in range(4)]
    together = session(critic=rule_critic()).run_all(briefs, [1, 2, 3, 4])
    assert together[2] == session(critic=rule_critic()).run("Chef", "Teacher", "Task 2", seed=3)


def test_bare_prompts_do_not_keep_the_form():
    found = session(prompts=bare_prompts()).run("Chef", "Teacher", "Plan a lunch.")
    assert found.reason == "no_instruction"
    assert found.adherence.form == 0


def test_translated_markers_hold_from_the_prompt_to_the_stop():
    german = Markers("Anweisung:", "Eingabe:", "Keine", "Lösung:", "Nächste Bitte.", "<FERTIG>")
    found = session(prompts=inception_prompts(german), limits={"markers": german}).run("Koch", "Lehrer", "Ein Essen.")
    assert (found.reason, found.adherence.form) == ("end_token", 1)
    mixed = session(prompts=inception_prompts(german)).run("Koch", "Lehrer", "Ein Essen.")
    assert mixed.reason == "no_instruction"


def test_the_task_is_specified_then_planned_and_both_agents_see_it():
    systems = set()

    def script(chat, seed):
        text = chat[-1]["content"]
        if "Make it a specific task" in text:
            return "Plan a lunch of soup."
        if "Divide it into" in text:
            assert "Plan a lunch of soup." in text
            return "1. Buy.\n2. Cook."
        systems.add(chat[0]["content"])
        return obedient(chat, seed)

    found = RolePlaySession(ScriptedModel(script), plan=True).run("Chef", "Teacher", "Plan a lunch.")
    assert found.task == "Plan a lunch of soup.\n1. Buy.\n2. Cook."
    assert found.brief.task == "Plan a lunch."
    assert len(systems) == 2
    assert all("Plan a lunch of soup.\n1. Buy." in system for system in systems)


def test_a_task_that_was_not_prepared_is_counted_and_on_record():
    def script(chat, seed):
        text = chat[-1]["content"]
        if "Make it a specific task" in text:
            return "" if "lunch" in text else "Plan a dinner of soup."
        return "Buy, then cook." if "Divide it into" in text else obedient(chat, seed)

    model = ScriptedModel(script)
    briefs = [Brief("Chef", "Teacher", "Plan a lunch."), Brief("Chef", "Teacher", "Plan a dinner.")]
    with pytest.warns(UserWarning, match="1 of 2 tasks stand as given, such as one not specified: the reply is empty"):
        lunch, dinner = RolePlaySession(model).run_all(briefs, [1, 2])
    assert (lunch.task, lunch.unprepared) == ("Plan a lunch.", ("not specified: the reply is empty",))
    assert (dinner.task, dinner.unprepared) == ("Plan a dinner of soup.", ())
    assert camel.dialogue_row(lunch)["unprepared"] == lunch.record("1")["unprepared"] == list(lunch.unprepared)
    with pytest.warns(UserWarning, match="2 of 2 tasks"):
        lunch, dinner = RolePlaySession(model, plan=True).run_all(briefs, [1, 2])
    assert [reason.partition(":")[0] for reason in lunch.unprepared] == ["not specified", "not planned"]
    assert dinner.task == "Plan a dinner of soup."
    assert len(dinner.unprepared) == 1


def test_a_person_can_take_a_seat():
    found = session(stand_ins={"user": ScriptedPolicy(lambda view: "I have no idea.")}).run("Chef", "Me", "Cook.")
    assert [turn.action for turn in found.episode.of("user")] == ["I have no idea."] * 3
    assert found.reason == "no_instruction"
    with pytest.raises(UserError, match="no seat 'critic'"):
        session(stand_ins={"critic": ScriptedPolicy(str)})


def test_one_role_twice_is_played_with_a_warning():
    with pytest.warns(UserWarning, match="one role twice, such as 'Chef'"):
        assert session().run("Chef", "Chef", "Cook.").reason == "end_token"


@pytest.mark.parametrize("given", [("", "Teacher", "x"), ("Chef", " ", "x"), ("Chef", "Teacher", "")])
def test_an_empty_role_or_task_is_refused(given):
    with pytest.raises(UserError, match="expected a text"):
        session().run(*given)


def test_seeds_are_one_per_brief():
    with pytest.raises(UserError, match="got 2 seeds for 1 briefs"):
        session().run_all([Brief("a", "b", "c")], [1, 2])


def read(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_society_is_written_in_the_form_of_the_data_set(tmp_path):
    path = tmp_path / "society.jsonl"
    assert generate_society(session(), ["Chef", "Nurse"], ["Teacher"], ["Cook.", "Clean."], path) == 4
    records = read(path)
    assert [record["id"] for record in records] == ["001_001_001", "001_001_002", "002_001_001", "002_001_002"]
    last = records[-1]
    assert (last["role_1"], last["role_2"], last["original_task"]) == ("Nurse", "Teacher", "Clean.")
    assert (last["num_messages"], last["termination_reason"]) == (7, "end_token")
    assert [name for name in last if name.startswith("message_")] == [f"message_{n}" for n in range(1, 8)]
    assert last["message_1"]["role_name"] == "Teacher"
    assert last["message_1"]["role_type"] == "USER"
    assert last["message_2"]["content"].startswith("Solution: ")
    assert last["message_7"]["content"] == "<CAMEL_TASK_DONE>"


def test_a_society_goes_on_after_a_line_that_was_cut_off(tmp_path):
    whole, path = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    roles = (["Chef", "Nurse"], ["Teacher", "Smith"], ["Cook."])
    generate_society(session(), *roles, whole)
    text = whole.read_bytes()
    path.write_bytes(text[: text.index(b"\n") + 40])
    assert generate_society(session(), *roles, path, together=1) == 3
    assert path.read_bytes() == text
    assert generate_society(session(), *roles, path) == 0


def test_a_society_is_not_mixed_with_another(tmp_path):
    path = tmp_path / "society.jsonl"
    generate_society(session(), ["Chef"], ["Teacher"], ["Cook."], path)
    with pytest.raises(UserError, match=r"line 1: written with model and seed .*'scripted:obedient', 0.* give another"):
        generate_society(session(), ["Chef"], ["Teacher"], ["Cook."], path, seed=1)
    path.write_text("{}\n")
    with pytest.raises(UserError, match="line 1: not a record"):
        generate_society(session(), ["Chef"], ["Teacher"], ["Cook."], path)
    with pytest.raises(UserError, match="at least one role"):
        generate_society(session(), [], ["Teacher"], ["Cook."], path)


def test_tasks_of_a_society_can_come_from_the_model(tmp_path):
    def script(chat, seed):
        return "1. Bake.\n2. Brew." if "numbered list" in chat[-1]["content"] else obedient(chat, seed)

    generate_society(replace(session(), model=ScriptedModel(script)), ["Chef"], ["Teacher"], 2, tmp_path / "s.jsonl")
    assert [record["original_task"] for record in read(tmp_path / "s.jsonl")] == ["Bake.", "Brew."]


def sloppy(chat, seed):
    """Obey an inception prompt in three drafts of four; else speak as the other role does."""
    if "Never change roles" in chat[0]["content"] and seed % 4:
        return obedient(chat, seed)
    return f"Could you help me with number {seed % 1009}?"


def smol(tmp_path, model, config=SMOL):
    with open_store(tmp_path, config) as store:
        return camel.run_on(model, config, store)


def test_the_study_of_a_model_is_reproduced_by_one_that_mostly_follows_its_prompt(tmp_path, hashed_embedder):
    config = replace(SMOL, pairs=6, tasks=3, max_messages=8)
    result = smol(tmp_path, ScriptedModel(sloppy), config)
    assert len(result.rows) == 3 * 2 * 18
    verdict = camel.verdict_smollm2(result)
    assert verdict.verdict == "reproduced"
    assert verdict.effect.low > 0
    assert result.difference("form", "critic", "inception").low > 0
    assert result.mean("chosen", "critic").low > 0
    assert not result.mean("blind", "critic").low > 0
    assert verdict.control == result.mean("blind", "critic")
    assert "bare no_instruction" in verdict.note


def test_it_is_not_reproduced_by_a_model_that_ignores_its_prompt(tmp_path, hashed_embedder):
    deaf = ScriptedModel(lambda chat, seed: f"I think that {seed % 1009} is a number.")
    assert camel.verdict_smollm2(smol(tmp_path, deaf)).verdict != "reproduced"


def figures(**arms):
    """Return a result with these figures (form, failed, blind) per arm, the same in four units."""
    return Result(tuple(
        {"arm": arm, "seed": 0, "unit": str(unit), "form": form, "failed": failed, "blind": blind, "reason": "x"}
        for arm, (form, failed, blind) in arms.items() for unit in range(4)
    ))  # fmt: skip


@pytest.mark.parametrize(
    ("bare", "inception", "critic", "verdict"),
    [
        ((0.0, 1, None), (0.5, 0, None), (0.8, 0, 0.0), "reproduced"),
        ((0.0, 1, None), (0.5, 0, None), (0.5, 0, 0.0), "not reproduced"),
        ((0.0, 0, None), (0.5, 1, None), (0.8, 0, 0.0), "not reproduced"),
        ((0.5, 1, None), (0.5, 0, None), (0.8, 0, 0.0), "not reproduced"),
        ((0.0, 1, None), (0.5, 0, None), (0.8, 0, 0.3), "not reproduced"),
    ],
)
def test_the_verdict_on_a_model(bare, inception, critic, verdict):
    assert camel.verdict_smollm2(figures(bare=bare, inception=inception, critic=critic)).verdict == verdict


def test_it_is_inconclusive_where_failures_cannot_be_told_apart():
    rows = [dict(row) for row in figures(bare=(0, 0, None), inception=(0.5, 0, None), critic=(0.8, 0, 0)).rows]
    for row in rows:
        if row["arm"] == "bare" and row["unit"] == "1":
            row["failed"] = 1
    assert camel.verdict_smollm2(Result(tuple(rows))).verdict == "inconclusive"


def test_a_study_of_a_model_is_resumed_without_asking_it_again(tmp_path, hashed_embedder):
    first = smol(tmp_path, ScriptedModel(sloppy))
    again = ScriptedModel(sloppy)
    assert smol(tmp_path, again).rows == first.rows
    assert again.calls == 0


def test_it_runs_on_a_real_network(tmp_path, hashed_embedder):
    config = camel.SmolConfig(seeds=(1,), pairs=1, tasks=2, max_messages=3, max_tokens=4)
    rows = smol(tmp_path, tiny_model(1, 16), config).rows
    assert [row["arm"] for row in rows] == ["bare"] * 2 + ["inception"] * 2 + ["critic"] * 2
    assert all(len(row["said"]) == row["messages"] <= 3 for row in rows)
    assert rows[0]["task"] == rows[2]["task"]


def test_the_system_is_found_with_both_studies():
    entry = find_entry("049")
    assert (entry.system.name, list(entry.studies)) == ("camel", ["rules", "smollm2"])
    assert len(camel.briefs_of(camel.SmolConfig())) == 18
    assert camel.SmolConfig.full().max_messages == 40


def test_bad_configurations_are_refused(tmp_path):
    with pytest.raises(UserError, match="pairs must be at least 2"):
        camel.RulesConfig(pairs=1)
    with pytest.raises(UserError, match="pairs must be 1 to 6 and tasks 1 to 3, not both 1; got 7 and 3"):
        camel.SmolConfig(pairs=7)
    with pytest.raises(UserError, match="options must be at least 2"):
        camel.SmolConfig(options=1)
