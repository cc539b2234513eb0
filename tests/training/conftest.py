"""What the tests of trainings share."""

import contextlib
import resource

import pytest

from myriad import train_and_evaluate
from tests.training.small import small_config


@pytest.fixture(scope="session")
def whole(tmp_path_factory):
    """Results of a small run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("small") / "whole"
    return train_and_evaluate(small_config(checkpoint_every_s=0.0), folder, quiet=True)


@pytest.fixture
def files_of_at_most():
    """Return a context in which files may have so many bytes, as on a disk that is full."""

    @contextlib.contextmanager
    def limited(num_bytes):
        _, hard = before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limited
