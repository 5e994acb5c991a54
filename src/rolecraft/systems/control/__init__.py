"""Systems whose policy is conditioned on a goal, a return, a skill or a constraint, and exact analyses of control."""
