"""Belief models: encoders that embed a set of states, and decoders that make a density of an embedding."""
