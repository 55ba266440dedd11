"""What tests over real sockets share."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.e2e.http2_client import bounded, http2_running
from tests.e2e.tunnels import Encryption, client_context, listener_context

pytest.register_assert_rewrite("tests.e2e.polite_laws")

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Return the function that runs a coroutine on each event loop there is, not for ever.

    It fails on any error that a loop reports.
    """

    def run_it(coroutine: Coroutine[Any, Any, None]) -> None:
        errors: list[dict[str, Any]] = []
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.get_loop().set_exception_handler(lambda _, context: errors.append(context))
            runner.run(bounded(coroutine))
        assert errors == []

    return run_it


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
