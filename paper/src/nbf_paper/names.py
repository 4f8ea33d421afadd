"""The names of configurations, as the paper and the records spell them. Never imports jax."""

from __future__ import annotations

from typing import NamedTuple

FIXED, RANDOM = (tuple(f"{grid}-{kind}" for grid in ("5-2D", "8-2D", "5-3D", "8-3D")) for kind in ("fixed", "random"))
"""Gridworld: the panels of the paper's two figures."""
GRIDWORLDS = (*FIXED, *RANDOM)
"""The paper's eight Gridworld configurations."""
DIFFUSE = "8-2D-random-diffuse"
"""Gridworld with a policy that is less predictable."""
GRIDWORLD_NAMES = (*GRIDWORLDS, DIFFUSE)
"""What `nbf-paper reproduce gridworld` runs by default; any other size follows the same pattern."""
WALL_CLOCK_GRIDS = ("5-2D-fixed", "5-3D-fixed", "8-2D-fixed", "8-3D-fixed")
"""Gridworld: the columns of the paper's tables of wall-clock time."""
LONG_ENDING = "-long"
"""The end of a configuration's name that has long episodes."""
EXAMPLE = "8-2D-random"
"""Gridworld: the configuration of what runs on one grid alone."""
LONG = f"{EXAMPLE}{LONG_ENDING}"
"""Gridworld with episodes of 200 steps."""
CARDS = (4, 5, 6, 7)
"""Numbers of cards of the paper's Goofspiel games."""
LUMPED = "lumped"
"""The arm of Goofspiel that has no model: the exact filter on the lumped state."""
GAMES = ("k=5", "k=6", "k=7")
"""Goofspiel: the games in which the default filter is compared with its baselines (`nbf-paper reproduce beyond`)."""
OPPONENTS = ("self-play", "scripted", "wide", "search")
"""Opponents in the card game: a run of self-play that nothing was tuned on, players by rule, random wide networks, and
players who search."""
WHOLE_DECK = "52-cards"
"""The card game with the whole deck."""
BASELINES_OF_CARDS = {
    "policy_inference": "policy inference", "hands_combined": "hands combined", "interpolated": "interpolated",
    "mcmc": "MCMC", "resample_move": "resample-move",
}  # fmt: skip
"""Kinds of baselines in the card game, as metrics and as tables name them."""
PREDICTED = "interpolated"
"""The end of the arm of a baseline that predicts likelihoods as the neural filter does."""
INTERPOLATED_BASELINES_OF_CARDS = {
    "interpolated_tables": ("interpolated tables", "interpolated-tables", ""),
    "hands_combined_interpolated": ("hands combined, interp.", "policy-inference", f"hands combined, {PREDICTED}"),
    "mcmc_interpolated": ("MCMC, interp.", "mcmc", f"20 swaps, {PREDICTED}"),
    "resample_move_interpolated": ("resample-move, interp.", "resample-move", f"20 swaps, {PREDICTED}"),
}
"""Kinds of baselines with interpolation: as tables name them, and the filter and arm of their records."""
FORECASTS = f"{WHOLE_DECK}-forecasts"
"""The card game with the whole deck, scored by what is foretold."""
CALIBRATION_BINS = 10
"""Bins of probabilities, of equal width."""
GAPS = {f"gap_{place}": f"{place / CALIBRATION_BINS:.1f}–{(place + 1) / CALIBRATION_BINS:.1f}"
        for place in range(CALIBRATION_BINS)}  # fmt: skip
"""The metric of each bin, and the bin as tables name it."""
TRIANGULATION = "triangulation"
"""The configuration, its domain and its experiment."""

TIMED_CONFIGS = (EXAMPLE, "8-3D-random", TRIANGULATION, "k=6")
"""The configurations in which `nbf-paper reproduce simulation-cost` times updates by default."""


class ZooEntry(NamedTuple):
    """What is said of a problem of the zoo before anything is measured."""

    kind: str
    """Of its beliefs: smooth, curved, many-moded, discrete or constrained."""
    split: str
    """exploration: filters and training may be tuned on it; confirmation: they may not."""


ZOO_KINDS = ("smooth", "curved", "many-moded", "constrained", "discrete")
"""In the order of the tables."""
ZOO = {
    "clutter": ZooEntry("smooth", "exploration"),
    "terrain": ZooEntry("many-moded", "exploration"),
    "rooms": ZooEntry("many-moded", "confirmation"),
    "volatility": ZooEntry("smooth", "exploration"),
    "epidemic": ZooEntry("smooth", "confirmation"),
    "pendulum": ZooEntry("smooth", "confirmation"),
    "search": ZooEntry("discrete", "exploration"),
    "mazes": ZooEntry("discrete", "confirmation"),
    "cards": ZooEntry("discrete", "exploration"),
    "bearings": ZooEntry("curved", "exploration"),
    "ring": ZooEntry("constrained", "confirmation"),
    "switching": ZooEntry("many-moded", "confirmation"),
}
"""The problems of the zoo; `nbf_paper.zoo` says what they are."""
EXPLORATION = tuple(name for name, entry in ZOO.items() if entry.split == "exploration")
"""Those on which filters are tuned."""
ENDLESS = ("terrain", "rooms", "volatility", "search", "mazes", "ring", "switching")
"""Those that go on for ever, with a reference that is as good after 200 steps. The targets of `clutter` and `bearings`
leave what is watched, an epidemic and a deal of cards end, and the reference of `pendulum` shrinks."""
GROWING = ("volatility", "search", "switching")
"""Those of them whose beliefs after 200 steps are unlike any of the first 40."""
EARLY, LATE = 40, 200
"""The steps of a long episode at which errors are compared."""
TOUCH = "touch"
"""The configuration in which an object is found by touch, and its experiment."""
ACROBOT = "acrobot"
"""Gymnasium's acrobot of which only the elbow is seen."""
CROSSING_SIMULATORS = (ACROBOT, TOUCH)
"""Simulators that are not JAX, with which filters are timed."""
TIMES_ENDING = "-times"
"""The end of a configuration's name in the records of these times."""
PLANNING = ("light-dark", "source", "maze-tag", "vdp-tag", "walk")
"""The problems of the experiment on search."""
PLANNING_LISTED = PLANNING[:3]
"""Those whose hidden states are listed, so that branches can be chosen."""
VALUE_CHANGES = {
    "walk": ("beacons", "readings", "motion"),
    "chase": ("random", "goal", "comes", "noise", "turned", "grids"),
}
"""What is changed after a policy on beliefs was trained, by the task."""
LEARNED_CHANGES = {TRIANGULATION: "triangulation-noise", EXAMPLE: "8-2D-random-walls"}
"""Problems whose world changes while a filter learns, and what it becomes: less noise in a reading (0.2 for 0.5), and
twelve obstacles of one cell for two of nine."""
LEARNED = (TRIANGULATION, EXAMPLE, "terrain")
"""Problems on which a model learns from what its filter meets."""
SITES = ("plaza-1", "plaza-2")
"""Of the recordings with a real robot."""


def game_name(cards: int) -> str:
    """The configuration of Goofspiel with so many cards."""
    return f"k={cards}"


def domain_of(config: str) -> str:
    """The experiment that a configuration belongs to."""
    if config == TRIANGULATION:
        return TRIANGULATION
    return "goofspiel" if config.startswith("k=") else "gridworld"
