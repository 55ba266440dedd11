"""smockron.txt, clause by clause: each docstring quotes the sentences its test proves."""

import asyncio
import threading
import time
from contextlib import contextmanager, suppress
from fractions import Fraction

import pytest
import zmq

from headgate.errors import ConfigurationError, WireError
from headgate.limit import Accounting, DelayUntil, Domain, Gatekeeper, Master, Rule
from headgate.limit.messages import control_frames, decode_accounting, decode_control, encode_accounting, topic
from headgate.link import GatekeeperLink, MasterLink, RouterLink, endpoints
from headgate.origin.asgi import GatekeeperMiddleware
from headgate.release import Status


def encode_control(control):
    """Return the frames that a master publishes for a control."""
    return list(control_frames(topic(control.domain), control.identifier, control.release))


def master(rule="1/s burst 2", **settings):
    return Master([Domain("api", (Rule.parse(rule),), "log", **settings)])


def accepted(moment, identifier=b"alice", domain="api"):
    return Accounting(domain, Status.ACCEPTED, identifier, moment, moment)


def delayed(moment, until):
    return Accounting("api", Status.DELAYED, b"alice", moment, until)


def releases(subject, *messages):
    """Return the release time that follows from each (message, arrival)."""
    controls = [subject.account(message, now) for message, now in messages]
    return [None if control is None else control.release for control in controls]


class TestDefinitions:
    def test_domains_are_limited_separately(self):
        """Rate-limiting is performed on a per-domain basis."""
        rules = (Rule.parse("1/s burst 1"),)
        gatekeeper = Gatekeeper.embedded([Domain("api", rules), Domain("web", rules)])
        gatekeeper.admit("api", b"alice", now=100.0)
        assert gatekeeper.admit("api", b"alice", now=100.0).status is Status.DELAYED
        assert gatekeeper.admit("web", b"alice", now=100.0).status is Status.ACCEPTED

    def test_clients_are_counted_separately(self):
        """Client Identifier: Something that identifies a client (e.g. IP address or username)."""
        gatekeeper = Gatekeeper.embedded([Domain("api", (Rule.parse("1/s burst 1"),))])
        gatekeeper.admit("api", b"alice", now=100.0)
        assert gatekeeper.admit("api", b"alice", now=100.0).status is Status.DELAYED
        assert gatekeeper.admit("api", b"192.0.2.1", now=100.0).status is Status.ACCEPTED

    def test_a_gatekeeper_delays_or_rejects(self):
        """it can delay or reject requests to ensure that a client does not send too many requests to the resource"""
        gatekeeper = Gatekeeper.embedded([Domain("api", (Rule.parse("1/s burst 2"),))], max_delay=2.0)
        verdicts = [gatekeeper.admit("api", b"alice", now=100.0).status.value for _ in range(6)]
        assert verdicts == ["ACCEPTED"] * 2 + ["DELAYED"] * 2 + ["REJECTED"] * 2

    def test_a_master_applies_logic_and_instructs(self):
        """[the master] monitors traffic through the gatekeepers, applies rate limiting logic, and instructs the
        gatekeepers as to when and whether requests are allowed."""
        one, two = Gatekeeper(), Gatekeeper()
        control = master("1/s burst 1").account(one.admit("api", b"alice", now=100.0), 100.0)
        for gatekeeper in (one, two):
            gatekeeper.obey(control)
            assert gatekeeper.admit("api", b"alice", now=100.5).release == 101.0

    @pytest.mark.parametrize(
        ("text", "interval", "burst"),
        [
            ("10/s burst 20", Fraction(1, 10), 20),
            ("600 per 10min", Fraction(1), 600),
            ("1500/s", Fraction(1, 1500), 1500),
        ],
    )
    def test_a_rule_is_a_rate_and_a_burst(self, text, interval, burst):
        """Rule: a formula involving a rate (requests per time period) and a burst (a number of requests which can be
        made before the rate takes effect)."""
        rule = Rule.parse(text)
        assert (rule.exact_interval, rule.burst) == (interval, burst)

    @pytest.mark.parametrize(
        ("rules", "expected"),
        [((), None), (("1/s burst 1",), 101.0), (("1/s burst 1", "1/min burst 1"), 160.0)],
    )
    def test_a_domain_has_zero_or_more_rules(self, rules, expected):
        """A domain can have zero or more rules; it will throttle a request if any rule says it should be throttled."""
        subject = Master([Domain("api", tuple(map(Rule.parse, rules)))])
        assert releases(subject, (accepted(100.0), 100.0)) == [expected]


