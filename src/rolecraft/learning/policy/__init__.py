"""What is trained: tables, tiny transformers, and language models with adapters."""

from rolecraft.learning.policy._tabular import TabularPolicy

__all__ = ["TabularPolicy"]
