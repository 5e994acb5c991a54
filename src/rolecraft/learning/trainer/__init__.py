"""The trainer: policies act in worlds, get credit, and learn."""

from rolecraft.learning.trainer._checkpoint import checkpoints, load_checkpoint, load_weights, save_checkpoint
from rolecraft.learning.trainer._config import MonitorConfig, TrainConfig
from rolecraft.learning.trainer._evaluate import EVALUATIONS, RandomPolicy, against_random, exploitability, policy_table
from rolecraft.learning.trainer._guard import TrainGuard, TrainGuardChoice
from rolecraft.learning.trainer._monitors import CollapseMonitor
from rolecraft.learning.trainer._rollouts import (
    Keys,
    Learner,
    Numbering,
    Objectives,
    Route,
    Rows,
    Start,
    gather,
    outcomes,
    play_starts,
    silent_seats,
)
from rolecraft.learning.trainer._run import TrainingRun, make_trainer, play_checkpoint, read_curves, read_refusals
from rolecraft.learning.trainer._study import Evaluation, NamedWorld, PolicyChoice, TrainStudy, read_train_study
from rolecraft.learning.trainer._trainer import CollapseError, CollapseWarning, Iteration, Trainer
from rolecraft.learning.trainer._update import Lesson, score_all, teach
from rolecraft.learning.trainer._workers import RolloutWorkers, WorkerDiedWarning

__all__ = [
    "EVALUATIONS",
    "CollapseError",
    "CollapseMonitor",
    "CollapseWarning",
    "Evaluation",
    "Iteration",
    "Keys",
    "Learner",
    "Lesson",
    "MonitorConfig",
    "NamedWorld",
    "Numbering",
    "Objectives",
    "PolicyChoice",
    "RandomPolicy",
    "RolloutWorkers",
    "Route",
    "Rows",
    "Start",
    "TrainConfig",
    "TrainGuard",
    "TrainGuardChoice",
    "TrainStudy",
    "Trainer",
    "TrainingRun",
    "WorkerDiedWarning",
    "against_random",
    "checkpoints",
    "exploitability",
    "gather",
    "load_checkpoint",
    "load_weights",
    "make_trainer",
    "outcomes",
    "play_checkpoint",
    "play_starts",
    "policy_table",
    "read_curves",
    "read_refusals",
    "read_train_study",
    "save_checkpoint",
    "score_all",
    "silent_seats",
    "teach",
]
