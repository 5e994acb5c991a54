"""Losses over tokens, in torch: the clipped policy gradient, and distances to a teacher or a reference."""

from rolecraft.learning.losses._distill import LOSSES, aux_loss, full_kl, is_k3, kl, naive_k3, opd, sdar
from rolecraft.learning.losses._surrogate import (
    KlForm,
    Normaliser,
    Surrogate,
    clipped_surrogate,
    clipped_value_loss,
    kl_tokens,
    total,
)

__all__ = [
    "LOSSES",
    "KlForm",
    "Normaliser",
    "Surrogate",
    "aux_loss",
    "clipped_surrogate",
    "clipped_value_loss",
    "full_kl",
    "is_k3",
    "kl",
    "kl_tokens",
    "naive_k3",
    "opd",
    "sdar",
    "total",
]
