"""How often `nbf.Surprise` raises a false alarm, by the number of particles of the filter that it watches.

    python -m benchmarks.false_alarms

The world is right: a grid, and a wandering position that is read with noise. The bound of the alarm holds for right
predictions, and those of few particles are not.
"""

from __future__ import annotations

import argparse
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

import nbf

RATE = 0.01
"""The stated rate."""
PARTICLES = (16, 32, 64, 128, 256)


def worlds() -> dict[str, tuple[nbf.Environment, Any]]:
    """Each environment with its policy."""
    line = nbf.LinearGaussian(
        [[0.9]], [[0.5]], [[1.0]], [[0.25]], [0.0], [[1.0]], space=nbf.Box((-4.0,), (4.0,), False)
    )
    return {"line": (line, None), "grid": nbf.gridworld_family(5, 2, temperature=0.5).sample(jax.random.key(0))}


@eqx.filter_jit
def highest(
    watch: nbf.Surprise, environment: nbf.Environment, policy: Any, keys: Key[Array, " n"], steps: int
) -> Float[Array, " n"]:
    """The largest log E of each episode."""

    def one(key: Key[Array, ""]) -> Float[Array, ""]:
        episode_key, run_key = jax.random.split(key)
        _, observations = nbf.rollout(episode_key, environment, policy, steps)
        return jnp.max(nbf.run(watch, run_key, observations, environment, policy, look=lambda state: state.log_e)[0])

    return jax.lax.map(one, keys, batch_size=50)


def share_of_alarms(name: str, particles: int, steps: int, episodes: int) -> float:
    """The share of episodes with an alarm at `RATE`."""
    environment, policy = worlds()[name]
    watch = nbf.Surprise(nbf.ParticleFilter(particles))
    found = highest(watch, environment, policy, jax.random.split(jax.random.key(1), episodes), steps)
    return float(np.mean(np.asarray(found) >= -np.log(RATE)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--episodes", type=int, default=1000)
    parser.add_argument("--steps", type=int, nargs="+", default=[60, 300])
    arguments = parser.parse_args()
    error = np.sqrt(RATE * (1 - RATE) / arguments.episodes)
    print(
        f"Share of {arguments.episodes} episodes with an alarm at {RATE:.0%} (standard error at that rate {error:.1%})"
    )
    for name in worlds():
        for steps in arguments.steps:
            shares = [share_of_alarms(name, n, steps, arguments.episodes) for n in PARTICLES]
            told = ", ".join(f"{n}: {share:.1%}" for n, share in zip(PARTICLES, shares, strict=True))
            print(f"{name}, {steps} steps - {told}", flush=True)


if __name__ == "__main__":
    main()
