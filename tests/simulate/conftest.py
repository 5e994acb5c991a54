import sys
import textwrap
from pathlib import Path

import pytest

from rolecraft._run import RunStore
from rolecraft.roles import load_inventory
from rolecraft.screening import LockedRole, RolesLock
from rolecraft.screening._lock import Lock
from rolecraft.simulate import Simulation, read_study
from rolecraft.worlds import WORLDS
from tests.simulate import chatter

ROLES = ("pirate", "poet", "chef")
EIGHT = (*ROLES, "soldier", "ghost", "teacher", "tutor", "translator")


@pytest.fixture
def write_lock(tmp_path: Path):
    """Write a lock that lets roles in by prompt and flags the judge; fields of single roles may be replaced."""
    known = {role.id: role for role in load_inventory("core-v1")}

    def write(model: str, revision: str, roles: tuple[str, ...] = ROLES, **changes: dict) -> Path:
        entries = {
            name: {"role_hash": known[name].hash, "verdict": "PASS_PROMPT_ONLY", "conditioner": "prompt"}
            | changes.get(name, {})
            for name in roles
        }
        entries["judge"] = {"role_hash": known["judge"].hash, "verdict": "FLAG", "conditioner": None, "reason": "loops"}
        content = Lock(
            run="screen-1",
            model=model,
            revision=revision,
            inventory="core-v1 1.0.0",
            inventory_hash="0" * 16,
            reference="instruction",
            roles={name: LockedRole(**entry) for name, entry in entries.items()},
        )
        return RolesLock(tmp_path / "roles.lock", content).save()

    return write


@pytest.fixture
def write_study(tmp_path: Path):
    """Write a study file with these lines added."""

    def write(lines: str = "", **fields: object) -> Path:
        base = {"world": "{name: trust-game, rounds: 2}", "lock": "roles.lock", "episodes": 3} | fields
        text = "\n".join(f"{name}: {value}" for name, value in base.items()) + "\n" + textwrap.dedent(lines)
        (tmp_path / "study.yaml").write_text(text)
        return tmp_path / "study.yaml"

    return write


@pytest.fixture
def chat_world(monkeypatch: pytest.MonkeyPatch) -> str:
    """Make the world of `chatter` known, and return what a study writes for it."""
    monkeypatch.setitem(WORLDS, "chatter", ("_chatter", "Chatter"))
    monkeypatch.setitem(sys.modules, "rolecraft.worlds._chatter", chatter)
    return "{name: chatter, rounds: 3}"


@pytest.fixture
def play():
    """Play a study in a directory with a model given as an object, and return the run."""

    def played(study: Path, directory: Path, model, **options):
        with Simulation.open(read_study(study), directory, model=model, quiet=True, **options) as simulation:
            simulation.run()
        return RunStore.read(directory)

    return played
