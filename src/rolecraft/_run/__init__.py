"""What every run shares: store, content keys and seeds, meter and budget, progress, workers, export."""

from rolecraft._run._export import export_rows
from rolecraft._run._keys import content_key, derive_seed, plain
from rolecraft._run._meter import Budget, Meter
from rolecraft._run._progress import Progress
from rolecraft._run._store import RunStore, RunView
from rolecraft._run._workers import map_shards

__all__ = [
    "Budget",
    "Meter",
    "Progress",
    "RunStore",
    "RunView",
    "content_key",
    "derive_seed",
    "export_rows",
    "map_shards",
    "plain",
]
