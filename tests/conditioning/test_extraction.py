from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rolecraft._run import derive_seed
from rolecraft.conditioning import (
    NEUTRAL_PROMPTS,
    PRESETS,
    AcceptAll,
    Direction,
    Extraction,
    ExtractionPreset,
    assistant_axis,
    extract_default,
    extract_direction,
    extract_directions,
)
from rolecraft.errors import ExtractionError, ModelError, RoleError, SteeringShapeError, UserError
from rolecraft.models import Chat
from rolecraft.roles import Role
from tests.conditioning.planted import PlantedModel, role

NAMES = ("pirate", "poet", "judge")
BANK = tuple(f"What matters most in case {i}?" for i in range(12))


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float((a * b).sum() / np.linalg.norm(a) / np.linalg.norm(b))


def worst_cosine(direction: Direction | None, truth: np.ndarray) -> float:
    assert direction is not None
    return min(cosine(direction.at(site), truth[site]) for site in direction.sites)


class Scripted:
    """A filter that keeps what a rule keeps, and records what it was asked."""

    name = "scripted"

    def __init__(self, rule: object = None) -> None:
        self.rule = rule or (lambda prompted, base: True)
        self.asked: list[tuple[str, int]] = []

    def accept(self, role: Role, questions: Sequence[str], prompted: Sequence[str], base: Sequence[str]) -> list[bool]:
        self.asked.append((role.id, len(questions)))
        return [bool(self.rule(p, b)) for p, b in zip(prompted, base, strict=True)]  # type: ignore[operator]


def test_cast_vectors_recovers_planted_directions() -> None:
    model = PlantedModel(NAMES, noise=0.3)
    for extraction in extract_directions(model, [role(name, 24, 5) for name in NAMES]):
        assert worst_cosine(extraction.direction, model.truth[extraction.role]) > 0.99
        assert extraction.direction is not None
        scale = extraction.direction.norm() / np.linalg.norm(model.truth[extraction.role][2])
        assert scale == pytest.approx(1, abs=0.05)  # raw: strength 1 adds the displacement itself
        assert (extraction.n_pairs, extraction.n_tried, extraction.flag) == (50, 50, "")


def test_persona_vectors_recovers_planted_directions() -> None:
    model = PlantedModel(NAMES, noise=0.3)
    preset = replace(PRESETS["persona-vectors"], passes=2)
    for extraction in extract_directions(model, [role(name, 12) for name in NAMES], preset):
        assert worst_cosine(extraction.direction, model.truth[extraction.role]) > 0.99
        assert extraction.n_pairs == 2 * 12 * 2
        assert extraction.direction is not None
        scale = extraction.direction.norm() / np.linalg.norm(model.truth[extraction.role][2])
        assert scale == pytest.approx(2, abs=0.1)  # from the opposite side to the role's


def test_assistant_axis_recovers_the_planted_axis() -> None:
    model = PlantedModel(NAMES, noise=0.3)
    extractions = list(extract_directions(model, [role(name, 2, 5) for name in NAMES], "assistant-axis", bank=BANK))
    default = extract_default(model, BANK)
    assert default.n_pairs == len(NEUTRAL_PROMPTS) * len(BANK)
    axis = assistant_axis(extractions, default)
    truth = -np.mean([model.truth[name] for name in NAMES], axis=0)
    assert worst_cosine(axis, truth) > 0.98
    raw = extractions[0]
    assert raw.direction is not None
    assert raw.manifest.kind == "role-mean"
    assert raw.base.count == 0
    assert raw.n_tried == 5 * len(BANK)
    np.testing.assert_allclose(raw.direction.at(1), raw.prompted.mean[1], rtol=1e-5)
    assert worst_cosine(raw.direction - default.direction, model.truth[raw.role]) > 0.95  # type: ignore[operator]


def test_presets_sample_as_published() -> None:
    values = {name: (p.temperature, p.top_p, p.max_tokens) for name, p in PRESETS.items()}
    assert values["cast-vectors"] == (0.9, 0.99, 200)
    assert values["assistant-axis"] == (0.7, 0.9, 512)
    model = PlantedModel(NAMES)
    extract_direction(model, role("pirate"), max_tokens=32)
    assert {(s.max_tokens, s.temperature, s.top_p) for s in model.samplings} == {(32, 0.9, 0.99)}


