"""What tests over real sockets share."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.e2e.http2_client import bounded, http2_running
from tests.e2e.tunnels import Shell, keys, trusting

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
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Shell:
    """Give what is needed without TLS, and with it."""
    return Shell(keys(tmp_path), trusting()) if request.param == "tls" else Shell(None, None)


@pytest.fixture
def http2(tmp_path: Path) -> Callable[..., Any]:
    """The function that runs a proxy and connects a client to it that speaks HTTP/2."""
    return partial(http2_running, keys(tmp_path))
