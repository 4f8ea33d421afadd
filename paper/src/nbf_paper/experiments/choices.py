"""What `nbf-paper reproduce` can run: for each experiment the options of its own, and the jobs they ask for.

`EXPERIMENTS` at the end is the list of them. Imported by the command line before it knows what is asked for, hence
without jax.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, runtime_checkable

from tyro.conf import arg

if TYPE_CHECKING:
    from nbf_paper.experiments.training_runs import Counter


@runtime_checkable
class Job(Protocol):
    """One arm with one training seed: trained, evaluated, recorded."""

    @property
    def title(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def evaluated(self) -> int: ...

    def check(self, runs: Path) -> None: ...
    def run(self, results: Path, runs: Path, *, command: str, bar: Counter) -> bool: ...


@dataclass(frozen=True)
class Amount:
    """How much is done; None is what the paper does."""

    seeds: Sequence[int] = (0,)
    steps: int | None = None
    episodes: int | None = None
    few: bool = False
    """Score only a few of the filters: each takes seconds to compile."""


@runtime_checkable
class Experiment(Protocol):
    """The options of an experiment, each with a default: a frozen dataclass whose docstrings are their help."""

    def jobs(self, amount: Amount) -> Sequence[Job]: ...


@dataclass(frozen=True, kw_only=True)
class All:
    """Every experiment, as much of each as the documentation shows; then one HTML page of all of them."""

    html: Annotated[
        Path | None, arg(help_behavior_hint="(default: nbf-report.html; nbf-report-quick.html with --quick)")
    ] = None
    """The page."""


@dataclass(frozen=True, kw_only=True)
class Gridworld:
    """Jensen-Shannon divergence by step on the eight Gridworld configurations."""

    config: Annotated[
        tuple[str, ...], arg(help_behavior_hint="(default: the paper's eight and 8-2D-random-diffuse)")
    ] = ()
    """Configurations, as the paper names them."""
    arm: tuple[str, ...] = ("faithful",)
    """Models to train for each: faithful (the paper's), enumerated (a softmax over all cells), wide (a larger one),
    recurrent (the paper's baseline), recurrent-adam (the same with an optimizer that learns faster); and, not
    trained, kernel (the kernel mean embedding)."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.config import GRIDWORLD_NAMES
        from nbf_paper.experiments.gridworld import GridworldJob
        from nbf_paper.experiments.requests import jobs, kernel_jobs
        from nbf_paper.experiments.untrained import KERNEL, GridworldKernelJob

        episodes, configs = 500 if amount.episodes is None else amount.episodes, self.config or GRIDWORLD_NAMES
        trained = [arm for arm in self.arm if arm != KERNEL]
        found: list[GridworldJob | GridworldKernelJob] = []
        if trained or not self.arm:
            found += jobs(configs, trained, amount.seeds, amount.steps, episodes)
        found += kernel_jobs(configs, amount.seeds, episodes) if KERNEL in self.arm else ()
        few = {"particle_filters": (32, 512), "neural_filters": (32,)} if amount.few else {}
        return [replace(job, evaluation=replace(job.evaluation, **few)) for job in found]


@dataclass(frozen=True, kw_only=True)
class Beyond:
    """The default filter beside the paper's, each of its parts left out, and rivals at equal calls and at others."""

    config: Annotated[tuple[str, ...], arg(help_behavior_hint="(default: all)")] = ()
    """Gridworld configurations, 8-2D-random-long (200 steps), k=5, k=6, k=7, triangulation."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.beyond import CONFIGS, BeyondJob
        from nbf_paper.experiments.requests import at_least, seed

        steps = None if amount.steps is None else at_least(1, steps=amount.steps)
        episodes = None if amount.episodes is None else at_least(2, episodes=amount.episodes)

        def job(name: str, number: int, rivals: bool) -> BeyondJob:
            usual = 100 if name == "triangulation" else 200  # its truth is dear
            return BeyondJob(name, seed(number), usual if episodes is None else episodes, steps, rivals)

        return [
            job(name, number, rivals)
            for name in self.config or CONFIGS
            for number in amount.seeds
            for rivals in (False, True)
        ]


@dataclass(frozen=True, kw_only=True)
class Donuts:
    """Belief models of ring distributions in the plane, one for each decoder."""

    decoder: Annotated[tuple[str, ...], arg(help_behavior_hint="(default: all)")] = ()
    """flow (the paper's sizes), flow-paper (its learning rate and ReLU too), nlsq, spline, mixture, cfm-independent,
    cfm-ot."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.donuts import DECODERS, DonutsJob, EvaluationConfig
        from nbf_paper.experiments.requests import at_least, seed

        steps = None if amount.steps is None else at_least(1, steps=amount.steps)
        scored = EvaluationConfig()
        if amount.episodes is not None:
            scored = replace(scored, beliefs=at_least(2, episodes=amount.episodes))
        return [
            DonutsJob(decoder, seed(number), steps=steps, evaluation=scored)
            for decoder in self.decoder or DECODERS
            for number in amount.seeds
        ]


@dataclass(frozen=True, kw_only=True)
class Goofspiel:
    """What the opponent has bid in a card game, by policies of self-play, made first if they are not there."""

    cards: Annotated[tuple[int, ...], arg(help_behavior_hint="(default: the paper's 4 5 6 7)")] = ()
    """Numbers of cards."""
    arm: tuple[str, ...] = ("faithful",)
    """faithful (the paper's), autoregressive (a softmax for each bid, legal ones only), autoregressive-context (the
    same, told the public history), recurrent (the paper's baseline)."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.goofspiel import CARDS, POOL_GAMES, EvaluationConfig, GoofspielJob, training_of
        from nbf_paper.experiments.requests import at_least, seed
        from nbf_paper.experiments.selfplay import SelfPlayConfig

        scored, checkpoints = EvaluationConfig(), SelfPlayConfig().checkpoints
        games, training = POOL_GAMES, {arm: training_of(arm) for arm in self.arm}
        if amount.steps is not None:  # a short training needs no large pool
            steps = at_least(1, steps=amount.steps)
            training = {arm: replace(usual, steps=steps) for arm, usual in training.items()}
            checkpoints = min(checkpoints, max(2, amount.steps // (20 if amount.steps > 2000 else 200)))
            games = min(games, max(64, amount.steps))
        if amount.episodes is not None:
            scored = replace(scored, episodes=at_least(2, episodes=amount.episodes))
        if amount.few:
            scored = replace(scored, particle_filters=(64, 512))
        return [
            GoofspielJob(
                cards,
                arm,
                seed(number),
                training[arm],
                scored,
                SelfPlayConfig(cards=cards, checkpoints=checkpoints),
                games,
            )
            for cards in self.cards or CARDS
            for arm in self.arm
            for number in amount.seeds
        ]


@dataclass(frozen=True, kw_only=True)
class FineTuned:
    """The recurrent baseline, adapted at test time by gradient steps on simulated trajectories, on 8-2D-random."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.fine_tuned import CONFIG, EvaluationConfig, FineTunedJob
        from nbf_paper.experiments.gridworld import arm_of
        from nbf_paper.experiments.requests import at_least, seed

        usual = arm_of(CONFIG, "recurrent")[1].steps
        steps = usual if amount.steps is None else at_least(1, steps=amount.steps)
        scored = EvaluationConfig()
        if amount.episodes is not None:
            scored = replace(scored, episodes=at_least(2, episodes=amount.episodes))
        return [FineTunedJob(seed(number), steps, scored) for number in amount.seeds]


@dataclass(frozen=True, kw_only=True)
class Triangulation:
    """Continuous beliefs on a plane, against a point-mass filter and against a particle filter of 1024."""

    arm: tuple[str, ...] = ("faithful",)
    """faithful (the paper's), affine (the same, trained on the truth), spline, mixture; and, not trained, kernel (the
    kernel mean embedding) and classical (cubature and ensemble Kalman filters)."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.requests import at_least, seed
        from nbf_paper.experiments.triangulation import POOL_EPISODES, TRAINING, EvaluationConfig, TriangulationJob
        from nbf_paper.experiments.untrained import CLASSICAL, KERNEL, UntrainedTriangulationJob

        training, pool = TRAINING, POOL_EPISODES
        if amount.steps is not None:  # a short training needs no large pool
            training = replace(TRAINING, steps=at_least(1, steps=amount.steps))
            pool = min(POOL_EPISODES, max(64, amount.steps))
        scored = EvaluationConfig()
        if amount.episodes is not None:
            scored = replace(scored, episodes=at_least(2, episodes=amount.episodes))
        if amount.few:
            few = {"particle_filters": (32, 256), "smoothed_filters": (32,), "neural_filters": (32,)}
            scored = replace(scored, **few, resolution=100)
        return [
            UntrainedTriangulationJob(arm, seed(number), evaluation=scored)
            if arm in (KERNEL, CLASSICAL)
            else TriangulationJob(arm, seed(number), training=training, evaluation=scored, pool_episodes=pool)
            for arm in self.arm
            for number in amount.seeds
        ]


@dataclass(frozen=True, kw_only=True)
class Convergence:
    """The theorem: the error of an estimate against the number of particles, on 8-2D-random. Nothing is trained."""

    arm: Annotated[tuple[str, ...], arg(help_behavior_hint="(default: all)")] = ()
    """tabular (the perfect model of the theorem), tabular-default (the same in the library's own variant of the
    algorithm), faithful (the shipped model), pf (a particle filter)."""
    particles: Annotated[tuple[int, ...], arg(help_behavior_hint="(default: powers of two from 16 to 16384)")] = ()
    """Particle counts; the slope is that from 1024 on."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.convergence import ARMS, ConvergenceJob, EvaluationConfig
        from nbf_paper.experiments.requests import at_least, seed

        scored = EvaluationConfig(particles=self.particles) if self.particles else EvaluationConfig()
        if amount.episodes is not None:
            scored = replace(scored, episodes=at_least(2, episodes=amount.episodes))
        return [
            ConvergenceJob(arm, seed(number), evaluation=scored) for arm in self.arm or ARMS for number in amount.seeds
        ]


@dataclass(frozen=True, kw_only=True)
class Classical:
    """The Gaussian filters and particle filters against the exact Kalman filter. Nothing is trained."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.classical import ClassicalJob, EvaluationConfig
        from nbf_paper.experiments.requests import at_least, seed

        scored = EvaluationConfig()
        if amount.episodes is not None:
            scored = replace(scored, episodes=at_least(2, episodes=amount.episodes))
        return [ClassicalJob(seed(number), evaluation=scored) for number in amount.seeds]


@dataclass(frozen=True, kw_only=True)
class SimulationCost:
    """Time of an update when calls of the simulator cost something, of the filters that other experiments recorded.
    Run it on an idle machine."""

    config: tuple[str, ...] = ("8-2D-random", "8-3D-random", "triangulation", "k=6")
    """Configurations, as records name them; their divergences must be recorded."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.experiments.requests import at_least, seed
        from nbf_paper.experiments.simulation_cost import SLOW, SimulationCostJob

        updates = 500 if amount.episodes is None else at_least(1, episodes=amount.episodes)
        slow = (100, 1000) if amount.few else SLOW
        return [SimulationCostJob(name, seed(number), updates, slow) for name in self.config for number in amount.seeds]


@dataclass(frozen=True, kw_only=True)
class WallClock:
    """Times of one update step of every filter, and of one gradient step, on fixed grids; `--episodes` is how many
    measurements, 10000 by default. Run it on an idle machine."""

    config: Annotated[tuple[str, ...], arg(help_behavior_hint="(default: the paper's four fixed grids)")] = ()
    """Gridworld configurations."""

    def jobs(self, amount: Amount) -> Sequence[Job]:
        from nbf_paper.config import GridworldConfig
        from nbf_paper.experiments.requests import at_least, seed
        from nbf_paper.experiments.wall_clock import GRIDS, MEASUREMENTS, WallClockJob

        measurements = MEASUREMENTS if amount.episodes is None else at_least(2, episodes=amount.episodes)
        configs = [GridworldConfig.parse(name) for name in self.config or GRIDS]
        return [WallClockJob(config, seed(number), measurements) for config in configs for number in amount.seeds]


# --- the list ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """Something that `nbf-paper reproduce all` runs."""

    options: Experiment
    seeds: int = 1
    steps: int | None = None
    """Gradient steps, where the documentation shows fewer than the paper's."""


@dataclass(frozen=True)
class Entry:
    """An experiment as `nbf-paper reproduce` knows it."""

    options: type[Experiment]
    quick: Amount = Amount(steps=100, episodes=10)
    """How much `--quick` does."""
    parts: tuple[Part, ...] = ()
    """What `all` runs; the experiment's defaults, where nothing is named."""
    quick_parts: tuple[Part, ...] = ()
    """The same for `all --quick`."""

    def planned(self, *, quick: bool) -> tuple[Part, ...]:
        """What `all` runs."""
        return (self.quick_parts if quick else self.parts) or (Part(self.options()),)


GRIDWORLDS = tuple(f"{grid}-{kind}" for kind in ("fixed", "random") for grid in ("5-2D", "8-2D", "5-3D", "8-3D"))
"""The paper's eight configurations."""
EXPERIMENTS: dict[str, Entry] = {
    "gridworld": Entry(
        Gridworld,
        quick=Amount(steps=100, episodes=10, few=True),
        parts=(
            Part(Gridworld(config=("5-2D-fixed", "8-2D-fixed", "5-2D-random", "8-2D-random")), seeds=2),
            Part(Gridworld(config=("5-3D-fixed", "8-3D-fixed", "5-3D-random", "8-3D-random", "8-2D-random-diffuse"))),
            Part(Gridworld(config=("8-2D-random", "5-3D-random"), arm=("enumerated",))),
            Part(Gridworld(config=GRIDWORLDS, arm=("recurrent",)), steps=10_000),
            Part(Gridworld(config=("8-2D-random",), arm=("kernel",))),
        ),
        quick_parts=(
            Part(Gridworld(config=("5-2D-fixed", "8-2D-random", "5-3D-random"))),
            Part(Gridworld(config=("8-2D-random",), arm=("enumerated",))),
        ),
    ),
    "donuts": Entry(
        Donuts,
        quick=Amount(steps=100, episodes=10),
        quick_parts=(Part(Donuts(decoder=("flow", "nlsq", "spline", "mixture", "cfm-ot"))),),
    ),
    "goofspiel": Entry(
        Goofspiel,
        quick=Amount(steps=50, episodes=10, few=True),
        parts=(
            Part(Goofspiel(), seeds=2, steps=3000),
            Part(Goofspiel(arm=("autoregressive",)), seeds=2, steps=6000),
        ),
        quick_parts=(Part(Goofspiel(cards=(4,), arm=("faithful", "autoregressive"))),),
    ),
    "triangulation": Entry(
        Triangulation,
        quick=Amount(steps=100, episodes=10, few=True),
        parts=(
            Part(Triangulation(arm=("faithful", "spline", "mixture")), seeds=5),
            Part(Triangulation(arm=("kernel", "classical")), seeds=5),
        ),
        quick_parts=(Part(Triangulation(arm=("faithful", "mixture"))),),
    ),
    "fine-tuned": Entry(FineTuned, quick=Amount(steps=400, episodes=2), parts=(Part(FineTuned(), steps=10_000),)),
    "convergence": Entry(
        Convergence,
        quick=Amount(episodes=10),
        quick_parts=(Part(Convergence(arm=("tabular", "faithful"), particles=(64, 1024, 4096))),),
    ),
    "classical": Entry(Classical, quick=Amount(episodes=10)),
    "beyond": Entry(
        Beyond,
        quick=Amount(steps=50, episodes=4),
        parts=(
            Part(Beyond(config=(*GRIDWORLDS, "8-2D-random-diffuse", "8-2D-random-long", "triangulation")), seeds=3),
            Part(Beyond(config=("k=5", "k=6", "k=7")), seeds=3),
        ),
        quick_parts=(Part(Beyond(config=("5-2D-random",))),),
    ),
    "simulation-cost": Entry(
        SimulationCost,
        quick=Amount(episodes=20, few=True),
        quick_parts=(Part(SimulationCost(config=("5-3D-random", "triangulation", "k=4"))),),
    ),
    "wall-clock": Entry(WallClock, quick=Amount(episodes=200), quick_parts=(Part(WallClock(config=("5-2D-fixed",))),)),
}
"""By the name of the subcommand, which is also the folder of the records; `nbf-paper reproduce all`, and a report, follow
this order: an experiment stands after those whose records it reads.

To add one: options with `jobs` above, an entry here, and its page in `report.pages.EXPERIMENTS`, under one name.
"""


def name_of(options: Experiment) -> str:
    """The experiment that some options belong to."""
    return next(name for name, entry in EXPERIMENTS.items() if type(options) is entry.options)
