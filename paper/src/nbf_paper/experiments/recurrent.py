"""The paper's "Recurrent" baseline: its models, training data and losses (appendix, "Recurrent Model", for Gridworld
and for Goofspiel). The network reads whole episodes, so a draw of a source is one episode with all its beliefs.

In Gridworld the loss is the divergence from the exact posteriors. In Goofspiel the embedding conditions the flow of the
belief model, which is trained on samples.
"""

from __future__ import annotations

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from nbf.beliefs.categorical import bayes, transition_kernel
from nbf.capabilities import Enumerable
from nbf.contracts import BeliefModel, BeliefSource, Family, State, StateSpace
from nbf.environments.rollout import rollout
from nbf.models.belief_model import BeliefEmbeddingModel, LatticeConfig, ModelConfig, TokensConfig
from nbf.models.dequantization import DequantizedFlowConfig
from nbf.models.enumerated import Enumerated, EnumeratedDecoderConfig
from nbf.models.recurrent import RecurrentConfig, RecurrentEncoder
from nbf.sources.prefixes import PrefixPosteriors
from nbf.training.config import FitConfig
from nbf_paper.config import GoofspielConfig, GridworldConfig

GRIDWORLD_TRAINING = {"recurrent": FitConfig(), "recurrent-adam": FitConfig(optimizer="adam", learning_rate=3e-3)}
"""By arm: the table's training, and one that learns faster. No samples are drawn: the loss needs whole posteriors."""
GOOFSPIEL_TRAINING = FitConfig(steps=16_000, batch=64, samples=32, optimizer="nadam", learning_rate=1e-3)


def gridworld_model(config: GridworldConfig) -> ModelConfig:
    """Two recurrent layers of 32 units, and a softmax over all cells."""
    encoder = RecurrentConfig(symbols=2 * config.dimension + 1)
    return ModelConfig(LatticeConfig(config.shape), EnumeratedDecoderConfig(depth=0), encoder, embedding=encoder.width)


def goofspiel_model(config: GoofspielConfig, flow: DequantizedFlowConfig) -> ModelConfig:
    """The sizes of the table, with a flow like the belief model's. The network observes the public record (own bid,
    prize and outcome of each round), which is the context of the round's space."""
    game = config.game
    record = game.rounds * (2 * game.cards + 3) + game.cards  # see `Consistent.context`
    encoder = RecurrentConfig(context=record, width=64, head_width=64, head_depth=2)
    return ModelConfig(TokensConfig(game.cards, game.cards + 1), flow, encoder, embedding=48)


def is_recurrent(model: BeliefModel) -> bool:
    """Whether a model reads observations."""
    return isinstance(model, BeliefEmbeddingModel) and isinstance(model.encoder, RecurrentEncoder)


# --- Gridworld -----------------------------------------------------------------------------------


class History(eqx.Module):
    """What was observed in an episode, and the exact posteriors before the first and after each observation."""

    observations: Int[Array, " steps"]
    truth: Float[Array, "depths cells"]


class ExactHistories(BeliefSource):
    """Random episodes of a family."""

    family: Family
    horizon: int = eqx.field(static=True)

    def sample(self, key: Key[Array, ""], n: int) -> tuple[History, StateSpace]:
        """One episode; n is ignored, since the loss needs no samples of the beliefs."""
        instance_key, episode_key = jax.random.split(key)
        environment, policy = self.family.sample(instance_key)
        assert isinstance(environment, Enumerable)
        _, observations = rollout(episode_key, environment, policy, self.horizon)
        branches, prior = transition_kernel(environment, policy), jnp.exp(environment.initial_log_probs())

        def step(probs: Float[Array, " cells"], observation: Int[Array, ""]) -> tuple[Array, Array]:
            posterior, _ = bayes(probs, observation, environment, branches)
            return posterior, posterior

        _, posteriors = jax.lax.scan(step, prior, observations)
        return History(observations, jnp.concatenate([prior[None], posteriors])), environment.space


def divergence_loss(
    model: BeliefEmbeddingModel, key: Key[Array, ""], histories: History, space: StateSpace
) -> Float[Array, ""]:
    """Jensen-Shannon divergence from the posteriors, summed over an episode and averaged over the batch.

    With a mean over the episode instead, the gradients are so small that AdaGrad does not leave the initial plateau,
    where the model ignores the observations. The model is not told which cells are legal.
    """
    encoder, decoder, lattice = model.encoder, model.decoder, model.space
    assert isinstance(encoder, RecurrentEncoder)
    assert isinstance(decoder, Enumerated)
    embeddings = jax.vmap(lambda observations: encoder.embeddings(observations, lattice))(histories.observations)
    log_probs = jax.vmap(jax.vmap(lambda embedding: decoder.all_log_probs(embedding, lattice)))(embeddings)
    return jnp.mean(jnp.sum(divergence(histories.truth, log_probs), axis=-1))


def divergence(p: Float[Array, "*n cells"], log_q: Float[Array, "*n cells"]) -> Float[Array, "*n"]:
    """JS of probabilities and finite log probabilities, differentiable also where p is zero or q is tiny."""
    some = p > 0
    log_p = jnp.log(jnp.where(some, p, 1.0))
    log_middle = jnp.where(some, jnp.logaddexp(log_p, log_q), log_q) - math.log(2.0)
    terms = jnp.where(some, p * (log_p - log_middle), 0.0) + jnp.exp(log_q) * (log_q - log_middle)
    return jnp.sum(terms, axis=-1) / 2.0


# --- Goofspiel -----------------------------------------------------------------------------------


class GameHistories(BeliefSource):
    """Whole games: n samples of the belief before the first and after each round, and the spaces of these beliefs."""

    posteriors: PrefixPosteriors

    def sample(self, key: Key[Array, ""], n: int) -> tuple[State, StateSpace]:
        return self.posteriors.episode(key, n)


def sample_loss(
    model: BeliefEmbeddingModel, key: Key[Array, ""], states: Int[Array, "b depths n k"], spaces: StateSpace
) -> Float[Array, ""]:
    """Minus the mean objective of the samples at one random depth of each game."""
    encoder = model.encoder
    assert isinstance(encoder, RecurrentEncoder)
    depth_key, key = jax.random.split(key)
    chosen = jax.random.randint(depth_key, states.shape[:1], 0, states.shape[1])
    # The space at depth t is that of round t; depth 0 is the belief before the first round, with nothing read yet.
    rounds = jax.tree.map(lambda leaf: leaf[:, 1:], spaces)
    embeddings = jax.vmap(lambda space: encoder.embeddings(None, space))(rounds)
    take = jax.vmap(lambda leaf, depth: leaf[depth])
    return -jnp.mean(model.objective(key, take(embeddings, chosen), take(states, chosen), model.space))
