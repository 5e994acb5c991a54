"""What is trained: tables, tiny transformers, and language models with adapters."""

from rolecraft.learning.policy._adapters import add_adapter
from rolecraft.learning.policy._codec import ChatCodec, Codec, WordCodec, words
from rolecraft.learning.policy._make import lora_policies, model_policy, tiny_policy, tiny_transformer
from rolecraft.learning.policy._options import Options
from rolecraft.learning.policy._seat import LearnerSeat, reply_of
from rolecraft.learning.policy._served import ServedSeat, export_adapter
from rolecraft.learning.policy._tabular import TabularPolicy
from rolecraft.learning.policy._token_policy import Reply, Sampled, Scored, TokenPolicy

__all__ = [
    "ChatCodec",
    "Codec",
    "LearnerSeat",
    "Options",
    "Reply",
    "Sampled",
    "Scored",
    "ServedSeat",
    "TabularPolicy",
    "TokenPolicy",
    "WordCodec",
    "add_adapter",
    "export_adapter",
    "lora_policies",
    "model_policy",
    "reply_of",
    "tiny_policy",
    "tiny_transformer",
    "words",
]
