from collections.abc import Callable
from itertools import count

import pytest

from headgate.token import Key, new_key


@pytest.fixture
def entropy() -> Callable[[int], bytes]:
    """Return unique bytes, the same ones in every run."""
    numbers = count(1)
    return lambda length: next(numbers).to_bytes(length, "big")


@pytest.fixture(params=["hmac-sha256", "ed25519"])
def key(request: pytest.FixtureRequest, entropy: Callable[[int], bytes]) -> Key:
    """Return a key of each algorithm."""
    return new_key(request.param, entropy=entropy)
