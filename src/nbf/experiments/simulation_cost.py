"""Would one not simply take more particles? Time of one update when every call of the simulator costs something.

    time(c) = time without that cost + calls · c

The first part is measured here, of every particle filter and neural filter that other experiments have records of;
their divergences are read from those records when a report is made. Untrained parameters of the same sizes take the
same time as long as no update has to be drawn again; where an untrained model draws nothing that is possible, as a flow
does in Goofspiel, its redraws would be timed, and the measurement is refused. That calls and nothing else cost time is
checked with a simulator that really is slow: it keeps the processor busy for c at every call, one call after another.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key

from nbf import prng
from nbf.beliefs.sources import at_step, rollout
from nbf.config import GoofspielConfig, GridworldConfig, TriangulationConfig
from nbf.contracts import (
    BeliefModel,
    Enumerable,
    Environment,
    Filter,
    InputError,
    Observation,
    Policy,
    State,
    StateSpace,
)
from nbf.environments.goofspiel_game import CardPolicy
from nbf.evaluation.records import ALL, Record, Run, add, completed, read_records, records_path, run_key
from nbf.experiments import goofspiel, gridworld, triangulation, untrained
from nbf.experiments.contenders import Contender
from nbf.experiments.training_runs import Counter

FILTERS = ("nbf", "pf", "pf-kde")
"""Whose times are measured."""
SLOW = (100, 1000)
"""Costs of a call, in µs, at which a really slow simulator is tried."""
ROUNDS = 10
"""The filters take turns this often, so that whatever else the machine does hits all alike."""

Step = tuple[Observation, Environment, Policy]
Row = tuple[str, str, int]
"""A filter, its arm and its number of particles."""


# --- a slow simulator ----------------------------------------------------------------------------


def busy(microseconds: float) -> None:
    """Keep the processor busy that long."""
    end = time.perf_counter() + 1e-6 * microseconds
    while time.perf_counter() < end:
        pass


def waited(state: State, microseconds: float, calls: int = 1) -> State:
    """The same state, after each of its calls of the simulator has kept the processor busy that long."""
    leaves, structure = jax.tree.flatten(state)
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    size = max(1, math.prod(leaves[0].shape))

    def spin(*arrays: Any) -> tuple[np.ndarray, ...]:
        for _ in range(calls * (np.size(arrays[0]) // size)):
            busy(microseconds)
        return tuple(np.asarray(array) for array in arrays)

    return structure.unflatten(jax.pure_callback(spin, tuple(shapes), *leaves, vmap_method="broadcast_all"))


class _Slow(Environment):
    """Another environment whose every call of the simulator costs more."""

    inner: eqx.AbstractVar[Environment]
    microseconds: eqx.AbstractVar[float]

    def init(self, key: Key[Array, ""]) -> State:
        return self.inner.init(key)

    def transition(self, key: Key[Array, ""], state: State, policy: Policy) -> State:
        return waited(self.inner.transition(key, state, policy), self.microseconds)

    def observe(self, key: Key[Array, ""], state: State, next_state: State) -> Observation:
        return self.inner.observe(key, state, next_state)

    def log_likelihood(self, observation: Observation, state: State, next_state: State) -> Float[Array, ""]:
        return self.inner.log_likelihood(observation, state, next_state)

    def check_observation(self, observation: Observation) -> None:
        self.inner.check_observation(observation)


class SlowEnvironment(_Slow):
    """Of an environment that is simulated."""

    inner: Environment
    microseconds: float = eqx.field(static=True)
    space: StateSpace


class SlowEnumerable(_Slow, Enumerable):
    """Of an environment whose states are listed: each branch of `successors` is a call."""

    inner: Enumerable
    microseconds: float = eqx.field(static=True)
    space: StateSpace

    def states(self) -> State:
        return self.inner.states()

    def index(self, state: State) -> Int[Array, ""]:
        return self.inner.index(state)

    def initial_log_probs(self) -> Float[Array, " states"]:
        return self.inner.initial_log_probs()

    def successors(self, state: State, policy: Policy) -> tuple[State, Float[Array, " b"]]:
        ends, log_probs = self.inner.successors(state, policy)
        return waited(ends, self.microseconds, calls=log_probs.shape[0]), log_probs


def slow(environment: Environment, microseconds: float) -> SlowEnvironment | SlowEnumerable:
    """The same environment, with a simulator that costs so much more at every call."""
    if isinstance(environment, Enumerable):
        return SlowEnumerable(inner=environment, microseconds=microseconds, space=environment.space)
    return SlowEnvironment(inner=environment, microseconds=microseconds, space=environment.space)


# --- the domains ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Domain:
    """An experiment's filters, and an episode on which they are timed."""

    experiment: str
    config: str
    command: str
    """What records it."""
    contenders: Callable[[str], list[Contender]]
    """Of an arm; those without a model belong to the faithful one."""
    steps: Callable[[Key[Array, ""]], list[Step]]