def test_batches_run_across_roles_and_change_nothing() -> None:
    roles = [role(name, 8, 2) for name in NAMES]
    rule = Scripted(lambda prompted, base: int(prompted[-1]) % 3 > 0)
    small, large = PlantedModel(NAMES, noise=1), PlantedModel(NAMES, noise=1)
    one = {e.role: e for e in extract_directions(small, roles, accept=rule, batch_pairs=3)}
    other = {e.role: e for e in extract_directions(large, roles[::-1], accept=rule, batch_pairs=48)}
    assert large.batches[0] == 2 * 48  # three roles of 16 pairs, both sides, in one call
    assert max(small.batches) == 2 * 3
    for name in NAMES:
        assert one[name].n_tried == other[name].n_tried
        assert one[name].n_pairs == other[name].n_pairs
        np.testing.assert_allclose(one[name].prompted.mean, other[name].prompted.mean, rtol=1e-12)


def test_each_role_is_yielded_as_soon_as_it_is_complete() -> None:
    model = PlantedModel(NAMES)
    stream = extract_directions(model, [role(name, 8, 2) for name in NAMES], batch_pairs=16)
    assert next(stream).role == "pirate"
    assert len(model.batches) == 1
    assert [e.role for e in stream] == ["poet", "judge"]


def test_permuted_questions_give_the_same_vector() -> None:
    straight = role("pirate", 9, 3)
    turned = straight.edited(questions=straight.questions[::-1])
    model = PlantedModel(NAMES, noise=1)
    a, b = extract_direction(model, straight, questions=5), extract_direction(model, turned, questions=5)
    assert a.direction is not None
    assert b.direction is not None
    np.testing.assert_allclose(a.direction.at(), b.direction.at(), rtol=1e-5)
    assert a.split_half == pytest.approx(b.split_half)


def test_seeds_resample_questions_and_responses() -> None:
    model = PlantedModel(NAMES, noise=1)
    a, b = (extract_direction(model, role("pirate", 12), seed=seed, questions=4).direction for seed in (0, 1))
    assert a is not None
    assert b is not None
    assert 0.5 < a.cosine(b) < 0.9999


def test_split_half_follows_the_planted_noise() -> None:
    """With x = v + e in each half, the cosine of the halves is |v|^2 / (|v|^2 + E|e|^2)."""
    hidden, noise, pairs = 512, 2.0, 64
    model = PlantedModel(["pirate"], n_sites=1, hidden=hidden, noise=noise)
    extraction = extract_direction(model, role("pirate", 32, 2), replace(PRESETS["cast-vectors"], target_pairs=pairs))
    signal = float((model.truth["pirate"] ** 2).sum())
    error = hidden * noise**2 * 2 / (pairs / 2)
    expected = signal / (signal + error)
    assert extraction.split_half == pytest.approx(expected, abs=0.03)
    whole = signal / (signal + error / 2)
    assert extraction.split_half_corrected == pytest.approx(whole, abs=0.03)


def test_halves_are_cut_by_question_not_by_row() -> None:
    """Each question shifts its own responses: a half of rows would mix questions and look reliable."""
    model = PlantedModel(["pirate"], n_sites=1, hidden=64)
    model.truth["pirate"] = np.zeros((1, 64))

    def shift(chat: Chat, reply: str) -> np.ndarray:
        spread = np.random.default_rng(derive_seed(chat[-1]["content"])).standard_normal((1, 64))
        return spread if reply.startswith("as") else np.zeros((1, 64))

    model.shift = shift  # type: ignore[assignment]
    extraction = extract_direction(model, role("pirate", 6, 5))
    assert extraction.split_half is not None
    assert abs(extraction.split_half) < 0.4


def test_no_list_of_activations_is_kept() -> None:
    model = PlantedModel(NAMES)
    roles = [role(name, 40, 5) for name in NAMES]
    extractions = list(extract_directions(model, roles, replace(PRESETS["cast-vectors"], target_pairs=180)))
    assert sum(e.prompted.count + e.base.count for e in extractions) == 1080
    assert model.most_alive <= 2
    assert not model.alive


def test_a_pass_more_fills_up_what_the_filter_rejected() -> None:
    model = PlantedModel(NAMES)
    keep = Scripted(lambda prompted, base: int(prompted[-1]) % 2)
    extraction = extract_direction(model, role("pirate", 8, 2), accept=keep)
    assert 16 < extraction.n_tried <= 32
    assert extraction.n_pairs <= 16
    assert extraction.acceptance == extraction.n_pairs / extraction.n_tried
    assert extraction.direction is not None
    facts = extraction.direction.manifest.extra
    assert (facts["filter"], facts["acceptance"]) == ("scripted", extraction.acceptance)
    once = extract_direction(model, role("pirate", 8, 2), replace(PRESETS["cast-vectors"], passes=1), keep)
    assert once.n_tried == 16


def test_every_pass_draws_anew() -> None:
    model = PlantedModel(NAMES)
    seen: list[str] = []
    extract_direction(model, role("pirate", 8, 2), accept=Scripted(lambda p, b: seen.extend((p, b))))
    assert len(seen) == len(set(seen)) == 2 * 2 * 16


