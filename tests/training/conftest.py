"""What the tests of trainings share."""

import pytest

from myriad import train_and_evaluate
from tests.training.small import SEEDS, small_config, trained


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """Results of a small run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("small") / "whole"
    return train_and_evaluate(small_config(checkpoint_every_s=0.0), folder, quiet=True)


@pytest.fixture(scope="session")
def many(tmp_path_factory):
    """Results of such a run of three seeds."""
    folder = tmp_path_factory.mktemp("small") / "many"
    config = small_config(checkpoint_every_s=0.0)
    return train_and_evaluate(config, folder, seeds=SEEDS, quiet=True)


@pytest.fixture(scope="session")
def ppo_run(tmp_path_factory):
    """The folder of a short run of PPO, which nothing changes."""
    return trained(tmp_path_factory.mktemp("small") / "ppo")
