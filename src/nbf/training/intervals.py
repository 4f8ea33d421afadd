"""How often a training run returns to Python, saves itself and evaluates held-out beliefs.

Read as attributes of this module (`intervals.CHUNK`), so that a test which shortens one shortens it everywhere.
"""

from __future__ import annotations

CHUNK = 20
"""Steps per compiled call: enough to generate their data together, few enough to stop soon after a signal."""
SAVE_EVERY = 30.0
"""Seconds between two saves of a run in progress."""
CHECK_EVERY = 1000
"""Steps between two evaluations of the loss on held-out beliefs."""
