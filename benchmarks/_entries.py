"""The form of an entry, see `run.py`."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

Entry = dict[str, Any]


def entry(name: str, unit: str, ours: Sequence[float], peer: Sequence[float], conditions: str) -> Entry:
    """Sum rounds up; `spread` is the smallest and largest ratio over rounds."""
    ratios = [a / b for a, b in zip(ours, peer, strict=True)]
    return {
        "name": name,
        "ours": round(statistics.median(ours), 3),
        "peer": round(statistics.median(peer), 3),
        "unit": unit,
        "ratio": round(statistics.median(ratios), 3),
        "spread": [round(min(ratios), 3), round(max(ratios), 3)],
        "conditions": conditions,
    }
