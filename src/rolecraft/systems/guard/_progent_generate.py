"""A generator of policies by rules: it reads the user's request and nothing else, in the place of Progent's model.

A tool that writes is allowed if the request has a word for what it does. An argument that decides where something
goes is restricted to what the request names of that kind; where it names nothing, the argument is left open, for the
request gives no ground to restrict it. Tools that only read are the suite's base rights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rolecraft.guard import Rule, make_rules

EMAIL = r"[\w.+-]+@[\w-]+(?:\.[a-z]+)+"
URL = r"www\.[a-z0-9-]+\.[a-z]+(?:/[a-z0-9/-]+)?"
KINDS: Mapping[str, str] = {
    "account": r"\b[A-Z]{2}\d{2}[A-Z0-9]{8,}\b",
    "email": EMAIL,
    "url": URL,
    "file": r"\b[\w-]+\.(?:txt|docx|xlsx|pdf|csv)\b",
    "quoted": r"(?<![A-Za-z])'([^'\n]{1,80})'(?![a-z])",
    "name": r"\b[A-Z][a-z]+\b",
}
"""How literals of each kind are found in a request."""
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
    """Return what a request names, by kind of `KINDS`."""
    found = {kind: list(dict.fromkeys(re.findall(pattern, request))) for kind, pattern in KINDS.items()}
    found["name"] = [word for word in found["name"] if word not in NOT_NAMES]
    return found


def named(request: str) -> list[str]:
    """Return all literals of a request, for the list `named` of a hand-written policy."""
    return list(dict.fromkeys(word for words in literals(request).values() for word in words))


def generate(request: str, tools: Mapping[str, Any], priority: int = 100) -> dict[str, tuple[Rule, ...]]:
    """Return rules for the tools that a request asks for.

    Args:
        request: What the user wants; trusted, unlike anything a tool returns.
        tools: The tools there are.
        priority: Of the rules; generated ones come after a person's.
    """
    words = literals(request)
    found: dict[str, list[dict[str, Any]]] = {}
    for tool, (cue, arguments) in CUES.items():
        if tool in tools and re.search(cue, request, re.IGNORECASE | re.DOTALL):
            when = {}
            for argument, kinds in arguments.items():
                values = [value for kind in kinds.split() for value in words[kind]]
                listed = {"recipients", "participants"} & {argument}
                if values:
                    one = {"enum": values}
                    nothing = [{"type": "null"}]
                    when[argument] = {"anyOf": [*nothing, {"type": "array", "items": one}]} if listed else one
            found[tool] = [{"priority": priority, "when": when}]
    return make_rules(found, "generated")
