"""Systems about populations of agents: evolution, threats, punishment, reputation."""
