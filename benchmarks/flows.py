"""Sampling from a coupling flow and one step of training it, ours and FlowJAX's, in one run.

    python -m benchmarks.flows [--out FILE]

Both have the paper's Gridworld shape: 5 affine layers, each with a network of 5 x 32 hidden units, in 2-D,
conditioned on 32 numbers, with a normal base. Rounds of ours and theirs alternate, so that whatever else the
machine does hits both; ratios are what counts.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import equinox as eqx
import flowjax.distributions
import flowjax.flows
import jax
import jax.numpy as jnp
from rich.console import Console
from rich.table import Table

from benchmarks.updates import compare
from nbf import prng
from nbf.files.atomic import write_atomically
from nbf.models.flow import CouplingFlow, CouplingFlowConfig
from nbf.spaces import Box
from nbf_paper.records import package_versions

DIMENSION, CONDITION = 2, 32
LAYERS, WIDTH, DEPTH = 5, 32, 5
POINTS = 16
"""Particles that a filter samples at once."""
BELIEFS, SAMPLES = 32, 32
"""One batch of training."""
RATE = 1e-3
TARGETS = {"sampling": 0.75, "training step": 1.0}
"""At most this ratio of ours to the faster of FlowJAX's."""


def our_flow() -> CouplingFlow:
    config = CouplingFlowConfig("affine", "normal", layers=LAYERS, width=WIDTH, depth=DEPTH)
    space = Box((-1.0,) * DIMENSION, (1.0,) * DIMENSION, bounded=False)
    return config.build(prng.stream(0, "bench", "ours"), space, CONDITION)


def their_flow() -> Any:
    return flowjax.flows.coupling_flow(
        prng.stream(0, "bench", "theirs"),
        base_dist=flowjax.distributions.Normal(jnp.zeros(DIMENSION)),
        cond_dim=CONDITION,
        flow_layers=LAYERS,
        nn_width=WIDTH,
        nn_depth=DEPTH,
        invert=False,
    )


def flat(function: Callable[..., Any], module: Any) -> Callable[..., Any]:
    """`function(module, *arguments)` compiled over the module's arrays as a flat list, as `Filter.step` does it."""
    leaves, structure = jax.tree.flatten(eqx.filter(module, eqx.is_array))
    static = eqx.filter(module, eqx.is_array, inverse=True)

    @jax.jit
    def compiled(leaves: list[Any], *arguments: Any) -> Any:
        return function(eqx.combine(structure.unflatten(leaves), static), *arguments)

    return lambda *arguments: compiled(leaves, *arguments)


def filtered(function: Callable[..., Any], module: Any) -> Callable[..., Any]:
    """The same by `equinox.filter_jit`, as FlowJAX's manual does it."""
    compiled = eqx.filter_jit(function)
    return lambda *arguments: compiled(module, *arguments)


def our_sample(flow: CouplingFlow, key: Any, condition: Any) -> Any:
    return flow.sample(key, condition, POINTS, flow.space)


def their_sample(flow: Any, key: Any, condition: Any) -> Any:
    return flow.sample(key, (POINTS,), condition=condition)


def our_likelihood(flow: CouplingFlow, key: Any, conditions: Any, states: Any) -> Any:
    return jnp.mean(flow.objective(key, conditions, states, flow.space))


def their_likelihood(flow: Any, key: Any, conditions: Any, states: Any) -> Any:
    return jnp.mean(flow.log_prob(states, conditions[:, None]))


def step(likelihood: Callable[..., Any]) -> Callable[..., Any]:
    """One step of gradient descent on the negative log-likelihood."""

    def one(flow: Any, key: Any, conditions: Any, states: Any) -> Any:
        loss, gradient = eqx.filter_value_and_grad(lambda flow: -likelihood(flow, key, conditions, states))(flow)
        moved = eqx.apply_updates(flow, jax.tree.map(lambda leaf: -RATE * leaf, gradient))
        return loss, jax.tree.leaves(eqx.filter(moved, eqx.is_inexact_array))

    return one


def measure(seconds: float, console: Console) -> dict[str, Any]:
    """Both comparisons."""
    ours, theirs = our_flow(), their_flow()
    key = prng.stream(0, "bench", "draws")
    conditions = jax.random.normal(key, (BELIEFS, CONDITION))
    states = jax.random.normal(key, (BELIEFS, SAMPLES, DIMENSION))
    kinds = {
        "sampling": (our_sample, their_sample, (key, conditions[0])),
        "training step": (step(our_likelihood), step(their_likelihood), (key, conditions, states)),
    }
    result = {}
    for name, (our_function, their_function, arguments) in kinds.items():
        calls = {
            "ours": flat(our_function, ours),
            "FlowJAX, flat": flat(their_function, theirs),
            "FlowJAX, filter_jit": filtered(their_function, theirs),
        }
        with console.status(name):
            bound = {kind: functools.partial(call, *arguments) for kind, call in calls.items()}
            result[name] = compare(bound, seconds)
    return result


def ratio(rows: dict[str, dict[str, float]], name: str, statistic: str) -> float:
    """Ours to another's."""
    return rows["ours"][statistic] / rows[name][statistic]


def show(result: dict[str, Any], console: Console) -> None:
    """A table for each comparison, and whether it meets its target."""
    titles = {
        "sampling": f"Sampling {POINTS} points (µs)",
        "training step": f"One gradient step, {BELIEFS} beliefs x {SAMPLES} samples (µs)",
    }
    for name, title in titles.items():
        rows = result[name]
        table = Table(title=title)
        for column in ("flow", "median", "p10", "ours / this, median", "p10", "compile (s)"):
            table.add_column(column, justify="left" if column == "flow" else "right")
        for flow, row in rows.items():
            ratios = (f"{ratio(rows, flow, statistic):.2f}" for statistic in ("median", "p10"))
            table.add_row(flow, f"{row['median']:.0f}", f"{row['p10']:.0f}", *ratios, f"{row['compile']:.1f}")
        console.print(table)
        worst = max(ratio(rows, flow, "median") for flow in rows if flow != "ours")
        verdict = "met" if worst <= TARGETS[name] else "MISSED"
        console.print(f"{name}: {worst:.2f} of the faster FlowJAX; target {TARGETS[name]:.2f}: {verdict}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="how long each row is measured (default 5)")
    parser.add_argument("--out", type=Path, help="also write the numbers to this JSON file")
    arguments = parser.parse_args()
    console = Console()
    busy = os.getloadavg()[0]
    if busy > 0.7:
        console.print(f"Note: the load average is {busy:.1f}; on a busy machine only the ratios mean something.")
    result = {"load_average": busy, "versions": package_versions(), **measure(arguments.seconds, console)}
    show(result, console)
    if arguments.out:
        write_atomically(arguments.out, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
