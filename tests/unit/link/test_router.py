"""A router between sockets in this process: gatekeepers on one side, masters on the other."""

import time

import pytest
import zmq

from headgate.errors import HeadgateError
from headgate.link import RouterLink
from headgate.link.batch import BATCH, batch_topic, encode_batch
from headgate.link.master_connection import Sharding, sharding_item
from tests.quotes import quotes
from tests.unit.link.peers import CONTROL, MALFORMED_CONTROLS, Peer, new_master, received, until

MASTERS = ["inproc://a", "inproc://b"]
RECORDS = encode_batch([(0, b"id", 1_700_000_000_000, 0, b"")])


class Setup:
    """A router, its masters, and its gatekeepers; everything happens in `turn`."""

    def __init__(self, context, running=MASTERS):
        self.context = context
        self.masters = {address: self.new_master(address) for address in running}
        self.link = RouterLink("inproc://router", MASTERS, context=context)
        self.gatekeepers = []

    def new_master(self, address):
        return new_master(self.context, address, b"", BATCH, hwm=1_000)

    def new_gatekeeper(self, *topics):
        accounting, control = self.context.socket(zmq.XPUB), self.context.socket(zmq.SUB)
        accounting.setsockopt(zmq.XPUB_VERBOSER, 1)
        accounting.connect("inproc://router")
        control.connect("inproc://router.control")
        for topic in topics:
            control.subscribe(topic)
        self.gatekeepers.append(Peer(accounting, control))
        return self.gatekeepers[-1]

    def turn(self):
        for peer in (*self.masters.values(), *self.gatekeepers):
            peer.touch()
        return self.link.turn()

    def until(self, condition):
        return until(condition, self.turn)

    def connected(self):
        """Return a gatekeeper for `api` that the router has subscribed to."""
        gatekeeper = self.new_gatekeeper(b"api\0")
        subscriptions = []
        self.until(lambda: subscriptions.extend(received(gatekeeper.accounting)) or [b"\1" + BATCH] in subscriptions)
        assert subscriptions == [[b"\1"], [b"\1" + BATCH]]
        return gatekeeper

    def up(self):
        return [one.address for one in self.link.masters.values() if one.is_up]


@pytest.fixture
def setup(context):
    setup = Setup(context)
    yield setup
    setup.link.close()
    setup.link.close()


def owner(domain, masters=MASTERS):
    return Sharding(MASTERS).owner(sharding_item(domain), masters)


@quotes(
    "smockron Protocol",
    "A ZeroMQ router may be employed to shard accounting messages to multiple masters, provided that all messages"
    " for the same domain go to the same master.",
)
def test_accounting_goes_to_the_owner_of_its_domain(setup):
    gatekeeper = setup.connected()
    domains = [f"domain-{number}" for number in range(20)]
    for domain in domains:
        gatekeeper.accounting.send_multipart([batch_topic(domain), RECORDS])
    setup.until(lambda: setup.link.counters.accounted == len(domains))
    for address, master in setup.masters.items():
        assert [message[0] for message in received(master.accounting)] == [
            batch_topic(domain) for domain in domains if owner(domain) == address
        ]
    assert dict(setup.link.owners()) == {domain: owner(domain) for domain in domains}


def test_controls_of_all_masters_reach_the_subscribed_gatekeepers(setup):
    gatekeeper, other = setup.connected(), setup.new_gatekeeper(b"web\0")
    setup.until(lambda: setup.link.counters.subscriptions == 2)
    longest = [*CONTROL[:2], b"x" * 255, CONTROL[3]]
    for master in setup.masters.values():
        master.control.send_multipart(longest)
    setup.until(lambda: sum(one.controls for one in setup.link.masters.values()) == 2)
    assert received(gatekeeper.control) == [longest, longest]
    assert received(other.control) == []


