"""The table of `touch`: an object of two blocks that lies on it, and a finger, in MuJoCo.

The object slides and turns in the plane, in oil: its friction with the table is viscous, so that it stands still soon
after the finger does. The finger is a heavy disc that keeps its speed. What is hidden beside the object's pose is the
coefficient of friction between the two.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nbf.adapters.mujoco import MujocoSimulator

RADIUS = 0.015
"""Of the finger, in metres."""
INTERVAL, STEPS = 0.005, 12
"""Seconds of a step of MuJoCo, and such steps of a push."""
HEIGHT = 0.02

SHAPES = np.array([
    # half sides of the first block; middle and half sides of the second
    [0.10, 0.025, 0.00, 0.00, 0.10, 0.025],  # a bar
    [0.06, 0.060, 0.00, 0.00, 0.06, 0.060],  # a square
    [0.09, 0.025, -0.065, 0.055, 0.025, 0.08],  # an L
    [0.09, 0.025, 0.00, 0.05, 0.025, 0.07],  # a T
    [0.09, 0.030, 0.00, 0.00, 0.03, 0.09],  # a cross
    [0.07, 0.035, 0.00, 0.00, 0.07, 0.035],  # a brick
])  # fmt: skip

SCENE = """
<mujoco>
  <option timestep="{interval}" gravity="0 0 0" integrator="implicitfast" iterations="8" ls_iterations="8"/>
  <worldbody>
    <body name="object">
      <joint name="x" type="slide" axis="1 0 0" damping="5"/>
      <joint name="y" type="slide" axis="0 1 0" damping="5"/>
      <joint name="turn" type="hinge" axis="0 0 1" damping="0.02"/>
      <geom type="box" size="{a} {b} {height}" mass="0.05" contype="1" conaffinity="2" priority="1"/>
      <geom type="box" pos="{x} {y} 0" size="{c} {d} {height}" mass="0.05" contype="1" conaffinity="2" priority="1"/>
    </body>
    <body name="finger">
      <joint type="slide" axis="1 0 0" armature="1000"/>
      <joint type="slide" axis="0 1 0" armature="1000"/>
      <geom type="sphere" size="{radius}" mass="0.1" contype="2" conaffinity="1"/>
    </body>
  </worldbody>
</mujoco>"""


def set_friction(model: Any, value: float) -> None:
    """Set the friction of the object with the finger, from its logarithm."""
    model.geom_friction[:2, 0] = np.exp(value)


def known(push: np.ndarray, parameters: Any) -> tuple[np.ndarray, np.ndarray]:
    """Where the finger begins, and its speed. A push is where it begins, and how far it goes along each axis."""
    return np.concatenate([np.zeros(3), push[:2]]), np.concatenate([np.zeros(3), push[2:] / (STEPS * INTERVAL)])


def scene() -> MujocoSimulator:
    """All shapes, with the pose and the logarithm of the friction hidden."""
    models = [
        SCENE.format(a=a, b=b, x=x, y=y, c=c, d=d, radius=RADIUS, interval=INTERVAL, height=HEIGHT)
        for a, b, x, y, c, d in SHAPES.tolist()
    ]
    return MujocoSimulator(
        models, qpos=("x", "y", "turn"), physics=(set_friction,), steps=STEPS, known=known, control=_none
    )


def _none(push: np.ndarray, parameters: Any) -> None:
    """Nothing is controlled: the finger keeps its speed."""


def gap(states: np.ndarray, finger: np.ndarray, shape: int) -> tuple[np.ndarray, np.ndarray]:
    """How far the finger is from the object, and the direction in which the object is.

    Args:
        states: n poses (x, y, angle, ...).
        finger: Where the finger is.
        shape: Which object.

    Returns:
        n distances, negative where they overlap, and n angles.
    """
    cos, sin = np.cos(states[:, 2]), np.sin(states[:, 2])
    offset = finger - states[:, :2]
    place = np.stack([cos * offset[:, 0] + sin * offset[:, 1], cos * offset[:, 1] - sin * offset[:, 0]], axis=1)
    a, b, x, y, c, d = SHAPES[shape]
    first = _block(place, np.array([a, b]))
    second = _block(place - np.array([x, y]), np.array([c, d]))
    nearer = first[0] <= second[0]
    distance = np.where(nearer, first[0], second[0]) - RADIUS
    away = np.where(nearer[:, None], first[1], second[1])
    return distance, np.arctan2(-away[:, 1], -away[:, 0]) + states[:, 2]


def _block(place: np.ndarray, half: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Signed distances from points to a block around 0, and the directions away from it."""
    over = np.abs(place) - half
    outside = np.maximum(over, 0.0)
    far = np.sqrt((outside**2).sum(axis=1))
    face = np.where((over[:, 0] > over[:, 1])[:, None], [1.0, 0.0], [0.0, 1.0])
    away = np.where((far > 0)[:, None], outside, face) * np.where(place < 0, -1.0, 1.0)
    return np.where(far > 0, far, over.max(axis=1)), away
