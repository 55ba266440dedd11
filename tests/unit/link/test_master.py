import time

import pytest
import zmq

from headgate.limit import DelayUntil, Domain, Master, Rule
from headgate.limit.messages import topic
from headgate.link import MasterLink
from headgate.link.batch import BATCH, HOLDS, MASTERS
from headgate.link.curve import AllowedKey, ServerKeys, new_key_pair
from headgate.link.master import RESEND_EVERY, ControlPublisher, MasterCounters
from headgate.release import NEVER, Status
from tests.quotes import quotes
from tests.unit.link.peers import received, until

MS = b"1700000000000"
NOW = 1_700_000_000.0


def new_master(*names, rule="1/min burst 1"):
    return Master(Domain(name, (Rule.parse(rule),)) for name in names or ("api",))


@pytest.fixture
def link(context):
    link = MasterLink(new_master(), "inproc://bus", clock=lambda: NOW, context=context)
    yield link
    link.close()


def peers(context, link):
    """Give a publisher of accounting and a subscriber to controls, connected."""
    sender, subscriber = context.socket(zmq.XPUB), context.socket(zmq.SUB)
    sender.connect("inproc://bus")
    subscriber.connect("inproc://bus.control")
    subscriber.subscribe(topic("api"))
    link.turn()  # within one process a socket notices who connects when it is touched
    return sender, subscriber


def message(identifier):
    return [b"api\0", b"ACCEPTED", identifier, MS, b"", b""]


@quotes("smockron Low-Level Proto", 'Master subscribes to "" (all messages)')
def test_it_subscribes_to_everything_and_to_batches(context, link):
    sender, _ = peers(context, link)
    assert {sender.recv(), sender.recv()} == {b"\1", b"\1" + BATCH}


def test_subscription_to_an_unknown_domain_is_noted(context, link):
    _, subscriber = peers(context, link)
    for prefix in (b"", b"ap", b"other\0", b"original"):
        subscriber.subscribe(prefix)
    link.turn()
    assert link.master.unknown_names == {"other": 1, "original": 1}


def test_controls_are_passed_to_a_follower(context, link):
    sender, _ = peers(context, link)
    controls = []
    link.follow(lambda *control: controls.append(control))
    sender.recv()
    sender.send_multipart(message(b"a"))
    while not controls:
        link.turn()
    link.publish(DelayUntil("api", b"b", NOW + 5.0))
    # Those sent again for a new subscription may follow in between.
    assert (controls[0], controls[-1]) == (("api", b"a", NOW + 60.0), ("api", b"b", NOW + 5.0))


@pytest.mark.parametrize(("key_name", "expected"), [(None, "127.0.0.1"), ("gate-7", "the key gate-7 at 127.0.0.1")])
def test_a_peer_with_a_wrong_clock_is_named_by_its_key_and_address(context, key_name, expected):
    own, peer, lines = new_key_pair(), new_key_pair(), []
    keys = None if key_name is None else ServerKeys(own, {peer.public: AllowedKey(key_name)})
    link = MasterLink(
        new_master(), "tcp://127.0.0.1:0", keys=keys, clock=lambda: NOW, context=context, log=lines.append
    )
    sender = context.socket(zmq.PUB)
    if keys is not None:
        sender.curve_publickey, sender.curve_secretkey, sender.curve_serverkey = *peer, own.public
    sender.connect(link.endpoints.accounting)

    def is_reported(word):
        sender.send_multipart(message(b"id"))
        link.connections.turn()
        return any(f"{expected} " in line and word in line for line in lines)

    for moment, word in ((NOW - 30.0, "ahead"), (NOW + 30.0, "behind")):
        link._clock = lambda moment=moment: moment
        until(lambda word=word: is_reported(word), link.turn)
    assert len(lines) == 2
    link.close()


def test_ended_histories_are_forgotten(context, link):
    sender, _ = peers(context, link)
    sender.send_multipart(message(b"id"))
    until(lambda: link.counters.accounted == 1, link.turn)
    link._clock = lambda: NOW + 1_000
    link._forget_at = time.monotonic()
    link.turn()
    assert len(link.master) == 0


def test_the_next_turn_is_at_once_while_messages_wait_and_else_when_something_is_due(context, link):
    sender, _ = peers(context, link)
    until(lambda: 0.0 < link._turn_and_timeout() <= 0.1, link.turn)
    for _ in range(1_000):
        sender.send_multipart(message(b"id"))
    assert link._turn_and_timeout() == 0.0


