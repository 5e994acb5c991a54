"""Segments: the stretches of an episode, what each was for, and who judges that (TRIAGE)."""

from rolecraft.learning.segments._judge import (
    JudgedSegments,
    ModelRoleJudge,
    RoleJudge,
    SegmentContext,
    SegmentRole,
    judge_segments,
    read_segment_role,
    segment_contexts,
    segment_question,
)
from rolecraft.learning.segments._spans import (
    SEGMENT_ROLES,
    UNREAD,
    Span,
    first_seen,
    noisy_roles,
    potential_roles,
    role_codes,
    segment_batch,
    spread_segments,
)

__all__ = [
    "SEGMENT_ROLES",
    "UNREAD",
    "JudgedSegments",
    "ModelRoleJudge",
    "RoleJudge",
    "SegmentContext",
    "SegmentRole",
    "Span",
    "first_seen",
    "judge_segments",
    "noisy_roles",
    "potential_roles",
    "read_segment_role",
    "role_codes",
    "segment_batch",
    "segment_contexts",
    "segment_question",
    "spread_segments",
]
