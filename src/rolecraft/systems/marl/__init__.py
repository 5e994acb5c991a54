"""Systems of multi-agent reinforcement learning."""
