from itertools import count

import pytest

from headgate.token import new_key


@pytest.fixture
def entropy():
    """Gives bytes that nothing else gave, the same ones in every run."""
    numbers = count(1)
    return lambda length: next(numbers).to_bytes(length, "big")


@pytest.fixture(params=["hmac-sha256", "ed25519"])
def key(request, entropy):
    """A key of each kind."""
    return new_key(request.param, entropy=entropy)