def test_rejected_pairs_leave_no_trace() -> None:
    model = PlantedModel(NAMES)
    model.shift = lambda chat, reply: 1000.0 if int(reply[-1]) % 2 else 0.0
    keep = Scripted(lambda prompted, base: int(prompted[-1]) % 2 == 0 and int(base[-1]) % 2 == 0)
    extraction = extract_direction(model, role("pirate", 12, 2), accept=keep)
    assert worst_cosine(extraction.direction, model.truth["pirate"]) > 0.999


def test_empty_responses_are_rejected_and_counted() -> None:
    model = PlantedModel(NAMES)
    model.reply = lambda chat, seed: " \n" if seed % 4 == 0 else model.plain_reply(chat, seed)
    keep = Scripted()
    extraction = extract_direction(model, role("pirate", 12, 2), accept=keep)
    assert extraction.n_empty > 0
    assert extraction.n_tried == extraction.n_pairs + extraction.n_empty
    assert sum(count for _, count in keep.asked) == extraction.n_pairs  # the filter never sees them
    assert extraction.prompted.count == extraction.base.count == extraction.n_pairs


def test_too_few_pairs_are_flagged_and_kept_only_if_asked() -> None:
    model = PlantedModel(NAMES, noise=0.1)
    keep = Scripted(lambda prompted, base: int(prompted[-2:]) < 8)
    extraction = extract_direction(model, role("pirate", 12, 2), accept=keep)
    assert 0 < extraction.n_pairs < 6
    assert extraction.partial
    assert extraction.direction is None
    assert f"{extraction.n_pairs} of {extraction.n_tried} pairs were kept" in extraction.note
    partial = extract_direction(model, role("pirate", 12, 2), accept=keep, allow_partial=True)
    assert partial.partial
    assert partial.direction is not None
    assert partial.direction.manifest.extra["partial"] is True
    nothing = extract_direction(model, role("pirate"), accept=Scripted(lambda p, b: False), allow_partial=True)
    assert (nothing.n_pairs, nothing.direction, nothing.split_half) == (0, None, None)


def test_a_direction_of_zero_is_an_error_but_stops_no_other_role() -> None:
    model = PlantedModel(NAMES)
    model.truth["poet"] = np.zeros_like(model.truth["poet"])
    with pytest.raises(ExtractionError, match="poet: the two sides do not differ at site 0"):
        extract_direction(model, role("poet"))
    outcomes = {e.role: e for e in extract_directions(model, [role(name) for name in NAMES])}
    assert outcomes["poet"].flag == "zero"
    assert outcomes["poet"].direction is None
    assert outcomes["judge"].direction is not None


def test_sides_that_differ_by_rounding_alone_give_no_direction() -> None:
    model = PlantedModel(NAMES)
    model.truth["poet"] = np.zeros_like(model.truth["poet"])
    model.shift = lambda chat, reply: derive_seed(chat[-1]["content"]) % 997 / 3 + 1e-5 * reply.startswith("as")
    with pytest.raises(ExtractionError, match="direction is zero"):
        extract_direction(model, role("poet"))


def test_activations_that_are_not_finite_are_an_error_but_stop_no_other_role() -> None:
    model = PlantedModel(NAMES)
    model.shift = lambda chat, reply: float("nan") if reply.startswith("as poet") else 0.0
    with pytest.raises(ExtractionError, match="poet: the model's activations are not finite"):
        extract_direction(model, role("poet"))
    outcomes = {e.role: e.flag for e in extract_directions(model, [role(name) for name in NAMES])}
    assert outcomes == {"pirate": "", "poet": "non_finite", "judge": ""}


def test_sides_judged_apart_keep_rows_not_pairs() -> None:
    class Apart(AcceptAll):
        def accept_sides(
            self, role: Role, questions: Sequence[str], prompted: Sequence[str], base: Sequence[str]
        ) -> tuple[list[bool], list[bool]]:
            assert all(text.startswith("anti") for text in base)
            return [True] * len(prompted), [i % 4 == 0 for i in range(len(base))]

    preset = replace(PRESETS["persona-vectors"], passes=1)
    extraction = extract_direction(PlantedModel(NAMES), role("pirate", 8, 2), preset, Apart())
    assert (extraction.prompted.count, extraction.base.count, extraction.n_pairs) == (16, 4, 4)
    paired = extract_direction(PlantedModel(NAMES), role("pirate", 8, 2), "cast-vectors", Apart())
    assert paired.prompted.count == paired.base.count == 16


