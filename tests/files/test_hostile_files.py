"""Files from someone else: a checkpoint or a training run is refused in words or sound, and never run."""

from __future__ import annotations

import functools
import json
import sys
import tracemalloc

import jax
import numpy as np
import optax
import pytest
from constructors import CONFIGS, with_random_parameters
from mutations import damaged_checkpoint, joined, parts
from tolerances import SEED
from watching import Watched

import nbf.models.belief_model as models
from nbf.errors import InputError
from nbf.files import checkpoint
from nbf.models.attention import AttentionConfig
from nbf.models.autoregressive import AutoregressiveConfig
from nbf.models.mixture import MixtureConfig
from nbf.models.set_encoder import DeepSetsConfig, MeanConfig
from nbf.training.config import FitConfig
from nbf.training.run import TrainingRun, run_identity

SMALL = {"width": 4, "depth": 1}
SEQUENCES = models.ModelConfig(
    models.TokensConfig(2, 3), AutoregressiveConfig(**SMALL), DeepSetsConfig(**SMALL, after_width=4, after_depth=1), 3
)
CHECKPOINTS = {
    **{name: build((2, 3)) for name, build in CONFIGS.items()},
    "nested, of a box": models.ModelConfig(
        models.BoxConfig((-1.0, 0.0), (1.0, 2.0)), MixtureConfig(2, **SMALL), AttentionConfig(4, 1, 2, 2), 3, context=2
    ),
    "nested, of sequences": SEQUENCES,
}
MEGABYTE = 2**20
pytestmark = pytest.mark.usefixtures("unchecked")


@functools.cache
def model_of(name):
    return with_random_parameters(CHECKPOINTS[name].build, jax.random.key(7))


def outcome(path):
    """Whether a checkpoint was read, after a look at what came out of it; else it was refused in words."""
    try:
        with Watched():
            model, config, _ = checkpoint.load_model(path, models.MODELS)
    except InputError:
        return False
    assert type(config) in models.MODELS.values()
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(model))
    return True


def mutate_checkpoints(name, path, count):
    """How many of `count` damaged files were read all the same."""
    checkpoint.save_model(path, model_of(name), CHECKPOINTS[name], note="grüße")
    whole = path.read_bytes()
    assert outcome(path)
    rng = np.random.default_rng([SEED, len(name)])
    read = 0
    for _ in range(count):
        path.write_bytes(damaged_checkpoint(rng, whole))
        read += outcome(path)
    print(f"{name}: {count} damaged checkpoints, {count - read} refused, {read} read and sound")
    assert 0 < read < count / 2, "the damage is too small or too large to tell anything"


@pytest.mark.sampled
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_damaged_checkpoint_is_refused_or_sound(name, tmp_path):
    mutate_checkpoints(name, tmp_path / "m", 75)


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_ten_thousand_damaged_checkpoints_are_refused_or_sound(name, tmp_path):
    """2500 of each of four kinds."""
    mutate_checkpoints(name, tmp_path / "m", 2500)


# Sizes


def reconfigured(path, config):
    """The same file, which says that it holds a model of another config."""
    header, numbers = parts(path.read_bytes())
    header["__metadata__"]["config"] = json.dumps(config)
    path.write_bytes(joined(header, numbers))


def plain(**changes):
    return {**checkpoint._plain(SEQUENCES), **changes}


MOST = checkpoint.LARGEST_SIZE
HUGE = {
    "widths": plain(encoder={"kind": "MeanConfig", "width": MOST, "depth": 3}),
    "depths": plain(encoder={"kind": "MeanConfig", "width": 4, "depth": MOST}),
    "decoder": plain(decoder={"kind": "AutoregressiveConfig", "width": MOST, "depth": checkpoint.LARGEST_DEPTH}),
    "sequences": plain(
        space={"kind": "TokensConfig", "length": MOST, "categories": MOST},
        decoder={"kind": "AutoregressiveConfig", "width": MOST, "depth": 1},
    ),
    "linear": plain(
        space={"kind": "TokensConfig", "length": MOST, "categories": 1},
        decoder={"kind": "AutoregressiveConfig", "width": 1, "depth": 0},
    ),
    "mixture": plain(
        space={"kind": "BoxConfig", "low": [0.0] * 16, "high": [1.0] * 16, "bounded": True},
        decoder={"kind": "MixtureConfig", "components": MOST, "width": MOST, "depth": 3},
    ),
    "lattice": plain(
        space={"kind": "LatticeConfig", "shape": [MOST] * 16},
        decoder={"kind": "EnumeratedDecoderConfig", "width": MOST, "depth": 3},
    ),
    "attention": plain(encoder={"kind": "AttentionConfig", "width": MOST, "depth": 3, "heads": MOST, "queries": MOST}),
    "embedding": plain(embedding=MOST, context=MOST),
}


