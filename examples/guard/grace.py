"""A guard of reasons: why something must be done, a refused reply, a proof, and a correction by an advisor.

Run in this folder: `python grace.py`.
"""

from rolecraft.guard import ToolCall
from rolecraft.guard.reasons import (
    Case,
    Casebook,
    FactExtractor,
    KeywordLabeller,
    ReasonGuard,
    load_claims,
    load_theory,
    verify,
    why,
)

theory = load_theory("grace.yaml")
words = KeywordLabeller({"suicidal_intent": ["want to die", "kill myself"], "is_minor": ["my school"]})
guard = ReasonGuard(theory, FactExtractor(theory, [words]))

message = {"text": "I want to die, but nobody must know."}
print(why(theory, ["suicidal_intent"], "escalate"))
for reply in ("counsel", "escalate"):
    print(reply, "->", guard.decide("counsellor", ToolCall(reply), message))

for claim in load_claims("grace.yaml"):
    print(verify(theory, claim))

book = Casebook(theory)
lesson = book.learn(Case("june", ("is_minor",), "hand_over", ("is_minor",)))
print(lesson.message)
guard.adopt(book.theory)
print(guard.decide("counsellor", ToolCall("counsel"), {"text": "They laugh at me in my school."}))
