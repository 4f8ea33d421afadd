"""The problems of the playground."""

from __future__ import annotations

from nbf.play.problems.cards import CardsProblem
from nbf.play.problems.gridworld import GridworldProblem
from nbf.play.problems.lake import LakeProblem
from nbf.play.problems.problem import Problem
from nbf.play.problems.triangulation import TriangulationProblem

PROBLEMS: dict[str, Problem] = {
    problem.name: problem for problem in (GridworldProblem(), TriangulationProblem(), LakeProblem(), CardsProblem())
}
"""Every problem by its name; the first is shown first."""
