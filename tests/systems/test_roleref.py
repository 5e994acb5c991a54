import re
from dataclasses import replace

import numpy as np
import pytest
import yaml

from rolecraft._run import RunStore
from rolecraft.conditioning import Intervention, Steering
from rolecraft.errors import RoleError, SteeringShapeError, UserError
from rolecraft.measures._probes import balanced_accuracy, probe, probe_others, probe_sites
from rolecraft.measures._refusal import ANSWERING, REFUSING, is_refusal, refusal_margins
from rolecraft.models import chat
from rolecraft.roles._conflicts import CONFLICT_KEYS, load_conflicts
from rolecraft.systems import Result
from rolecraft.systems.conditioning import roleref
from rolecraft.systems.conditioning._roleref_edit import (
    GRADES,
    Pattern,
    build_pattern,
    edit,
    graded,
    judge_chat,
    parse_grades,
    scrambled,
)
from rolecraft.systems.conditioning.roleref import CONFLICTS, EditConfig, ProbeConfig
from rolecraft.testing import tiny_model


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def bank():
    return load_conflicts()


# The bank


def test_the_bundled_bank_has_every_kind_of_question(bank):
    assert len(bank) == 5
    for character in bank:
        kinds = set(CONFLICT_KEYS) if character.role.id in ("sherlock-holmes", "odysseus") else set(CONFLICT_KEYS[:4])
        assert set(character.queries) == kinds
        assert all(len(queries) == 16 for queries in character.queries.values())
        own = [q.question for key, queries in character.queries.items() if key != "out_series" for q in queries]
        assert len(set(own)) == len(own)
        assert character.role.knowledge == tuple(query.fact for query in character.queries["answerable"])
        assert {query.how for query in character.queries["context_conflict"]} <= {
            "character", "object", "location", "action", "knowledge",
        }  # fmt: skip


def test_a_question_that_is_missing_is_named(tmp_path):
    fact = {"fact": "It rains.", "ask": "Does it rain?", "swap": "Why is it dry?", "how": "action"}
    who = {"id": "smith", "name": "Smith", "description": "You are Smith.", "facts": [fact, {**fact, "ask": ""}]}
    path = tmp_path / "bank.yaml"
    path.write_text(yaml.safe_dump({"characters": [who]}))
    with pytest.raises(RoleError, match=r"\(smith\): facts\[1\].ask: expected a text, got ''"):
        load_conflicts(path)
    path.write_text(yaml.safe_dump({"characters": [{**who, "facts": [fact], "absent": [3]}]}))
    with pytest.raises(RoleError, match=r"\(smith\): absent\[0\]"):
        load_conflicts(path)
    path.write_text(yaml.safe_dump({"characters": [{**who, "facts": [fact], "nme": "x"}]}))
    with pytest.raises(RoleError, match="name"):
        load_conflicts(path)
    path.write_text("[]")
    with pytest.raises(RoleError, match="characters"):
        load_conflicts(path)


# Probes and margins


def test_a_probe_reads_what_is_planted_and_nothing_else():
    generator = np.random.default_rng(0)
    labels = np.arange(60) % 3 == 0
    noise = generator.standard_normal((60, 2, 12))
    planted = noise.copy()
    planted[labels, 1, 0] += 6
    right = probe_sites(planted, labels.tolist())
    assert balanced_accuracy(right[1], labels.tolist()) > 0.95
    assert balanced_accuracy(right[0], labels.tolist()) < 0.7, "no site but the planted one"
    assert (probe(planted[:, 1], labels.tolist()) == right[1]).all()
    others = np.stack([noise[0, 1], planted[0, 1]])
    assert probe_others(planted[:, 1], labels.tolist(), others).tolist() == [False, True]


def test_probes_refuse_what_they_cannot_use():
    x = np.zeros((10, 3))
    with pytest.raises(UserError, match="5 folds needs that many rows of each class, got 3"):
        probe(x, [True] * 3 + [False] * 7)
    with pytest.raises(UserError, match="finite"):
        probe(x * np.nan, [True, False] * 5)
    with pytest.raises(UserError, match=r"\(rows, sites, size\)"):
        probe_sites(x, [True, False] * 5)


def test_the_margin_is_that_of_openings_scored_one_by_one(model):
    asked = [chat("Who are you?"), chat("Where is the bank?")]
    margins = refusal_margins(model, asked)
    for row, question in enumerate(asked):
        refuse = [model.logprobs([question], [text])[0].mean() for text in REFUSING]
        answer = [model.logprobs([question], [text])[0].mean() for text in ANSWERING]
        assert margins[row] == pytest.approx(np.mean(refuse) - np.mean(answer), abs=1e-4)


