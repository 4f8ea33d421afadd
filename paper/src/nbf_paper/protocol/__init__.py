"""The paper's own protocol: its models with seeds, gradient steps and episodes, and what they take on this code."""