def test_a_new_master_adopts_the_state_of_the_last(context, link):
    sender, subscriber = peers(context, link)
    sender.send_multipart(message(b"id"))
    until(lambda: link.counters.controls and link.counters.subscriptions, link.turn)
    later = new_master("api", "web")
    later.adopt(link.master)
    link.set_master(later)
    for _ in range(3):
        link.turn()
    sender.send_multipart([b"web\0", *message(b"id")[1:]])
    until(lambda: link.counters.accounted == 2, link.turn)
    assert later.totals["web"].accepted == 1
    while subscriber.poll(0):
        assert subscriber.recv_multipart()[0] == b"api\0"


def test_a_link_can_be_closed_twice(context):
    link = MasterLink(new_master(), "tcp://127.0.0.1:0")
    link.close()
    link.close()
    again = MasterLink(new_master(), link.endpoints.accounting)
    again.close()


RULE = (Rule.parse("1/min burst 1"),)


class Setup:
    """A publisher on a real XPUB socket, and a master that holds one identifier in each domain."""

    def __init__(self, context, *names, held=1):
        self.context = context
        self.socket = context.socket(zmq.XPUB)
        self.socket.setsockopt(zmq.XPUB_VERBOSER, 1)
        self.socket.bind("inproc://control")
        self.master, self.counters = Master(Domain(name, RULE) for name in names), MasterCounters()
        for name in names:
            for number in range(held):
                self.master.record(name, Status.ACCEPTED, b"%d" % number, NOW, NOW)
        receive = lambda: self.socket.recv(zmq.NOBLOCK)  # noqa: E731 # as one of BoundLink
        self.publisher = ControlPublisher(self.socket, receive, self.master, self.counters, lambda: NOW)
        self.moment = time.monotonic() + 60.0

    def subscribe(self, topic, hwm=0):
        subscriber = self.context.socket(zmq.SUB)
        subscriber.set_hwm(hwm)
        subscriber.connect("inproc://control")
        subscriber.subscribe(topic)
        return subscriber

    def turn(self, seconds=0.0):
        """Receive subscriptions, then resend what is due; return the number of controls resent."""
        self.moment += seconds
        while self.publisher.receive_subscriptions(256):
            pass
        before = self.counters.resent
        self.publisher.resend(self.moment)
        return self.counters.resent - before


def test_a_new_subscription_is_answered_with_the_holds_in_force(context):
    """Also a second one to the same domain, as of a gatekeeper that reconnects."""
    setup = Setup(context, "api", "web")
    hold = [b"api\0", b"DELAY_UNTIL", b"0", b"%d" % ((NOW + 60) * 1_000)]
    first = setup.subscribe(b"api\0")
    assert setup.turn() == 1
    assert received(first) == [hold]
    second = setup.subscribe(b"api\0")
    assert setup.turn(1.0) == 1
    assert received(second) == [hold]
    assert setup.counters.subscriptions == 2


@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        (b"api\0", ["api"]),
        (b"api", ["api", "api2"]),  # as original gatekeepers subscribe
        (b"a", ["api", "api2"]),
        (b"", ["api", "api2", "web"]),
        (b"ap\0", []),
        (b"api\0more", []),
        (b"\0headgate.batch.1\0", []),
    ],
)
def test_a_subscription_to_a_prefix_is_answered_for_each_domain_that_has_it(context, prefix, names):
    setup = Setup(context, "api", "api2", "web")
    subscriber = setup.subscribe(prefix)
    setup.turn()
    assert sorted(message[0] for message in received(subscriber)) == [name.encode() + b"\0" for name in names]


def ask(setup, number):
    """Subscribe as a gatekeeper that asks for the holds of `api`; return its socket and the topic of the answer."""
    answer = HOLDS + b"%08d" % number + b"api\0"
    subscriber = setup.subscribe(answer)
    subscriber.subscribe(b"api\0")
    return subscriber, answer


def test_only_a_gatekeeper_that_asks_for_holds_receives_them(context):
    setup = Setup(context, "api", held=1_500)
    other, _ = ask(setup, 0)
    while setup.turn(0.1):
        pass
    assert len(received(other)) == 1_500
    asking, answer = ask(setup, 1)
    assert [setup.turn(0.1) for _ in range(3)] == [1_000, 500, 0]
    assert received(other) == []
    messages = received(asking)
    assert {message[0] for message in messages} == {answer}
    assert len({message[2] for message in messages}) == 1_500
    original = setup.subscribe(b"api\0")  # it does not ask
    another, answer = ask(setup, 2)
    while setup.turn(0.1):
        pass
    assert [len(received(socket)) for socket in (original, another, other, asking)] == [1_500] * 4


@pytest.mark.parametrize(("number", "sent"), [(2, 20), (8, 80), (9, 10), (50, 10)])
def test_when_many_gatekeepers_ask_at_once_all_receive_the_holds_once(context, number, sent):
    setup = Setup(context, "api", held=10)
    first, _ = ask(setup, number)
    assert setup.turn(0.1) == len(received(first)) == 10  # the holds of a new master
    sockets = [ask(setup, each)[0] for each in range(number)]
    assert setup.turn(0.1) == sent
    assert [len(received(socket)) for socket in sockets] == [10] * number