def test_scores_under_steering_are_those_of_plain_hooks(model):
    """Rows of one prompt may be steered differently, at prompt and reply tokens."""
    import torch

    from rolecraft.models._hooks import find_blocks, hooked, state_of

    vector = np.random.default_rng(0).standard_normal(model.hidden).astype(np.float32)
    asked, replies = [chat("Who are you?")] * 3, ["No one.", "No one.", "I am he."]
    rows = ((Intervention(vector, 2.0, 1, positions="all"),), (), (Intervention(vector, -1.0, 0, positions="all"),))
    scored = model.logprobs(asked, replies, Steering(rows))
    assert np.abs(scored[0] - scored[1]).max() > 0.1
    np.testing.assert_allclose(scored[1], model.logprobs(asked[:1], replies[:1])[0], atol=1e-5)
    for row, reply in enumerate(replies):
        prompt, said = model.encode(asked[row]), model.tokenizer.encode(reply, add_special_tokens=False)
        shifts = {i.site: torch.from_numpy(np.float32(i.strength) * i.vector) for i in rows[row]}
        hooks = {site: lambda _m, _i, out, shift=shift: state_of(out) + shift for site, shift in shifts.items()}
        with hooked(find_blocks(model.model), hooks), torch.inference_mode():
            logits = model.model(input_ids=torch.tensor([prompt + said])).logits[0].log_softmax(-1)
        expected = [float(logits[len(prompt) - 1 + place, token]) for place, token in enumerate(said)]
        np.testing.assert_allclose(scored[row], expected, atol=1e-4)
    with pytest.raises(SteeringShapeError, match="2 rows"):
        model.logprobs(asked, replies, Steering(((), ())))


@pytest.mark.parametrize(
    ("reply", "refuses"),
    [
        ("I do not know what a smartphone is.", True),
        ("I've never heard of it, stranger.", True),
        ("You are mistaken: I never had a parrot.", True),
        ("I can’t tell you that.", True),
        ("The lamp has forty-two mirrors.", False),
        ("I know it well, and I never tire of it.", False),
        ("The tide turned. " * 20 + "I do not know.", False),
    ],
)
def test_refusals_are_told_by_their_first_words(reply, refuses):
    assert is_refusal(reply) is refuses


# The pattern and the edit


def test_a_pattern_keeps_the_consistent_dimensions_at_their_mean():
    generator = np.random.default_rng(0)
    answerable = generator.standard_normal((8, 3, 10)).astype(np.float32)
    conflict = answerable - 1.5
    conflict[:, :, 5:] += 3 * generator.standard_normal((8, 3, 5)).astype(np.float32)
    pattern = build_pattern("smith", answerable, conflict, ratio=0.5)
    np.testing.assert_allclose(pattern.vectors[:, :5], 1.5, atol=1e-5)
    assert not pattern.vectors[:, 5:].any()
    assert build_pattern("smith", answerable, conflict, ratio=1.0).vectors.all()
    assert build_pattern("smith", answerable, conflict[:6]).pairs == 6, "paired up to the shorter list"


@pytest.mark.parametrize("ratio", [0.0, -0.1, 1.1, float("nan")])
def test_ratios_out_of_range_are_refused(ratio):
    with pytest.raises(UserError, match="ratio must lie in"):
        build_pattern("smith", np.ones((6, 3, 4)), np.ones((6, 3, 4)), ratio)


def test_patterns_need_pairs_and_finite_states():
    with pytest.raises(UserError, match="at least 5 pairs of questions for a variance, got 4"):
        build_pattern("smith", np.ones((9, 3, 4)), np.ones((4, 3, 4)))
    with pytest.raises(UserError, match="not finite"):
        build_pattern("smith", np.full((6, 3, 4), np.inf), np.ones((6, 3, 4)))


def a_pattern(model, seed: int = 0) -> Pattern:
    vectors = np.random.default_rng(seed).standard_normal((model.n_sites + 1, model.hidden)).astype(np.float32)
    vectors[0] = 0
    return Pattern("smith", vectors, 1.0, 10)


def test_the_scrambled_control_has_the_same_values_elsewhere(model):
    pattern = a_pattern(model)
    control = scrambled(pattern, 1)
    assert (np.sort(control.vectors, axis=1) == np.sort(pattern.vectors, axis=1)).all()
    assert (control.vectors[1:] != pattern.vectors[1:]).mean() > 0.9


def test_block_b_gets_item_b_plus_1(model):
    pattern = a_pattern(model)
    for given, offset in ((edit(pattern, model, "smith"), 1), (edit(pattern, model, "smith", offset=0), 0)):
        assert all((change.vector == pattern.vectors[change.site + offset]).all() for change in given)
        assert all(change.positions == "all" and change.strength == -0.1 for change in given)
    assert [change.site for change in edit(pattern, model, "smith")] == [0, 1, 2]
    assert [change.site for change in edit(pattern, model, "smith", offset=0)] == [1, 2], "item 0 is zero"


