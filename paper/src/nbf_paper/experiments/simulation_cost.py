"""Would one not simply take more particles? Time of one update when every call of the simulator costs something.

    time(c) = time without that cost + calls · c

The first part is measured here, of every particle filter and neural filter that other experiments have records of, and
of the default filters of `nbf-paper reproduce beyond` and their rivals; their divergences are read from those records when a
report is made. A model that is not among the trainings is timed with untrained parameters of the same sizes, which take
the same time as long as no update has to be drawn again; where an untrained model draws nothing that is possible, as a
flow does in Goofspiel, its redraws would be timed, and the measurement is refused. That calls and nothing else cost
time is checked with a simulator that really is slow: it keeps the processor busy for c at every call, one call after
another.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key

from nbf import prng
from nbf.contracts import BeliefModel, Environment, Filter, Observation, Policy
from nbf.environments.goofspiel_game import CardPolicy
from nbf.environments.rollout import at_step, rollout
from nbf.errors import InputError
from nbf.files.checkpoint import load_model
from nbf.models.belief_model import MODELS
from nbf_paper.config import GoofspielConfig, GridworldConfig, TriangulationConfig
from nbf_paper.experiments import beyond, goofspiel, gridworld, triangulation, untrained
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.experiments.rows import Contender
from nbf_paper.experiments.slow_simulator import slow
from nbf_paper.records import ALL, Record, read_records, records_path

FILTERS = ("nbf", "pf", "pf-kde")
"""Whose times are measured."""
DEFAULT = "default"
"""The arm of the library's own filters, as `beyond` records it."""
BEYOND = {("nbf", DEFAULT), ("branching", beyond.CHOSEN), ("pf", ""), ("pf-kde", "")}
"""And whose of those that `beyond` records, with their arms."""
SLOW = (100, 1000, 10_000)
"""Costs of a call, in µs, at which a really slow simulator is tried."""
BRISK = 1000
"""Up to this cost a tenth of the updates is timed; beyond, as few as there are turns."""
ROUNDS = 10
"""The filters take turns this often, so that whatever else the machine does hits all alike."""

Step = tuple[Observation, Environment, Policy]
Row = tuple[str, str, int]
"""A filter, its arm and its number of particles."""


# --- the domains ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Domain:
    """An experiment's filters, and an episode on which they are timed."""

    experiment: str
    config: str
    command: str
    """What records it."""
    model: Callable[[str, Path], tuple[BeliefModel, bool]]
    """Of an arm, from a folder of trainings; and whether it was there, or has untrained parameters."""
    contenders: Callable[[str, BeliefModel], list[Contender]]
    """Of an arm; those without a model belong to the faithful one."""
    steps: Callable[[Key[Array, ""]], list[Step]]


def _steps(observations: Array, environments: Environment, policies: Policy, *, changing: bool) -> list[Step]:
    """An episode step by step; what changes has a leading axis."""
    inside = lambda tree, step: at_step(tree, step, changing=changing)  # noqa: E731
    seen = np.asarray(observations)
    return [(seen[step], inside(environments, step), inside(policies, step)) for step in range(len(seen))]


def _model(config: Any, path: Path | None) -> tuple[BeliefModel, bool]:
    """A trained model; where there is none, one with parameters that nothing was trained for."""
    if path is not None and path.exists():
        return load_model(path, MODELS)[0], True
    return eqx.filter_jit(config.build)(prng.stream(0, "simulation cost")), False


def _gridworld(name: str) -> Domain:
    config = GridworldConfig.parse(name)

    def model(arm: str, runs: Path) -> tuple[BeliefModel, bool]:
        if arm == untrained.KERNEL:
            return _model(untrained.gridworld_model(config), None)
        return _model(gridworld.arm_of(config, arm)[0], gridworld.training_run(config, arm, 0, runs).path)

    def contenders(arm: str, model: BeliefModel) -> list[Contender]:
        return gridworld.contenders(config, arm, model, gridworld.EvaluationConfig())

    def steps(key: Key[Array, ""]) -> list[Step]:
        environment, policy = gridworld.family_of(config, 0).sample(key)
        _, observations = rollout(key, environment, policy, config.horizon)
        return _steps(observations, environment, policy, changing=False)

    return Domain("gridworld", name, f"gridworld --config {name}", model, contenders, steps)


def _triangulation() -> Domain:
    config = TriangulationConfig()

    def model(arm: str, runs: Path) -> tuple[BeliefModel, bool]:
        if arm == untrained.KERNEL:
            return _model(untrained.triangulation_model(config), None)
        job = triangulation.TriangulationJob(arm)
        return _model(job.model, job.training_run(runs).path)

    def contenders(arm: str, model: BeliefModel) -> list[Contender]:
        return triangulation.contenders(arm, model, triangulation.EvaluationConfig())

    def steps(key: Key[Array, ""]) -> list[Step]:
        environments, policies = config.family().schedule(key, config.horizon)
        _, observations = rollout(key, environments, policies, config.horizon, changing=True)
        return _steps(observations, environments, policies, changing=True)

    return Domain("triangulation", "triangulation", "triangulation", model, contenders, steps)


