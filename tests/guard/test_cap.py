"""Caps on activations in a policy: what is installed, on which models, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

from rolecraft.agents import Part
from rolecraft.conditioning import Direction, Steering
from rolecraft.conditioning._direction import Manifest
from rolecraft.errors import UserError
from rolecraft.guard import PolicyGuard, RoleGuards, accept_update, load_policy, make_policy, policy_diff
from rolecraft.models import chat
from rolecraft.simulate._acting import adjust_part
from rolecraft.testing import ScriptedModel, tiny_model
from rolecraft.worlds import View


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture(scope="module")
def direction(model):
    vector = np.random.default_rng(0).normal(size=model.hidden).astype(np.float32)
    return Direction({1: vector}, Manifest("pirate", "role", model.name, model.revision, 1, model.n_sites))


def guards(text, tmp_path):
    (tmp_path / "p.yaml").write_text(text)
    return RoleGuards(default=load_policy(tmp_path / "p.yaml"))


def test_a_cap_becomes_the_interventions_of_its_bounds(model, direction, tmp_path):
    made = guards("cap: {at_least: -1, at_most: 2.5}\nroles: {poet: {cap: {at_most: 0}}}\n", tmp_path)
    found = made.caps(model, ["pirate", "poet"], {"pirate": direction, "poet": direction})
    high, low = found["pirate"]
    assert (high.operator, high.threshold, high.site) == ("cap", 2.5, 1)
    assert (low.operator, low.threshold) == ("cap", 1.0)
    assert np.allclose(low.vector, -high.vector)
    assert [one.threshold for one in found["poet"]] == [0.0]
    assert made.of("poet").policy.rules("poet") == {}


def test_a_cap_holds_the_projection_within_its_bounds(model, direction, tmp_path):
    u = direction.at(1) / np.linalg.norm(direction.at(1))
    for bounds in ("at_most: -3", "at_least: 4", "at_least: 1.5, at_most: 1.5"):
        [parts] = guards(f"cap: {{{bounds}}}", tmp_path).caps(model, ["pirate"], {"pirate": direction}).values()
        for h in np.random.default_rng(1).normal(scale=3, size=(20, len(u))):
            before = h @ u
            for one in parts:  # the formula of the operator, see `Intervention`
                v = one.vector / np.linalg.norm(one.vector)
                h = h - max(h @ v - one.threshold, 0) * v
            low = float(bounds.split("at_least: ")[1].split(",")[0]) if "at_least" in bounds else -np.inf
            high = float(bounds.split("at_most: ")[1]) if "at_most" in bounds else np.inf
            assert np.isclose(h @ u, np.clip(before, low, high), atol=1e-5)


def test_a_simulation_puts_the_cap_on_its_role_alone(model, direction, tmp_path):
    caps = guards("cap: {at_most: 1}", tmp_path).caps(model, ["pirate"], {"pirate": direction})
    view = View("ann", ".", None, 1, role="pirate")
    assert adjust_part(view, Part(None), caps).interventions == caps["pirate"]
    assert adjust_part(View("ann", ".", None, 1, role="poet"), Part(None), caps).interventions == ()
    model.generate([chat("hi")], sampling(), Steering((caps["pirate"],)), [0])  # and the model takes it


def sampling():
    from rolecraft.models import Sampling

    return Sampling(2)


def test_a_model_that_cannot_be_capped_and_directions_that_cannot_be_used(model, direction, tmp_path):
    made = guards("cap: {at_most: 1}", tmp_path)
    with pytest.raises(UserError, match="gives no access to its states"):
        made.caps(ScriptedModel(), ["pirate"], {"pirate": direction})
    with pytest.raises(UserError, match="no direction of the role"):
        made.caps(model, ["pirate"], {})
    with pytest.raises(UserError, match="no file"):
        guards("cap: {at_most: 1, direction: d.safetensors}", tmp_path).caps(model, ["pirate"], {})
    direction.save(tmp_path / "d.safetensors")
    file = guards("cap: {at_most: 1, direction: d.safetensors}", tmp_path)
    assert len(file.caps(model, ["pirate"], {})["pirate"]) == 1
    with pytest.raises(UserError, match="not the file that was named"):
        guards("cap: {at_most: 1, direction: d.safetensors, sha256: abc}", tmp_path).caps(model, ["pirate"], {})


@pytest.mark.parametrize(
    ("cap", "part"),
    [({}, "expected at_least or at_most"), ({"at_least": 2, "at_most": 1}, "above"), ({"at_mots": 1}, "Did you mean"),
     ({"at_most": "1"}, "expected a number"), ({"at_most": True}, "expected a number"), ([], "expected a mapping"),
     ({"at_most": 1, "site": -1}, "decoder block"), ({"at_most": 1, "direction": 3}, "expected text")],
)  # fmt: skip
def test_caps_that_cannot_be(cap, part):
    for data in ({"cap": cap}, {"roles": {"pirate": {"cap": cap}}}):
        with pytest.raises(UserError, match=part):
            make_policy(data)


def test_a_cap_changes_the_version_and_a_policy_without_one_keeps_its_own():
    plain = make_policy({"tools": {"t": [{}]}})
    assert "cap" not in str(plain.row())
    capped = make_policy({"tools": {"t": [{}]}, "cap": {"at_most": 1}})
    assert plain.version != capped.version
    assert make_policy(capped.row()) == capped
    own = make_policy({"roles": {"poet": {"cap": {"at_least": 1, "site": 2}}}})
    assert make_policy(own.row()).caps == own.caps


@pytest.mark.parametrize(
    ("old", "new", "relation"),
    [
        ("{at_most: 3}", "{at_most: 2}", "narrower"),
        ("{at_most: 3}", "{at_most: 3, at_least: 0}", "narrower"),
        ("", "{at_most: 9}", "narrower"),
        ("{at_most: 3}", "{at_most: 4}", "wider"),
        ("{at_most: 3}", "{at_least: 0}", "wider"),
        ("{at_most: 3}", "", "wider"),
        ("{at_most: 3}", "{at_most: 2, site: 1}", "unknown"),
        ("{at_most: 3}", "{at_most: 3.0}", "equal"),
    ],
)
def test_a_cap_that_is_loosened_widens_a_policy_and_no_update_does_it(old, new, relation):
    rules = {"tools": {"t": [{}]}}
    before, after = (make_policy(rules | ({"cap": yaml.safe_load(text)} if text else {})) for text in (old, new))
    assert policy_diff(before, after).relation == relation
    verdict = accept_update(PolicyGuard(before), after)
    assert verdict.accepted == (relation in ("equal", "narrower"))
    assert verdict.accepted or "cap" in verdict.reason
