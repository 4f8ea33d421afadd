"""A batch over several devices of JAX: each has an equal share of the beliefs or episodes, and all the parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from nbf.errors import InputError

AXIS = "batch"
"""The axis of a mesh of devices over which a batch is divided."""
Devices = Sequence[jax.Device]


def shard(batch: Any, devices: Devices) -> Any:
    """Divide a batch over devices.

    A compiled function of it then runs on all of them, each on its own share:

        many = jax.jit(jax.vmap(lambda key, observations: nbf.run(tracker, key, observations, environment, policy)))
        states, infos = many(*nbf.shard((keys, observations), jax.devices()))

    The numbers are those of one device, up to rounding.

    Args:
        batch: Tree of arrays that share a leading axis, of keys, observations, states, environments, ...; its size is a
            multiple of the number of devices. What is no array is left as it is.
        devices: Devices, in the order of their shares.

    Returns:
        The same tree, whose arrays are divided along their leading axis.
    """
    sharding = batch_sharding(devices)
    arrays, rest = _arrays(batch)
    sizes = {np.shape(leaf)[:1] for leaf in arrays}
    if len(sizes) != 1 or () in sizes:
        raise InputError(
            f"A batch needs arrays that share a leading axis; got leading axes of {_listed(sizes)}. What all entries "
            "have in common is no part of the batch: give it to the compiled function as it is."
        )
    check_divisible(np.shape(arrays[0])[0], devices, "The batch")
    return rest([jax.device_put(leaf, sharding) for leaf in arrays])


def replicate(tree: Any, devices: Devices | None) -> Any:
    """Copy the arrays of a tree to each of several devices.

    Args:
        tree: Any tree. What is no array is left as it is.
        devices: Devices; None leaves the tree as it is.

    Returns:
        The same tree, of which each device has all.
    """
    if devices is None:
        return tree
    everywhere = replicated_sharding(devices)
    arrays, rest = _arrays(tree)
    return rest([jax.device_put(leaf, everywhere) for leaf in arrays])


def gather(tree: Any) -> Any:
    """Bring the arrays of a tree from several devices back to the default one.

    Args:
        tree: Any tree. What is no array is left as it is.

    Returns:
        The same tree; like a new array it goes to whichever device it is needed on.
    """
    arrays, rest = _arrays(tree)
    return rest([jax.device_put(np.array(leaf)) for leaf in arrays])


def batch_sharding(devices: Devices, axis: int = 0) -> NamedSharding:
    """Say how an array is divided over devices.

    Args:
        devices: Devices, in the order of their shares.
        axis: Of the array, which is divided.

    Returns:
        The sharding of arrays with such an axis.
    """
    return NamedSharding(_mesh(devices), PartitionSpec(*[None] * axis, AXIS))


def replicated_sharding(devices: Devices) -> NamedSharding:
    """Say that each of several devices has all of an array.

    Args:
        devices: Devices.

    Returns:
        The sharding of such arrays.
    """
    return NamedSharding(_mesh(devices), PartitionSpec())


def check_divisible(count: int, devices: Devices, what: str) -> None:
    """Raise `InputError` unless these are devices, each of which gets an equal share of at least one entry.

    Args:
        count: Entries of the batch.
        devices: Devices.
        what: The batch, for the error message.
    """
    check_devices(devices)
    number = len(devices)
    if count < 1 or count % number:
        near = max(number, round(count / number) * number)
        raise InputError(
            f"{what} has {count} entries, which {number} devices cannot share equally. Choose a multiple of {number}, "
            f"such as {near}, or fewer devices."
        )


def check_devices(devices: Any) -> None:
    """Raise `InputError` unless these are different devices of one kind, at least one.

    Args:
        devices: What was given as such.
    """
    if not isinstance(devices, Sequence) or not all(isinstance(device, jax.Device) for device in devices):
        raise InputError(f"devices must be a sequence of JAX devices, such as jax.devices(); got {repr(devices)[:80]}.")
    if not devices:
        raise InputError("devices is empty. Give at least one, such as jax.devices(), or None for the default device.")
    if len(set(devices)) < len(devices):
        raise InputError(f"devices names a device twice: {list(devices)}. Give each of them once.")
    kinds = {device.platform for device in devices}
    if len(kinds) > 1:
        raise InputError(f"devices must be of one kind; got {', '.join(sorted(kinds))}. Take jax.devices('gpu'), say.")


def _mesh(devices: Devices) -> Mesh:
    check_devices(devices)
    return Mesh(np.asarray(devices), (AXIS,))


def _arrays(tree: Any) -> tuple[list[Any], Any]:
    """The arrays of a tree, and a function that puts others in their places."""
    leaves, structure = jax.tree.flatten(tree)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, jax.Array | np.ndarray)]

    def rest(arrays: list[Any]) -> Any:
        replaced = dict(zip(places, arrays, strict=True))
        return jax.tree.unflatten(structure, [replaced.get(i, leaf) for i, leaf in enumerate(leaves)])

    return [leaves[i] for i in places], rest


def _listed(sizes: set[tuple[int, ...]]) -> str:
    return ", ".join(str(size[0]) if size else "none" for size in sorted(sizes)) or "no array at all"
