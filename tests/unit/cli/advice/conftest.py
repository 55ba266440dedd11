from functools import partial

import pytest


@pytest.fixture
def run(headgate):
    """Run `headgate advice`."""
    return partial(headgate, "advice")
