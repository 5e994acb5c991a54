"""Language models: local (transformers), served (OpenAI-compatible) and scripted; sentence embeddings."""

from rolecraft.models._base import GREEDY, Chat, Completion, LanguageModel, Message, Sampling, chat

__all__ = ["GREEDY", "Chat", "Completion", "LanguageModel", "Message", "Sampling", "chat"]