class TestLogic:
    def test_fewer_than_burst_in_the_window(self):
        """If the number of requests in the past `(burst / rate)` is less than `burst`, then another request is
        acceptable immediately."""
        subject = master("1/s burst 3")
        messages = [(accepted(moment), moment) for moment in (100.0, 100.0, 103.0, 103.5)]
        assert releases(subject, *messages) == [None, None, None, None]

    def test_otherwise_one_interval_after_the_current_time(self):
        """Otherwise let `start` be the greater of the current time and the last timestamp in the history; the next
        request will be allowed at the time `start + (1 / rate)`. (the current time is greater)"""
        assert releases(master(), (accepted(100.0), 100.5), (accepted(100.0), 100.75)) == [None, 101.75]

    def test_otherwise_one_interval_after_the_last_timestamp(self):
        """Otherwise let `start` be the greater of the current time and the last timestamp in the history; the next
        request will be allowed at the time `start + (1 / rate)`. (the last timestamp is greater)"""
        assert releases(master(), (accepted(100.0), 100.0), (delayed(100.0, 103.0), 100.25)) == [None, 104.0]

    def test_what_the_history_stores(self):
        """The timestamps stored in the history should be the received timestamp for accepted requests, and the delayed
        timestamp for delayed requests"""
        subject = master()
        messages = [(accepted(100.0), 100.0), (accepted(100.0), 100.0), (delayed(100.0, 101.0), 100.0)]
        assert releases(subject, *messages) == [None, 101.0, 102.0]
        # It counts as one at 101: as one at 100, when it was received, it would have left the window.
        assert releases(subject, (accepted(102.75), 102.75)) == [103.75]

    def test_no_more_than_burst_timestamps(self):
        """this ensures that the policy can be enforced with a history of no more than `burst` timestamps."""
        subject = master("1/s burst 3")
        for number in range(50):
            subject.account(accepted(100.0 + number / 100), 100.0 + number / 100)
        (book,) = subject._states.values()
        assert len(book.histories.get(b"alice")) - 1 == 3