def _steps(observations: Array, environments: Environment, policies: Policy, *, changing: bool) -> list[Step]:
    """An episode step by step; what changes has a leading axis."""
    inside = lambda tree, step: at_step(tree, step, changing=changing)  # noqa: E731
    seen = np.asarray(observations)
    return [(seen[step], inside(environments, step), inside(policies, step)) for step in range(len(seen))]


def _built(config: Any) -> BeliefModel:
    """A model with parameters that nothing was trained for."""
    return eqx.filter_jit(config.build)(prng.stream(0, "simulation cost"))


def _gridworld(name: str) -> Domain:
    config = GridworldConfig.parse(name)

    def contenders(arm: str) -> list[Contender]:
        known = untrained.gridworld_model(config) if arm == untrained.KERNEL else gridworld.arm_of(config, arm)[0]
        return gridworld.contenders(config, arm, _built(known), gridworld.EvaluationConfig())

    def steps(key: Key[Array, ""]) -> list[Step]:
        environment, policy = gridworld.family_of(config, 0).sample(key)
        _, observations = rollout(key, environment, policy, config.horizon)
        return _steps(observations, environment, policy, changing=False)

    return Domain("gridworld", name, f"gridworld --config {name}", contenders, steps)


def _triangulation() -> Domain:
    config = TriangulationConfig()

    def contenders(arm: str) -> list[Contender]:
        if arm == untrained.KERNEL:
            return untrained.UntrainedTriangulationJob(arm).contenders()
        model = _built(triangulation.TriangulationJob(arm).model)
        return triangulation.contenders(arm, model, triangulation.EvaluationConfig())

    def steps(key: Key[Array, ""]) -> list[Step]:
        environments, policies = config.family().schedule(key, config.horizon)
        _, observations = rollout(key, environments, policies, config.horizon, changing=True)
        return _steps(observations, environments, policies, changing=True)

    return Domain("triangulation", "triangulation", "triangulation", contenders, steps)


def _goofspiel(cards: int) -> Domain:
    config = GoofspielConfig(cards)

    def contenders(arm: str) -> list[Contender]:
        model = _built(goofspiel.GoofspielJob(cards, arm).model)
        return goofspiel.contenders(arm, model, cards, goofspiel.EvaluationConfig())

    def steps(key: Key[Array, ""]) -> list[Step]:
        """A game between two untrained policies."""
        pool = jax.vmap(lambda key: CardPolicy(key, cards))(jax.random.split(key))
        environments, policies, observations, _ = config.family(pool).episode(key)
        return _steps(observations, environments, policies, changing=True)

    return Domain("goofspiel", config.name, f"goofspiel --cards {cards}", contenders, steps)


DOMAINS = ("8-3D-random", "triangulation", "k=6")
"""Those of the documentation."""


def domain_of(config: str) -> Domain:
    """The domain of a configuration, as records name it."""
    if config == "triangulation":
        return _triangulation()
    cards = re.fullmatch(r"k=(\d)", config)
    return _goofspiel(int(cards[1])) if cards else _gridworld(config)


# --- times ---------------------------------------------------------------------------------------


class Walk:
    """A filter that walks through an episode again and again, one update at a call."""

    def __init__(self, filter: Filter, steps: Sequence[Step], key: Key[Array, ""]):
        self.keys = list(jax.random.split(key, len(steps)))
        self.start = filter.init(key, steps[0][1])
        self.step, self.steps, self.state, self.count = filter.step, steps, self.start, 0
        self.attempts = 1
        """The most that an update has needed."""

    def __call__(self) -> float:
        """µs of the next update, as a Python loop sees it."""
        place = self.count % len(self.steps)
        self.count += 1
        state = self.state if place else self.start
        observation, environment, policy = self.steps[place]
        begin = time.perf_counter()
        self.state, info = self.step(self.keys[place], state, observation, environment, policy)
        jax.block_until_ready(self.state)
        spent = 1e6 * (time.perf_counter() - begin)
        self.attempts = max(self.attempts, int(info.attempts))
        return spent


def medians(walks: Mapping[Any, Callable[[], float]], updates: int, bar: Counter) -> dict[Any, float]:
    """The median time of an update of each filter, in turns; the first of each compiles and does not count."""
    for walk in walks.values():
        walk()
    times: dict[Any, list[float]] = {name: [] for name in walks}
    for turn in range(ROUNDS):
        share = updates * (turn + 1) // ROUNDS - updates * turn // ROUNDS
        for name, walk in walks.items():
            times[name] += [walk() for _ in range(share)]
        bar.advance(share)
    return {name: float(np.median(found)) for name, found in times.items()}


def recorded(folder: Path, domain: Domain) -> dict[Row, int]:
    """The filters that an experiment has a divergence of, and their calls per update."""
    home = folder / domain.experiment
    found = read_records(home) if records_path(home).exists() else []
    rows = {
        (record.filter, record.arm, record.particles): record.calls
        for record in found
        if (record.config, record.metric, record.step) == (domain.config, "js", ALL) and record.filter in FILTERS
    }
    if not {"nbf", "pf"} <= {filter for filter, _, _ in rows}:
        raise InputError(
            f"The divergences of {domain.config} that times are set against are not in {home}: record them with "
            f"`nbf reproduce {domain.command}` first, or name other configurations with --config."
        )
    return rows


