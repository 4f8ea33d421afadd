"""All problems of the search on beliefs, by name."""

from __future__ import annotations

from collections.abc import Callable

from nbf_paper.experiments.planning_continuous import vdp_tag, walk
from nbf_paper.experiments.planning_decisions import Decisions
from nbf_paper.experiments.planning_worlds import LISTED

PROBLEMS: dict[str, Callable[[], Decisions]] = {**LISTED, "vdp-tag": vdp_tag, "walk": walk}
"""How each is made."""
