"""Figures of your own data, from plain NumPy arrays and without JAX. Needs the extra `plot`.

| name | what it draws |
|---|---|
| `calibration_figure` | PIT histograms and coverage of a belief model (the arrays of `nbf.Calibration`) |
| `steps_figure` | ESS, log-evidence, attempts and surprise of a filter, step by step |
| `comparison_figure` | filters of `nbf.compare`: how good each is, against calls and time |
| `belief_figure` | beliefs of several filters in a 2-D grid, as heat maps |
| `write_animation` | the same `Episode` as an animated GIF |
| `write_figure` | any figure as a PNG file |
"""

from __future__ import annotations

from nbf.errors import optional_imports

with optional_imports("nbf.plot"):
    from nbf.plot.comparison import comparison_figure
    from nbf.plot.diagnostics import calibration_figure, steps_figure
    from nbf.plot.episode import Episode, belief_figure, write_animation
    from nbf.plot.style import write_figure

__all__ = [
    "Episode", "belief_figure", "calibration_figure", "comparison_figure", "steps_figure", "write_animation",
    "write_figure",
]  # fmt: skip
