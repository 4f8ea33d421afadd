"""Train a policy and a value on what a view shows, by PPO: V(θ, context) and π(a | θ, context) on filtered beliefs.

    trained = train_policy(process, EmbeddingView(filter), PolicyConfig(steps=300_000))
    trained.act(key, episodes=1000).total(process.discount)

An iteration is one compiled program: a batch of episodes, in which the filter updates its belief, then the gradient
steps. Steps are counted to the horizon, whether an episode was over or not, so that equal numbers of steps are equal
numbers of episodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from nbf import prng
from nbf.errors import InputError
from nbf.evaluation.batches import in_batches
from nbf.filters.checks import check_counts
from nbf.planning.acting import Acted, Chooser, act, begun, seen
from nbf.planning.actor import Actor
from nbf.planning.ppo import PPO, advantages, clipped_loss, improve, minibatches, optimizer
from nbf.planning.process import DecisionProcess, check_process
from nbf.planning.views import View
from nbf.training.progress import Progress


@dataclass(frozen=True)
class PolicyConfig:
    """The network, and how it is trained."""

    steps: int = 300_000
    """Steps of all episodes, each counted to the horizon."""
    episodes: int = 128
    """Of an iteration: a batch."""
    width: int = 64
    depth: int = 2
    recurrent: bool = False
    """Whether the network has a memory: an LSTM of `width` units that reads what is seen."""
    minibatches: int = 8
    """Of an epoch, about: of decisions, or with a memory of episodes; all have the same size."""
    epochs: int = 4
    """Passes over the decisions of an iteration."""
    learning_rate: float = 1e-3
    """At the beginning; it falls to 0."""
    trace: float = 0.95
    """λ of the generalised advantages."""
    clip: float = 0.2
    value_weight: float = 0.5
    largest_gradient: float = 0.5
    entropy_weight: float = 0.01

    def __post_init__(self) -> None:
        sizes = ("steps", "episodes", "width", "depth", "minibatches")
        check_counts("A policy", **{name: getattr(self, name) for name in sizes})
        if self.minibatches > self.episodes:
            raise InputError(f"{self.minibatches} minibatches of {self.episodes} episodes: take more episodes.")
        self.ppo(1.0, self.episodes)

    def ppo(self, discount: float, decisions: int) -> PPO:
        """Make the settings of the optimisation.

        Args:
            discount: γ, of the process.
            decisions: Of an iteration; with a memory, episodes.

        Returns:
            The settings.
        """
        return PPO(
            self.epochs, max(1, decisions // self.minibatches), self.learning_rate, discount, self.trace, self.clip,
            self.value_weight, self.largest_gradient, self.entropy_weight,
        )  # fmt: skip

    def iterations(self, horizon: int) -> int:
        """Count the iterations.

        Args:
            horizon: Of an episode.

        Returns:
            How many there are, at least 1.
        """
        return max(1, round(self.steps / (self.episodes * horizon)))


class TrainedPolicy(eqx.Module):
    """A policy and a value with what they act in. `dataclasses.replace` exchanges the process or the view's filter:
    what was trained stays."""

    process: DecisionProcess
    view: View
    actor: Actor
    returns: tuple[float, ...] = eqx.field(static=True, default=())
    """The mean discounted return of each iteration."""

    def act(
        self,
        key: Key[Array, ""],
        episodes: int,
        *,
        greedy: bool = False,
        chooser: Chooser | None = None,
        batch: int | None = None,
    ) -> Acted:
        """Act episodes, compiled.

        Args:
            key: Random key.
            episodes: How many.
            greedy: Whether the likeliest action is taken; else one is drawn.
            chooser: Who chooses actions instead, such as a search (`SearchChooser`); None: the policy.
            batch: Episodes that are acted together; None: all.

        Returns:
            What happened; every array has a leading axis, the episodes.
        """
        check_process(self.process)
        if episodes < 1:
            raise InputError(f"Act at least one episode; got {episodes}.")

        def some(keys: Key[Array, " batch"]) -> Acted:
            return _acted(keys, self.process, self.view, self.actor, greedy, chooser)

        acted = in_batches(some, (jax.random.split(key, episodes),), batch=min(batch or episodes, episodes))
        _check(int(np.sum(acted.invalid)), int(np.sum(acted.stuck)))
        return acted


class Decisions(eqx.Module):
    """Decisions with what PPO needs. Leading axes: steps alone, or episodes and steps."""

    inputs: Float[Array, "*n inputs"]
    allowed: Bool[Array, "*n actions"]
    actions: Int[Array, "*n"]
    log_probs: Float[Array, "*n"]
    advantages: Float[Array, "*n"]
    returns: Float[Array, "*n"]
    """The targets of V."""
    alive: Bool[Array, "*n"]


def decisions_of(acted: Acted, settings: PPO) -> Decisions:
    """Compute advantages and targets.

    Args:
        acted: Episodes, with a leading axis.
        settings: The discount, and the trace.

    Returns:
        Their decisions, by episode and step.
    """
    gains = advantages(acted.rewards.T, acted.values.T, settings.discount, settings.trace).T
    parts = acted.inputs, acted.allowed, acted.actions, acted.log_probs
    return Decisions(*parts, gains, gains + acted.values, acted.alive)


def train_policy(
    process: DecisionProcess, view: View, config: PolicyConfig | None = None, *, seed: int = 0, progress: bool = True
) -> TrainedPolicy:
    """Train a policy and a value function.

    Args:
        process: What is decided.
        view: What the network sees of the hidden state.
        config: The network, and how it is trained; None is `PolicyConfig()`.
        seed: Root seed of all randomness.
        progress: Whether to show a progress bar.

    Returns:
        The trained policy.
    """
    check_process(process)
    if not isinstance(view, View):
        raise InputError(
            f"A policy is trained on a view of the hidden state; got {type(view).__name__}. Of a filter's belief take "
            "EmbeddingView(filter), MomentsView(filter) or ProbabilitiesView(filter)."
        )
    config = PolicyConfig() if config is None else config
    total = config.iterations(process.horizon)
    items = config.episodes * (1 if config.recurrent else process.horizon)
    settings = config.ppo(process.discount, items)
    actor = _new_actor(process, view, config, seed)
    steps = total * settings.epochs * minibatches(items, settings.minibatch)
    state = optimizer(settings, steps).init(eqx.filter(actor, eqx.is_array))
    returns: list[float] = []
    with Progress("policy", total, 0, enabled=progress, unit="iteration") as bar:
        for number in range(total):
            key = prng.stream(seed, "policy", "iteration", number)
            if number == 0:
                acted = _acted(_keys(key, config), process, view, actor, False)
                flat = acted.inputs.reshape(-1, acted.inputs.shape[-1])
                actor = actor.scaled_to(flat, acted.alive.reshape(-1))
            actor, state, mean, invalid, stuck = _iteration(key, process, view, actor, state, config, settings, steps)
            _check(int(invalid), int(stuck))
            returns.append(float(mean))
            bar.update(number + 1)
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(eqx.filter(actor, eqx.is_array))):
        raise InputError(
            "The network's parameters are not finite any more. Take a smaller `learning_rate` or `largest_gradient`."
        )
    return TrainedPolicy(process, view, actor, tuple(returns))


def _new_actor(process: DecisionProcess, view: View, config: PolicyConfig, seed: int) -> Actor:
    """An actor for as many inputs as are seen; whatever does not fit is found here, before anything is compiled."""

    def shown(key: Key[Array, ""]) -> Float[Array, " inputs"]:
        return seen(process, view, begun(key, process, view, None), jnp.int32(0))

    inputs = jax.eval_shape(shown, jax.random.key(0)).shape[0]
    sizes: dict[str, Any] = {"width": config.width, "depth": config.depth, "recurrent": config.recurrent}
    return Actor.new(prng.stream(seed, "policy", "parameters"), inputs, process.num_actions, **sizes)


def _keys(key: Key[Array, ""], config: PolicyConfig) -> Key[Array, " episodes"]:
    return jax.random.split(jax.random.split(key)[0], config.episodes)


@eqx.filter_jit
def _acted(
    keys: Key[Array, " episodes"], process: DecisionProcess, view: View, actor: Actor, greedy: bool,
    chooser: Chooser | None = None,
) -> Acted:  # fmt: skip
    return jax.vmap(lambda key: act(key, process, view, actor, greedy=greedy, chooser=chooser))(keys)


@eqx.filter_jit
def _iteration(
    key: Key[Array, ""], process: DecisionProcess, view: View, actor: Actor, state: Any, config: PolicyConfig,
    settings: PPO, steps: int,
) -> tuple[Actor, Any, Float[Array, ""], Int[Array, ""], Int[Array, ""]]:  # fmt: skip
    """Episodes, then gradient steps; also the mean return, how many rewards were no numbers, and how many steps had no
    action."""
    acted = jax.vmap(lambda key: act(key, process, view, actor))(_keys(key, config))
    items = decisions_of(acted, settings)
    if not config.recurrent:
        items = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), items)
    actor, state = improve(
        jax.random.split(key)[1], actor, state, items, lambda actor, part: _loss(actor, part, config, settings),
        optimizer(settings, steps), settings.epochs, settings.minibatch,
    )  # fmt: skip
    total = jax.vmap(lambda one: one.total(settings.discount))(acted)
    return actor, state, jnp.mean(total), jnp.sum(acted.invalid), jnp.sum(acted.stuck)


def _loss(actor: Actor, taken: Decisions, config: PolicyConfig, settings: PPO) -> Float[Array, ""]:
    if config.recurrent:
        log_probs, values = jax.vmap(actor.of_episode)(taken.inputs, taken.allowed)
        log_probs, values = log_probs.reshape(-1, log_probs.shape[-1]), values.reshape(-1)
        taken = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), taken)
    else:
        log_probs, values = actor.of_episode(taken.inputs, taken.allowed)
    told = taken.actions, taken.log_probs, taken.advantages, taken.returns
    return clipped_loss(log_probs, values, *told, settings, taken.alive)


def _check(invalid: int, stuck: int) -> None:
    if invalid:
        raise InputError(
            f"{invalid} rewards of a batch of episodes, or numbers shown to the network, were NaN or infinite. "
            "Look at `reward` and `context` of the process, and at what the view shows."
        )
    if stuck:
        raise InputError(
            f"No action was allowed at {stuck} steps of a batch of episodes. Look at `allowed` of the process: an "
            "episode in which nothing can be done any more is over (`is_over`)."
        )
