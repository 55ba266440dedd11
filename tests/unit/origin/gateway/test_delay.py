"""The wait of a delayed request."""

import asyncio
import time
from typing import Any

from headgate.limit import Accounting, DelayUntil, Gatekeeper
from headgate.origin.gateway.policy import Delay
from headgate.release import Status


def test_a_timer_that_fires_early_does_not_release() -> None:
    """Loops round their timers, and some down: this one makes all of them half as long."""
    timers: list[float] = []

    class HalvingLoop(asyncio.SelectorEventLoop):
        def call_later(self, delay: float, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
            timers.append(delay)
            return super().call_later(delay / 2, *arguments, **options)

    async def check() -> None:
        released: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        begun = time.monotonic()
        accounting = Accounting("default", Status.DELAYED, b"x", 1000.0, 1000.05)
        Delay(accounting, Gatekeeper(), lambda: released.set_result(time.monotonic()))
        assert await released >= begun + accounting.wait
        assert len(timers) >= 2

    with asyncio.Runner(loop_factory=HalvingLoop) as runner:
        runner.run(check())


def test_a_cancelled_wait_frees_the_place_and_never_releases() -> None:
    released: list[None] = []

    async def check() -> None:
        now = time.time()
        gatekeeper = Gatekeeper()
        gatekeeper.obey(DelayUntil("default", b"x", now + 0.02))
        accounting = gatekeeper.admit("default", b"x", now=now)
        assert gatekeeper.delayed == 1
        Delay(accounting, gatekeeper, lambda: released.append(None)).cancel()
        assert gatekeeper.delayed == 0
        await asyncio.sleep(0.05)
        assert released == []

    asyncio.run(check())
