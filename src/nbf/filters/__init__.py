"""Filters: each tracks a belief, one observation after the other."""
