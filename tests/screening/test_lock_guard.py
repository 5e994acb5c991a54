"""`roles.lock` with guards: whose policy holds, and that an altered one refuses the role."""

from __future__ import annotations

import json

import pytest

from rolecraft.errors import LockError
from rolecraft.guard import GuardChoice, PolicyGuard, load_policy
from rolecraft.roles import load_inventory
from rolecraft.screening._lock import Lock, LockedRole, RolesLock

POLICY = "tools: {read: [{}]}\n"
OWN = "tools: {write: [{}]}\n"


@pytest.fixture
def roles():
    return list(load_inventory("core-v1"))[:2]


@pytest.fixture
def lock(tmp_path, roles):
    entries = {
        role.id: LockedRole(role_hash=role.hash, verdict="PASS_PROMPT_ONLY", conditioner="prompt") for role in roles
    }
    content = Lock(
        run="r", model="m", revision="1", inventory="core-v1", inventory_hash="h", reference="line", roles=entries
    )
    (tmp_path / "all.yaml").write_text(POLICY)
    (tmp_path / "own.yaml").write_text(OWN)
    return RolesLock(tmp_path / "roles.lock", content)


def test_a_role_without_a_guard_of_its_own_gets_the_inventorys(lock, roles, tmp_path):
    first, second = roles
    assert lock.admit(first, "m", "1").guard is None
    saved = lock.with_guard(tmp_path / "all.yaml").with_guard(tmp_path / "own.yaml", first.id)
    saved.save()
    again = RolesLock.load(tmp_path / "roles.lock")
    assert again.admit(first, "m", "1").guard == tmp_path / "own.yaml"
    assert again.admit(second, "m", "1").guard == tmp_path / "all.yaml"
    guard = PolicyGuard(load_policy(again.admit(second, "m", "1").guard))
    assert guard.permits(second.id, "read", {})
    assert not guard.permits(second.id, "write", {})


def test_an_altered_or_missing_guard_refuses_its_roles_even_unscreened(lock, roles, tmp_path):
    first, second = roles
    guarded = lock.with_guard(tmp_path / "own.yaml", first.id)
    (tmp_path / "own.yaml").write_text(POLICY)
    for options in ({}, {"allow_unscreened": True}):
        with pytest.raises(LockError, match="was altered"):
            guarded.admit(first, "m", "1", **options)
    assert guarded.admit(second, "m", "1").guard is None
    (tmp_path / "own.yaml").unlink()
    with pytest.raises(LockError, match="is missing"):
        guarded.admit(first, "m", "1")


def test_a_lock_without_guards_is_written_as_before(lock):
    text = lock.save().read_text()
    assert "guard" not in text
    assert json.loads(text)["format"] == 1
    assert RolesLock.load(lock.path).content == lock.content


def test_a_cap_stands_beside_the_guard_and_is_read_again(lock, roles, tmp_path):
    first, second = roles
    saved = lock.with_cap(first.id, at_least=1.5, site=3)
    saved.save()
    again = RolesLock.load(tmp_path / "roles.lock")
    assert again.content == saved.content
    cap = again.admit(first, "m", "1").cap
    assert (cap.at_least, cap.at_most, cap.site) == (1.5, None, 3)
    assert again.admit(second, "m", "1").cap is None
    caps = {first.id: cap.model_dump(exclude_none=True)}
    policy = GuardChoice().build([first.id, second.id], {}, caps).policies[first.id]
    assert policy.caps[first.id].row() == {"at_least": 1.5, "site": 3}
    assert GuardChoice(lock=False).build([first.id], {}, caps) is None
    # a cap of the role's policy goes before it
    (tmp_path / "own.yaml").write_text("cap: {at_most: 2}")
    own = GuardChoice(policy=tmp_path / "own.yaml").build([first.id], {}, caps).policies[first.id]
    assert (own.cap.at_most, own.caps) == (2, {})


@pytest.mark.parametrize("bounds", [{}, {"at_least": 2, "at_most": 1}, {"at_most": float("nan")}, {"atmost": 1}])
def test_caps_that_cannot_be_locked(lock, roles, bounds):
    with pytest.raises(LockError, match="cap of"):
        lock.with_cap(roles[0].id, **bounds)
    with pytest.raises(LockError, match="Did you mean"):
        lock.with_cap(roles[0].id + "x", at_most=1)


def test_guards_that_cannot_be_locked(lock, roles, tmp_path):
    with pytest.raises(LockError, match="within"):
        lock.with_guard(tmp_path / "none.yaml")
    with pytest.raises(LockError, match="within"):
        lock.with_guard(__file__)
    with pytest.raises(LockError, match="Did you mean"):
        lock.with_guard(tmp_path / "own.yaml", roles[0].id + "x")