class TestProtocol:
    def test_no_control_is_published_when_the_next_request_may_go(self):
        """If the next request is allowable right now it does nothing (except logging and statistics collection)"""
        subject = master()
        assert subject.account(accepted(100.0), 100.0) is None
        assert subject.totals["api"].accepted == 1

    def test_otherwise_the_master_publishes(self):
        """otherwise it publishes a control message informing gatekeepers of the next allowable request timestamp for
        the identifier."""
        subject = master("1/s burst 1")
        assert subject.account(accepted(100.0), 100.0) == DelayUntil("api", b"alice", 101.0)

    def test_the_logic_uses_the_rules_of_the_domain(self):
        """it applies the "Throttling logic" above to determine when the next request for the given identifier is
        allowed on the given domain, using the rules for that domain."""
        subject = Master([Domain("api", (Rule.parse("1/s burst 1"),)), Domain("web", (Rule.parse("4/s burst 1"),))])
        messages = [(accepted(100.0), 100.0), (accepted(100.0, domain="web"), 100.0), (accepted(100.0, b"bob"), 100.0)]
        assert releases(subject, *messages) == [101.0, 100.25, 101.0]

    @pytest.mark.parametrize(
        ("until", "status"),
        [(99.9, Status.ACCEPTED), (100.0, Status.ACCEPTED), (100.1, Status.DELAYED), (105.1, Status.REJECTED)],
    )
    def test_a_remembered_control_delays_or_rejects(self, until, status):
        """A gatekeeper must keep a memory of control messages received from the master. If a control message exists for
        the current domain and identifier with a timestamp after the current timestamp, then the gatekeeper must delay
        or reject the request."""
        gatekeeper = Gatekeeper()
        gatekeeper.obey(DelayUntil("api", b"alice", until))
        assert gatekeeper.admit("api", b"alice", now=100.0).status is status

    def test_too_long_a_delay_is_a_rejection(self):
        """The decision as to whether to delay or reject can be made based on the length of the delay (requests that
        would be delayed for an unreasonably long time should be rejected instead)"""
        gatekeeper = Gatekeeper(max_delay=5.0)
        gatekeeper.obey(DelayUntil("api", b"alice", 105.0))
        gatekeeper.obey(DelayUntil("api", b"bob", 105.001))
        assert gatekeeper.admit("api", b"alice", now=100.0).status is Status.DELAYED
        assert gatekeeper.admit("api", b"bob", now=100.0).status is Status.REJECTED

    def test_exhausted_resources_are_a_rejection(self):
        """or based on resource considerations (delayed requests consume resources, and a gatekeeper may choose to
        reject further requests if these resources are exhausted)."""
        gatekeeper = Gatekeeper(max_delayed=1)
        gatekeeper.obey(DelayUntil("api", b"alice", 101.0))
        verdicts = [gatekeeper.admit("api", b"alice", now=100.0).status for _ in range(2)]
        assert verdicts == [Status.DELAYED, Status.REJECTED]

    @pytest.mark.parametrize(("hold", "status"), [(0.0, "ACCEPTED"), (1.0, "DELAYED"), (9.0, "REJECTED")])
    def test_every_verdict_is_accounted(self, hold, status):
        """A gatekeeper must send an "accepted" accounting message for each request it accepts, with the identifier and
        request timestamp. A gatekeeper must send a "delayed" accounting message for each request it delays, with the
        identifier, request timestamp, and timestamp to which the request was delayed. A gatekeeper may send a
        "rejected" accounting message for each request it rejects, with the identifier and request timestamp."""
        sent = []
        gatekeeper = Gatekeeper(lambda accounting, now: sent.append(encode_accounting(accounting)))
        gatekeeper.obey(DelayUntil("api", b"alice", 100.0 + hold))
        gatekeeper.admit("api", b"alice", now=100.0)
        timestamp = b"101000" if status == "DELAYED" else b""
        assert sent == [[b"api\0", status.encode(), b"alice", b"100000", timestamp, b""]]

    def test_loginfo_is_optional(self):
        """All accounting messages may have an optional final field which contains information of use for debugging"""
        sent = []
        gatekeeper = Gatekeeper(lambda accounting, now: sent.append(encode_accounting(accounting)[5]))
        gatekeeper.admit("api", b"alice", now=100.0)
        gatekeeper.admit("api", b"alice", now=100.0, loginfo=b"curl/8")
        assert sent == [b"", b"curl/8"]


