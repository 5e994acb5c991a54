"""Judges of role play and their calibration, text health, and the statistics that verdicts rest on."""

from rolecraft.measures._calibration import Agreement, Calibration, agreement, calibrate
from rolecraft.measures._cases import RoleCase, load_cases
from rolecraft.measures._fit import OfflineFit
from rolecraft.measures._health import TextHealth, text_health
from rolecraft.measures._judge import DIMENSIONS, STYLE, Judge, JudgeItem, Score
from rolecraft.measures._llm import Comparison, LLMJudge
from rolecraft.measures._offline import OfflineJudge, fit_offline_judge
from rolecraft.measures._rubric import Rubric, load_rubric, parse_json_reply
from rolecraft.measures._statistics import (
    Correlation,
    Interval,
    auc,
    bootstrap_mean,
    bootstrap_rows,
    cohen_kappa,
    paired_bootstrap,
    pearson,
    slope,
    spearman,
    wilson,
)

__all__ = [
    "DIMENSIONS",
    "STYLE",
    "Agreement",
    "Calibration",
    "Comparison",
    "Correlation",
    "Interval",
    "Judge",
    "JudgeItem",
    "LLMJudge",
    "OfflineFit",
    "OfflineJudge",
    "RoleCase",
    "Rubric",
    "Score",
    "TextHealth",
    "agreement",
    "auc",
    "bootstrap_mean",
    "bootstrap_rows",
    "calibrate",
    "cohen_kappa",
    "fit_offline_judge",
    "load_cases",
    "load_rubric",
    "paired_bootstrap",
    "parse_json_reply",
    "pearson",
    "slope",
    "spearman",
    "text_health",
    "wilson",
]
