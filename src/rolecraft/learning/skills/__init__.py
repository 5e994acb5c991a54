"""Skills: written from episodes, and shown to a teacher that rescores what the student said (Skill-SD)."""

from rolecraft.learning.skills._teacher import SkillTeacher, TeacherScores, skill_prompt, teacher_columns
from rolecraft.learning.skills._writers import ModelWriter, RuleWriter, SkillWriter

__all__ = [
    "ModelWriter",
    "RuleWriter",
    "SkillTeacher",
    "SkillWriter",
    "TeacherScores",
    "skill_prompt",
    "teacher_columns",
]
