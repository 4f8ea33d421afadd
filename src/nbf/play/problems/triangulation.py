"""Triangulation: an agent in a square, and three beacons that tell how far away they are, one after the other.

A move is a command that the filters are told; what the wind makes of it they are not. At a scan the agent stands still.
"""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Key

from nbf import prng
from nbf.beliefs.histogram import cell_probabilities
from nbf.beliefs.particles import ParticleBelief
from nbf.capabilities import ContinuousSpace, Scheduled
from nbf.capability import capability
from nbf.contracts import Belief, BeliefModel, Environment, Filter, Policy
from nbf.environments.triangulation import BEACONS, ScanPolicy, Triangulation
from nbf.errors import InputError
from nbf.files.shipped import shipped_model
from nbf.filters.neural import NeuralBayesianFilter
from nbf.filters.particle import ParticleFilter
from nbf.filters.point_mass import PointMassFilter
from nbf.play.problems import checks
from nbf.play.problems.problem import EXACT, NEURAL_COUNTS, PARTICLE, PARTICLE_COUNTS, Problem, Settings, Told, World
from nbf.spaces import Box

HALF = 5.0
"""The square is [-HALF, HALF]²."""
CELLS = 100
"""Of the picture, along each axis, and of the point-mass filter that is the truth."""
COMMANDS = {"up": 3, "down": 2, "left": 0, "right": 1}
"""The directions of the environment: down and up the first axis, which points right, then the second, which points up.
"""
SCAN = "scan"
STEP = 0.5


def world_of(
    beacons: Float[Array, "3 2"],
    motion_noise: Float[Array, ""],
    range_noise: Float[Array, ""],
    time: Array,
    scanning: Array,
) -> Triangulation:
    """Make the environment of a step.

    Args:
        beacons: Where they are.
        motion_noise: Standard deviation of a move along each axis.
        range_noise: Standard deviation of a reading.
        time: Steps done before this one.
        scanning: Whether it is a scan.

    Returns:
        The environment.
    """
    space = Box((-HALF, -HALF), (HALF, HALF))
    return Triangulation(space, beacons, jnp.float32(STEP), motion_noise, range_noise, time, scanning)


class Wanderings(Scheduled):
    """What the model is trained for: beacons anywhere, noise of many sizes, a new command at each step."""

    def schedule(self, key: Key[Array, ""], steps: int) -> tuple[Triangulation, ScanPolicy]:
        beacon_key, noise_key, scan_key, turn_key, share_key = jax.random.split(key, 5)
        beacons = jax.random.uniform(beacon_key, (3, 2), minval=-HALF, maxval=HALF)
        motion, reading = jax.random.uniform(noise_key, (2,))
        scans = jax.random.uniform(scan_key, (steps,)) < jax.random.uniform(share_key)

        def at(time: Array, scanning: Array) -> Triangulation:
            return world_of(beacons, 0.05 + 0.25 * motion, 0.2 * 5.0**reading, time, scanning)

        environments = jax.vmap(at)(jnp.arange(steps, dtype=jnp.int32), scans)
        # Runs of the same command, as of one who steers.
        turns = jax.random.randint(turn_key, (steps,), 0, 4)
        kept = jax.random.uniform(prng.fold_in(turn_key, jnp.int32(1)), (steps,)) < 0.6

        def turn(last: Array, inputs: tuple[Array, Array]) -> tuple[Array, Array]:
            direction, keep = inputs
            now = jnp.where(keep, last, direction)
            return now, now

        _, directions = jax.lax.scan(turn, turns[0], (turns, kept))
        return environments, ScanPolicy(directions, jnp.full(steps, 0.5))

    def sample(self, key: Key[Array, ""]) -> tuple[Triangulation, ScanPolicy]:
        return jax.tree.map(lambda leaf: leaf[0], self.schedule(key, 1))


