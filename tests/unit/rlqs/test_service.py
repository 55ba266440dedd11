import hashlib

import pytest

from headgate.limit import Accounting, DelayUntil, Domain, Master
from headgate.release import Status
from headgate.rlqs.table import QuotaLimits, identifier_of
from tests.unit.rlqs import envoys
from tests.unit.rlqs.envoys import Envoy, World, bucket_id, decode_actions, encode_report


def test_the_first_request_is_assigned_a_token_bucket():
    world = World("10/s burst 20")
    stream = world.open()
    numbers = {"ttl": 10, "tokens": 19, "fill": 10_000, "interval": 1_000}
    assert one_report(world, stream, (b"c", 0, 1, 0)) == {bucket_id(b"c"): ("tokens", numbers)}
    assert world.master.totals["api"].accepted == 1


def one_report(world, stream, *usages, domain=b"api"):
    """Send a report on a stream; return the actions that follow: kind and numbers by identifier."""
    data = encode_report(domain, [(bucket_id(identifier), *counts) for identifier, *counts in usages])
    world.receive(stream, data)
    actions = {}
    while message := stream.take():
        actions |= {key: (kind, numbers) for key, kind, numbers in decode_actions(message)}
    return actions


def reporting(world):
    """Return a stream on which the first request of a client is reported."""
    stream = world.open()
    one_report(world, stream, (b"c", 0, 1, 0))
    return stream


def test_requests_are_counted_and_a_control_is_published():
    world = World("1/min burst 5")
    stream = reporting(world)
    world.time = 5.0
    actions = one_report(world, stream, (b"c", 5, 4, 7))
    assert (world.master.totals["api"].accepted, world.master.totals["api"].rejected) == (5, 7)
    (control,) = world.controls
    assert (control.domain, control.identifier) == ("api", b"c")
    assert control.release == pytest.approx(world.now + 55.0)
    assert actions == {bucket_id(b"c"): ("deny", {"ttl": 55})}


def test_a_hold_is_not_assigned_again_by_later_reports_and_lifted_when_it_ends():
    world = World("1/min burst 5")
    stream = world.open()
    one_report(world, stream, (b"c", 0, 5, 0))
    for world.time in range(5, 60, 5):
        world.turn()
        assert one_report(world, stream, (b"c", 5, 0, 3)) == {}
    world.time = 59.0
    world.turn()
    assert stream.take() == b""
    world.time = 60.0
    world.turn()
    ((_, kind, numbers),) = decode_actions(stream.take())
    assert (kind, numbers["tokens"]) == ("tokens", 1)


@pytest.mark.parametrize(("seconds", "denied"), [(0.9, []), (1.2, [2]), (100.0000005, [100])])
def test_a_hold_of_another_gatekeeper_reaches_envoys_unless_it_is_short(seconds, denied):
    world = World("10/s burst 20")
    streams = [reporting(world) for _ in range(2)]
    streams[0].take()
    world.publish(DelayUntil("api", b"c", world.now + seconds))
    world.publish(DelayUntil("api", b"other", world.now + 100))
    expected = [(bucket_id(b"c"), "deny", {"ttl": ttl}) for ttl in denied]
    assert [decode_actions(stream.take()) for stream in streams] == [expected, expected]
    assert not denied or one_report(world, streams[0], (b"c", 0, 0, 1)) == {}


def test_a_hold_that_grows_is_sent_once_per_second_of_its_time_to_live():
    world = World("10/s burst 20")
    stream = reporting(world)
    sent = 0
    for step in range(200):
        world.publish(DelayUntil("api", b"c", world.now + 2.0 + step / 100))
        sent += len(decode_actions(stream.take()))
    assert sent == 3
    assert len(world.service._ends) == 1


@pytest.mark.parametrize("options", [{"mode": "shadow"}, {"mode": "off"}, {"exempt": ("c",)}])
def test_what_is_not_limited_is_admitted(options):
    world = World("1/min burst 1", **options)
    stream = world.open()
    admitted = {bucket_id(b"c"): ("allow", {"ttl": 10})}
    assert one_report(world, stream, (b"c", 0, 1, 0)) == admitted
    world.time = 5.0
    assert one_report(world, stream, (b"c", 5, 100, 0)) == admitted
    assert world.master.totals["api"].accepted == 101
    assert not world.controls


