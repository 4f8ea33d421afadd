"""Environments: Gridworld, Goofspiel, Triangulation, linear-Gaussian systems, and the ways to bring your own."""
