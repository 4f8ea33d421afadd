"""The optimisation loop of belief models."""
