"""The data plane of a sidecar in this process, which tests command directly."""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Self

from headgate.config.tree import Sidecar
from headgate.limit import Accounting, DelayUntil, Gatekeeper
from headgate.origin import Rejections
from headgate.origin.sidecar.data_plane import DataPlane
from headgate.release import Status
from tests.e2e.programs import PATIENCE


class PlaneThread:
    """A data plane in an event loop of its own thread; remembers the verdicts that it receives."""

    def __init__(
        self,
        new: type[DataPlane],
        *,
        clock: Callable[[], float] = time.time,
        spacing: Mapping[str, float] | None = None,
        **settings: Any,
    ) -> None:
        options: dict[str, Any] = {"domain": "api", "max_hold": 3_600.0} | settings
        self.settings = Sidecar(**options)
        self.verdicts: list[Accounting] = []
        self.gatekeeper = Gatekeeper(
            self._account,
            max_delay=self.settings.max_delay,
            max_delayed=self.settings.max_delayed,
            max_hold=self.settings.max_hold,
            spacing=spacing,
        )
        self.messages: list[str] = []
        self.plane = new(
            gatekeeper=self.gatekeeper,
            rejections=Rejections(status=self.settings.rejection_status),
            settings=self.settings,
            domains=self.settings.domains,
            log=self.messages.append,
            clock=clock,
        )
        self._clock = clock
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def _account(self, accounting: Accounting, _now: float) -> None:
        self.verdicts.append(accounting)

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(self.plane.start)
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self.plane.close)
        self.run(asyncio.sleep, 0.02)  # the loop closes the sockets of aborted connections in its next turns
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function or a coroutine function in the loop; return its result."""

        async def call() -> Any:
            result = function(*arguments)
            return await result if asyncio.iscoroutine(result) else result

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result(PATIENCE)

    def hold(self, identifier: bytes, seconds: float, domain: str = "api") -> float:
        """Hold an identifier for so many seconds; return the release time. It is in force a moment later."""
        now = self._clock()
        control = DelayUntil(domain, identifier, now + seconds)

        def obey() -> None:
            self.gatekeeper.obey(control, now=now)
            self.plane.hold(control, now=now)

        self.run(obey)
        return control.release

    def until(self, condition: Callable[[], Any], what: str = "condition") -> Any:
        """Wait until the condition is true; return its value."""
        deadline = time.monotonic() + PATIENCE
        while not (value := condition()):
            assert time.monotonic() < deadline, f"no {what}: {self.plane.details()} {self.plane.totals}"
            time.sleep(0.005)
        return value

    def statuses(self) -> list[Status]:
        """Return the verdicts so far."""
        return [verdict.status for verdict in self.verdicts]
