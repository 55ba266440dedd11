from collections.abc import Callable
from itertools import count

import pytest

from headgate.token import Key, new_key


@pytest.fixture
def entropy() -> Callable[[int], bytes]:
    """Return unique bytes, the same ones in every run."""
    numbers = count(1)
    return lambda length: next(numbers).to_bytes(length, "big")


@pytest.fixture
def key(entropy: Callable[[int], bytes]) -> Key:
    return new_key(entropy=entropy)
