from collections.abc import Callable
from itertools import count

import pytest

from headgate.token import ValidToken


@pytest.fixture
def fresh() -> Callable[[float], ValidToken]:
    """Return a function that makes a new token that expires at an instant."""
    numbers = count(1)
    return lambda expires: ValidToken(b"key 1234" + next(numbers).to_bytes(16, "little"), expires, is_bound=False)
