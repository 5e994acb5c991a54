"""How a role reaches a policy: prompts, directions and steering."""

from rolecraft.conditioning._steering import Intervention, Operator, Phase, Positions, Steering

__all__ = ["Intervention", "Operator", "Phase", "Positions", "Steering"]