def measure(domain: Domain, rows: Mapping[Row, int], seed: int, updates: int, bar: Counter) -> list[Record]:
    """Times of every recorded filter of a domain, and of one of each kind with a slow simulator."""
    arms = {arm for filter, arm, _ in rows if filter == "nbf"} | {"faithful"}
    made = {(row.name, row.arm, row.particles): row.filter for arm in sorted(arms) for row in domain.contenders(arm)}
    unknown = sorted(set(rows) - set(made))
    if unknown:
        raise InputError(
            f"{domain.config} has records of {unknown[0]}, which `nbf reproduce {domain.command}` does not make now: "
            "record it anew, or remove those records."
        )
    key = prng.stream(seed, "simulation cost", domain.config)
    steps = domain.steps(key)
    bar.describe(f"{domain.config}: {len(rows)} filters")
    walks = {row: Walk(made[row], steps, key) for row in rows}
    plain = medians(walks, updates, bar)
    again = sorted(row for row, walk in walks.items() if row[0] == "nbf" and walk.attempts > 1)
    if again:
        raise InputError(
            f"{domain.config}: an untrained model of {again[0]} draws nothing that is possible, so that up to "
            f"{walks[again[0]].attempts} redraws would be timed, which a trained one does not need. Leave this "
            "configuration out with --config."
        )
    base = Record(
        experiment="simulation-cost", config=domain.config, filter="pf", arm="", particles=0, calls=0, seed=seed,
        step=ALL, metric="us_per_update", value=0.0, se=None, episodes=updates,
    )  # fmt: skip
    records = [_of(base, row, rows[row], "us_per_update", value) for row, value in plain.items()]
    few = max(ROUNDS, updates // 10)
    for cost in SLOW:
        bar.describe(f"{domain.config}: {cost} µs a call")
        slowed = [(seen, slow(environment, float(cost)), policy) for seen, environment, policy in steps]
        walks = {row: Walk(made[row], slowed, key) for row in _one_of_each(rows)}
        for row, value in medians(walks, few, bar).items():
            records.append(_of(base, row, rows[row], f"us_per_update_{cost}us", value, few))
    return records


def _one_of_each(rows: Mapping[Row, int]) -> list[Row]:
    """The particle filter and, of each arm, the neural filter with the fewest calls."""
    kinds: dict[tuple[str, str], Row] = {}
    for row in sorted(rows, key=lambda row: (rows[row], row)):
        if row[0] != "pf-kde":
            kinds.setdefault(row[:2], row)
    return list(kinds.values())


def _of(base: Record, row: Row, calls: int, metric: str, value: float, updates: int | None = None) -> Record:
    values = {"filter": row[0], "arm": row[1], "particles": row[2], "calls": calls, "metric": metric, "value": value}
    return Record(**{**vars(base), **values, "episodes": base.episodes if updates is None else updates})


@dataclass(frozen=True)
class SimulationCostJob:
    """One domain: its filters timed and recorded. What is timed follows from the records of the domain."""

    config: str = DOMAINS[0]
    seed: int = 0
    updates: int = 500
    """Timed updates of each filter."""

    def __post_init__(self) -> None:
        domain_of(self.config)
        if self.updates < 1:
            raise InputError(f"updates must be at least 1; got {self.updates}.")

    @property
    def evaluated(self) -> int:
        """How many updates of a filter are timed, with and without a slow simulator."""
        return self.updates + len(SLOW) * max(ROUNDS, self.updates // 10)

    @property
    def title(self) -> str:
        return f"simulation cost {self.config}"

    @property
    def settings(self) -> dict[str, Any]:
        """Everything that is asked for; the filters that are timed come to it."""
        return {"config": self.config, "seed": self.seed, "updates": self.updates, "slow": list(SLOW)}

    @property
    def key(self) -> str:
        """The name of this run in `runs.json`, but for the filters that are timed."""
        return run_key(f"{self.config}/{self.seed}", self.settings)

    def check(self, runs: Path) -> None:
        """There is no model that could have been trained otherwise."""

    def run(self, results: Path, runs: Path, *, command: str, bar: Counter) -> bool:
        """Time what has records and is not timed yet; whether anything was to do."""
        domain = domain_of(self.config)
        rows = recorded(results.parent, domain)
        settings = {**self.settings, "filters": sorted(map(list, rows))}
        key = run_key(f"{self.config}/{self.seed}", settings)
        if completed(results, key):
            return False
        begin = time.monotonic()
        records = measure(domain, rows, self.seed, self.updates, bar)
        add(results, records, Run(key, self.seed, command, round(time.monotonic() - begin, 1), settings))
        return True
