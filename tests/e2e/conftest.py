"""What tests over real sockets share."""

import gc
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import programs
from tests.e2e.event_loops import LOOPS, runner_on
from tests.e2e.http2_client import http2_running
from tests.e2e.tunnels import Encryption, client_context, listener_context

pytest.register_assert_rewrite("tests.e2e.polite_laws")


@pytest.fixture(autouse=True)
def _own_garbage() -> Iterator[None]:
    """Collect what a test leaves, so that a socket or transport that it did not close fails this test, not a later one.

    What was there before is frozen: the collection takes a millisecond, not a hundred.
    """
    gc.freeze()
    yield
    gc.collect()


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Return the function that runs a coroutine on each event loop there is."""
    return runner_on(request.param)


@pytest.fixture(params=["plain", "tls"])
def encryption(request: pytest.FixtureRequest, tmp_path: Path) -> Encryption:
    """Return no contexts, then those for TLS."""
    return (
        Encryption(listener_context(tmp_path), client_context()) if request.param == "tls" else Encryption(None, None)
    )


@pytest.fixture
def http2(tmp_path: Path) -> Callable[..., Any]:
    """The function that runs a proxy and connects a client to it that speaks HTTP/2."""
    return partial(http2_running, listener_context(tmp_path))


@pytest.fixture
def origin() -> Iterator[programs.Origin]:
    """Run an origin beside the programs of a test."""
    with programs.origin() as running:
        yield running
