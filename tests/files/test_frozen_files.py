"""Files of earlier versions are read for good, and give the numbers that they gave."""

from __future__ import annotations

import json

import numpy as np
import pytest
from constructors import DECODERS
from freeze import FROZEN, NUMBERS, numbers_of
from tolerances import FLOAT

from nbf.files.shipped import load_model

KNOWN = json.loads(NUMBERS.read_text())


def test_there_is_a_file_of_every_decoder():
    assert set(KNOWN) == set(DECODERS), "run `python tests/freeze.py` and commit what it adds"


@pytest.mark.parametrize("name", KNOWN)
def test_a_file_of_an_earlier_version_gives_its_numbers(name):
    model = load_model(FROZEN / f"{name.replace(' ', '-').replace(',', '')}.safetensors")
    np.testing.assert_allclose(numbers_of(model, DECODERS[name][0]), KNOWN[name], **FLOAT)
