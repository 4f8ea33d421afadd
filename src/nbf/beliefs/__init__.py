"""Beliefs that a filter reports: particles, categorical, Gaussian, histogram, kernel density, decoded embeddings."""
