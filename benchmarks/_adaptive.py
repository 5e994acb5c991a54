"""What stopping early saves, and whether it decides the same: replays a finished full screen in rounds.

    python benchmarks/_adaptive.py RUN...    # results/adaptive.json

Each RUN is the directory of a full screen; its stored outcomes are told to an adaptive screen of the same grid.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rolecraft._files import write_atomic
from rolecraft._run import RunStore
from rolecraft._run._record import commit
from rolecraft.screening import Adaptive, Cell, Grid, Screen, VerdictRule, decide
from rolecraft.screening._scores import outcome

RESULTS = Path(__file__).resolve().parents[1] / "results" / "adaptive.json"


def replay(run: Path, round_questions: int) -> dict[str, Any]:
    """Compare an adaptive screen with the full one that a run holds."""
    with RunStore.read(run) as store:
        config, answers = store.config, store.rows("answers")
        scores = {Cell.parse(key): score for key, score in store.rows("scores0").items()}
    known = {cell: outcome(answers[cell.answer_key], score) for cell, score in scores.items()}
    rule = VerdictRule(**config["rule"])
    roles, questions = (tuple(dict.fromkeys(getattr(cell, name) for cell in known)) for name in ("role", "question"))
    grid = Grid(roles, tuple(config["strengths"]), tuple(config["control"]), questions, tuple(config["seeds"]))
    full = Screen(grid, rule, outcomes=dict(known))
    screen = Screen(grid, rule, Adaptive(round_questions))
    while cells := screen.ask():
        screen.tell(cells, [known[cell] for cell in cells])
    before, after = (decide(s.table(), rule).set_index("role") for s in (full, screen))
    same = [before.loc[r, "verdict"] == after.loc[r, "verdict"] for r in roles]
    strength = [
        same_verdict and (before.loc[r, "strength"] == after.loc[r, "strength"] or before.loc[r, "verdict"] != "PASS")
        for r, same_verdict in zip(roles, same, strict=True)
    ]
    return {
        "run": config["model_name"] + " " + ", ".join(roles), "questions": len(questions), "seeds": config["seeds"],
        "round_questions": round_questions, "roles": len(roles), "saved": round(screen.saved, 3),
        "same_verdict": int(sum(same)), "same_verdict_and_strength": int(sum(strength)),
        "changed": {
            r: f"{before.loc[r, 'verdict']} -> {after.loc[r, 'verdict']}"
            for r, kept in zip(roles, strength, strict=True) if not kept
        },
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--round-questions", type=int, default=4)
    arguments = parser.parse_args()
    found = [replay(run, arguments.round_questions) for run in arguments.runs]
    content = json.dumps({"commit": commit(), "replays": found}, indent=2)
    write_atomic(RESULTS, content + "\n")
    print(content)


if __name__ == "__main__":
    main()
