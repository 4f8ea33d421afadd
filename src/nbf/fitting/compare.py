"""Every filter that applies, side by side on fresh episodes of a family, and which to take.

    found = nbf.compare(family, fitted)
    print(found)

The prior is always a row: a filter that is no better has learned nothing from the observations. So is, for a neural
filter, the same with an untrained network: what that reaches is the update's doing, not the network's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax

from nbf import prng
from nbf.contracts import BeliefModel, Environment, Family, Filter, Policy
from nbf.environments.functional import as_family
from nbf.errors import InputError, host_errors
from nbf.filters.checks import check_counts
from nbf.filters.particle import ParticleFilter
from nbf.fitting.comparison import Comparison
from nbf.fitting.contenders import Contender, as_models, check_call_cost, classical, exact_filter, neural, prior
from nbf.fitting.episodes import draw_episodes, instance
from nbf.fitting.fitted import FittedModel
from nbf.fitting.race import Race
from nbf.fitting.rows import Kind
from nbf.training.progress import Progress

TRIAL_CALLS, TRIAL_PARTICLES, TRIAL_REFERENCE = 32, (1024,), 4096
"""Of a trial: simulator calls of the filters that are compared, sizes of particle filters besides, and that of the
reference where the model does not know its teacher."""


class ComparisonStopped(KeyboardInterrupt):
    """The comparison was interrupted; `comparison` has the rows so far, which it prints if uncaught, or is None."""

    def __init__(self, comparison: Comparison | None):
        super().__init__(*(() if comparison is None else (f"the rows so far:\n{comparison}",)))
        self.comparison = comparison


@host_errors()
def compare(
    family: Family | Environment | tuple[Environment, Policy],
    fitted: FittedModel | BeliefModel | Sequence[FittedModel | BeliefModel] | None = None,
    *,
    budgets: Sequence[int] = (16, 32, 128),
    particles: Sequence[int] = (512, 2048, 8192),
    episodes: int = 32,
    horizon: int = 20,
    seed: int = 0,
    reference: int | Filter = 16384,
    call_cost: float = 0.0,
    quick: bool = False,
    progress: bool = True,
) -> Comparison:
    """Compare all filters that apply to a problem, on fresh episodes.

    Args:
        family: A family, one environment with its policy, or one environment whose policy is None.
        fitted: What `nbf.fit` returned, or a belief model, or several of either (training seeds); None compares
            without a network.
        budgets: Particle counts of neural, regularised and branching filters.
        particles: Sizes of particle filters besides the budgets.
        episodes: How many, at least 2.
        horizon: Steps of an episode; families that make whole episodes have their own.
        seed: Root seed of all randomness.
        reference: Size of the particle filter whose beliefs are the reference where the exact filter is not affordable,
            or another filter to take in its place.
        call_cost: What a call of the simulator costs beyond what it costs here, in microseconds.
        quick: Leave out the times, and with them everything that is said about equal time.
        progress: Whether to show a progress bar.

    Returns:
        The comparison; `print` shows it. Ctrl-C raises `ComparisonStopped`, which has the rows so far.
    """
    _check_sizes(budgets, particles)
    settings = _Settings(
        tuple(sorted(set(budgets))), tuple(particles), episodes, horizon, prng.seed(seed), reference,
        check_call_cost(call_cost), quick,
    )  # fmt: skip
    return _raced(*_prepared(as_family(family), as_models(fitted), settings), "comparing filters", progress)


TRIED: tuple[Kind, ...] = ("prior", "reference", "exact", "branching", "particle", "regularised", "neural", "ceiling")
"""Rows of a trial: those without which no filter can be judged."""


def trial(
    family: Family, fitted: FittedModel, *, episodes: int, horizon: int, seed: int = 0, progress: bool = True
) -> Comparison:
    """Try the filter of a model that was just fitted: a small comparison, at `TRIAL_CALLS` simulator calls.

    Args:
        family: On which it was fitted.
        fitted: The model.
        episodes: How many, at least 2.
        horizon: Steps of an episode; families that make whole episodes have their own.
        seed: Root seed of all randomness.
        progress: Whether to show a progress bar.

    Returns:
        The comparison. Its reference, where the exact filter is not affordable, is the model's teacher.
    """
    reference = TRIAL_REFERENCE if fitted.reference is None else fitted.reference
    settings = _Settings((TRIAL_CALLS,), TRIAL_PARTICLES, episodes, horizon, prng.seed(seed), reference, 0.0, False)
    race, truth = _prepared(family, (fitted,), settings)
    race.contenders = [each for each in race.contenders if each.kind in TRIED]
    return _raced(race, truth, "trial of the filter", progress)


def _raced(race: Race, truth: Filter, title: str, progress: bool) -> Comparison:
    with Progress(title, len(race.contenders) + 1, 0, enabled=progress, unit="filter") as bar:
        try:
            race.run(truth, bar.advance)
        except KeyboardInterrupt:
            raise ComparisonStopped(race.result() if race.rows else None) from None
    return race.result()


@dataclass(frozen=True)
class _Settings:
    """The options of `compare`."""

    budgets: tuple[int, ...]
    particles: tuple[int, ...]
    episodes: int
    horizon: int
    seed: int
    reference: int | Filter
    call_cost: float
    quick: bool

    def __post_init__(self) -> None:
        check_counts("A comparison", least=2, episodes=self.episodes)
        check_counts("A comparison", horizon=self.horizon)
        if not isinstance(self.reference, Filter):
            check_counts("A comparison", least=2, reference=self.reference)


def _prepared(family: Family, models: Sequence[FittedModel | BeliefModel], settings: _Settings) -> tuple[Race, Filter]:
    """Episodes and rows to be, and the reference filter."""
    key = prng.stream(settings.seed, "compare", "episodes")
    drawn = draw_episodes(family, key, settings.episodes, settings.horizon)
    environment, policy = instance(drawn, 0)
    exact, reference = exact_filter(environment, policy), settings.reference
    large = ParticleFilter(reference) if isinstance(reference, int) else reference
    truth = large if exact is None else exact[0]
    measured = (model.trust for model in models if isinstance(model, FittedModel))
    trust = next((trust for trust in measured if trust is not None), None)
    others, notes = classical(environment, policy, settings.budgets, settings.particles, trust)
    networks, more = neural(models, environment, settings.budgets, truth, settings.seed)
    contenders = [prior(None if exact is None else truth), *others, *networks]
    if exact is None:
        contenders.insert(1, Contender("reference", "reference", (truth,), timed=False))
    blank = Comparison(
        problem=f"{type(environment).__name__}, {environment.space.signature}", measure="", reference="",
        reference_sound=exact is not None, episodes=settings.episodes,
        horizon=jax.tree.leaves(drawn.observations)[0].shape[1], models=max(len(models), 1), budgets=settings.budgets,
        call_cost=settings.call_cost, rows=(), notes=(*notes, *more),
    )  # fmt: skip
    return Race(drawn, settings.seed, settings.quick, blank, contenders), truth


def _check_sizes(budgets: Sequence[int], particles: Sequence[int]) -> None:
    if not isinstance(budgets, Sequence) or not budgets:
        raise InputError(f"Budgets are particle counts, at least one, such as (16, 32, 128); got {budgets!r}.")
    for name, counts in (("budgets", budgets), ("particles", particles)):
        for place, count in enumerate(counts):
            check_counts("A comparison", **{f"{name}[{place}]": count})
