import os
from pathlib import Path

import pytest

import ebb

PUZZLE = "First Ada gets three. Second last Ben gets Ada plus four. What does Ben have?"
#: A puzzle as the tokens that pebble's own program gives its model, whose thought is long.
PROMPT = f"Question: {PUZZLE}<think>"


@pytest.fixture(scope="session")
def model():
    return ebb.Model("pebble")


@pytest.fixture(scope="session")
def engine(model):
    return ebb.Engine(model, threads=2)


@pytest.fixture(scope="session")
def default_model():
    """The model that `ebb pull` fetches; required where EBB_REQUIRE names it."""
    try:
        return ebb.Model("SmolLM2-135M-Instruct.Q4_1.gguf")
    except ebb.NotFound:
        if "default_model" in os.environ.get("EBB_REQUIRE", ""):
            raise
        pytest.skip("the default model is not there: ebb pull")


@pytest.fixture(scope="session")
def program():
    """The program `ebb` of the build that the package was built on."""
    path = Path(os.environ.get("EBB_PROGRAM", Path(__file__).parents[2] / "build/release/bin/ebb"))
    if not path.exists():
        if "EBB_PROGRAM" in os.environ:
            pytest.fail(f"there is no {path}")
        pytest.skip("the program is not built: set EBB_PROGRAM")
    return path
