"""Gatekeepers with several masters: each domain has one of those that are connected."""

from tests.e2e import programs
from tests.e2e.bus_setup import RULE, Gate, running_master, two_masters, until


async def test_the_domains_of_a_killed_master_move_and_return(run):
    """A gate that lists the masters by other names is counted by both: it may move domains to another one."""

    with two_masters() as two:
        (first, second), (one, other) = two.masters, two.domains
        async with Gate(two.addresses, two.domains) as gate, Gate(two.addresses, two.domains):
            await until(lambda: gate.link.has_all_masters)
            await gate.spend(one)
            assert [each.counts()["other_lists"] for each in two.masters] == [0, 0]
            renamed = [address.replace("127.0.0.1", "localhost") for address in two.addresses]
            async with Gate(renamed, [one]) as differing:
                await until(lambda: differing.link.has_all_masters)
                assert [each.counts()["other_lists"] for each in two.masters] == [1, 1]
            assert gate.link.counters.moved == 0
            second.process.kill()
            await gate.lost(second.address)
            await gate.spend(other)
            assert gate.link.counters.moved == 5
            assert first.accepted() == {one: 5, other: 5}
            with running_master(second.address, f"{other}={RULE}") as again:
                await until(lambda: gate.link.has_all_masters)
                await gate.spend(other, b"another")
                assert again.accepted() == {other: 5}
            assert first.accepted() == {one: 5, other: 5}


def test_a_gate_lists_several_masters(tmp_path):
    with programs.origin() as origin, two_masters() as two:
        file = tmp_path / "gate.toml"
        prefixes = [f"/{number}" for number in range(2)]
        file.write_text(
            "".join(
                f'[[domain]]\nname = "{name}"\npath_prefix = "{prefix}"\n'
                for name, prefix in zip(two.domains, prefixes, strict=True)
            )
        )
        words = [word for address in two.addresses for word in ("--master", address)]
        with programs.gate(tmp_path, "--config", file, "--origin", origin.url, *words) as gate:
            gate.until(lambda: all(503 in gate.statuses(1, prefix) for prefix in prefixes), "rejections")
            assert gate.state()["master"] == ",".join(two.addresses)
            assert [list(master.accepted()) for master in two.masters] == [[domain] for domain in two.domains]
