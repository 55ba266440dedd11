"""`headgate router`: gatekeepers on one side, several masters on the other."""

import os
import signal

import pytest

from tests.e2e.bus_setup import Gate, running_master, until
from tests.e2e.event_loops import runner_on
from tests.e2e.router_setup import BURST, RULE, System, running_router, spend


@pytest.fixture
def run():
    """Run gatekeepers on one kind of event loop; test_bus.py and test_many_masters.py have the other one too."""
    return runner_on("uvloop")


def test_a_new_gatekeeper_receives_the_holds_in_force(run, tmp_path):
    """Also for a domain that another one has subscribed to: libzmq does not pass on such a subscription by itself."""

    async def main():
        async with system.gate() as first:
            await until(lambda: first.link.has_master)
            for domain in system.domains:
                await spend(first, domain)
            others = []
            for _ in range(5):
                received = first.link.counters.controls
                async with system.gate() as second:
                    await until(lambda: all(second.holds(domain=domain) for domain in system.domains))
                others.append(first.link.counters.controls - received)
            # The masters answer only the one that asks; the router itself, which asks for all, does so at its start.
            assert 0 in others

    with System(tmp_path) as system:
        run(main())


def test_readiness_follows_the_masters(tmp_path):
    with System(tmp_path) as system:
        program = system.router.program
        program.until(lambda: len(system.router.up()) == 2, "masters")
        assert system.router.ready() == (200, "ready\n")
        for master in system.masters:
            master.process.kill()
        program.until(lambda: not system.router.up(), "loss of both masters")
        assert system.router.ready() == (503, "no master is connected\n")
        assert 'headgate_router_master_up{master="' in program.admin("/metrics")
        assert program.end() == 0


def test_reload_replaces_the_masters(run, tmp_path):
    file = tmp_path / "router.toml"

    def write(*addresses):
        file.write_text("[router]\nmaster = [{}]\n".format(", ".join(f'"{address}"' for address in addresses)))

    async def main(first, second):
        write(first.address)
        with running_router(tmp_path, [], "--config", file) as router:
            async with Gate(router.address) as gate:
                await until(lambda: gate.link.has_master)
                await spend(gate, "api")
                write(second.address)
                os.kill(router.program.process.pid, signal.SIGHUP)
                await until(lambda: router.up() == [second.address])
                await spend(gate, "api", b"another")
                write("nowhere")
                os.kill(router.program.process.pid, signal.SIGHUP)
                await until(lambda: "the configuration in force stays as it is" in router.program.said())
                assert router.up() == [second.address]
            assert [first.accepted(), second.accepted()] == [{"api": BURST}] * 2
            assert "router.toml read again\n" in router.program.said()

    bus = ("tcp://127.0.0.1:0", f"api={RULE}")
    with running_master(*bus) as first, running_master(*bus) as second:
        run(main(first, second))