def _goofspiel(cards: int) -> Domain:
    config = GoofspielConfig(cards)

    def model(arm: str, runs: Path) -> tuple[BeliefModel, bool]:
        job = goofspiel.GoofspielJob(cards, arm)
        return _model(job.model, job.training_run(runs).path)

    def contenders(arm: str, model: BeliefModel) -> list[Contender]:
        return goofspiel.contenders(arm, model, cards, goofspiel.EvaluationConfig())

    def steps(key: Key[Array, ""]) -> list[Step]:
        """A game between two untrained policies."""
        pool = jax.vmap(lambda key: CardPolicy(key, cards))(jax.random.split(key))
        environments, policies, observations, _ = config.family(pool).episode(key)
        return _steps(observations, environments, policies, changing=True)

    return Domain("goofspiel", config.name, f"goofspiel --cards {cards}", model, contenders, steps)


DOMAINS = ("8-2D-random", "8-3D-random", "triangulation", "k=6")
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
    home, rows = folder / domain.experiment, {}
    for source in (home, folder / "beyond"):
        for record in read_records(source) if records_path(source).exists() else ():
            told = (record.config, record.metric, record.step) == (domain.config, "js", ALL)
            meant = record.filter in FILTERS if source == home else (record.filter, record.arm) in BEYOND
            if told and meant:
                rows[record.filter, record.arm, record.particles] = record.calls
    if not {"nbf", "pf"} <= {filter for filter, _, _ in rows}:
        raise InputError(
            f"The divergences of {domain.config} that times are set against are not in {home}: record them with "
            f"`nbf-paper reproduce {domain.command}` first, or name other configurations with --config."
        )
    return rows


def measure(
    domain: Domain, rows: Mapping[Row, int], runs: Path, seed: int, updates: int, slowness: Sequence[int], bar: Counter
) -> list[Record]:
    """Times of every recorded filter of a domain, and of one of each kind with a slow simulator."""
    arms = {arm for filter, arm, _ in rows if filter == "nbf"} | {"faithful"}
    made: dict[Row, Filter] = {}
    trained: dict[str, bool] = {}
    for arm in sorted(arms):
        kind = beyond.MODELS_OF[domain.experiment] if arm == DEFAULT else arm
        model, trained[arm] = domain.model(kind, runs)
        if arm == DEFAULT:
            found = [*beyond.rows(domain.config, model), *beyond.rival_rows(domain.config)]
        else:
            found = domain.contenders(arm, model)
        made |= {(row.name, row.arm, row.particles): row.filter for row in found if row.arm in (arm, beyond.CHOSEN, "")}
    unknown = sorted(set(rows) - set(made))
    if unknown:
        raise InputError(
            f"{domain.config} has records of {unknown[0]}, which `nbf-paper reproduce {domain.command}` does not make now: "
            "record it anew, or remove those records."
        )
    key = prng.stream(seed, "simulation cost", domain.config)
    steps = domain.steps(key)
    bar.describe(f"{domain.config}: {len(rows)} filters")
    walks = {row: Walk(made[row], steps, key) for row in rows}
    plain = medians(walks, updates, bar)
    again = sorted(row for row, walk in walks.items() if row[0] == "nbf" and walk.attempts > 1 and not trained[row[1]])
    if again:
        raise InputError(
            f"{domain.config}: an untrained model of {again[0]} draws nothing that is possible, so that up to "
            f"{walks[again[0]].attempts} redraws would be timed, which a trained one does not need. Train it with "
            f"`nbf-paper reproduce {domain.command} --arm {again[0][1]}`, or leave this configuration out with --config."
        )
    base = Record(
        experiment="simulation-cost", config=domain.config, filter="pf", arm="", particles=0, calls=0, seed=seed,
        step=ALL, metric="us_per_update", value=0.0, se=None, episodes=updates,
    )  # fmt: skip
    records = [_of(base, row, rows[row], "us_per_update", value) for row, value in plain.items()]
    for cost in slowness:
        few = few_of(updates, cost)
        bar.describe(f"{domain.config}: {cost} µs a call")
        slowed = [(seen, slow(environment, float(cost)), policy) for seen, environment, policy in steps]
        walks = {row: Walk(made[row], slowed, key) for row in _one_of_each(rows)}
        for row, value in medians(walks, few, bar).items():
            records.append(_of(base, row, rows[row], f"us_per_update_{cost}us", value, few))
    return records


def few_of(updates: int, cost: int) -> int:
    """How many updates are timed with a simulator of such a cost."""
    return max(ROUNDS, updates // 10) if cost <= BRISK else ROUNDS


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
class SimulationCostJob(Job):
    """One domain: its filters timed and recorded. What is timed follows from the records of the domain."""

    config: str = DOMAINS[0]
    seed: int = 0
    updates: int = 500
    """Timed updates of each filter."""
    slow: tuple[int, ...] = SLOW
    """Costs of a really slow simulator, in µs a call."""

    def __post_init__(self) -> None:
        domain_of(self.config)
        if self.updates < 1:
            raise InputError(f"updates must be at least 1; got {self.updates}.")

    @property
    def evaluated(self) -> int:
        return self.updates + sum(few_of(self.updates, cost) for cost in self.slow)

    @property
    def title(self) -> str:
        return f"simulation cost {self.config}"

    @property
    def settings(self) -> dict[str, Any]:
        return {"config": self.config, "seed": self.seed, "updates": self.updates, "slow": list(self.slow)}

    @property
    def label(self) -> str:
        return f"{self.config}/{self.seed}"

    def settings_in(self, results: Path) -> dict[str, Any]:
        """With the filters that have a divergence on record, which are those that are timed."""
        rows = recorded(results.parent, domain_of(self.config))
        return {**self.settings, "filters": sorted(map(list, rows))}

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        domain = domain_of(self.config)
        rows = recorded(results.parent, domain)
        return measure(domain, rows, runs, self.seed, self.updates, self.slow, bar)