class TestHttp:
    """In the context of HTTP; the gateway's own tests show the same on sockets (tests/e2e)."""

    @staticmethod
    async def serve(gatekeeper):
        """Send one request through the middleware; give its status, its fields, and whether the resource saw it."""
        seen, sent = [], []

        async def resource(scope, receive, send):
            seen.append(scope["path"])
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"here"})

        async def receive():
            await asyncio.sleep(60)

        async def send(message):
            sent.append(message)

        scope = {
            "type": "http",
            "method": "GET",
            "path": "/",
            "raw_path": b"/",
            "headers": [],
            "client": ("192.0.2.1", 1),
        }
        await GatekeeperMiddleware(resource, gatekeeper=gatekeeper, domain="api")(scope, receive, send)
        return sent[0]["status"], dict(sent[0]["headers"]), bool(seen)

    def test_delayed(self):
        """a request is "delayed" by keeping the client connection open, but delaying the presentation of the request to
        the resource until a later time."""

        async def first_early_then_served():
            gatekeeper = Gatekeeper.embedded([Domain("api", (Rule.parse("5/s burst 1"),))])
            assert (await self.serve(gatekeeper))[0] == 200
            waiting = asyncio.create_task(self.serve(gatekeeper))
            await asyncio.sleep(0.05)
            assert not waiting.done()
            assert gatekeeper.totals["api"].delayed == 1
            return await waiting

        status, _, seen = asyncio.run(first_early_then_served())
        assert (status, seen) == (200, True)

    def test_rejected(self):
        """A request is "rejected" by sending the client a 503 "Service Unavailable" response (optionally with a
        Retry-After header indicating a later time at which a request would be acceptable), and preventing the request
        from reaching the resource."""

        async def second_of_two():
            gatekeeper = Gatekeeper.embedded([Domain("api", (Rule.parse("1/min burst 1"),))])
            await self.serve(gatekeeper)
            return await self.serve(gatekeeper)

        status, fields, seen = asyncio.run(second_of_two())
        assert (status, seen) == (503, False)
        assert fields[b"retry-after"] == b"60"


def until(condition, seconds=10.0):
    """Wait until `condition` gives something, and give it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.005)
    raise AssertionError(f"not so within {seconds} s")


class Peer:
    """Plain ZeroMQ sockets on loopback: what the other side of a link sees.

    They work only while they are called: a test that waits for their subscription has to poll them.
    """

    def __init__(self):
        self.context = zmq.Context()
        self.sockets = []

    def close(self):
        for socket in self.sockets:
            socket.close()
        self.context.term()

    def socket(self, kind, *, connect=None, subscribe=None):
        """Open one; bound to a port of the system's choice unless it is to connect."""
        socket = self.context.socket(kind)
        self.sockets.append(socket)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, 5_000)
        if subscribe is not None:
            socket.subscribe(subscribe)
        if connect:
            socket.connect(connect)
        return socket

    def bound(self):
        """Bind a plain SUB and a plain PUB on two ports in a row; give them and the address of the first."""
        for _ in range(50):
            accounting, control = self.socket(zmq.SUB, subscribe=b""), self.socket(zmq.PUB)
            port = accounting.bind_to_random_port("tcp://127.0.0.1")
            with suppress(zmq.ZMQError):
                control.bind(f"tcp://127.0.0.1:{port + 1}")
                return accounting, control, f"tcp://127.0.0.1:{port}"
            accounting.close()
            control.close()
        raise AssertionError("no two ports in a row are free")


@pytest.fixture
def peer():
    peer = Peer()
    yield peer
    peer.close()


@contextmanager
def running_master(*domains):
    link = MasterLink(Master(domains), "tcp://127.0.0.1:0")
    thread = threading.Thread(target=link.run)
    thread.start()
    try:
        yield link
    finally:
        link.stop()
        thread.join()
        link.close()


@contextmanager
def running_gatekeeper(address, *domains):
    link = GatekeeperLink(address, domains)
    gatekeeper = Gatekeeper(link.account)
    link.attach(gatekeeper)
    link.start_thread()
    try:
        yield gatekeeper, link
    finally:
        link.close()


ONE_A_MINUTE = (Rule.parse("1/min burst 1"),)


def milliseconds():
    return int(time.time() * 1_000)


