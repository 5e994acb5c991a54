"""What an agent is asked to be: roles, inventories, questions."""

from rolecraft.roles._inventory import Inventory, load_inventory
from rolecraft.roles._questions import Question, QuestionBank, load_questions
from rolecraft.roles._role import Demonstration, Phase, Role, parse_role

__all__ = [
    "Demonstration",
    "Inventory",
    "Phase",
    "Question",
    "QuestionBank",
    "Role",
    "load_inventory",
    "load_questions",
    "parse_role",
]
