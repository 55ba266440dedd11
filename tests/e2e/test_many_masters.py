"""Gatekeepers with several masters: each domain has one of those that are connected."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest

from headgate.release import Status
from tests.e2e import programs
from tests.e2e.bus_setup import Gate, domain_owned_by, running_master, until

RULE = "1/min burst 5"


class Masters:
    """Two masters, and a domain that belongs to each of them."""

    def __init__(self, first, second, domains):
        self.first, self.second = first, second
        self.addresses = [first.address, second.address]
        self.one, self.other = domains


@contextmanager
def two_masters(rule=RULE):
    """Run two masters that have the same domains."""
    names = [f"domain-{number}" for number in range(40)]
    rules = [f"{name}={rule}" for name in names]
    with running_master("tcp://127.0.0.1:0", *rules) as first, running_master("tcp://127.0.0.1:0", *rules) as second:
        addresses = [first.address, second.address]
        domains = [domain_owned_by(address, addresses) for address in addresses]
        assert set(domains) <= set(names)
        yield Masters(first, second, domains)


def gate_of(masters):
    return Gate(masters.addresses, [masters.one, masters.other])


async def spend(gate, domain, identifier=b"id"):
    """Use up the burst of an identifier, and wait for its hold."""
    assert gate.admit(identifier, times=5, domain=domain) == [Status.ACCEPTED] * 5
    await until(lambda: gate.holds(identifier, domain))


def test_the_domains_of_a_killed_master_move_and_return(run):
    async def main():
        async with gate_of(masters) as gate:
            await until(lambda: gate.link.has_all_masters)
            masters.second.process.kill()
            await gate.lost(masters.second.address)
            await spend(gate, masters.one)
            await spend(gate, masters.other)
            assert masters.first.accepted() == {masters.one: 5, masters.other: 5}
            with running_master(masters.second.address, f"{masters.other}={RULE}") as again:
                await until(lambda: gate.link.has_all_masters)
                await spend(gate, masters.other, b"another")
                assert again.accepted() == {masters.other: 5}
            assert masters.first.accepted() == {masters.one: 5, masters.other: 5}

    with two_masters() as masters:
        run(main())


def test_a_gate_lists_several_masters(tmp_path):
    with programs.origin() as origin, two_masters() as masters:
        file = tmp_path / "gate.toml"
        file.write_text(
            f'[[domain]]\nname = "{masters.one}"\npath_prefix = "/one"\n[[domain]]\nname = "{masters.other}"\n'
        )
        words = ["--config", file, "--origin", origin.url]
        for address in masters.addresses:
            words += ["--master", address]
        with programs.gate(tmp_path, *words) as gate:
            gate.until(lambda: 503 in gate.statuses(1, "/one") and 503 in gate.statuses(1, "/other"), "rejections")
            assert gate.state()["master"] == ",".join(masters.addresses)
            assert list(masters.first.accepted()) == [masters.one]
            assert list(masters.second.accepted()) == [masters.other]


LINKS = """
import asyncio, sys
from headgate.link import GatekeeperLink

async def main():
    links = [GatekeeperLink(sys.argv[1:], [f"domain-{number}" for number in range(4)]) for _ in range(8)]
    for link in links:
        link.start(asyncio.get_running_loop())
    while not all(link.has_all_masters for link in links):
        await asyncio.sleep(0.01)
    print("up", flush=True)
    while any(link.has_master for link in links):
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.5)
    print("alone", flush=True)

asyncio.run(main())
"""


@pytest.mark.parametrize(("sent", "rounds"), [(signal.SIGKILL, 4), (signal.SIGSTOP, 2)], ids=["killed", "stopped"])
def test_gatekeepers_survive_the_loss_of_all_masters_at_once(sent, rounds):
    """libzmq 4.3.5 crashes if an option of a connected socket changes while its connections end."""
    for _ in range(rounds):
        with running_master() as first, running_master() as second:
            command = [sys.executable, "-c", LINKS, first.address, second.address]
            with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as links:
                assert links.stdout.readline() == "up\n"
                for master in (first, second):
                    os.kill(master.process.pid, sent)
                assert links.stdout.readline() == "alone\n"
                assert links.wait() == 0