def test_the_holds_are_due_when_both_subscriptions_of_a_gatekeeper_can_have_come(context):
    setup = Setup(context, "api")
    ask(setup, 1)
    setup.publisher.receive_subscriptions(256)
    assert setup.publisher.due() <= time.monotonic() + 0.02


def test_a_turn_sends_a_limited_number_of_holds_over_all_domains(context):
    setup = Setup(context, *(f"d{number}" for number in range(30)), held=300)
    subscriber = setup.subscribe(b"d")
    pieces = [setup.turn(0.01) for _ in range(15)]
    assert max(pieces) <= 1_200
    assert sum(pieces) == len(received(subscriber)) == 9_000
    assert setup.publisher.due() == NEVER


def test_peers_that_list_different_masters_are_counted_and_reported(context):
    setup = Setup(context, "api")
    warnings = []
    setup.publisher._warn = lambda *warning: warnings.append(warning)
    one, two = MASTERS + b"list one.", MASTERS + b"list two."
    same = [setup.subscribe(one + number) for number in (b"00000001", b"00000002")]
    setup.turn()
    other = setup.subscribe(two)
    setup.turn()
    assert (setup.counters.other_lists, len(warnings)) == (1, 1)
    for socket, number in zip(same, (b"00000001", b"00000002"), strict=True):
        socket.unsubscribe(one + number)
    setup.turn()
    setup.subscribe(two)
    setup.turn()
    assert setup.counters.other_lists == 1
    for number in range(1_000):
        other.subscribe(MASTERS + b"%d" % number)
    setup.turn()
    assert len(setup.publisher._lists) <= 64
    assert (setup.counters.subscriptions, setup.master.unknown_names) == (0, {})


def test_connected_gatekeepers_are_counted(context, link):
    first, second = (MASTERS + b"the list." + number for number in (b"00000001", b"00000002"))

    def connect(prefix):
        subscriber = context.socket(zmq.SUB)
        subscriber.connect(link.endpoints.control)
        subscriber.subscribe(prefix)
        return subscriber

    assert link.gatekeepers == {"none": 0}
    before, other = connect(first), connect(second)
    until(lambda: link.gatekeepers == {"none": 2}, link.turn)
    after = connect(first)  # the connection of before seems to exist: its network was interrupted
    until(lambda: link._peers[first] == ("none", 2), link.turn)
    before.close()
    other.close()
    until(lambda: link.gatekeepers == {"none": 1}, link.turn)
    after.close()
    until(lambda: link.gatekeepers == {"none": 0}, link.turn)


def test_many_subscriptions_are_answered_together(context):
    setup = Setup(context, "api")
    for _ in range(50):
        subscriber = setup.subscribe(b"api\0")
        setup.turn()
    for _ in range(1_000):
        subscriber.unsubscribe(b"api\0")
        subscriber.subscribe(b"api\0")
    assert setup.counters.resent == 1
    assert setup.turn() == 0
    assert setup.publisher.due() == pytest.approx(setup.moment + RESEND_EVERY)
    assert setup.turn(RESEND_EVERY) == 1
    assert setup.turn(RESEND_EVERY) == 0
    assert setup.publisher.due() == NEVER


def test_a_subscriber_that_arrives_during_a_resend_receives_all_holds(context):
    setup = Setup(context, "api", held=1_500)
    setup.subscribe(b"api\0")
    setup.turn()
    late = setup.subscribe(b"api\0")
    while setup.turn(RESEND_EVERY):
        pass
    assert len({message[2] for message in received(late)}) == 1_500


def test_the_holds_of_a_new_master_are_published_at_once(context):
    setup = Setup(context, "api", held=1_500)  # more than are sent at once
    subscriber = setup.subscribe(b"")
    setup.turn()
    received(subscriber)
    later = Master([Domain("web", RULE)])
    later.record("web", Status.ACCEPTED, b"new", NOW, NOW)
    setup.publisher.set_master(later)
    setup.turn(1.0)
    assert [message[:3] for message in received(subscriber)] == [[b"web\0", b"DELAY_UNTIL", b"new"]]


def test_invalid_subscriptions_are_ignored(context):
    setup = Setup(context, "api")
    sender = context.socket(zmq.XSUB)
    sender.connect("inproc://control")
    for message in (b"", b"\2api\0", b"\0api\0", b"garbage", b"x" * 10_000):
        sender.send(message)
    assert setup.turn() == 0
    assert setup.counters.subscriptions == 0
