"""Credit: who gets how much of the reward, as pure functions over arrays (numpy in, numpy out)."""

from rolecraft.learning.credit._batch import (
    AuxLoss,
    Carry,
    CreditBatch,
    CreditResult,
    NoSignalWarning,
    Stage,
    assign_credit,
)

__all__ = [
    "AuxLoss",
    "Carry",
    "CreditBatch",
    "CreditResult",
    "NoSignalWarning",
    "Stage",
    "assign_credit",
]
