"""The wait of a delayed request."""

import asyncio
import time

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
    """Loops round their timers, and some down."""
    released: list[float] = []

    async def check() -> None:
        release = time.time() + 0.02
        # `wait` is 0 when the request was received at its release: then the timer is as early as can be.
        accounting = Accounting("default", Status.DELAYED, b"x", release, release)
        Delay(plan(), accounting, lambda _: released.append(time.time()))
        await asyncio.sleep(0.1)
        assert len(released) == 1
        assert released[0] >= release

    asyncio.run(check())


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