def test_a_domain_without_rules_and_an_unknown_domain_are_admitted():
    world = World()
    stream = world.open()
    assert one_report(world, stream, (b"c", 0, 1, 0)) == {bucket_id(b"c"): ("allow", {"ttl": 10})}
    assert one_report(world, stream, (b"c", 0, 1, 2), domain=b"other") == {bucket_id(b"c"): ("allow", {"ttl": 10})}
    assert world.master.unknown == 3
    assert world.master.unknown_names == {"other": 1}


def test_a_message_without_a_domain_belongs_to_that_of_the_previous_one():
    world = World("10/s burst 20")
    stream = reporting(world)
    one_report(world, stream, (b"d", 0, 1, 0), domain=b"")
    assert world.master.totals["api"].accepted == 2


def test_a_value_that_is_not_utf_8_is_counted_and_never_assigned():
    world = World("1/min burst 1")
    stream = world.open()
    actions = one_report(world, stream, (b"\xff\xfe", 0, 1, 0), (b"c", 0, 1, 0))
    assert list(actions) == [bucket_id(b"c")]
    assert [control.identifier for control in world.controls] == [b"\xff\xfe", b"c"]
    assert world.service.counters.reports["unassignable"] == 1


def test_malformed_messages_and_reports_are_counted_and_the_others_are_read():
    world = World("10/s burst 20")
    stream = world.open()
    good = encode_report(b"api", [(bucket_id(b"c"), 0, 1, 0)])
    for data in (b"\xff", good + b"\x12\x02\x18\x01" + good[5:], b"\x12\x01\xff", b""):
        world.receive(stream, data)
    assert world.service.counters.reports["malformed"] == 3
    assert world.master.totals["api"].accepted == 2


def test_an_idle_bucket_is_abandoned():
    world = World("10/s burst 20")
    stream = reporting(world)
    world.time = 5.0
    assert one_report(world, stream, (b"c", 5, 0, 0)) == {bucket_id(b"c"): ("abandon", {})}
    assert len(world.service.table) == 0
    assert not stream.claims


def test_an_idle_bucket_of_a_held_client_stays():
    world = World("1/min burst 1")
    stream = reporting(world)
    for world.time in (5.0, 10.0):
        assert one_report(world, stream, (b"c", 5, 0, 0)) == {}
    assert len(world.service.table) == 1


def test_buckets_without_reports_are_forgotten():
    world = World("10/s burst 20")
    reporting(world)
    world.time = 15.9
    world.turn()
    assert len(world.service.table) == 1
    world.time = 16.0
    world.turn()
    assert len(world.service.table) == 0


def test_the_share_of_a_lost_stream_is_reserved_until_its_assignment_ends():
    world = World("100/s burst 10")
    one, two = reporting(world), reporting(world)
    world.service.close(one)
    world.time = 5.0
    ((_, numbers),) = one_report(world, two, (b"c", 5, 400, 0)).values()
    assert numbers["fill"] == 50_000
    world.time = 10.5
    ((_, numbers),) = one_report(world, two, (b"c", 5, 400, 0)).values()
    assert numbers["fill"] == 100_000


def test_a_stream_replaces_a_lost_one_of_the_same_address():
    world = World("100/s burst 10")
    one, other = world.open(), world.open("ipv4:192.0.2.2")
    for stream in (one, other):
        one_report(world, stream, (b"c", 0, 1, 0))
    world.service.close(one)
    other.take()
    third = world.open("ipv4:192.0.2.3")
    ((_, numbers),) = one_report(world, third, (b"c", 0, 1, 0)).values()
    assert numbers["fill"] == 25_000
    again = world.open()
    ((_, numbers),) = one_report(world, again, (b"c", 0, 1, 0)).values()
    assert numbers["fill"] == pytest.approx(33_333)
    world.time = 16.0
    for _ in range(2):
        world.turn()
    assert not world.service.table._lost


