"""The timer of a delayed request."""

import asyncio
import time
from typing import Any

from headgate.limit import Accounting, DelayUntil, Gatekeeper
from headgate.origin.delay import Delay
from headgate.release import Status


def test_a_timer_that_fires_early_does_not_release() -> None:
    """Event loops round their timers, some of them down: this one makes all of them half as long."""
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


async def test_a_cancelled_delay_frees_its_slot_and_does_not_release() -> None:
    now = time.time()
    gatekeeper = Gatekeeper()
    gatekeeper.obey(DelayUntil("default", b"x", now + 2))
    accounting = gatekeeper.admit("default", b"x", now=now)
    assert gatekeeper.delayed == 1
    delay = Delay(accounting, gatekeeper, lambda: None)
    assert not delay._timer.cancelled()
    delay.cancel()
    assert delay._timer.cancelled()
    assert gatekeeper.delayed == 0