def test_the_edit_moves_the_first_block_by_c_s_and_nothing_stays_behind(model):
    pattern, asked = a_pattern(model), [chat("Who are you?")] * 2
    steering = Steering(((), edit(pattern, model, "smith", -0.3)))
    plain = model.logprobs(asked[:1], ["No."])[0]
    states = dict(model.activations(asked, ["", ""], [0], "prompt-last", steering))
    np.testing.assert_allclose(states[1][0] - states[0][0], -0.3 * pattern.vectors[1], atol=1e-4)
    np.testing.assert_array_equal(model.logprobs(asked[:1], ["No."])[0], plain)
    broken = Steering.uniform((Intervention(np.full(model.hidden, 3e38, dtype=np.float32), 1e30, 0),), 1)
    assert model.generate(asked[:1], roleref_sampling(), broken)[0].finish == "error"
    np.testing.assert_array_equal(model.logprobs(asked[:1], ["No."])[0], plain)


def roleref_sampling():
    from rolecraft.models import Sampling

    return Sampling(3, 0.0, 1.0)


def test_edits_that_do_not_fit_are_refused(model):
    pattern = a_pattern(model)
    with pytest.raises(UserError, match="finite coefficient"):
        edit(pattern, model, "smith", float("nan"))
    with pytest.raises(UserError, match="offset 0 or 1"):
        edit(pattern, model, "smith", offset=2)
    with pytest.raises(SteeringShapeError, match=r"needs blocks \+ 1 and hidden size, \(4, 32\)"):
        edit(Pattern("smith", pattern.vectors[1:], 1.0, 10), model, "smith")
    with pytest.raises(SteeringShapeError, match="Build it on this model"):
        edit(pattern, tiny_model(hidden=16), "smith")
    with pytest.warns(UserWarning, match="'smith' is applied to 'baker'"):
        edit(pattern, model, "baker")
    assert edit(pattern, model, "smith", signed=True)[0].operator == "add-signed"


def test_states_are_those_of_the_last_prompt_token(model, bank):
    character = replace(bank[0], queries={"answerable": bank[0].queries["answerable"][:2]})
    states = roleref.collect(model, character)["answerable"]
    assert states.shape == (2, model.n_sites + 1, model.hidden)
    assert not states[:, 0].any()
    asked = roleref.agent_chat(character.role, character.queries["answerable"][1].question)
    ((_, expected),) = model.activations([asked], [""], pooling="prompt-last")
    np.testing.assert_allclose(states[1, 1:], expected, atol=1e-4)


def test_the_agent_is_told_its_profile_and_what_to_refuse(bank):
    role = bank[0].role
    plain, warned = (roleref.agent_chat(role, "Why?", signal=signal) for signal in (False, True))
    assert plain[0]["role"] == "system", "an explicit system text, so that no template adds its own"
    assert all(fact in plain[0]["content"] for fact in role.knowledge)
    assert "a check found" in warned[0]["content"]
    assert "a check found" not in plain[0]["content"]


# The judge's grades


def a_record(**scores: str) -> str:
    return "\n".join(f"{name}: {scores.get(name, '2')}/2 because" for name in GRADES)


def test_grades_are_read_or_counted_as_errors():
    assert parse_grades(a_record(refusal="1")) == {**dict.fromkeys(GRADES, 2.0), "refusal": 1.0}
    for text in ("", "fine", a_record(style="9"), a_record() + "\nstyle: 1/2", a_record().split("\n", 1)[1]):
        assert parse_grades(text) is None
    assert graded(a_record(refusal="0")) == {"refusal_ability": 1.0, "role_play": 2.0, "unread": 0.0}
    unread = {"refusal_ability": None, "role_play": None, "unread": 1.0}
    assert graded("no idea") == unread, "nothing read is missing, not 0"


def test_a_judge_is_told_what_it_grades_and_its_grades_enter_the_rows(bank):
    """A scripted judge answers by what stands in its prompt."""
    character, test = bank[0], [("answerable", 0), ("absent", 1)]
    asked = [
        judge_chat(character.role, character.queries[key][i].question, "Hm.", conflict=key != "answerable")
        for key, i in test
    ]
    assert "can be answered" in asked[0][-1]["content"]
    assert "conflicts" in asked[1][-1]["content"]
    assert all(f"{name}: N/2" in asked[0][-1]["content"] for name in GRADES)
    rows = roleref._replies("scripted:echo", character, test, ["I do not know.", "Yes."])
    assert [row["refused"] for row in rows] == [1.0, 0.0]
    assert [row["unread"] for row in rows] == [1.0, 1.0], "an echo is no grading"
    assert "unread" not in roleref._replies("", character, test, ["I do not know.", "Yes."])[0]


