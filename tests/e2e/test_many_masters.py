"""Gatekeepers with several masters: each domain has one of those that are connected."""

from contextlib import contextmanager

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


def test_gates_that_list_masters_by_other_names_are_reported_and_moved_domains_counted(run):
    async def main():
        addresses = masters.addresses
        async with gate_of(masters) as gate, gate_of(masters):
            await until(lambda: gate.link.has_all_masters)
            await spend(gate, masters.one)
            assert [each.counts()["other_lists"] for each in (masters.first, masters.second)] == [0, 0]
            renamed = [address.replace("127.0.0.1", "localhost") for address in addresses]
            async with Gate(renamed, [masters.one]) as other:
                await until(lambda: other.link.has_all_masters)
                assert [each.counts()["other_lists"] for each in (masters.first, masters.second)] == [1, 1]
            assert gate.link.counters.moved == 0
            masters.second.process.kill()
            await gate.lost(masters.second.address)
            await spend(gate, masters.other)
            assert gate.link.counters.moved == 5

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
