"""Policies and values on embeddings of beliefs, against the same network on other views of the hidden state.

| row | what the network sees of the hidden state |
|---|---|
| `state` | the state itself: the ceiling |
| `exact` | all probabilities of the exact posterior (the chase) |
| `nbf`, embedding | θ of a neural filter of 16 particles |
| `nbf`, moments | mean and covariance of its particles |
| `pf`, moments | those of a particle filter of 16 |
| `recurrent` | the last observation and action (and the map of the chase); the network has an LSTM |
| `prior` | θ of the same neural filter, which is told no observation: the floor |

All see the same public context and the time. Each is trained once, and then acts in the task as it was trained and in
changed ones; `again` are policies on θ that were trained in the changed task. `approx` is the policy on θ with the
embedding of a far better filter's belief in the place of the neural filter's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from nbf import prng
from nbf.contracts import Environment, Filter
from nbf.errors import InputError
from nbf.evaluation.batches import mean_and_error
from nbf.filters.approximate import ApproxBeliefs
from nbf.filters.exact import ExactFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.point_mass import PointMassFilter
from nbf.filters.prediction import PredictionFilter
from nbf.fitting.fitted import FittedModel
from nbf.planning.acting import Acted
from nbf.planning.imagined import SearchChooser
from nbf.planning.process import DecisionProcess, RandomActions
from nbf.planning.search import TreeSearch
from nbf.planning.training import PolicyConfig, TrainedPolicy, train_policy
from nbf.planning.views import EmbeddingView, HistoryView, MomentsView, ProbabilitiesView, StateView, View
from nbf_paper.experiments import demands
from nbf_paper.experiments.demands import Demand, Size
from nbf_paper.experiments.job import Counter, Job
from nbf_paper.experiments.triangulation import WALL_BAND
from nbf_paper.experiments.value_tasks import Chase, task
from nbf_paper.experiments.zoo_job import ZooTraining
from nbf_paper.names import VALUE_CHANGES
from nbf_paper.records import ALL, Record
from nbf_paper.zoo.problem import Problem

PARTICLES = 16
POLICY = PolicyConfig(steps=100_000, learning_rate=3e-3)
SHORT_POLICY = PolicyConfig(steps=1, episodes=8)
LONGER = 10
"""A recurrent policy is also trained for so many times the steps."""
AGAIN = {"walk": ("beacons",), "chase": ("goal", "turned")}
"""Changed tasks in which a policy on θ is trained too."""
TEN_TIMES = "ten times the steps"
BLOCKS = 10
"""Parts of a training whose mean returns are recorded."""
BELIEF_TRAINING: dict[str, tuple[tuple[str, Any], ...]] = {
    "walk": (("teacher", PointMassFilter(60)), ("wall_band", WALL_BAND)),
    "chase": (),
}
"""Options of `nbf.fit` for the belief model of a task, trained on beliefs of random actions."""
SEARCHES = {
    "search with V": (TreeSearch(32, 3, backup="best"), True),
    "search with rollouts": (TreeSearch(80, 20, backup="best"), False),
}
"""Simulations and depth, and whether V is the value of a leaf. Both simulate the environment at most 1632 and 1600
times for a decision, as a step with V is also an update of 16 particles; how often they did is `search_calls`."""
TOGETHER = 64
"""Episodes of a search in one batch."""


@dataclass(frozen=True)
class ViewRow:
    """A view with the names that its records have."""

    view: View
    name: str
    arm: str
    particles: int = 0


def heard(symbol: Int[Array, ""], environment: Environment) -> Float[Array, " 6"]:
    """What is heard in a chase, one-hot."""
    return jax.nn.one_hot(symbol, 6)


def heard_with_map(symbol: Int[Array, ""], environment: Environment) -> Float[Array, " 70"]:
    """The same, and which cells are free, which a filter knows from the environment."""
    assert isinstance(environment, Chase)
    return jnp.concatenate([heard(symbol, environment), environment.grid.free.astype(jnp.float32)])


def view_rows(name: str, process: DecisionProcess, filter: Filter) -> Iterator[ViewRow]:
    """What the policies see."""
    yield ViewRow(StateView(), "state", "")
    if name == "chase":
        yield ViewRow(ProbabilitiesView(ExactFilter()), "exact", "probabilities")
    yield ViewRow(EmbeddingView(filter), "nbf", "embedding", PARTICLES)
    yield ViewRow(MomentsView(filter), "nbf", "moments", PARTICLES)
    yield ViewRow(MomentsView(ParticleFilter(PARTICLES)), "pf", "moments", PARTICLES)
    yield ViewRow(HistoryView(process.num_actions, heard if name == "chase" else None), "recurrent", "")
    yield ViewRow(HistoryView(process.num_actions, heard if name == "chase" else None), "recurrent", TEN_TIMES)
    if name == "chase":
        yield ViewRow(HistoryView(process.num_actions, heard_with_map), "recurrent", "with the map")
    yield ViewRow(EmbeddingView(PredictionFilter(filter)), "prior", "embedding", PARTICLES)


def measured(name: str, acted: Acted, process: DecisionProcess) -> dict[str, Float[np.ndarray, " episodes"]]:
    """What is measured of each episode: the return, how it ended, and the squared error of V against what followed."""
    returns = jax.vmap(lambda one: one.total(process.discount))(acted)
    found = {"return": np.asarray(returns), "value_error": np.asarray(_value_errors(acted, process.discount))}
    if name == "walk":
        found["distance"] = np.linalg.norm(_last_states(acted), axis=1)
    else:
        # Caught at the last step or before: over before the horizon, or in the hunter's cell at the end.
        found["caught"] = np.asarray(_caught(acted), np.float64)
    return found


def _last_states(acted: Acted) -> Float[np.ndarray, "episodes 2"]:
    """The hidden state after the last step that was taken."""
    last = np.asarray(acted.alive).sum(axis=1) - 1
    return np.asarray(acted.states)[np.arange(len(last)), last]


def _caught(acted: Acted) -> np.ndarray:
    """A step that catches has a reward of nearly 1 or more, any other one less than half of that."""
    return np.max(np.asarray(acted.rewards), axis=1) > 0.5


@jax.jit
def _value_errors(acted: Acted, discount: Float[Array, ""] | float) -> Float[Array, " episodes"]:
    def back(later: Array, reward: Array) -> tuple[Array, Array]:
        now = reward + discount * later
        return now, now

    _, followed = jax.lax.scan(back, jnp.zeros(acted.rewards.shape[0]), acted.rewards.T, reverse=True)
    errors = jnp.where(acted.alive, (followed.T - acted.values) ** 2, 0.0)
    return jnp.sum(errors, axis=1) / jnp.sum(acted.alive, axis=1)


@dataclass(frozen=True)
class ValuesJob(Job):
    """One task and seed: a belief model, a policy on each view, and what they are worth."""

    name: str = "walk"
    seed: int = 0
    steps: int = 2000
    """Gradient steps of the belief model."""
    policy: PolicyConfig = POLICY
    episodes: int = 300
    """Of an evaluation."""
    searches: int = 64
    """Episodes that are searched; 0: none."""
    again: bool = True
    """Whether policies on θ are trained in changed tasks too."""

    def __post_init__(self) -> None:
        if self.name not in VALUE_CHANGES:
            raise InputError(f"There is no task {self.name!r}; choose from {', '.join(VALUE_CHANGES)}.")

    @property
    def title(self) -> str:
        return f"values {self.name} seed {self.seed}"

    @property
    def label(self) -> str:
        return f"{self.name}/{self.seed}"

    @property
    def settings(self) -> dict[str, Any]:
        how = self.policy
        return {
            "task": self.name, "seed": self.seed, "steps": self.steps, "particles": PARTICLES,
            "changes": list(VALUE_CHANGES[self.name]), "again": list(AGAIN[self.name]) if self.again else [],
            "policy": {
                "steps": how.steps, "longer": LONGER, "episodes": how.episodes, "width": how.width, "depth": how.depth,
                "minibatches": how.minibatches, "epochs": how.epochs,
                "learning_rate": how.learning_rate, "trace": how.trace, "clip": how.clip,
                "value_weight": how.value_weight, "largest_gradient": how.largest_gradient,
                "entropy_weight": how.entropy_weight,
            },
            "evaluation": {"episodes": self.episodes, "searches": self.searches},
            **({"search": {"backup": "best"}} if self.searches else {}),  # runs before this had mean returns
        }  # fmt: skip

    @property
    def evaluated(self) -> int:
        return self.episodes

    def sizes(self) -> list[Size]:
        def taken(count: int) -> Demand:
            return Demand(2e5 * count, 0.2 * count)

        def acted(count: int) -> Demand:
            return Demand(1e6, 3e-3 * count)

        return [
            Size("--episodes", self.episodes, taken), Size("--steps", self.steps, demands.steps),
            Size("--policy-steps", self.policy.steps, acted),
        ]  # fmt: skip

    @cached_property
    def process(self) -> DecisionProcess:
        """The task as it is trained."""
        return task(self.name)

    def training_run(self, runs: Path) -> ZooTraining:
        family = RandomActions(self.process)
        asked = Problem(self.name, family, self.process.horizon, ParticleFilter(1024), "particles")
        folder = runs / "values" / self.name / str(self.seed)
        return ZooTraining(folder, asked, self.seed, self.steps, BELIEF_TRAINING[self.name])

    def measure(self, results: Path, runs: Path, bar: Counter) -> list[Record]:
        fitted, records = self.training_run(runs).load(), list[Record]()
        filter = fitted.filter(PARTICLES)
        for row in view_rows(self.name, self.process, filter):
            trained = self._trained(self.process, row.view, bar, row)
            records += self._learning(row, trained)
            for change in (None, *VALUE_CHANGES[self.name]):
                records += self._acted(row, trained, change, bar)
            if (row.name, row.arm) == ("nbf", "embedding"):
                records += self._more(row, trained, fitted, bar)
            jax.clear_caches()
        return records

    def _trained(self, process: DecisionProcess, view: View, bar: Counter, row: ViewRow) -> TrainedPolicy:
        bar.describe(f"{self.title}: {row.name} {row.arm}, training")
        steps = self.policy.steps * (LONGER if row.arm == TEN_TIMES else 1)
        config = dataclasses.replace(self.policy, recurrent=row.name == "recurrent", steps=steps)
        return train_policy(process, view, config, seed=self.seed, progress=False)

    def _more(self, row: ViewRow, trained: TrainedPolicy, fitted: FittedModel, bar: Counter) -> Iterator[Record]:
        """What is asked of the policy on θ alone: another belief, a search, and training again."""
        truth: Filter = ParticleFilter(4096) if self.name == "walk" else ExactFilter()
        better = dataclasses.replace(trained, view=EmbeddingView(ApproxBeliefs(fitted.model, 256, truth=truth)))
        yield from self._acted(ViewRow(better.view, "approx", "embedding"), better, None, bar)
        if self.searches:
            yield from self._searched(row, trained, bar)
        for change in AGAIN[self.name] if self.again else ():
            process = task(self.name, change)
            again = self._trained(process, row.view, bar, row)
            yield from self._acted(dataclasses.replace(row, arm="embedding, trained again"), again, change, bar)

    def _searched(self, row: ViewRow, trained: TrainedPolicy, bar: Counter) -> Iterator[Record]:
        keys = prng.stream(self.seed, "values", self.name, "searches")
        batch = min(TOGETHER, self.searches)
        policies = {"policy": (None, False), "policy, likeliest action": (None, False)}
        for arm, (search, valued) in (policies | SEARCHES).items():
            bar.describe(f"{self.title}: {arm}")
            chooser = None if search is None else SearchChooser(search, trained.actor if valued else None)
            acted = trained.act(keys, self.searches, chooser=chooser, batch=batch, greedy=arm.endswith("action"))
            found = measured(self.name, acted, self.process)
            del found["value_error"]
            if search is not None:  # of a decision; a step with V is also an update
                steps = np.asarray(acted.calls) / np.asarray(acted.alive).sum(axis=1)
                found["calls"] = steps * (1 + PARTICLES if valued else 1)
            for metric, values in found.items():
                yield self._record(dataclasses.replace(row, arm=arm), None, f"search_{metric}", values)

    def _learning(self, row: ViewRow, trained: TrainedPolicy) -> Iterator[Record]:
        for block, part in enumerate(np.array_split(np.asarray(trained.returns), BLOCKS)):
            if len(part):
                yield dataclasses.replace(self._record(row, None, "learning", part), step=block + 1, se=None)

    def _acted(self, row: ViewRow, trained: TrainedPolicy, change: str | None, bar: Counter) -> Iterator[Record]:
        bar.describe(f"{self.title}: {row.name} {row.arm}, {change or 'as trained'}")
        process = task(self.name, change)
        here = dataclasses.replace(trained, process=process)
        acted = here.act(prng.stream(self.seed, "values", self.name, "evaluation"), self.episodes, batch=150)
        bar.advance(self.episodes)
        for metric, values in measured(self.name, acted, process).items():
            yield self._record(row, change, metric, values)

    def _record(self, row: ViewRow, change: str | None, metric: str, values: np.ndarray) -> Record:
        mean, error = mean_and_error(values)
        config = self.name if change is None else f"{self.name}-{change}"
        return Record(
            experiment="values", config=config, filter=row.name, arm=row.arm, particles=row.particles,
            calls=row.particles, seed=self.seed, step=ALL, metric=metric, value=float(mean),
            se=float(error) if len(values) > 1 else None, episodes=len(values),
        )  # fmt: skip