class TestSockets:
    def test_the_master_binds_and_plain_pub_sub_sockets_connect(self, peer):
        """Gatekeepers and masters communicate using a pair of ZeroMQ PUB/SUB sockets. Both are physically outgoing from
        the gatekeeper (bind() on the master, connect() on the gatekeeper), but one (the accounting socket) sends
        messages from gatekeeper to master, while the other (the control socket) sends messages from master to
        gatekeepers."""
        with running_master(Domain("api", ONE_A_MINUTE)) as link:
            control = peer.socket(zmq.SUB, connect=link.endpoints.control, subscribe=b"api\0")
            until(lambda: control.poll(1) or link.counters.subscriptions)
            accounting = peer.socket(zmq.PUB, connect=link.endpoints.accounting)
            now = milliseconds()

            def told():
                accounting.send_multipart([b"api\0", b"ACCEPTED", b"alice", b"%d" % now, b"", b""])
                return link.counters.accounted

            until(told)
            frames = control.recv_multipart()
        assert frames[:3] == [b"api\0", b"DELAY_UNTIL", b"alice"]
        assert now + 60_000 <= int(frames[3]) <= milliseconds() + 60_001

    def test_the_gatekeeper_connects_and_plain_sub_pub_sockets_bind(self, peer):
        """Gatekeeper PUB -> Master tcp:10004 SUB. Master subscribes to "" (all messages). Gatekeeper SUB -> Master
        tcp:10005 PUB."""
        accounting, control, address = peer.bound()
        with running_gatekeeper(address, "api") as (gatekeeper, link):
            until(lambda: accounting.poll(1) or link.has_master)
            received = time.time()
            gatekeeper.admit("api", b"alice", now=received)
            frames = accounting.recv_multipart()
            assert frames[:3] == [b"api\0", b"ACCEPTED", b"alice"]
            assert frames[4:] == [b"", b""]
            release = milliseconds() + 60_000

            def held():
                control.send_multipart([b"api\0", b"DELAY_UNTIL", b"alice", b"%d" % release])
                return gatekeeper.held("api", b"alice", now=received)

            assert until(lambda: max(0, held())) == release / 1_000

    def test_the_ports(self):
        """Gatekeeper PUB -> Master tcp:10004 SUB; Gatekeeper SUB -> Master tcp:10005 PUB"""
        assert endpoints("192.0.2.1") == ("tcp://192.0.2.1:10004", "tcp://192.0.2.1:10005")

    def test_the_domain_is_the_topic(self, peer):
        """Both sockets use the domain as the pubsub topic. […] Gatekeeper subscribes to all domains for which it will
        receive traffic."""
        accounting, control, address = peer.bound()
        with running_gatekeeper(address, "api", "web") as (gatekeeper, link):
            until(lambda: accounting.poll(1) or link.has_master)
            release = b"%d" % (milliseconds() + 60_000)

            def both_held():
                for domain in (b"api-internal\0", b"elsewhere\0", b"api\0", b"web\0"):
                    control.send_multipart([domain, b"DELAY_UNTIL", b"alice", release])
                return all(gatekeeper.held(domain, b"alice", now=0.0) > 0 for domain in ("api", "web"))

            until(both_held)
            assert gatekeeper.held("api-internal", b"alice", now=0.0) < 0
            assert link.counters.malformed == 0, "what it has no traffic for does not even reach it"
            gatekeeper.admit("web", b"bob", now=time.time())
            assert accounting.recv_multipart()[0] == b"web\0"

    def test_a_router_may_relay_messages(self, peer):
        """A ZeroMQ router may be employed to shard accounting messages to multiple masters, provided that all messages
        for the same domain go to the same master."""
        masters = [running_master(Domain(name, ONE_A_MINUTE)) for name in ("api", "web")]
        with masters[0] as api, masters[1] as web:
            # Each master's domains are forwarded to it alone: a plain SUB and PUB a master is such a router.
            front, _, address = peer.bound()
            out = {b"api\0": peer.socket(zmq.PUB, connect=api.endpoints.accounting)}
            out[b"web\0"] = peer.socket(zmq.PUB, connect=web.endpoints.accounting)
            with running_gatekeeper(address, "api", "web") as (gatekeeper, link):
                until(lambda: front.poll(1) or link.has_master)

                def both_told():
                    for domain in ("api", "web"):
                        gatekeeper.admit(domain, b"alice", now=time.time())
                        frames = front.recv_multipart()
                        out[frames[0]].send_multipart(frames)
                    return api.counters.accounted and web.counters.accounted

                until(both_told)
            assert (api.master.unknown, web.master.unknown) == (0, 0)

    def test_our_router_sends_all_messages_of_a_domain_to_one_master(self, peer):
        """provided that all messages for the same domain go to the same master"""
        names = [f"domain-{number}" for number in range(8)]
        fronts = [peer.bound() for _ in range(2)]
        router = RouterLink("tcp://127.0.0.1:0", [address for _, _, address in fronts])
        serving = threading.Event()

        def serve():
            while not serving.is_set():
                for master in router.masters.values():
                    master.connection.connections.turn()
                if not router.turn():
                    time.sleep(0.001)
            router.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with running_gatekeeper(router.endpoints.accounting, *names) as (gatekeeper, link):
                until(lambda: [front.poll(1) for front, _, _ in fronts] and link.has_master)
                for name in names * 5:
                    gatekeeper.admit(name, b"alice", now=time.time())
                received = [[], []]

                def all_received():
                    for topics, (front, _, _) in zip(received, fronts, strict=True):
                        if front.poll(10):
                            topics.append(front.recv_multipart()[0])
                    return sum(map(len, received)) == len(names) * 5

                until(all_received)
                first, second = map(set, received)
                assert first.isdisjoint(second)
                assert first | second == {name.encode() + b"\0" for name in names}
        finally:
            serving.set()
            thread.join()

    def test_two_gatekeepers_share_one_limit(self):
        """instructs the gatekeepers as to when and whether requests are allowed"""
        with (
            running_master(Domain("api", ONE_A_MINUTE)) as master_link,
            running_gatekeeper(master_link.endpoints.accounting, "api") as (one, first),
            running_gatekeeper(master_link.endpoints.accounting, "api") as (two, second),
        ):
            until(lambda: first.has_master and second.has_master and master_link.counters.subscriptions >= 2)
            now = time.time()
            assert one.admit("api", b"alice", now=now).status is Status.ACCEPTED
            assert until(lambda: max(0, two.held("api", b"alice", now=now))) >= now + 60
            assert two.admit("api", b"alice", now=now).status is Status.REJECTED


