import asyncio
import re

import pytest

from headgate.config import Address
from headgate.errors import DemoError
from headgate.runtime.demo.children import Children, Role
from headgate.runtime.demo.origin import FromOrigin, OriginConfiguration

MISSING = OriginConfiguration(
    Address("127.0.0.1", 0), Address("127.0.0.1", 0), "/missing.pem", "/missing.pem", workers=1, service_time=0.1
)


def role(configuration=MISSING):
    return Role("headgate.runtime.demo.origin", FromOrigin, None, configuration)


def run(scenario):
    async def main():
        children = Children()
        async with asyncio.timeout(60), children:
            started = await scenario(children)
        assert [child.process.returncode is None for child in started] == [False] * len(started)

    asyncio.run(main())


def test_a_program_that_cannot_start_says_why():
    async def scenario(children):
        program = await children.program("the gate", "serve", "--config", "/missing.toml")
        with pytest.raises(DemoError, match=re.escape("the gate did not start: headgate: /missing.toml: ")):
            await program.ready()
        await program.process.wait()
        with pytest.raises(DemoError, match=r"the gate ended during the demonstration \(exit 2\): headgate: "):
            children.check()
        return [program]

    run(scenario)


def test_a_worker_that_cannot_start_says_why():
    async def scenario(children):
        worker = await children.worker("the origin", role())
        with pytest.raises(DemoError, match=r"the origin did not start: .*No such file"):
            await worker.ready()
        return [worker]

    run(scenario)


def test_a_worker_killed_on_purpose_is_not_an_error():
    async def scenario(children):
        worker = await children.worker("the origin", role())
        await children.kill(worker)
        children.check()
        return [worker]

    run(scenario)


def test_processes_that_still_start_are_stopped():
    async def scenario(children):
        return [
            await children.program("the gate", "serve", "--demo", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"),
            await children.worker("the origin", role()),
        ]

    run(scenario)
