"""MuJoCo's models: compiled, alike, and what of their state is hidden."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nbf.errors import InputError, optional_imports


def without_reset(model: Any) -> Any:
    """Copy a model.

    Args:
        model: The model.

    Returns:
        A copy that does not begin anew where it becomes unstable.
    """
    import mujoco

    made = copy.copy(model)
    made.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET.value
    return made


def compiled_models(models: Any) -> tuple[Any, ...]:
    """Compile models, and see that they are alike.

    Args:
        models: One or several: each an `MjModel`, XML text or a path.

    Returns:
        Copies of them that do not begin anew where they become unstable.
    """
    with optional_imports("MujocoSimulator"):
        import mujoco

    listed = list(models) if isinstance(models, list | tuple) else [models]
    if not listed:
        raise InputError("A MujocoSimulator needs at least one model.")
    made = []
    for number, one in enumerate(listed):
        if isinstance(one, str | Path):
            text = str(one)
            read = mujoco.MjModel.from_xml_string if text.lstrip().startswith("<") else mujoco.MjModel.from_xml_path
            try:
                one = read(text)
            except ValueError as error:
                raise InputError(f"Model {number} cannot be compiled: {error}") from error
        if not isinstance(one, mujoco.MjModel):
            raise InputError(f"Model {number} must be an MjModel, XML text or a path; got a {type(one).__name__}.")
        made.append(without_reset(one))
    for name in ("nq", "nv", "nu", "na", "nsensordata", "njnt"):
        sizes = [getattr(one, name) for one in made]
        if len(set(sizes)) > 1:
            raise InputError(f"Models must have the same joints, actuators and sensors; theirs have {name}={sizes}.")
    return tuple(made)


def places_of(model: Any, kind: str, chosen: Sequence[int | str]) -> tuple[int, ...]:
    """Find entries of `qpos` or `qvel`.

    Args:
        model: The model.
        kind: `qpos` or `qvel`.
        chosen: Indices, or names of joints.

    Returns:
        Their indices.
    """
    import mujoco

    size, found = model.nq if kind == "qpos" else model.nv, []
    for one in chosen:
        place = one
        if isinstance(one, str):
            joint = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_JOINT.value, one)
            if joint < 0:
                names = [model.joint(number).name for number in range(model.njnt)]
                raise InputError(f"The model has no joint {one!r}; its joints are {names}.")
            if model.jnt_type[joint] not in (mujoco.mjtJoint.mjJNT_SLIDE.value, mujoco.mjtJoint.mjJNT_HINGE.value):
                raise InputError(f"The joint {one!r} has several coordinates; choose them by index in `{kind}`.")
            place = int((model.jnt_qposadr if kind == "qpos" else model.jnt_dofadr)[joint])
        if not 0 <= int(place) < size:
            raise InputError(f"`{kind}` has entries 0..{size - 1}; got {one}.")
        found.append(int(place))
    if len(set(found)) < len(found):
        raise InputError(f"`{kind}` names an entry twice: {list(chosen)}.")
    return tuple(found)
