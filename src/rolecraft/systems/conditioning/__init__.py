"""How a role reaches a policy: prompts, directions, soft prompts, merges, profiles and personas."""
