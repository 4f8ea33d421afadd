"""The configurations of the paper are what its environments are made of."""

from __future__ import annotations

import pytest

from nbf.environments.goofspiel_game import GoofspielGame, UniformPolicy
from nbf.environments.triangulation import TriangulationFamily
from nbf.spaces import Box
from nbf_paper.config import GoofspielConfig, GridworldConfig, TriangulationConfig
from nbf_paper.names import GRIDWORLD_NAMES


@pytest.mark.parametrize("name", GRIDWORLD_NAMES)
def test_a_gridworld_is_what_its_name_says(name: str):
    config = GridworldConfig.parse(name)
    assert config.name == name
    assert config.shape == (int(name[0]),) * int(name[2])
    assert config.fixed == ("fixed" in name)
    assert config.temperature == (1.0 if name.endswith("diffuse") else 1e-5)


def test_the_config_is_the_games():
    config = GoofspielConfig(6)
    assert (config.name, config.horizon, config.game) == ("k=6", 5, GoofspielGame(6))
    assert GoofspielConfig(3, standard=True).name == "k=3-standard"
    assert config.family(UniformPolicy()).size == 1


def test_the_config_has_the_familys_defaults():
    assert TriangulationConfig().family() == TriangulationFamily()
    other = TriangulationConfig(half_width=3.0, range_noise=0.2, beacons=((0.0, 0.0),)).family()
    assert other.space == Box((-3.0, -3.0), (3.0, 3.0))
    assert float(other.environment().range_noise) == pytest.approx(0.2)
    assert other.environment().beacons.shape == (1, 2)
