"""The exact tabular toolbox: finite MDPs and small games with answers in closed form, for use and for tests.

An `Mdp` is arrays, alone or as a stack; planning, visits, policy gradients and critics all work on stacks. NumPy only;
the games need SciPy, which is imported where it is used.
"""

from rolecraft.control.tabular._automaton import Automaton, product_mdp
from rolecraft.control.tabular._cost import TabularCost
from rolecraft.control.tabular._critics import Chains, critic_advantages, critic_error, monte_carlo, td0
from rolecraft.control.tabular._games import (
    Equilibrium,
    exploitability,
    solve_zero_sum,
    stackelberg,
    support_enumeration,
    symmetric_equilibria,
)
from rolecraft.control.tabular._gradient import (
    ESTIMATORS,
    Estimator,
    Moments,
    Sample,
    gradient_moments,
    policy_gradient,
    sample_returns,
    sample_weights,
    score_step,
    second_moments,
    softmax,
    state_visits,
)
from rolecraft.control.tabular._grid import Grid, grid_mdp
from rolecraft.control.tabular._gymnasium import from_gymnasium
from rolecraft.control.tabular._mdp import Mdp, Walks, draw, random_mdp, sample_walks, stack_mdps
from rolecraft.control.tabular._planning import (
    Plan,
    Values,
    expected_return,
    occupancy,
    policy_evaluation,
    soft_maximum,
    stationary_distribution,
    value_iteration,
)
from rolecraft.control.tabular._streams import Streams

__all__ = [
    "ESTIMATORS",
    "Automaton",
    "Chains",
    "Equilibrium",
    "Estimator",
    "Grid",
    "Mdp",
    "Moments",
    "Plan",
    "Sample",
    "Streams",
    "TabularCost",
    "Values",
    "Walks",
    "critic_advantages",
    "critic_error",
    "draw",
    "expected_return",
    "exploitability",
    "from_gymnasium",
    "gradient_moments",
    "grid_mdp",
    "monte_carlo",
    "occupancy",
    "policy_evaluation",
    "policy_gradient",
    "product_mdp",
    "random_mdp",
    "sample_returns",
    "sample_walks",
    "sample_weights",
    "score_step",
    "second_moments",
    "soft_maximum",
    "softmax",
    "solve_zero_sum",
    "stack_mdps",
    "stackelberg",
    "state_visits",
    "stationary_distribution",
    "support_enumeration",
    "symmetric_equilibria",
    "td0",
    "value_iteration",
]
