"""Start-up: seconds from a shell to `rolecraft --help`, and to `import rolecraft`, against the limit of 0.5 s."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import Any

LIMIT = 0.5


def entries(quick: bool = False) -> list[dict[str, Any]]:
    """Start fresh processes, after one that fills the file cache."""
    rounds = 3 if quick else 15
    commands = {
        "start of `rolecraft --help`": [sys.executable, "-m", "rolecraft", "--help"],
        "start of `import rolecraft`": [sys.executable, "-c", "import rolecraft"],
    }
    return [_entry(name, [_seconds(command) for _ in range(rounds + 1)][1:]) for name, command in commands.items()]


def _seconds(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - start


def _entry(name: str, seconds: list[float]) -> dict[str, Any]:
    middle = statistics.median(seconds)
    return {
        "name": name,
        "ours": round(middle, 3),
        "peer": LIMIT,
        "unit": "s",
        "ratio": round(middle / LIMIT, 3),
        "spread": [round(min(seconds) / LIMIT, 3), round(max(seconds) / LIMIT, 3)],
        "conditions": f"median of {len(seconds)} fresh processes; the peer is the limit that was set",
    }