class TriangulationProblem(Problem):
    """Triangulation with beacons to drag."""

    name = "triangulation"
    title = "Triangulation"
    actions = (*COMMANDS, SCAN, "auto")
    shape = (CELLS, CELLS)
    reference = f"Point mass, {CELLS} × {CELLS}"

    def defaults(self) -> dict[str, Any]:
        return {
            "beacons": [list(beacon) for beacon in BEACONS], "motion": 0.1, "error": 0.5, "particle": 32, "neural": 32,
        }  # fmt: skip

    def checked(self, settings: Any) -> dict[str, Any]:
        found = checks.known(settings, self.defaults())
        beacons = found["beacons"]
        if not isinstance(beacons, list) or len(beacons) != len(BEACONS):
            raise InputError(f"beacons are {len(BEACONS)} places, two numbers each; got {beacons!r:.60}.")
        found["beacons"] = [checks.point("A beacon", beacon, -HALF, HALF) for beacon in beacons]
        found["motion"] = checks.number("motion", found["motion"], 0.02, 0.5)
        found["error"] = checks.number("error", found["error"], 0.1, 1.5)
        checks.choice("particle", found["particle"], PARTICLE_COUNTS)
        checks.choice("neural", found["neural"], NEURAL_COUNTS)
        return found

    def start(self, key: Key[Array, ""], settings: Settings) -> World:
        return World(np.asarray(self.at(settings, [0, SCAN])[0].init(key)))

    def told(self, key: Key[Array, ""], settings: Settings, world: World, action: str, time: int) -> Told:
        if action == "auto":  # scans every second step, and wanders between
            chosen = int(jax.random.randint(jax.random.fold_in(key, 1), (), 0, 4))
            action = SCAN if time % 2 == 0 else list(COMMANDS)[chosen]
        return [time, action]

    def at(self, settings: Settings, told: Told) -> tuple[Triangulation, ScanPolicy]:
        time, action = told
        environment = world_of(
            jnp.asarray(settings["beacons"], jnp.float32), jnp.float32(settings["motion"]),
            jnp.float32(settings["error"]), jnp.int32(time), jnp.bool_(action == SCAN),
        )  # fmt: skip
        return environment, ScanPolicy(jnp.int32(COMMANDS.get(action, 0)), jnp.float32(0.5))

    def moved(
        self, key: Key[Array, ""], world: World, action: str, told: Told, environment: Environment, policy: Policy
    ) -> tuple[World, float]:
        assert isinstance(environment, Triangulation)
        after, reading = _moved(environment, key, jnp.asarray(world.hidden), policy)
        return World(np.asarray(after)), float(reading)

    def observation(self, observed: int | float) -> Array:
        return jnp.float32(observed)

    def filter(self, role: str, count: int) -> Filter:
        if role == EXACT:
            return PointMassFilter(CELLS)
        return ParticleFilter(count) if role == PARTICLE else NeuralBayesianFilter(_model(), count)

    def cells(self, belief: Belief, environment: Environment) -> Float[Array, " cells"]:
        space = capability(environment.space, ContinuousSpace)
        assert space is not None
        if isinstance(belief, ParticleBelief) and belief.density is not None:
            belief = belief.density  # a histogram of few points says little
        # The first axis points right and the second one up; rows of a picture go down.
        return cell_probabilities(belief, space, CELLS).reshape(CELLS, CELLS).T[::-1].ravel()

    def places(self, states: Float[Array, "n 2"]) -> Float[Array, "n 2"]:
        right, up = states.T
        return CELLS * jnp.stack([HALF - up, right + HALF], axis=-1) / (2 * HALF)

    def marks(self, settings: Settings, world: World, time: int) -> dict[str, Any]:
        def place(point: Any) -> list[float]:
            right, up = (float(part) for part in point)
            return [CELLS * (HALF - up) / (2 * HALF), CELLS * (right + HALF) / (2 * HALF)]

        beacons = [place(beacon) for beacon in settings["beacons"]]
        return {"agent": place(world.hidden), "beacons": beacons, "active": time % len(beacons)}

    def said(self, settings: Settings, action: str, told: Told, observed: int | float) -> str:
        time, done = told
        if done == SCAN:
            return f"beacon {1 + time % len(BEACONS)} read {observed:.1f} away"
        return f"commanded {done}, nothing read"


@functools.cache
def _model() -> BeliefModel:
    return shipped_model("triangulation")


@eqx.filter_jit
def _moved(environment: Triangulation, key: Key[Array, ""], state: Array, policy: ScanPolicy) -> tuple[Array, Array]:
    move_key, observe_key = prng.split(key)
    after = environment.transition(move_key, state, policy)
    return after, environment.observe(observe_key, state, after)
