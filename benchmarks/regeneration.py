"""Terrain of the zoo: one update of the default filter over real vectors, beside others of 32 calls, in one run; and
how long `nbf.fit` compiles.

    python -m benchmarks.regeneration [--seconds 3] [--fit] [--out FILE]

Times of a model do not depend on its numbers, so an untrained one of `nbf.fit`'s default sizes is timed. A filter that
carries particles has two times: that of a step that keeps them, and that of a step that draws them anew.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
from rich.console import Console
from rich.table import Table

import nbf
from benchmarks.updates import compare
from nbf import prng
from nbf.environments.rollout import at_step, draw_instance, rollout
from nbf.files.atomic import write_atomically
from nbf.filters.regeneration import Regeneration
from nbf.filters.surrogate import Surrogate
from nbf.fitting.fit import decoder_for, encoder_for
from nbf.models.belief_model import ModelConfig
from nbf.models.space_configs import space_config
from nbf_paper.records import package_versions
from nbf_paper.zoo import problem

CALLS = 32
BEFORE = "NBF(32), even draws"
"""The default where an observation depends on more than the new state, and before there was regeneration."""
NEVER, ALWAYS = Regeneration(threshold=0.0), Regeneration(threshold=2.0)


def stepped(tracker: nbf.Filter) -> Callable[[], Any]:
    """The step in the middle of an episode, as a user calls it."""
    asked = problem("terrain")
    environment, policy, changing = draw_instance(asked.family, prng.stream(0, "bench"), asked.horizon)
    _, readings = rollout(prng.stream(0, "bench", "episode"), environment, policy, asked.horizon, changing=changing)
    keys = jax.random.split(prng.stream(0, "bench", "keys"), asked.horizon)
    state = tracker.init(keys[0], at_step(environment, 0, changing=changing))
    middle = asked.horizon // 2
    for time_step in range(middle):
        now, control = at_step((environment, policy), time_step, changing=changing)
        state = tracker.step(keys[time_step], state, readings[time_step], now, control)[0]
    now, control = at_step((environment, policy), middle, changing=changing)
    return lambda: tracker.step(keys[middle], state, readings[middle], now, control)[0]


def filters() -> dict[str, nbf.Filter]:
    """What is compared."""
    space = problem("terrain").family.sample(prng.stream(0, "bench"))[0].space
    config = ModelConfig(space_config(space), decoder_for(space), encoder_for(space))
    model = config.build(prng.stream(0, "bench", "model"))

    def neural(proposal: nbf.Proposal) -> nbf.Filter:
        return nbf.NeuralBayesianFilter(model, CALLS, proposal=proposal)

    few = Surrogate(points=512)
    return {
        BEFORE: neural(nbf.EvenProposal()),
        "NBF(32), kept": neural(nbf.RegeneratingProposal(regeneration=NEVER)),
        "NBF(32), drawn anew": neural(nbf.RegeneratingProposal(regeneration=ALWAYS)),
        "NBF(32), 512 points, kept": neural(nbf.RegeneratingProposal(regeneration=NEVER, surrogate=few)),
        "NBF(32), 512 points, drawn anew": neural(nbf.RegeneratingProposal(regeneration=ALWAYS, surrogate=few)),
        "Regularized(32), kept": nbf.RegularizedParticleFilter(CALLS, regeneration=NEVER),
        "PF(32)": nbf.ParticleFilter(CALLS),
        "PF(1024)": nbf.ParticleFilter(1024),
    }


def compiling() -> dict[str, float]:
    """Seconds of a fit of 300 steps in all, and those in which XLA compiled."""
    spent = {"compiling": 0.0}

    def listen(event: str, duration_secs: float, **_: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            spent["compiling"] += duration_secs

    jax.monitoring.register_event_duration_secs_listener(listen)
    asked = problem("terrain")
    start = time.monotonic()
    nbf.fit(asked.family, horizon=asked.horizon, steps=300, trial=0, progress=False)
    return spent | {"fit": time.monotonic() - start}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="how long each row is measured (default 3)")
    parser.add_argument("--fit", action="store_true", help="also time a fit of 300 steps, and what it compiles")
    parser.add_argument("--out", type=Path, help="also write the numbers to this JSON file")
    arguments = parser.parse_args()
    console = Console()
    fitted = compiling() if arguments.fit else None
    with console.status("timing"):
        found = compare({name: stepped(tracker) for name, tracker in filters().items()}, arguments.seconds)
    if os.getloadavg()[0] > 1.5:
        console.print(f"Note: the load average is {os.getloadavg()[0]:.1f}; only the ratios mean something.")
    table = Table(title="One update on terrain, called from Python (µs)")
    for column in ("filter", "median", "best", f"ratio to {BEFORE}"):
        table.add_column(column, justify="left" if column == "filter" else "right")
    for name, row in found.items():
        ratio = f"{row['median'] / found[BEFORE]['median']:.2f}"
        table.add_row(name, f"{row['median']:.0f}", f"{row['best']:.0f}", ratio)
    console.print(table)
    if fitted is not None:
        console.print(
            f"nbf.fit with 300 steps: {fitted['fit']:.0f} s, of which XLA compiled {fitted['compiling']:.0f} s."
        )
    if arguments.out:
        result = {"versions": package_versions(), "us": found, "fit_seconds": fitted}
        write_atomically(arguments.out, json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