# The studies


@pytest.fixture
def tiny_studies(monkeypatch, model, bank, hashed_embedder):
    holmes = bank[3]
    queries = {key: found[:8] for key, found in holmes.queries.items()}
    few = (replace(holmes, role=holmes.role.edited(knowledge=holmes.role.knowledge[:2]), queries=queries),)
    monkeypatch.setattr(roleref, "load_local", lambda spec: model)
    monkeypatch.setattr("rolecraft.roles._conflicts.load_conflicts", lambda source: few)
    return few


def test_the_probe_study_runs_and_resumes(tmp_path, tiny_studies):
    config = ProbeConfig(seeds=(0,), folds=3)
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        result = roleref.run_probes(config, store)
        assert roleref.run_probes(config, store).rows == result.rows
        assert len(store.get("sites", "fake/0")["accuracy"]) == 3
    assert result.mean("right", "text/fake").n == 16
    assert "best block" in roleref.verdict_probes(result).note


def test_the_edit_study_runs(tmp_path, tiny_studies):
    config = EditConfig(seeds=(0,), pairs=5, held_out=1, coefficients=(-0.3, 0.3), answer_tokens=2)
    with RunStore.open(tmp_path / "run", "study", {}) as store:
        result = roleref.run_edit(config, store)
        assert roleref.run_edit(config, store).rows == result.rows
    assert set(result.arms) == {"base", "signal", "c=-0.3", "c=0.3", "random=-0.3", "done"}
    assert roleref.verdict_edit(result).effect.n == 4
    with pytest.raises(UserError, match="leave no question"):
        roleref.split_questions(tiny_studies[0], replace(config, pairs=8), 0)


def test_pairs_and_held_out_questions_do_not_meet(bank):
    train, test = roleref.split_questions(bank[4], EditConfig(), 1)
    assert len(train) == 10
    assert not {index for key, index in test if key in ("answerable", "out_series")} & set(train)
    assert {key for key, _ in test} == set(CONFLICT_KEYS)


def edit_rows(role: float, random: float, positive: float) -> Result:
    generator = np.random.default_rng(0)
    arms = {"base": 0.0, "signal": 0.1, "c=-0.1": role / 10, "c=-1": role, "c=0.3": positive, "random=-1": random}
    rows = []
    for key in (*CONFLICTS, "answerable"):
        for n in range(10):
            start = float(generator.normal())
            for arm, shift in arms.items():
                margin = start + shift + 0.05 * float(generator.normal())
                rows.append({"arm": arm, "seed": 0, "unit": f"r/{key}/{n}", "key": key, "margin": margin})
    for arm in arms:
        rows += [{"arm": arm, "seed": s, "unit": f"r{s}/neutral", "key": "neutral", "loss": 3.0} for s in range(3)]
    return Result(tuple(rows))


def test_the_verdict_on_the_edit_follows_the_truth():
    found = roleref.verdict_edit(edit_rows(role=1.0, random=0.1, positive=-0.3))
    assert found.verdict == "reproduced"
    assert found.effect.estimate == pytest.approx(1, abs=0.05)
    assert re.search(r"answerable (0\.9|1)\S* \[", found.note), "over-refusal stands beside every gain"
    assert roleref.verdict_edit(edit_rows(1.0, 1.0, -0.3)).verdict == "not reproduced", "random dimensions do as well"
    assert roleref.verdict_edit(edit_rows(1.0, 0.1, 0.3)).verdict == "not reproduced", "c > 0 does not turn it round"
    assert roleref.verdict_edit(edit_rows(-1.0, 0.0, -0.3)).verdict == "not reproduced"


def probe_rows(out_series: float, shuffled: float) -> Result:
    generator = np.random.default_rng(0)
    rows = []
    for key in CONFLICTS:
        rows.append({"arm": f"{key}-blocks", "seed": 0, "best": 0.9, "first": 0.5, "last": 0.8, "flags_fake": 0.3})
        for prefix, chance in (("", 0.6), ("text/", 0.6), ("shuffled/", 0.5)):
            gain = {"": out_series, "shuffled/": shuffled}.get(prefix, 0.0) if key == "out_series" else 0.0
            rows += [
                {"arm": prefix + key, "seed": 0, "unit": f"u{n}", "right": float(generator.random() < chance + gain)}
                for n in range(200)
            ]
    return Result(tuple(rows))


def test_the_verdict_on_probes_follows_the_truth():
    assert roleref.verdict_probes(probe_rows(0.35, 0.0)).verdict == "reproduced"
    assert roleref.verdict_probes(probe_rows(0.0, 0.0)).verdict == "not reproduced"
    assert roleref.verdict_probes(probe_rows(0.35, 0.4)).verdict == "not reproduced", "shuffled labels show it too"
