"""MuJoCo: n states are one call of `mujoco.rollout`, on as many threads as you like.

    scene = MujocoSimulator(
        [box, disc],                                 # models; which one it is, is a parameter of every step
        qpos=("x", "y", "turn"),                     # hidden: coordinates of joints, by name or index,
        physics=(set_friction,),                     # ... then what `set_friction(model, value)` sets
        steps=12,
    )
    world = from_mujoco(
        scene,
        space=nbf.Box(...),
        init=lambda rng, n, parameters: ...,         # n states ~ p0
        noise=0.01,                                  # on the sensors; or `observe` and `log_likelihood`
    )
    other = replace(world, parameters={"model": jnp.int32(1), "inputs": None})    # nothing is compiled again

A state is a vector: the chosen entries of `qpos`, then of `qvel`, then the chosen parameters of the model. Everything
else is known: it starts each step from the model's own `qpos0` and velocity zero, or from what `known` says. Nothing is
remembered between calls: time, activations and the solver's warm start begin at zero. So what comes out follows from
the state, the policy and the parameters, whatever the number of threads.

A policy is the control: `(nu,)`, held for all steps, or `(steps, nu)`; `control` makes it of any other policy.

A state that is NaN is not simulated and stays NaN. One at which MuJoCo warns (unstable, too many contacts) becomes NaN
as well; every filter gives it weight zero. MuJoCo itself prints such warnings, and writes them to MUJOCO_LOG.TXT.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from nbf.adapters.mujoco_models import compiled_models, places_of, without_reset
from nbf.adapters.readings import Scale, emission_of, process_of
from nbf.contracts import StateSpace
from nbf.environments.host import HostEnvironment, host_environment
from nbf.errors import InputError

COPIES = 64
"""States of one rollout, where each has a model of its own (`physics`)."""

Setter = Callable[[Any, float], None]
"""`setter(model, value)` sets a parameter of a model, such as a friction: sets, never adds to."""


class MujocoSimulator:
    """Models, what of their state is hidden, and how it is moved. It can be sent to other processes.

    Args:
        models: A model, or several with the same joints, actuators and sensors: each an `MjModel`, XML text, or the
            path of a file.
        qpos: Hidden coordinates: indices, or names of joints of one coordinate.
        qvel: Hidden velocities: indices, or names of joints of one velocity.
        physics: `setter(model, value)` for each hidden parameter of the model. It is given a copy of the model. What
            MuJoCo derives from a parameter when it compiles a model (inertias from sizes) is not derived again.
        steps: Steps of MuJoCo in one step.
        known: `known(policy, parameters)` gives (qpos, qvel) from which a step begins where nothing is hidden; by
            default `qpos0`, and zero.
        control: `control(policy, parameters)` gives the control, `(nu,)` or `(steps, nu)`; by default the policy is it.
        threads: That share the states of a call; 0: the caller's alone.
    """

    def __init__(
        self,
        models: Any,
        *,
        qpos: Sequence[int | str] = (),
        qvel: Sequence[int | str] = (),
        physics: Sequence[Setter] = (),
        steps: int = 1,
        known: Callable | None = None,
        control: Callable | None = None,
        threads: int = 0,
    ) -> None:
        if steps < 1 or threads < 0:
            raise InputError(f"`steps` is at least 1 and `threads` 0 or more; got steps={steps}, threads={threads}.")
        self.models = compiled_models(models)
        self.qpos, self.qvel = (
            places_of(self.models[0], kind, chosen) for kind, chosen in (("qpos", qpos), ("qvel", qvel))
        )
        self.physics, self.steps, self.threads = tuple(physics), steps, threads
        self.known, self.control = known, control
        if self.size == 0:
            raise InputError("Nothing is hidden: choose entries of the state with `qpos`, `qvel` or `physics`.")
        self._prepare()

    @property
    def size(self) -> int:
        """Entries of a hidden state."""
        return len(self.qpos) + len(self.qvel) + len(self.physics)

    def _prepare(self) -> None:
        self._lock, self._pool, self._data = threading.Lock(), None, {}
        self._copies: dict[int, list[Any]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare()

    def transition(self, states: np.ndarray, policy: Any, parameters: Any) -> np.ndarray:
        """Move n states, without noise.

        Args:
            states: Of shape (n, size).
            policy: Of the step.
            parameters: Of the step: `{"model": index, "inputs": ...}`.

        Returns:
            n states; NaN where MuJoCo could not go on.
        """
        number, model = self._model(parameters)
        control = self._controls(model, policy, parameters)
        after, _ = self._rolled(number, states, self._start(model, policy, parameters), control)
        return after

    def sensors(self, states: np.ndarray, parameters: Any, policy: Any = None) -> np.ndarray:
        """Read the sensors in n states, without a control.

        Args:
            states: Of shape (n, size).
            parameters: Of the step.
            policy: For `known`, which else is given None.

        Returns:
            Of shape (n, nsensordata); NaN where a state is.
        """
        number, model = self._model(parameters)
        # A step computes the sensors of the state that it begins from.
        control = np.zeros((1, model.nu))
        return self._rolled(number, states, self._start(model, policy, parameters), control)[1]

    def _model(self, parameters: Any) -> tuple[int, Any]:
        number = int(parameters["model"])
        if not 0 <= number < len(self.models):
            raise InputError(f"There are models 0..{len(self.models) - 1}; got parameters['model']={number}.")
        return number, self.models[number]

    def _start(self, model: Any, policy: Any, parameters: Any) -> np.ndarray:
        """The full state of MuJoCo from which a step begins, but for what is hidden."""
        import mujoco

        full = np.zeros(mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS.value))
        qpos, qvel = (model.qpos0, np.zeros(model.nv)) if self.known is None else self.known(policy, parameters)
        full[1 : 1 + model.nq + model.nv] = np.concatenate(
            [_sized("qpos", qpos, model.nq), _sized("qvel", qvel, model.nv)]
        )
        return full

    def _controls(self, model: Any, policy: Any, parameters: Any) -> np.ndarray:
        found = policy if self.control is None else self.control(policy, parameters)
        if found is None:
            if model.nu:
                raise InputError(f"The model has {model.nu} actuators: the policy must give a control; got None.")
            return np.zeros((self.steps, 0))
        array = np.asarray(found, np.float64)
        if array.shape not in ((model.nu,), (self.steps, model.nu)) or not np.isfinite(array).all():
            raise InputError(
                f"A control is finite numbers of shape ({model.nu},), or ({self.steps}, {model.nu}) for each of the "
                f"steps; got {array}."
            )
        return np.broadcast_to(array, (self.steps, model.nu))

    def _rolled(
        self, number: int, states: np.ndarray, start: np.ndarray, control: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The hidden states after the control, and the sensors in the states before it."""
        model = self.models[number]
        states = np.asarray(states, np.float64)
        places = [1 + place for place in self.qpos] + [1 + model.nq + place for place in self.qvel]
        after, seen = np.full(states.shape, np.nan), np.full((len(states), model.nsensordata), np.nan)
        sound = np.flatnonzero(np.isfinite(states).all(axis=1))
        most = COPIES if self.physics else max(1, len(sound))
        with self._lock:
            for first in range(0, len(sound), most):
                few = sound[first : first + most]
                full = np.repeat(start[None], len(few), axis=0)
                full[:, places] = states[few, : len(places)]
                ends, readings = self._roll(number, self._own(number, states[few, len(places) :]), full, control)
                seen[few] = readings[:, 0]
                # Where MuJoCo warns it stops, and so the clock does.
                whole = np.abs(ends[:, -1, 0] - len(control) * model.opt.timestep) < model.opt.timestep / 2
                whole &= np.isfinite(ends[:, -1]).all(axis=1)
                after[few[whole]] = np.concatenate(
                    [ends[whole, -1][:, places], states[few[whole], len(places) :]], axis=1
                )
        return after, seen

    def _own(self, number: int, values: np.ndarray) -> list[Any]:
        """A model for each state, with its own physics."""
        if not self.physics:
            return [self.models[number]] * len(values)
        copies = self._copies.setdefault(number, [])
        copies.extend(without_reset(self.models[number]) for _ in range(len(values) - len(copies)))
        for model, row in zip(copies, values.tolist(), strict=False):
            for setter, value in zip(self.physics, row, strict=True):
                setter(model, value)
        return copies[: len(values)]

    def _roll(
        self, number: int, models: list[Any], full: np.ndarray, control: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        import mujoco
        from mujoco import rollout

        if self._pool is None:
            self._pool = rollout.Rollout(nthread=self.threads)
        if number not in self._data:
            self._data[number] = [mujoco.MjData(models[0]) for _ in range(max(1, self.threads))]
        return self._pool.rollout(models, self._data[number], full, np.repeat(control[None], len(full), axis=0))


def _sized(name: str, numbers: Any, size: int) -> np.ndarray:
    found = np.asarray(numbers, np.float64)
    if found.shape != (size,) or not np.isfinite(found).all():
        raise InputError(f"`known` gives (qpos, qvel); {name} must be {size} finite numbers; got {found}.")
    return found


def from_mujoco(
    simulator: MujocoSimulator,
    *,
    space: StateSpace,
    init: Callable,
    noise: Scale | None = None,
    entries: Sequence[int] | None = None,
    observe: Callable | None = None,
    log_likelihood: Callable | None = None,
    process: Scale | Callable | None = None,
    inputs: PyTree = None,
    **options: Any,
) -> HostEnvironment:
    """Build an environment from MuJoCo. Its parameters are `{"model": index, "inputs": inputs}`, as arrays, and may
    change at every step.

    Args:
        simulator: What moves the states.
        space: Of the states: vectors of `simulator.size` numbers.
        init: `init(rng, n, parameters)` draws n states.
        noise: Standard deviation of normal noise on the readings of the model's sensors in the new state; else give
            `observe` and `log_likelihood`.
        entries: Readings that are seen, with `noise`; by default all.
        observe: `observe(rng, states, next_states, parameters)` draws n observations.
        log_likelihood: `log_likelihood(observation, states, next_states, parameters)`, n numbers.
        process: Noise after each step: standard deviations of normal noise, one or one for each entry of the state;
            or `process(rng, states, parameters)`, which returns the states after it. None: there is none.
        inputs: A pytree of numbers for the functions, beside the index of the model.
        **options: `emission` and `symbols` of `observe`, `chunk`, `executor`: see `nbf.host_environment`.

    Returns:
        The environment.
    """
    if space.num_features < simulator.size:
        raise InputError(f"A state has {simulator.size} entries; the space is {space.signature}.")
    emission = emission_of(Sensed(simulator), noise, entries, observe, log_likelihood, whose="The model's sensors")
    return host_environment(
        init=init, transition=Moves(simulator, process_of(process, simulator.size)), space=space,
        parameters={"model": jnp.int32(0), "inputs": inputs}, **emission, **options,
    )  # fmt: skip


class Moves(NamedTuple):
    """The function `transition`: MuJoCo, then noise."""

    simulator: MujocoSimulator
    process: Callable

    def __call__(self, rng: np.random.Generator, states: np.ndarray, policy: Any, parameters: Any) -> np.ndarray:
        """Draw the next states."""
        return self.process(rng, self.simulator.transition(states, policy, parameters), parameters)


class Sensed(NamedTuple):
    """What the sensors say in a state."""

    simulator: MujocoSimulator

    def __call__(self, states: np.ndarray, parameters: Any) -> np.ndarray:
        """Readings of n states."""
        return self.simulator.sensors(states, parameters)
