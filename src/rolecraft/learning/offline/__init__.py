"""Learning from rows that are there: imitation and preferences, and rows written for other trainers."""

from rolecraft.learning.offline._export import export_rollouts, rollout_rows
from rolecraft.learning.offline._fit import fit_replies
from rolecraft.learning.offline._trl import Pair, dpo, kto, preference_pairs, sft, word_tokenizer

__all__ = [
    "Pair",
    "dpo",
    "export_rollouts",
    "fit_replies",
    "kto",
    "preference_pairs",
    "rollout_rows",
    "sft",
    "word_tokenizer",
]
