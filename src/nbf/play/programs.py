"""The compiled programs of the playground: one set for each problem, filter and particle count.

A change of anything else (map, policy, noise) is an input, and compiles nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nbf.contracts import Belief, Environment, Filter, FilterInfo, FilterState, Observation, Policy
from nbf.evaluation.divergence import jensen_shannon
from nbf.filters.neural.state import NeuralState
from nbf.filters.particle import ParticleState
from nbf.filters.surprise import BETS, Surprise, SurpriseState
from nbf.play.problems.problem import Problem, filter_key

DOTS = 192
"""Particles that are drawn, at most: the heaviest."""
COMPILING: ContextVar[Callable[[str], None]] = ContextVar("COMPILING", default=lambda text: None)
"""Who is told, in a line, that a program is being compiled for it."""
QUICK = {"xla_backend_optimization_level": 1}
"""Compiler options of what is not timed: it is compiled faster. With level 0 draws of hands would take 60 ms."""
ALARM = 0.001
"""Rate of false alarms of the surprise."""


class Bets(NamedTuple):
    """What is carried of `nbf.Surprise`, without the filter that it watches."""

    p: Float[Array, ""]
    log_bets: Float[Array, " bets"]
    steps: Array
    log_e: Float[Array, ""]
    alarm: Array


class View(NamedTuple):
    """What is drawn of one belief."""

    probs: Float[Array | np.ndarray, " cells"]
    js: Float[Array | np.ndarray, ""]
    """From the truth."""
    dots: Float[Array | np.ndarray, "k 3"]
    """Row, column and share of the heaviest weight of particles; none of a filter without particles."""


class _Held(Filter):
    """A filter as it stood before a step: what `Surprise` asks for its prediction."""

    filter: Filter

    def init(self, key: Key[Array, ""], environment: Environment) -> FilterState:
        return self.filter.init(key, environment)

    def update(
        self,
        key: Key[Array, ""],
        state: FilterState,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> tuple[FilterState, FilterInfo]:
        return state, FilterInfo(jnp.zeros(()), jnp.zeros(()), jnp.int32(1), jnp.bool_(False))

    def belief(self, state: FilterState, environment: Environment) -> Belief:
        return self.filter.belief(state, environment)


class _Flat:
    """A function of trees as a compiled one of arrays, so that what is timed is the program and not the trees."""

    def __init__(self, function: Callable):
        self._function, self._known = function, {}

    def __call__(self, *arguments: Any) -> tuple[Any, float]:
        """The result, and the seconds that the program took."""
        leaves, structure = jax.tree.flatten(arguments)
        if structure not in self._known:
            self._known[structure] = self._compiled(structure)
        program, result = self._known[structure]
        begin = time.perf_counter()
        given = jax.block_until_ready(program(*leaves))
        return result[0].unflatten(given), time.perf_counter() - begin

    def _compiled(self, structure: Any) -> tuple[Callable, list[Any]]:
        result: list[Any] = []

        def flat(*leaves: Any) -> list[Any]:
            given, out = jax.tree.flatten(self._function(*structure.unflatten(leaves)))
            result[:] = [out]
            return given

        return jax.jit(flat), result


class FilterPrograms:
    """Everything that is compiled for one filter."""

    def __init__(self, problem: Problem, role: str, count: int):
        """Prepare the programs; `warm` compiles them.

        Args:
            problem: Of the filter.
            role: Of the filter.
            count: Its particles.
        """
        self.problem, self.role, self.count = problem, role, count
        self.filter = problem.filter(role, count)
        self._update = _Flat(lambda filter, *arguments: filter.update(*arguments))
        self._init = jax.jit(lambda filter, key, environment: filter.init(key, environment))
        self._look = jax.jit(self._looked, compiler_options=QUICK)
        self._watch = jax.jit(self._watched, compiler_options=QUICK)

    def init(self, key: Key[Array, ""], environment: Environment) -> FilterState:
        """The state before any observation.

        Args:
            key: Random key.
            environment: Of the first step.

        Returns:
            The state.
        """
        return self._init(self.filter, key, environment)

    def update(
        self,
        key: Key[Array, ""],
        state: FilterState,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> tuple[FilterState, FilterInfo, float]:
        """Do one step.

        Args:
            key: Random key.
            state: Before it.
            observation: y.
            environment: Of the step.
            policy: Of the step.

        Returns:
            The state after it, what the filter tells, and the microseconds that it took.
        """
        (after, info), seconds = self._update(self.filter, key, state, observation, environment, policy)
        return after, info, 1e6 * seconds

    def watch(
        self,
        key: Key[Array, ""],
        before: FilterState,
        bets: Bets,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> Bets:
        """Compare the observation with the filter's prediction.

        Args:
            key: Of the filter's step.
            before: The filter's state before it.
            bets: After the last step.
            observation: y.
            environment: Of the step.
            policy: Of the step.

        Returns:
            The bets after the step.
        """
        return self._watch(self.filter, key, before, bets, observation, environment, policy)

    def look(
        self, state: FilterState, environment: Environment, truth: Float[Array | np.ndarray, " cells"] | None
    ) -> View:
        """Compute what is drawn of a belief.

        Args:
            state: Of the filter.
            environment: Of the step.
            truth: The exact belief; None if this is it.

        Returns:
            The view.
        """
        view = self._look(self.filter, state, environment, truth)
        return jax.tree.map(np.asarray, view)

    def warm(self) -> None:
        """Compile everything, by one step of a new episode."""
        problem, settings = self.problem, self.problem.checked({})
        key, world = filter_key(0, self.role, -1), problem.start(jax.random.key(0), settings)
        action = problem.actions[-1]
        told = problem.told(key, settings, world, action, 0)
        environment, policy = problem.at(settings, told)
        _, observed = problem.moved(key, world, action, told, environment, policy)
        observation, state = problem.observation(observed), self.init(key, environment)
        truth = None if self.count == 0 else np.full(problem.shape[0] * problem.shape[1], 1.0, np.float32)
        after, _, _ = self.update(key, state, observation, environment, policy)
        self.update(key, after, observation, environment, policy)
        self.watch(key, state, no_bets(), observation, environment, policy)
        self.watch(key, after, no_bets(), observation, environment, policy)
        self.look(state, environment, truth)
        self.look(after, environment, truth)

    def _looked(
        self, filter: Filter, state: FilterState, environment: Environment, truth: Float[Array, " cells"] | None
    ) -> View:
        probs = self.problem.cells(filter.belief(state, environment), environment)
        probs = probs / jnp.maximum(jnp.sum(probs), jnp.finfo(probs.dtype).tiny)
        js = jnp.zeros(()) if truth is None else jensen_shannon(truth, probs)
        return View(probs, js, self._dots(state))

    def _watched(
        self,
        filter: Filter,
        key: Key[Array, ""],
        before: FilterState,
        bets: Bets,
        observation: Observation,
        environment: Environment,
        policy: Policy,
    ) -> Bets:
        state = SurpriseState(before, bets.p, bets.log_bets, bets.steps)
        ahead = self.problem.ahead(environment)
        after, _ = Surprise(_Held(filter)).update(key, state, observation, ahead, policy)
        return Bets(after.p, after.log_bets, after.steps, after.log_e, after.alarm(ALARM))

    def _dots(self, state: FilterState) -> Float[Array, "k 3"]:
        if isinstance(state, ParticleState):
            states, log_weights = state.states, state.log_weights
        elif isinstance(state, NeuralState):
            states, log_weights = state.particles.states, state.particles.log_weights
        else:
            return jnp.zeros((0, 3))
        heaviest = jnp.argsort(-log_weights)[:DOTS]
        share = jnp.exp(log_weights[heaviest] - jnp.max(log_weights))
        places = self.problem.places(states[heaviest].astype(jnp.float32))
        return jnp.zeros((0, 3)) if places is None else jnp.concatenate([places, share[:, None]], axis=-1)


def no_bets() -> Bets:
    """Make what is carried of a surprise before the first observation.

    Returns:
        The bets.
    """
    nothing = jnp.full(2 * len(BETS), -jnp.inf, jnp.float32)
    return Bets(jnp.float32(0.5), nothing, jnp.int32(0), jnp.float32(0.0), jnp.bool_(False))


class Programs:
    """All programs that were asked for. Several threads may ask; each program is compiled once."""

    def __init__(self) -> None:
        """Start with none."""
        self._known: dict[tuple[str, str, int], FilterPrograms] = {}
        self._locks: dict[tuple[str, str, int], threading.Lock] = {}
        self._lock = threading.Lock()

    def ready(self, problem: Problem, role: str, count: int) -> bool:
        """Tell whether a filter is compiled.

        Args:
            problem: Of the filter.
            role: Of the filter.
            count: Its particles.

        Returns:
            Whether `of` returns at once.
        """
        return (problem.name, role, count) in self._known

    def prepare(self, problem: Problem, counts: Mapping[str, int]) -> None:
        """Compile what is missing of a few filters, two at a time.

        Args:
            problem: Of the filters.
            counts: Particle counts by role.
        """
        missing = [name for name in counts.items() if not self.ready(problem, *name)]
        if len(missing) < 2:
            return
        with ThreadPoolExecutor(2) as workers:
            for made in [workers.submit(copy_context().run, self.of, problem, *name) for name in missing]:
                made.result()

    def of(self, problem: Problem, role: str, count: int) -> FilterPrograms:
        """Take the programs of a filter; the first time, compile them, which takes seconds.

        Args:
            problem: Of the filter.
            role: Of the filter.
            count: Its particles.

        Returns:
            The programs.
        """
        name = problem.name, role, count
        found = self._known.get(name)
        if found is not None:
            return found
        with self._lock:
            lock = self._locks.setdefault(name, threading.Lock())
        told = f"Compiling the {role} filter of {problem.title}" + (f" with {count} particles" if count else "")
        COMPILING.get()(f"{told}. That takes some seconds, once.")
        with lock:
            if name not in self._known:
                made = FilterPrograms(problem, role, count)
                made.warm()
                self._known[name] = made
        return self._known[name]