ACCOUNTING = [b"api\0", b"ACCEPTED", b"alice", b"1700000000000", b"", b""]
CONTROL = [b"api\0", b"DELAY_UNTIL", b"alice", b"1700000001000"]


class TestAccountingFrames:
    def test_the_domain_has_a_trailing_null(self):
        """The domain should be encoded with a trailing null ("\\0"), which will be stripped off by the recipient."""
        assert decode_accounting(ACCOUNTING).domain == "api"
        assert encode_accounting(decode_accounting(ACCOUNTING)) == ACCOUNTING

    def test_a_domain_has_no_null(self):
        """Domains should not contain nulls in their names."""
        with pytest.raises(ConfigurationError, match="NUL"):
            Domain("a\0b")
        with pytest.raises(WireError, match="NUL"):
            encode_accounting(accepted(100.0, domain="a\0b"))

    @pytest.mark.parametrize("status", Status)
    def test_the_three_statuses(self, status):
        """ "ACCEPTED": Request was accepted; "DELAYED": Request was delayed; "REJECTED": Request was rejected"""
        frames = [b"api\0", status.value.encode(), b"alice", b"1700000000000", b"1700000001000", b""]
        assert decode_accounting(frames).status is status

    def test_timestamps_are_milliseconds_in_ascii(self):
        """As milliseconds since 1970, formatted as ASCII decimal. The time when the request was received at the
        gatekeeper."""
        assert encode_accounting(accepted(1_700_000_000.123))[3] == b"1700000000123"
        assert decode_accounting(ACCOUNTING).received == 1_700_000_000.0

    def test_the_delayed_timestamp(self):
        """For DELAYED messages, the time at which the request was forwarded to the resource. For ACCEPTED and REJECTED
        messages, this frame is zero-length."""
        assert encode_accounting(delayed(100.0, 101.5))[4] == b"101500"
        rejected = Accounting("api", Status.REJECTED, b"alice", 100.0, 109.0)
        assert [encode_accounting(message)[4] for message in (accepted(100.0), rejected)] == [b"", b""]


