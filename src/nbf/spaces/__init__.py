"""State spaces: how a state is encoded as numbers for a network, and which states are legal.

| space | a state is | encoded as |
|---|---|---|
| `Lattice` | an integer point of a grid, `Int[d]` | its cell's centre in (-1, 1)^d |
| `Box` | a real vector, `Float[d]` | the vector, rescaled to (-1, 1)^d; a circular coordinate as its cosine and sine |
| `Tokens` | a sequence of symbols, `Int[length]` | one-hot vectors, concatenated |
| `Deals` | the owner of each card, `Int[cards]` | one-hot vectors, concatenated |
"""

from __future__ import annotations

from nbf.spaces.box import Box
from nbf.spaces.deals import Deals
from nbf.spaces.lattice import Lattice
from nbf.spaces.tokens import Legal, Tokens

__all__ = ["Box", "Deals", "Lattice", "Legal", "Tokens"]
