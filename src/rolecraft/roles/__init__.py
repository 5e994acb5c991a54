"""What an agent is asked to be: roles, inventories, questions, lint, and the files of other projects."""

from rolecraft.roles._importers import Imported, import_roles
from rolecraft.roles._importers._character_card import to_character_card
from rolecraft.roles._inventory import Inventory, load_inventory
from rolecraft.roles._lint import MEANING_RULES, Finding, lint
from rolecraft.roles._questions import Question, QuestionBank, load_questions
from rolecraft.roles._role import Demonstration, Phase, Role, parse_role
from rolecraft.roles._save import save_inventory

__all__ = [
    "MEANING_RULES",
    "Demonstration",
    "Finding",
    "Imported",
    "Inventory",
    "Phase",
    "Question",
    "QuestionBank",
    "Role",
    "import_roles",
    "lint",
    "load_inventory",
    "load_questions",
    "parse_role",
    "save_inventory",
    "to_character_card",
]
