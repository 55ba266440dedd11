"""`headgate router`: gatekeepers on one side, several masters on the other."""

import os
import signal

import pytest

from tests.e2e import programs
from tests.e2e.bus_setup import BURST, Gate, running_master, two_masters, until
from tests.e2e.event_loops import runner_on


@pytest.fixture
def run():
    """Run gatekeepers on one kind of event loop; test_bus.py and test_many_masters.py have the other one too."""
    return runner_on("uvloop")


def running_router(folder, masters, *options):
    """Run a router."""
    words = [word for address in masters for word in ("--master", address)]
    return programs.headgate(folder, "router", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", *words, *options)


def up(router):
    """Return the addresses of the masters that are connected."""
    return [master["address"] for master in router.state()["masters"] if master["up"]]


async def test_a_new_gatekeeper_receives_the_holds_in_force(run, tmp_path):
    """Also for a domain that another one has subscribed to: libzmq does not pass on such a subscription by itself."""

    with two_masters() as two, running_router(tmp_path, two.addresses) as router:
        address, domains = router.ready["address"], two.domains
        async with Gate(address, domains) as first:
            await until(lambda: first.link.has_master)
            for domain in domains:
                await first.spend(domain)
            others = []
            for _ in range(5):
                received = first.link.counters.controls
                async with Gate(address, domains) as second:
                    await until(lambda: all(second.holds(domain=domain) for domain in domains))
                others.append(first.link.counters.controls - received)
            # The masters answer only the one that asks; the router itself, which asks for all, does so at its start.
            assert 0 in others


def test_readiness_follows_the_masters(tmp_path):
    with two_masters() as two, running_router(tmp_path, two.addresses) as router:
        router.until(lambda: len(up(router)) == 2, "masters")
        assert router.readyz() == "ready\n"
        for master in two.masters:
            master.process.kill()
        router.until(lambda: not up(router), "loss of both masters")
        assert router.readyz() == "no master is connected\n"
        assert 'headgate_router_master_up{master="' in router.admin("/metrics")
        assert router.end() == 0


async def test_reload_replaces_the_masters(run, tmp_path):
    file = tmp_path / "router.toml"

    def write(*addresses):
        file.write_text("[router]\nmaster = [{}]\n".format(", ".join(f'"{address}"' for address in addresses)))

    with running_master() as first, running_master() as second:
        write(first.address)
        with running_router(tmp_path, [], "--config", file) as router:
            async with Gate(router.ready["address"]) as gate:
                await until(lambda: gate.link.has_master)
                await gate.spend("api")
                write(second.address)
                os.kill(router.process.pid, signal.SIGHUP)
                await until(lambda: up(router) == [second.address])
                await gate.spend("api", b"another")
                write("nowhere")
                os.kill(router.process.pid, signal.SIGHUP)
                await until(lambda: "the configuration in force stays as it is" in router.said())
                assert up(router) == [second.address]
            assert [first.accepted(), second.accepted()] == [{"api": BURST}] * 2
            assert "router.toml read again\n" in router.said()
