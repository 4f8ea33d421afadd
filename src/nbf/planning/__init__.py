"""Decide with a belief: a search whose root is any filter's belief, and episodes that are played with it."""

from __future__ import annotations

from nbf.planning.episode import Played, play
from nbf.planning.search import Decision, TreeSearch
from nbf.planning.task import Task
from nbf.planning.widening import Widening

__all__ = ["Decision", "Played", "Task", "TreeSearch", "Widening", "play"]