def test_rules_that_a_reload_changes_apply_from_the_next_report():
    world = World("1/min burst 1")
    stream = world.open()
    assert [kind for kind, _ in one_report(world, stream, (b"c", 0, 1, 0)).values()] == ["deny"]
    world.master = Master([Domain("api", mode="off")])
    world.service.master = world.master
    world.time = 5.0
    assert one_report(world, stream, (b"c", 5, 0, 3)) == {bucket_id(b"c"): ("allow", {"ttl": 10})}


def test_streams_and_buckets_are_limited():
    world = World("10/s burst 20", limits=QuotaLimits(streams=2, peer_streams=1, stream_buckets=2, buckets=3))
    one = world.open()
    assert world.open() is None
    two = world.open("ipv4:192.0.2.2")
    assert world.open("ipv4:192.0.2.3") is None
    identifiers = (b"a", b"b", b"c")
    assert len(one_report(world, one, *[(name, 0, 1, 0) for name in identifiers])) == 2
    assert len(one_report(world, two, *[(name, 0, 1, 0) for name in identifiers])) == 1
    assert world.master.totals["api"].accepted == 6
    assert (world.service.counters.reports["untracked"], world.service.counters.streams["refused"]) == (3, 2)
    world.service.close(one)
    assert world.open() is not None


def test_an_envoy_that_does_not_read_keeps_one_action_of_each_bucket_waiting():
    world = World("1000/s burst 10")
    stream = world.open()
    for world.time in range(0, 100, 5):
        data = encode_report(b"api", [(bucket_id(b"%d" % number), 5, world.time + 1, 0) for number in range(300)])
        world.receive(stream, data)
    assert len(stream.pending) == 300
    assert [len(decode_actions(stream.take())) for _ in range(3)] == [256, 44, 0]


def test_what_waits_for_an_envoy_that_does_not_read_is_limited():
    world = World("10/s burst 20", limits=QuotaLimits(waiting=1_000))
    stream = world.open()
    for number in range(100):
        key = bucket_id(b"%d" % number)
        for counts in (1, 0), (0, 0):  # the second report abandons the bucket
            data = encode_report(b"api", [(key, 0, *counts)])
            world.receive(stream, data)
            world.time += 4.0
    assert 900 < sum(map(len, stream.pending.values())) <= 1_000
    # An action that was dropped is sent after the next report.
    data = encode_report(b"api", [(bucket_id(b"held"), 0, 1, 0)])
    world.receive(stream, data)
    world.publish(DelayUntil("api", b"held", world.now + 100))
    assert ("api", bucket_id(b"held")) not in stream.pending
    while stream.take():
        pass
    assert one_report(world, stream, (b"held", 0, 0, 1))[bucket_id(b"held")][0] == "deny"


def test_the_bytes_of_buckets_are_limited():
    world = World("1/h burst 1", limits=QuotaLimits(bucket_size=100, size=300))
    stream, names = world.open(), [b"%d" % number * 60 for number in range(5)]
    assert len(bucket_id(names[0])) == 76
    actions = one_report(world, stream, (b"x" * 90, 0, 1, 0), *[(name, 0, 1, 0) for name in names])
    assert list(actions) == [bucket_id(name) for name in names[:3]]
    assert world.service.counters.reports["untracked"] == 3
    assert len(world.controls) == 6  # all are counted, and held on the bus
    # The same bucket with another field, which is skipped.
    data = encode_report(b"api", [(bucket_id(names[0]) + b"\x18\x01", 5, 0, 1)])
    world.receive(stream, data)
    assert list(world.service.table._claims)[-1].bucket_id == bucket_id(names[0])
    for world.time in (16.0, 32.0):
        world.turn()
    assert (world.service.table._size, world.service._ends) == (0, [])


def test_holds_that_end_together_are_lifted_in_steps():
    world = World("20/min burst 1")
    stream = world.open()
    one_report(world, stream, *[(b"%d" % number, 0, 1, 0) for number in range(600)])
    world.time = 3.0
    lifted = []
    for _ in range(4):
        world.turn()
        lifted.append(sum(len(decode_actions(data)) for data in iter(stream.take, b"")))
    assert lifted == [256, 256, 88, 0]