def test_sites_are_those_asked_for() -> None:
    model = PlantedModel(NAMES)
    everything = extract_direction(model, role("pirate"))
    assert everything.sites == (0, 1, 2, 3)
    assert everything.manifest.site == 2
    some = extract_direction(model, role("pirate"), sites=[3, 0])
    assert some.direction is not None
    assert everything.direction is not None
    assert some.direction.sites == (0, 3)
    assert some.manifest.site == 3
    np.testing.assert_array_equal(some.direction.at(0), everything.direction.at(0))
    for options in ({"sites": [4]}, {"sites": []}, {"sites": [0, 1], "site": 2}):
        with pytest.raises(SteeringShapeError):
            extract_direction(model, role("pirate"), **options)  # type: ignore[arg-type]


def test_bad_input_is_refused_before_anything_runs() -> None:
    model = PlantedModel(NAMES)
    good, bare = role("pirate"), role("poet")
    cases: list[tuple[list[Role], type[Exception], str]] = [
        ([good, bare.edited(instructions=())], RoleError, "'poet' has no instructions"),
        ([good, bare.edited(questions=())], RoleError, "'poet' has no questions"),
        ([good, good], RoleError, "'pirate' is given more than once"),
    ]
    for roles, error, match in cases:
        with pytest.raises(error, match=match):
            extract_directions(model, roles)
    with pytest.raises(UserError, match="Did you mean 'cast-vectors'"):
        extract_directions(model, [good], "cast-vector")
    with pytest.raises(UserError, match="questions must be at least 1"):
        extract_directions(model, [good], questions=0)
    with pytest.raises(UserError, match="max_tokens must be at least 1"):
        extract_direction(model, good, max_tokens=0)
    with pytest.raises(UserError, match="batch_pairs must be at least 1"):
        extract_directions(model, [good], batch_pairs=0)
    with pytest.raises(UserError, match="bank is empty"):
        extract_default(model, [])
    assert not model.batches


def test_a_filter_or_model_that_loses_rows_is_found_out() -> None:
    class Short(AcceptAll):
        def accept(
            self, role: Role, questions: Sequence[str], prompted: Sequence[str], base: Sequence[str]
        ) -> list[bool]:
            return [True]

    with pytest.raises(UserError, match="returned 1 verdicts for 16 pairs"):
        extract_direction(PlantedModel(NAMES), role("pirate"), accept=Short())
    model = PlantedModel(NAMES)
    complete = model.activations
    model.activations = lambda *args, **kw: list(complete(*args, **kw))[1:]  # type: ignore[assignment,method-assign]
    with pytest.raises(ModelError, match="31 of 32 responses"):
        extract_direction(model, role("pirate"))


def test_extractions_save_and_load(tmp_path: Path) -> None:
    extraction = extract_direction(PlantedModel(NAMES, noise=1), role("pirate"))
    extraction.save(tmp_path / "pirate.safetensors")
    again = Extraction.load(tmp_path / "pirate.safetensors")
    assert again.direction is not None
    assert extraction.direction is not None
    assert again.direction.manifest == extraction.direction.manifest
    for name in ("role", "sites", "n_pairs", "n_tried", "n_empty", "acceptance", "split_halves", "flag", "note"):
        assert getattr(again, name) == getattr(extraction, name), name
    np.testing.assert_array_equal(again.prompted.m2, extraction.prompted.m2)
    np.testing.assert_array_equal(again.base.mean, extraction.base.mean)
    np.testing.assert_array_equal(again.direction.at(), extraction.direction.at())

    content = (tmp_path / "pirate.safetensors").read_bytes()
    (tmp_path / "bad.safetensors").write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(UserError, match="hash mismatch"):
        Extraction.load(tmp_path / "bad.safetensors")
    extraction.direction.save(tmp_path / "direction.safetensors")
    with pytest.raises(UserError, match="holds no extraction"):
        Extraction.load(tmp_path / "direction.safetensors")


def test_an_extraction_without_a_direction_saves_and_loads(tmp_path: Path) -> None:
    extraction = extract_direction(PlantedModel(NAMES), role("pirate"), accept=Scripted(lambda p, b: False))
    extraction.save(tmp_path / "pirate.safetensors")
    again = Extraction.load(tmp_path / "pirate.safetensors")
    assert (again.direction, again.flag, again.note) == (None, "too_few_pairs", extraction.note)


def test_a_preset_of_ones_own() -> None:
    preset = ExtractionPreset("short", "ours", "empty", 0.5, 0.9, 8, 1, 3, None, 1, 1, pooling="prompt-last")
    extraction = extract_direction(PlantedModel(NAMES), role("pirate"), preset)
    assert extraction.n_tried == 3
    assert extraction.manifest.extra["pooling"] == "prompt-last"
