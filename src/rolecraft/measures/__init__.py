"""Judges of role play and their calibration, text health, and the statistics that verdicts rest on."""

from rolecraft.measures._attribute_effects import (
    AttributeEffect,
    ConsistencyReport,
    PopulationConsistency,
    attribute_effect,
    population_consistency,
    prior_compliance,
)
from rolecraft.measures._authority import AuthorityEffect, AuthorityReport, PanelTalk, measure_authority
from rolecraft.measures._authority_chain import PanelRates, PanelStart, panel_win_probability, split_influence
from rolecraft.measures._calibration import Agreement, Calibration, agreement, calibrate
from rolecraft.measures._cases import RoleCase, load_cases
from rolecraft.measures._consistency import (
    Figure,
    HorizonCurve,
    IndividualConsistency,
    horizon_curve,
    individual_consistency,
)
from rolecraft.measures._fit import OfflineFit
from rolecraft.measures._health import TextHealth, text_health
from rolecraft.measures._judge import DIMENSIONS, STYLE, Judge, JudgeItem, Score
from rolecraft.measures._life_events import HumanChange, LifeEvent, LifeEvents, load_life_events
from rolecraft.measures._llm import Comparison, LLMJudge
from rolecraft.measures._offline import OfflineJudge, fit_offline_judge
from rolecraft.measures._questionnaire import (
    Questionnaire,
    QuestionnaireItem,
    QuestionnaireScore,
    administer,
    load_questionnaire,
    parse_rating,
)
from rolecraft.measures._rubric import Rubric, load_rubric, parse_json_reply
from rolecraft.measures._seats import deception, influence, leadership, side_accuracy, side_cross_entropy
from rolecraft.measures._shift import ShiftCell, ShiftReport, measure_shifts
from rolecraft.measures._shift_axes import moderation, persistence
from rolecraft.measures._shift_data import HumanScale, ShiftRule, Shifts
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
    "AttributeEffect",
    "AuthorityEffect",
    "AuthorityReport",
    "Calibration",
    "Comparison",
    "ConsistencyReport",
    "Correlation",
    "Figure",
    "HorizonCurve",
    "HumanChange",
    "HumanScale",
    "IndividualConsistency",
    "Interval",
    "Judge",
    "JudgeItem",
    "LLMJudge",
    "LifeEvent",
    "LifeEvents",
    "OfflineFit",
    "OfflineJudge",
    "PanelRates",
    "PanelStart",
    "PanelTalk",
    "PopulationConsistency",
    "Questionnaire",
    "QuestionnaireItem",
    "QuestionnaireScore",
    "RoleCase",
    "Rubric",
    "Score",
    "ShiftCell",
    "ShiftReport",
    "ShiftRule",
    "Shifts",
    "TextHealth",
    "administer",
    "agreement",
    "attribute_effect",
    "auc",
    "bootstrap_mean",
    "bootstrap_rows",
    "calibrate",
    "cohen_kappa",
    "deception",
    "fit_offline_judge",
    "horizon_curve",
    "individual_consistency",
    "influence",
    "leadership",
    "load_cases",
    "load_life_events",
    "load_questionnaire",
    "load_rubric",
    "measure_authority",
    "measure_shifts",
    "moderation",
    "paired_bootstrap",
    "panel_win_probability",
    "parse_json_reply",
    "parse_rating",
    "pearson",
    "persistence",
    "population_consistency",
    "prior_compliance",
    "side_accuracy",
    "side_cross_entropy",
    "slope",
    "spearman",
    "split_influence",
    "text_health",
    "wilson",
]
