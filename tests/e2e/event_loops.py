"""The event loops that tests run on."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from tests.e2e.http2_client import bounded

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def runner_on(loop: str) -> Callable[[Coroutine[Any, Any, None]], None]:
    """Return the function that runs a coroutine on one kind of event loop, not for ever.

    It fails on any error that the loop reports.
    """

    def run(coroutine: Coroutine[Any, Any, None]) -> None:
        errors: list[dict[str, Any]] = []
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            runner.get_loop().set_exception_handler(lambda _, context: errors.append(context))
            runner.run(bounded(coroutine))
        assert errors == [], errors

    return run
