"""What the tests of trainings share."""

import pytest

from myriad import train_and_evaluate
from tests.training.small import small_config


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """Results of a small run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("small") / "whole"
    return train_and_evaluate(small_config(checkpoint_every_s=0.0), folder, quiet=True)
