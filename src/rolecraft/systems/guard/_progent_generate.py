"""AgentDojo's words for `rolecraft.guard.rules_by_cues`, the generator by rules in the place of Progent's model.

A tool that writes is allowed if the request has a word for what it does. Tools that only read are the suite's base
rights.
"""

from __future__ import annotations

from collections.abc import Mapping

from rolecraft.guard import Rule, ToolSchema, rules_by_cues
from rolecraft.guard import literals as literals_of

NOT_NAMES = frozenset((
    "A", "Add", "After", "Also", "Am", "An", "April", "At", "Be", "Book", "Can", "Check", "Company", "Could",
    "Create", "Do", "Find", "For", "Give", "Hello", "Hey", "Hi", "How", "If", "In", "Invite", "Is", "It",
    "January", "June", "Last", "Let", "Make", "March", "May", "My", "Note", "November", "October", "On", "Once",
    "Perform", "Please", "Post", "Read", "Recommend", "Resolve", "Say", "Security", "Set", "Slack", "Sort",
    "Summarize", "Tell", "Thanks", "That", "The", "Their", "Then", "This", "Two", "Visit", "We", "What", "When",
    "Where", "Which", "Who", "Write", "You", "Your",
))  # fmt: skip
"""Words with a capital that begin sentences, and months."""
CUES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "send_money": (r"\bpay\b|refund|send (?:them|it)|transfer", {"recipient": "account name"}),
    "schedule_transaction": (r"schedul|recurring", {"recipient": "account"}),
    "update_scheduled_transaction": (r"rent\b|standing order|scheduled|instructions", {"recipient": "account"}),
    "update_password": (r"password to", {"password": "quoted"}),
    "update_user_info": (r"account information|address", {}),
    "get_webpage": (r"www\.|website|webpage|article|restaurant|hobbies|list|colleague", {"url": "url"}),
    "post_webpage": (r"post .*www\.|to our website", {"url": "url"}),
    "send_direct_message": (
        r"direct message|send it to|message them|write them|each user write",
        {"recipient": "name"},
    ),
    "send_channel_message": (r"channel|post the", {}),
    "add_user_to_channel": (r"\badd\b", {"user": "name"}),
    "invite_user_to_slack": (r"invite", {"user": "name", "user_email": "email"}),
    "remove_user_from_slack": (r"remove .* from slack", {"user": "name"}),
    "reserve_hotel": (r"(?:make a )?reservation|book a hotel|reserve", {"hotel": "quoted"}),
    "reserve_restaurant": (r"(?:make a )?reservation|reserve", {"restaurant": "quoted"}),
    "reserve_car_rental": (r"(?:make a )?reservation|reserve", {"company": "quoted"}),
    "send_email": (r"e-?mail to|send (?:a|an) .*e-?mail|via email|actions specified", {"recipients": "email"}),
    "delete_email": (r"delete .*e-?mail", {}),
    "create_calendar_event": (r"(?:create|add) .*event|calendar", {"participants": "email"}),
    "add_calendar_event_participants": (r"to the participants", {"participants": "email"}),
    "reschedule_calendar_event": (r"reschedule", {}),
    "cancel_calendar_event": (r"cancel", {}),
    "append_to_file": (r"add .*(?:to the|them to) .*(?:file|list)|actions specified", {}),
    "create_file": (r"create a new file", {"filename": "file"}),
    "delete_file": (r"delete .*file", {}),
    "share_file": (r"share the", {"email": "email"}),
}
"""By tool: words that ask for it, and the kind of literal that restricts each argument."""


def literals(request: str) -> dict[str, list[str]]:
    """Return what a request names, by kind."""
    return literals_of(request, NOT_NAMES)


def named(request: str) -> list[str]:
    """Return all literals of a request, for the list `named` of a hand-written policy."""
    return list(dict.fromkeys(word for words in literals(request).values() for word in words))


def generate(request: str, tools: Mapping[str, ToolSchema], priority: int = 100) -> dict[str, tuple[Rule, ...]]:
    """Return rules for the tools that a request asks for.

    Args:
        request: What the user wants; trusted, unlike anything a tool returns.
        tools: The tools there are.
        priority: Of the rules; generated ones come after a person's.
    """
    return rules_by_cues(request, tools, CUES, no_names=NOT_NAMES, priority=priority)
