"""One episode of the playground: steps, changes in mid-episode, going back and forth. No network, no clock but for µs.

An episode follows from its recipe: the seed, the settings at each step, and the actions. So a page can take it to
another server, and a script can repeat what the filters did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from nbf.contracts import FilterState
from nbf.errors import InputError
from nbf.play.carrying import carried
from nbf.play.problems import PROBLEMS
from nbf.play.problems.problem import EXACT, Problem, Told, World, filter_key, world_key
from nbf.play.programs import Bets, Programs, View, no_bets

MAX_STEPS = 200
"""Of an episode."""
MAX_SEED = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Reading:
    """What one filter says at one step."""

    view: View
    ess: float | None
    """None where nothing was observed, and for the truth."""
    log_evidence: float | None
    microseconds: float | None
    recovered: bool
    bets: Bets


@dataclass(frozen=True, eq=False)
class Frame:
    """The episode after a step."""

    settings: dict[str, Any]
    """In force from here on."""
    world: World
    states: Mapping[str, FilterState]
    """Of the filters by role."""
    readings: Mapping[str, Reading]
    action: str = ""
    told: Told = None
    observed: int | float = 0
    """Of the step that led here, like the two above."""
    used: dict[str, Any] = field(default_factory=dict)
    """The settings of that step."""


class Session:
    """An episode, and where in it a user looks."""

    def __init__(self, programs: Programs, problem: Any, seed: Any, settings: Any = None):
        """Begin an episode. What a page says may be anything; what cannot be played is an `InputError`.

        Args:
            programs: Where the filters' programs are.
            problem: Name of the problem.
            seed: Of all randomness of the episode.
            settings: Those that are not the problem's defaults.
        """
        if not isinstance(problem, str) or problem not in PROBLEMS:
            raise InputError(f"There is no problem {problem!r:.40}; the problems are {', '.join(PROBLEMS)}.")
        if type(seed) is not int or not 0 <= seed <= MAX_SEED:
            raise InputError(f"A seed is a whole number from 0 to {MAX_SEED}; got {seed!r:.40}.")
        self.programs, self.seed = programs, seed
        self.problem: Problem = PROBLEMS[problem]
        self.first = self.problem.checked({} if settings is None else settings)
        self.cursor = 0
        world = self.problem.start(world_key(seed, -1), self.first)
        self.frames = [self._start(world, self.first)]

    @property
    def frame(self) -> Frame:
        """Where a user looks."""
        return self.frames[self.cursor]

    @property
    def steps(self) -> int:
        """Of the episode so far."""
        return len(self.frames) - 1

    def act(self, action: Any) -> None:
        """Do one step from where a user looks. What came after it is forgotten.

        Args:
            action: One of the problem's.
        """
        if not isinstance(action, str) or action not in self.problem.actions:
            raise InputError(
                f"There is no action {action!r:.40} in {self.problem.title}; the actions are "
                f"{', '.join(self.problem.actions)}."
            )
        if self.cursor >= MAX_STEPS:
            raise InputError(f"An episode has up to {MAX_STEPS} steps. Begin a new one, or go back.")
        frame = self._step(self.frame, action)
        self.frames[self.cursor + 1 :] = [frame]
        self.cursor += 1

    def change(self, settings: Any) -> None:
        """Change settings from here on. What came after it is forgotten. Before the first step the filters begin anew.

        Args:
            settings: Those that change.
        """
        if not isinstance(settings, dict):
            raise InputError(f"A change is an object of settings and values; got {settings!r:.60}.")
        now = self.problem.checked(self.frame.settings | settings)
        if now == self.frame.settings:
            return
        self.problem.stands(now, self.frame.world)
        frame = self._start(self.frame.world, now) if self.cursor == 0 else replace(self.frame, settings=now)
        self.frames[self.cursor :] = [frame]

    def go(self, step: Any) -> None:
        """Look at another step.

        Args:
            step: Its number, from 0, the start.
        """
        if type(step) is not int or not 0 <= step <= self.steps:
            raise InputError(f"The episode has the steps 0 to {self.steps}; there is no {step!r:.40}.")
        self.cursor = step

    def recipe(self) -> dict[str, Any]:
        """Tell what the episode follows from.

        Returns:
            The problem, the seed, the different settings, for each step which of them and the action, those in force at
            the end, and where a user looks; ready for JSON.
        """
        different: list[dict[str, Any]] = []

        def number(settings: dict[str, Any]) -> int:
            if settings not in different:
                different.append(settings)
            return different.index(settings)

        first = number(self.first)
        steps = [[number(frame.used), frame.action] for frame in self.frames[1:]]
        last, now = number(self.frames[-1].settings), self.cursor
        return {
            "problem": self.problem.name, "seed": self.seed, "settings": different, "first": first, "steps": steps,
            "last": last, "cursor": now,
        }  # fmt: skip

    @classmethod
    def restored(cls, programs: Programs, recipe: Any) -> Session:
        """Repeat an episode.

        Args:
            programs: Where the filters' programs are.
            recipe: Of `recipe`, from anywhere.

        Returns:
            The session.
        """
        wanted = {"problem", "seed", "settings", "first", "steps", "last", "cursor"}
        if not isinstance(recipe, dict) or set(recipe) != wanted:
            raise InputError(f"An episode to go on with has {', '.join(sorted(wanted))}, and nothing else.")
        settings, steps = recipe["settings"], recipe["steps"]
        if not isinstance(settings, list) or not isinstance(steps, list) or len(steps) > MAX_STEPS:
            raise InputError(f"An episode to go on with has a list of settings and one of up to {MAX_STEPS} steps.")

        def at(number: Any) -> Any:
            if type(number) is not int or not 0 <= number < len(settings):
                raise InputError(f"An episode to go on with names settings that it does not have: {number!r:.40}.")
            return settings[number]

        session = cls(programs, recipe["problem"], recipe["seed"], at(recipe["first"]))
        for step in steps:
            if not isinstance(step, list) or len(step) != 2:
                raise InputError(f"A step is the number of its settings and an action; got {step!r:.40}.")
            session.change(at(step[0]))
            session.act(step[1])
        session.change(at(recipe["last"]))
        session.go(recipe["cursor"])
        return session

    def _start(self, world: World, settings: dict[str, Any]) -> Frame:
        told = self.problem.told(world_key(self.seed, 0), settings, world, self.problem.actions[-1], 0)
        environment, _ = self.problem.at(settings, told)
        states, readings, truth = {}, {}, None
        self.programs.prepare(self.problem, self.problem.counts(settings))
        for role, count in self.problem.counts(settings).items():
            programs = self.programs.of(self.problem, role, count)
            states[role] = programs.init(filter_key(self.seed, role, -1), environment)
            view = programs.look(states[role], environment, truth)
            readings[role] = Reading(view, None, None, None, False, no_bets())
            truth = view.probs if role == EXACT else truth
        return Frame(settings, world, states, readings, used=settings)

    def _step(self, frame: Frame, action: str) -> Frame:
        problem, settings, time, world = self.problem, frame.settings, self.cursor, frame.world
        key = world_key(self.seed, time)
        told = problem.told(key, settings, world, action, time)
        environment, policy = problem.at(settings, told)
        after, observed = problem.moved(key, world, action, told, environment, policy)
        observation = problem.observation(observed)
        states, readings, truth = {}, {}, None
        for role, count in problem.counts(settings).items():
            programs, step_key = self.programs.of(problem, role, count), filter_key(self.seed, role, time)
            before = frame.states[role]
            if settings != frame.used:
                before = carried(step_key, programs.filter, before, environment)
            bets, found = frame.readings[role].bets, (None, None, None, False)
            if problem.silent(told):
                states[role] = before
            else:
                states[role], info, took = programs.update(step_key, before, observation, environment, policy)
                bets = programs.watch(step_key, before, bets, observation, environment, policy)
                ess = None if role == EXACT else float(info.ess)
                found = ess, float(info.log_evidence), took, bool(info.recovered)
            view = programs.look(states[role], environment, truth)
            truth = view.probs if role == EXACT else truth
            readings[role] = Reading(view, *found, bets)
        return Frame(settings, after, states, readings, action, told, observed, settings)

    def median_microseconds(self, role: str) -> float | None:
        """Compute the time of an update of the filter that is looked at.

        Args:
            role: Of the filter.

        Returns:
            The median over the steps so far with as many particles; None before the first.
        """
        count = self.problem.counts(self.frame.used)[role]
        times = [
            took
            for frame in self.frames[1 : self.cursor + 1]
            if self.problem.counts(frame.used)[role] == count
            and (took := frame.readings[role].microseconds) is not None
        ]
        return float(np.median(np.asarray(times))) if times else None
