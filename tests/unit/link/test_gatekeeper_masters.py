"""A gatekeeper's link with several masters: each domain has one owner, controls come from all."""

import asyncio
import time

from headgate.limit import Accounting, Gatekeeper
from headgate.link import GatekeeperLink
from headgate.link.batch import BATCH, decode_batch
from headgate.link.master_connection import Sharding, sharding_item
from headgate.release import Status
from tests.unit.link.peers import PATIENCE, new_master, received

NOW = 1_700_000_000.0
DOMAINS = [f"domain-{number}" for number in range(12)]
EXPECTED = ["inproc://a", "inproc://b", "inproc://c", "inproc://c"]
MASTERS = ["inproc://a", "inproc://b", "inproc://c"]


def owned_by(live):
    """Return the owner of each domain when these masters are live."""
    sharding = Sharding(MASTERS)
    return {domain: sharding.owner(sharding_item(domain), live) for domain in DOMAINS}


class Setup:
    """A link to three masters that read batches."""

    def __init__(self, context, **options):
        self.masters = {address: new_master(context, address, b"", BATCH) for address in MASTERS}
        self.link = GatekeeperLink(MASTERS, DOMAINS, context=context, clock=lambda: NOW, **options)
        self.counters = self.link.counters
        for master in self.masters.values():
            master.touch()

    async def settle(self, condition):
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.001)

    async def account_each(self):
        """Send one verdict of each domain; return which master received which domains."""
        before = self.counters.sent + self.counters.dropped["no_master"]
        for domain in DOMAINS:
            self.link.account(Accounting(domain, Status.ACCEPTED, b"id", NOW, NOW), NOW)
        await self.settle(lambda: self.counters.sent + self.counters.dropped["no_master"] == before + len(DOMAINS))
        return {
            frames[0][len(BATCH) : -1].decode(): address
            for address, master in self.masters.items()
            for frames in received(master.accounting)
        }

    async def __aenter__(self):
        self.link.start(asyncio.get_running_loop())
        await self.settle(lambda: self.link.has_all_masters)
        return self

    async def __aexit__(self, *_):
        self.link.close()


async def test_the_accounting_of_a_domain_goes_to_its_owner_only(context):
    async with Setup(context) as setup:
        assert await setup.account_each() == owned_by(MASTERS)
        assert set(owned_by(MASTERS).values()) == set(MASTERS)


async def test_identifiers_of_one_domain_are_spread_over_the_masters(context):
    """Each identifier has one master, the same from every gatekeeper; if it is lost, only its identifiers move."""
    setup = Setup(context, shard="identifier")
    identifiers = [b"192.0.2.%d" % number for number in range(250)]

    async def owners():
        before = setup.counters.sent
        for identifier in identifiers * 2:
            setup.link.account(Accounting("domain-0", Status.ACCEPTED, identifier, NOW, NOW), NOW)
        await setup.settle(lambda: setup.counters.sent == before + 2 * len(identifiers))
        found = {
            address: [record[1] for frames in received(master.accounting) for record in decode_batch(frames[1])]
            for address, master in setup.masters.items()
        }
        assert sorted(one for each in found.values() for one in each) == sorted(identifiers * 2)
        assert all(each.count(one) == 2 for each in found.values() for one in each)
        return {one: address for address, each in found.items() for one in each}

    async with setup:
        all_up = await owners()
        assert all(list(all_up.values()).count(address) > 40 for address in MASTERS)
        # Fixed: all gatekeepers, also of other versions, have to agree.
        assert [all_up[b"192.0.2.%d" % number] for number in range(4)] == EXPECTED
        setup.masters["inproc://b"].unsubscribe(b"", BATCH)
        await setup.settle(lambda: not setup.link.has_all_masters)
        assert {one: at for one, at in (await owners()).items() if all_up[one] != "inproc://b"} == {
            one: at for one, at in all_up.items() if at != "inproc://b"
        }


async def test_controls_of_all_masters_are_obeyed(context):
    async with Setup(context) as setup:
        gatekeeper = Gatekeeper(setup.link.account)
        setup.link.attach(gatekeeper)
        for number, master in enumerate(setup.masters.values()):
            master.control.recv()
            master.control.send_multipart([b"domain-0\0", b"DELAY_UNTIL", b"%d" % number, b"1700000060000"])
        await setup.settle(lambda: setup.counters.controls == 3)
        assert all(gatekeeper.held("domain-0", b"%d" % number, now=NOW) == NOW + 60 for number in range(3))


async def test_other_domains_are_subscribed_to_at_all_masters(context):
    async with Setup(context) as setup:
        setup.link.set_domains([*DOMAINS[1:], "new"])
        assert setup.link.has_master
        for master in setup.masters.values():
            seen = set()
            while master.control.poll(0):
                seen.add(master.control.recv())
            assert {b"\1new\0", b"\0domain-0\0"} <= seen
        assert await setup.account_each() == {
            domain: owner for domain, owner in owned_by(MASTERS).items() if domain != "domain-0"
        }