@pytest.mark.parametrize("frames", [*MALFORMED_CONTROLS, [*CONTROL[:2], b"x" * 256, CONTROL[3]]])
def test_malformed_controls_are_counted_and_not_published(setup, frames):
    gatekeeper = setup.connected()
    setup.until(lambda: setup.link.counters.subscriptions)
    setup.masters[MASTERS[0]].control.send_multipart(frames)
    setup.masters[MASTERS[0]].control.send_multipart([*CONTROL, b"more"])
    setup.until(lambda: setup.link.masters[MASTERS[0]].controls)
    assert setup.link.counters.unrouted["malformed"] == 1
    assert received(gatekeeper.control) == [CONTROL]  # never a fifth frame


def test_each_subscription_reaches_each_master_and_is_not_stored(setup):
    setup.connected()
    seen = {address: [] for address in MASTERS}

    def count(message):
        for address, master in setup.masters.items():
            seen[address] += received(master.control)
        return [messages.count([message]) for messages in seen.values()]

    setup.until(lambda: count(b"\1api\0") == [1, 1] and count(b"\0api\0") == [1, 1])
    setup.new_gatekeeper(b"api\0")
    setup.until(lambda: count(b"\1api\0") == [2, 2] and count(b"\0api\0") == [2, 2])
    assert count(b"\1") == [1, 1]
    assert count(b"\0") == [0, 0]


def test_the_end_of_a_subscription_has_no_effect_on_other_gatekeepers(setup):
    """A peer may also end what it has never begun."""
    gatekeeper = setup.connected()
    hostile = setup.context.socket(zmq.XSUB)
    hostile.connect("inproc://router.control")
    for message in (b"\0api\0", b"\0", b"\1web\0", b"\2what", b""):
        hostile.send(message)
    setup.until(lambda: setup.link.counters.subscriptions == 2)
    setup.masters[MASTERS[0]].control.send_multipart(CONTROL)
    setup.until(lambda: setup.link.masters[MASTERS[0]].controls)
    assert received(gatekeeper.control) == [CONTROL]


def test_without_a_master_gatekeepers_are_not_subscribed_to(setup):
    gatekeeper = setup.connected()
    for master in setup.masters.values():
        master.unsubscribe(b"", BATCH)
    ended = []
    setup.until(lambda: ended.extend(received(gatekeeper.accounting)) or len(ended) == 2)
    assert sorted(ended) == [[b"\0"], [b"\0" + BATCH]]
    assert not setup.link.is_up
    setup.masters[MASTERS[1]].subscribe(b"", BATCH)
    begun = []
    setup.until(lambda: begun.extend(received(gatekeeper.accounting)) or len(begun) == 2)
    gatekeeper.accounting.send_multipart([batch_topic("api"), RECORDS])
    setup.until(lambda: received(setup.masters[MASTERS[1]].accounting))


def test_at_the_start_the_router_waits_for_all_masters(context):
    setup = Setup(context, MASTERS[:1])
    setup.link._starting_until = time.monotonic() + 1_000_000
    gatekeeper = setup.new_gatekeeper()
    setup.until(lambda: setup.up() == MASTERS[:1])
    for _ in range(10):
        setup.turn()
    assert received(gatekeeper.accounting) == []
    setup.masters[MASTERS[1]] = setup.new_master(MASTERS[1])
    setup.until(lambda: len(received(gatekeeper.accounting)) == 2)
    setup.link.close()


def test_a_router_does_not_wait_long_for_a_master_that_is_lost(context):
    setup = Setup(context, MASTERS[:1])
    assert setup.link._starting_until - time.monotonic() <= 0.5
    setup.link._starting_until = time.monotonic()
    gatekeeper = setup.new_gatekeeper()
    setup.until(lambda: received(gatekeeper.accounting))
    setup.link.close()