class TestControlFrames:
    def test_delay_until(self):
        """Instructs gatekeepers that requests from clients identified by `identifier` should not be allowed before a
        given time. Frame 3: Next request timestamp."""
        control = decode_control(CONTROL)
        assert control == DelayUntil("api", b"alice", 1_700_000_001.0)
        assert encode_control(control) == CONTROL
        gatekeeper = Gatekeeper()
        gatekeeper.obey(control)
        assert gatekeeper.admit("api", b"alice", now=1_700_000_000.5).status is Status.DELAYED
        assert gatekeeper.admit("api", b"alice", now=1_700_000_001.0).status is Status.ACCEPTED

    def test_the_control_domain_has_a_trailing_null(self):
        """The domain should be encoded with a trailing null ("\\0") […] This ensures it is usable as a pubsub key."""
        assert encode_control(DelayUntil("api", b"alice", 1.0))[0] == b"api\0"


class TestFaultTolerance:
    def test_decisions_are_local(self):
        """the gatekeeper uses local information to decide the disposition of each request instead of consulting the
        master"""
        asked = []
        gatekeeper = Gatekeeper(lambda accounting, now: asked.append(accounting.status))
        assert gatekeeper.admit("api", b"alice", now=100.0).status is Status.ACCEPTED
        assert asked == [Status.ACCEPTED], "the master is told of the verdict, not asked for it"

    def test_without_control_messages_all_requests_are_allowed(self):
        """If the master crashes, accounting messages from the gatekeepers will be dropped, and the gatekeepers will
        receive no control messages. In the absence of control messages, the gatekeepers will allow all requests"""
        gatekeeper = Gatekeeper(lambda accounting, now: None)
        verdicts = {gatekeeper.admit("api", b"alice", now=100.0).status for _ in range(1_000)}
        assert verdicts == {Status.ACCEPTED}

    @pytest.mark.parametrize("lost", range(1, 8))
    def test_lost_messages_cause_no_hold(self, lost):
        """If accounting messages are dropped, the master may think that the number of requests to a domain is less than
        it is. […] requests might be allowed that would have been dropped in the ideal case of a master that responds
        instantly, but no requests will be delayed or rejected that would not have been otherwise."""
        ideal, behind, forgetful = (
            Gatekeeper.embedded([Domain("api", (Rule.parse("1/s burst 2"),), "log")]),
            Gatekeeper(),
            master(),
        )
        kinder = 0
        for number in range(24):
            now = 100.0 + number / 4
            wanted = ideal.admit("api", b"alice", now=now)
            got = behind.admit("api", b"alice", now=now)
            assert got.release <= wanted.release
            kinder += got.release < wanted.release
            if number % 8 != lost and wanted.status is not Status.REJECTED:
                control = forgetful.account(wanted, now)
                if control is not None:
                    behind.obey(control)
        assert kinder

    def test_a_late_control_is_without_effect(self):
        """If the processing delay for accounting messages is too long, the master may send control messages too late to
        be effective."""
        gatekeeper = Gatekeeper()
        gatekeeper.obey(DelayUntil("api", b"alice", 101.0))
        assert gatekeeper.admit("api", b"alice", now=102.0).status is Status.ACCEPTED
