"""Figures of your own data, from plain NumPy arrays and without JAX. Needs the extra `plot`.

| name | what it draws |
|---|---|
| `marginals_figure` | beliefs over real vectors, from weighted samples: one coordinate, two, or all pairs |
| `lattice_figure` | beliefs over cells of a line, a grid or a block, from probabilities |
| `tokens_figure` | beliefs over sequences of symbols; `token_marginals` counts them |
| `animation` | any of these as an animation, one frame for each step |
| `steps_figure` | ESS, log-evidence, attempts and surprise of a filter, step by step |
| `calibration_figure` | PIT histograms and coverage of a belief model (the arrays of `nbf.Calibration`) |
| `comparison_figure` | filters of `nbf.compare`: how good each is, against calls and time |
| `belief_figure` | an `Episode` in a Gridworld: beliefs of several filters as heat maps |
| `episode_animation` | the same as an animation; `write_animation` writes it as a small GIF |
| `write_figure` | any figure as a PNG file |

All give matplotlib objects. Colours are those of Okabe and Ito, which are told apart with any kind of colour vision.
"""

from __future__ import annotations

from nbf.errors import optional_imports

with optional_imports("nbf.plot"):
    from nbf.plot.comparison import comparison_figure
    from nbf.plot.diagnostics import calibration_figure, steps_figure
    from nbf.plot.episode import Episode, belief_figure, episode_animation, write_animation
    from nbf.plot.listed import lattice_figure, token_marginals, tokens_figure
    from nbf.plot.marginals import marginals_figure
    from nbf.plot.moving import animation
    from nbf.plot.style import write_figure

__all__ = [
    "Episode", "animation", "belief_figure", "calibration_figure", "comparison_figure", "episode_animation",
    "lattice_figure", "marginals_figure", "steps_figure", "token_marginals", "tokens_figure", "write_animation",
    "write_figure",
]  # fmt: skip