def test_batches_are_offered_if_all_masters_read_them(setup):
    """Otherwise gatekeepers send the frames of the document, which the router passes on as they are."""
    gatekeeper = setup.connected()
    frames = [b"api", b"ACCEPTED", b"id", b"1700000000000", b"", b""]
    setup.masters[owner("api")].accounting.unsubscribe(BATCH)
    setup.until(lambda: [b"\0" + BATCH] in received(gatekeeper.accounting))
    gatekeeper.accounting.send_multipart([batch_topic("api"), RECORDS])  # on its way
    gatekeeper.accounting.send_multipart([*frames, b"more"])
    setup.until(lambda: setup.link.counters.accounted == 2)
    assert received(setup.masters[owner("api")].accounting) == [frames]
    assert setup.link.counters.unrouted["no_master"] == 1


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"\0", b"ACCEPTED"],
        [b"a\0b\0", b"ACCEPTED"],
        [b"x" * 255, b"ACCEPTED"],
        [BATCH + b"api\0"],
        [BATCH + b"api\0", b"garbage"],
        [BATCH + b"\0", RECORDS],
    ],
)
def test_malformed_accounting_is_counted_and_not_passed_on(setup, frames):
    gatekeeper = setup.connected()
    gatekeeper.accounting.send_multipart(frames)
    gatekeeper.accounting.send_multipart([batch_topic("api"), RECORDS])
    setup.until(lambda: setup.link.counters.accounted)
    assert setup.link.counters.unrouted["malformed"] == 1
    assert received(setup.masters[owner("api")].accounting) == [[batch_topic("api"), RECORDS]]


def test_the_number_of_domains_that_are_remembered_is_bounded(setup):
    gatekeeper = setup.connected()
    for number in range(1_500):
        gatekeeper.accounting.send_multipart([batch_topic(f"d{number}"), RECORDS])
        setup.turn()
    setup.until(lambda: setup.link.counters.accounted == 1_500)
    assert len(list(setup.link.owners())) == 476


def test_masters_are_replaced(setup):
    gatekeeper = setup.connected()
    kept = setup.link.masters["inproc://a"]
    setup.masters["inproc://c"] = setup.new_master("inproc://c")
    setup.link.set_masters(["inproc://c", "inproc://a"])
    assert setup.link.masters["inproc://a"] is kept
    setup.until(lambda: sorted(setup.up()) == ["inproc://a", "inproc://c"])
    for number in range(40):
        gatekeeper.accounting.send_multipart([batch_topic(f"d{number}"), RECORDS])
    setup.until(lambda: setup.link.counters.accounted == 40)
    counts = [len(received(setup.masters[address].accounting)) for address in [*MASTERS, "inproc://c"]]
    assert (counts[1], sum(counts)) == (0, 40)
    assert min(counts[0], counts[2]) > 5
    received(gatekeeper.accounting)
    setup.link.set_masters(["inproc://nowhere"])
    ended = []
    setup.until(lambda: ended.extend(received(gatekeeper.accounting)) or len(ended) == 2)
    assert sorted(ended) == [[b"\0"], [b"\0" + BATCH]]  # without a master, no subscription


@pytest.mark.parametrize("masters", [[], ["inproc://a", "inproc://a"], ["inproc://a", "http://b"]])
def test_invalid_masters_change_nothing(setup, masters):
    before = setup.link.masters
    with pytest.raises(HeadgateError, match="master"):
        setup.link.set_masters(masters)
    assert setup.link.masters is before


def test_a_full_queue_of_one_master_does_not_delay_another(context):
    """Messages beyond the queue of the master that does not read are dropped and counted."""
    setup = Setup(context)
    gatekeeper = setup.connected()
    slow, other = (next(f"d{n}" for n in range(99) if owner(f"d{n}") == address) for address in MASTERS)
    for number in range(15_000):
        gatekeeper.accounting.send_multipart([batch_topic(slow), RECORDS])
        if not number % 100:
            setup.link.turn()
    gatekeeper.accounting.send_multipart([batch_topic(other), RECORDS])
    setup.until(lambda: setup.link.masters[MASTERS[1]].sent == 1)
    master = setup.link.masters[MASTERS[0]]
    assert master.dropped > 0
    assert master.sent + master.dropped == 15_000
    assert received(setup.masters[MASTERS[1]].accounting) == [[batch_topic(other), RECORDS]]
    setup.link.close()
