"""Where agents act, and tasks with known answers."""

from rolecraft.worlds._answers import ANSWER_TYPES, AnswerType, Graded, accuracy, clean, grade
from rolecraft.worlds._closed_tasks import (
    TASKS,
    ClosedItem,
    ClosedTask,
    make_items,
    read_items,
    right_option,
    task_named,
)
from rolecraft.worlds._exact_match import Asked, Frame, Solved, solve_by_choice, solve_freely
from rolecraft.worlds._weapon_shop import FUNCTIONS, MISSING_FUNCTIONS, ShopTurn, WeaponShop, shop_turns

__all__ = [
    "ANSWER_TYPES",
    "FUNCTIONS",
    "MISSING_FUNCTIONS",
    "TASKS",
    "AnswerType",
    "Asked",
    "ClosedItem",
    "ClosedTask",
    "Frame",
    "Graded",
    "ShopTurn",
    "Solved",
    "WeaponShop",
    "accuracy",
    "clean",
    "grade",
    "make_items",
    "read_items",
    "right_option",
    "shop_turns",
    "solve_by_choice",
    "solve_freely",
    "task_named",
]