@pytest.mark.parametrize("config", HUGE.values(), ids=HUGE.keys())
def test_a_config_of_huge_sizes_takes_no_memory(config, tmp_path):
    """Layers of 10 000 x 10 000 would be 400 MB each: the file has to hold them before anything is made for them."""
    path = tmp_path / "m"
    checkpoint.save_model(path, model_of("nested, of sequences"), SEQUENCES)
    reconfigured(path, config)
    tracemalloc.start()
    try:
        assert not outcome(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 256 * MEGABYTE, f"{peak / MEGABYTE:.0f} MB"


def test_layers_of_huge_flows_take_no_memory(tmp_path):
    """All layers are one stacked leaf, so that abstract shapes are quick: 10 000 layers of 10 000 x 10 000."""
    path = tmp_path / "m"
    checkpoint.save_model(path, model_of("dequantized flow"), CHECKPOINTS["dequantized flow"])
    config = {**checkpoint._plain(CHECKPOINTS["dequantized flow"]), "flow_layers": MOST, "flow_width": MOST}
    reconfigured(path, config)
    before = resident()
    assert not outcome(path)
    assert resident() - before < 256 * MEGABYTE


def resident():
    """The most memory that this process has ever held."""
    import resource

    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_a_header_that_claims_more_than_the_file_holds_is_refused(tmp_path):
    """Tensors of a petabyte, offsets beyond the end, offsets that overlap."""
    path = tmp_path / "m"
    checkpoint.save_model(path, model_of("enumerated"), CHECKPOINTS["enumerated"])
    whole = path.read_bytes()
    name = ".encoder.network.weights[0]"
    for entry in ({"shape": [2**25, 2**25]}, {"shape": [2**63, 2]}, {"data_offsets": [0, 2**50]},
                  {"data_offsets": [0, 0]}, {"data_offsets": [-4, 4]}, {"dtype": "F64"}):  # fmt: skip
        header, numbers = parts(whole)
        header[name] |= entry
        path.write_bytes(joined(header, numbers))
        assert not outcome(path)


# Runs in progress


FIT = FitConfig(steps=100, batch=4, samples=8, optimizer="adam")
IDENTITY = run_identity(FIT, jax.random.key(0), "")


def fresh_run():
    parameters = model_of("enumerated")
    return TrainingRun(parameters, optax.adam(FIT.learning_rate).init(parameters), FIT, IDENTITY)


def mutate_runs(path, count):
    run = fresh_run()
    run.losses = [1.5, 1.25, 1.0]
    run.save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(SEED)
    read = 0
    for _ in range(count):
        path.write_bytes(damaged_checkpoint(rng, whole))
        try:
            with Watched():
                run = fresh_run()
                run.load(path)
        except InputError:
            continue
        read += 1
        assert 0 <= run.seconds < np.inf
        assert run.done == len(run.losses)
        assert all(type(loss) is float and np.isfinite(loss) for loss in run.losses)
        assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves((run.parameters, run.state)))
    print(f"training runs: {count} damaged, {count - read} refused, {read} read and sound")
    assert 0 < read < count


def test_a_damaged_training_run_is_refused_or_sound(tmp_path):
    mutate_runs(tmp_path / "run", 150)


@pytest.mark.slow
def test_thousands_of_damaged_training_runs_are_refused_or_sound(tmp_path):
    mutate_runs(tmp_path / "run", 5000)


@pytest.mark.parametrize("change", [{"seconds": "nan"}, {"seconds": "-1"}, {"seconds": "inf"}], ids=str)
def test_a_run_that_took_no_time_that_can_be_is_refused(change, tmp_path):
    path = tmp_path / "run"
    fresh_run().save(path)
    header, numbers = parts(path.read_bytes())
    header["__metadata__"] |= change
    path.write_bytes(joined(header, numbers))
    with pytest.raises(InputError, match="damaged run"):
        fresh_run().load(path)


def test_a_folder_where_a_file_should_be_is_refused(tmp_path):
    with pytest.raises(InputError):
        checkpoint.load_model(tmp_path, models.MODELS)


def test_configs_with_defaults_of_their_own_survive_a_round_trip(tmp_path):
    """What the mutations start from is what a user's file is: nested configs come back as they were."""
    for name, config in CHECKPOINTS.items():
        path = tmp_path / "m"
        checkpoint.save_model(path, model_of(name), config)
        _, loaded, _ = checkpoint.load_model(path, models.MODELS)
        assert loaded == config
    assert isinstance(SEQUENCES.encoder, DeepSetsConfig)
    assert not isinstance(SEQUENCES.encoder, MeanConfig)
