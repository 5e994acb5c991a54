"""Run the benchmarks and write `results/benchmarks.json`.

A benchmark is a module beside this one with `entries(quick=False) -> list[dict]`; each entry has the keys of `KEYS`.
Ours and the peer's figure come from one process, taken in turns.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "benchmarks.json"
KEYS = ("name", "ours", "peer", "unit", "ratio", "spread", "conditions")


def modules() -> list[str]:
    return sorted(path.stem for path in HERE.glob("*.py") if path.stem != "run" and not path.stem.startswith("_"))


def measure(name: str, quick: bool) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = importlib.import_module(name).entries(quick=quick)
    for entry in entries:
        if set(entry) != set(KEYS):
            raise SystemExit(f"{name}: an entry has the keys {', '.join(entry)}; expected {', '.join(KEYS)}.")
    return entries


def merged(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Replace the old entries of the same name, so that one benchmark can be rerun alone."""
    names = {entry["name"] for entry in new}
    return sorted([*new, *(entry for entry in old if entry["name"] not in names)], key=lambda entry: entry["name"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which of {', '.join(modules())}; all if left out")
    parser.add_argument("--quick", action="store_true", help="fewer rounds; printed, not written")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(modules()))
    if unknown:
        parser.error(f"unknown benchmark {unknown[0]!r}; known: {', '.join(modules())}")

    from rolecraft._cli._output import print_table
    from rolecraft._files import write_atomic
    from rolecraft._run._record import commit, machine, timestamp, versions

    sys.path.insert(0, str(HERE))
    entries = [entry for name in arguments.names or modules() for entry in measure(name, arguments.quick)]
    print_table(entries, KEYS, wrap=["conditions", "name"])
    if arguments.quick:
        return
    old = json.loads(RESULTS.read_text())["entries"] if RESULTS.exists() and arguments.names else []
    content = {
        "measured": timestamp(),
        "commit": commit(),
        "machine": machine(),
        "versions": versions(),
        "entries": merged(old, entries),
    }
    write_atomic(RESULTS, json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    print(f"written to {RESULTS}")


if __name__ == "__main__":
    main()
