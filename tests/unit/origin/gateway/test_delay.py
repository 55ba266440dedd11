"""The wait of a delayed request."""

import asyncio
import time
from typing import Any

from headgate.limit import Accounting, DelayUntil, Gatekeeper
from headgate.origin import Route, Routes, client_address
from headgate.origin.gateway.delay import Delay
from headgate.origin.gateway.grammar import Request
from headgate.origin.gateway.plan import Plan, Policy
from headgate.origin.rejection import problem
from headgate.release import Status


def plan() -> Plan:
    policy = Policy(
        gatekeeper=Gatekeeper(),
        identify=client_address(),
        routes=Routes([Route("default")]),
        reject=lambda accounting, *, now, accept: problem(503, "Held", "Later.", accept),
    )
    return Plan(Request(b"GET", b"/", 1, b""), policy, "default", b"x")


def test_a_timer_that_is_early_releases_nobody() -> None:
    """Loops round their timers, and some down: this one makes all of them half as long."""
    early: list[float] = []

    class Hasty(asyncio.SelectorEventLoop):
        def call_later(self, delay: float, *arguments: Any, **options: Any) -> asyncio.TimerHandle:
            early.append(delay)
            return super().call_later(delay / 2, *arguments, **options)

    async def check() -> None:
        released: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        begun = time.monotonic()
        accounting = Accounting("default", Status.DELAYED, b"x", 1000.0, 1000.05)
        Delay(plan(), accounting, lambda _: released.set_result(time.monotonic()))
        assert await released >= begun + accounting.wait
        assert len(early) > 2

    with asyncio.Runner(loop_factory=Hasty) as runner:
        runner.run(check())


def test_one_who_leaves_is_not_released_and_frees_the_place() -> None:
    released: list[Plan] = []

    async def check() -> None:
        gone = plan()
        now = time.time()
        gatekeeper = gone.policy.gatekeeper
        gatekeeper.obey(DelayUntil("default", b"x", now + 0.02))
        accounting = gatekeeper.admit("default", b"x", now=now)
        assert gatekeeper.delayed == 1
        Delay(gone, accounting, released.append).leave()
        assert gatekeeper.delayed == 0
        await asyncio.sleep(0.05)
        assert released == []

    asyncio.run(check())
