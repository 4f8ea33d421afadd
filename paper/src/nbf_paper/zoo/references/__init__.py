"""Filters that stand for the truth where states cannot be listed: grids, Gaussian sums, very many particles."""