def test_a_message_is_processed_in_steps():
    world = World("10/s burst 20")
    stream = world.open()
    data = encode_report(b"api", [(bucket_id(b"%d" % number), 0, 1, 0) for number in range(200)])
    counts = [len(world.service.table) for _ in world.service.receive(stream, data, now=world.now, moment=0.0)]
    assert counts == [64, 128, 192]
    # Fields that are skipped, and large buckets.
    for data in b"\x18\x01" * 20_000, encode_report(b"api", [(bucket_id(b"x" * 600), 0, 1, 0)] * 5):
        assert world.receive(stream, data) >= 4


def test_what_gatekeepers_on_the_bus_use_is_left_to_them():
    world = World("100/s burst 10")
    stream = reporting(world)
    for number in range(300):
        now = world.now + number / 60
        world.master.account(Accounting("api", Status.ACCEPTED, b"c", now, now), now)
    world.time = 5.0
    ((_, numbers),) = one_report(world, stream, (b"c", 5, 500, 0)).values()
    assert numbers["fill"] == 40_000
    world.time = 10.0
    ((_, numbers),) = one_report(world, stream, (b"c", 5, 200, 0)).values()
    assert numbers["fill"] == 100_000


def test_a_clock_that_is_set_back_extends_no_hold():
    world = World("1/min burst 1")
    stream = reporting(world)
    world.time = 5.0
    world.master.forget(now=world.now)  # as a link does ten times a second
    envoys.START -= 3600
    try:
        assert one_report(world, stream, (b"c", 5, 0, 3)) == {}
        assert next(iter(world.service.table.groups.values())).held_until == 60.0
    finally:
        envoys.START += 3600


def restarted(world, *envoys, rule):
    """Connect Envoys to a new service, which knows nothing of the past."""
    other = World(rule)
    other.time = world.time
    for envoy in envoys:
        envoy.disconnect()
        envoy.world, envoy.stream = other, other.open(envoy.peer)
    return other


def test_a_hold_of_a_service_that_has_ended_stays_until_its_end():
    world = World("1/30s burst 1")
    envoy = Envoy(world)
    assert [envoy.request(), envoy.request()] == [True, False]
    other = restarted(world, envoy, rule="1/30s burst 1")
    passed = []
    for second in range(1, 50):
        other.time = float(second)
        envoy.tick()
        if envoy.request():
            passed.append(second)
    # Envoy admits everything between the end of its assignment and the next report.
    assert passed == [30, 31, 32, 33, 34]


def test_an_envoy_that_denies_by_its_own_configuration_gets_an_assignment_after_an_hour():
    world = World("1/s burst 1")
    stream = world.open()
    for time in range(5, 3_605, 5):
        world.time = float(time)
        assert one_report(world, stream, (b"c", 5, 0, 3)) == {}
    world.time = 3_605.0
    assert one_report(world, stream, (b"c", 5, 0, 3))[bucket_id(b"c")][0] == "tokens"


@pytest.mark.parametrize(
    ("bucket", "identifier"),
    [
        (((b"identifier", b"192.0.2.1"),), b"192.0.2.1"),
        (((b"identifier", b"192.0.2.1/32"),), b"192.0.2.1"),
        (((b"identifier", b"192.0.2.0/24"),), b"192.0.2.0/24"),
        (((b"identifier", b"key/32"),), b"key/32"),
        (((b"identifier", b"2001:db8::/64"),), b"2001:db8::/64"),
        (((b"header", b"192.0.2.1/32"),), b"=192.0.2.1/32"),
        (((b"authorization", b"BEARER  Tok"),), b"=bearer Tok"),
        (((b"name", b"a"),), b"name=a"),
        (((b"identifier", b"a"), (b"route", b"b;c")), b"identifier=a;route=b;c"),
        (((b"identifier", b"x" * 256),), b"sha256:" + hashlib.sha256(b"x" * 256).hexdigest().encode()),
    ],
)
def test_the_identifier_of_a_bucket(bucket, identifier):
    assert identifier_of(bucket) == identifier
