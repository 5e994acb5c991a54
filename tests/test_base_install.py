"""`import rolecraft` and the command line need only the base install, and start quickly."""

import re
import shutil
import subprocess
import sys
import textwrap
import time
import venv
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
LIMIT = 0.5
"""Seconds."""

REFUSE = """
import sys
from importlib.abc import MetaPathFinder

REFUSED = {refused!r}

class Refuse(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in REFUSED:
            raise ModuleNotFoundError(f"{{name}} is not in the base install", name=name)

sys.meta_path.insert(0, Refuse())
"""


def base_closure() -> set[str]:
    """Names of the distributions that installing rolecraft without extras brings."""
    found: set[str] = set()
    waiting = ["rolecraft"]
    while waiting:
        name = normal(waiting.pop())
        if name not in found:
            found.add(name)
            for text in metadata.requires(name) or []:
                requirement = Requirement(text)
                if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                    waiting.append(requirement.name)
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def refused_modules() -> list[str]:
    """Top-level modules that only distributions outside the base install bring."""
    closure = base_closure()
    owners = metadata.packages_distributions()
    return sorted(module for module, names in owners.items() if not closure & {normal(name) for name in names})


def run_in_base(code: str) -> subprocess.CompletedProcess[str]:
    code = REFUSE.format(refused=refused_modules()) + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)


def run_command_in_base(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_in_base(f"sys.argv = {['rolecraft', *arguments]!r}\nfrom rolecraft._cli.main import main\nmain()\n")


def best_of(times: int, *command: str) -> float:
    def once() -> float:
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - start

    return min(once() for _ in range(times))


def test_the_base_install_has_none_of_the_heavy_libraries():
    assert {"numpy", "pydantic", "typer", "httpx", "safetensors"} <= base_closure()
    assert not base_closure() & {"torch", "transformers", "pandas", "scipy", "scikit-learn", "ray", "altair"}
    assert run_in_base("import torch").returncode == 1


@pytest.mark.parametrize(
    "package",
    [
        "rolecraft",
        *(
            f"rolecraft.{name}"
            for name in (
                "roles",
                "models",
                "conditioning",
                "measures",
                "screening",
                "systems",
                "report",
                "testing",
                "_run",
            )
        ),
    ],
)
def test_every_package_is_imported(package):
    done = run_in_base(f"import {package}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        ["screen", "--help"],
        ["roles", "show", "core-v1", "--json"],
        ["roles", "lint", "--help"],
        ["systems", "list"],
        ["systems", "table", "--json"],
        ["systems", "run", "--help"],
        ["show", "--help"],
    ],
)
def test_every_command_that_needs_no_model_works(arguments):
    done = run_command_in_base(*arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_a_missing_extra_is_said_without_a_traceback(tmp_path):
    done = run_command_in_base(
        "screen", "core-v1", "--roles", "pirate", "--control", "none", "--out", str(tmp_path / "run")
    )
    assert done.returncode == 2, done.stderr
    assert "pip install" in done.stderr
    assert "Traceback" not in done.stderr


def test_import_and_help_start_quickly():
    assert best_of(3, sys.executable, "-c", "import rolecraft") < LIMIT
    assert best_of(3, sys.executable, "-m", "rolecraft._cli.main", "--help") < LIMIT


@pytest.mark.slow
def test_a_clean_environment_with_the_base_install_alone_works(tmp_path):
    source = tmp_path / "source"
    leave_out = shutil.ignore_patterns(".*", "build", "runs", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, source, symlinks=True, ignore=leave_out)
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    install = [python, "-m", "pip", "install", "-q", str(source), "-c", str(ROOT / "constraints.txt")]
    subprocess.run(install, check=True, timeout=240)
    command = str(tmp_path / "venv" / "bin" / "rolecraft")
    for arguments in (["--help"], ["roles", "show", "core-v1"], ["systems", "table"]):
        done = subprocess.run([command, *arguments], capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert done.stdout
    assert subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 1
    assert best_of(3, command, "--help") < LIMIT
