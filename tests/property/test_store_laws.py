"""The script of the store, on a real server, equals the algorithms in memory bit for bit."""

import math
import struct
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.limit import Domain, Rule
from headgate.limit.history import ALGORITHMS as ALL
from headgate.limit.history import new_history
from headgate.release import ASAP
from headgate.store.master import DIGEST, EXTEND, RECORD, SCRIPT, SharedDomain, pack_doubles, unpack_doubles
from tests import servers

pytestmark = pytest.mark.needs("redis-server")

EPOCH = 1_700_000_000.0
UNLIMITED = 1e9
ALGORITHMS = {name: ALL[name] for name in ("log", "gcra")}
names = count()

RULES = st.builds(
    lambda rate, burst: Rule.parse(f"{rate} burst {burst}"),
    st.sampled_from(["1/s", "3/s", "10/s", "7/min", "1500/s", "13 per 17s", "1 per 500ms", "30/h"]),
    st.sampled_from([1, 2, 3, 5, 40]),
)
STEPS = st.one_of(
    st.sampled_from([0.0, 0.0, 0.001, 0.125, 1.0, 60.0, 86_400.0, "interval", "interval", "window"]),
    st.floats(0, 20, allow_subnormal=False),
)
OFFSETS = st.one_of(st.sampled_from([0.0, 0.0, 0.0, -0.5, 0.5, 5.0, -60.0]), st.floats(-60, 60, allow_subnormal=False))
HISTORIES = st.lists(st.tuples(STEPS, OFFSETS), min_size=1, max_size=80)


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    import redis

    with servers.redis(tmp_path_factory.mktemp("redis")) as server, redis.Redis(port=server.port) as connected:
        assert connected.script_load(SCRIPT) == DIGEST
        yield connected


def call(client, operation, domain, identifiers, instants):
    keys = [domain.key(identifier) for identifier in identifiers]
    return unpack_doubles(
        client.evalsha(DIGEST, len(keys), *keys, operation, *domain.arguments, pack_doubles(instants))
    )


def without_hold(client, shared, identifier):
    """Remove the stored hold, which would be returned instead of an earlier release."""
    key = shared.key(identifier)
    if client.exists(key):
        client.setrange(key, 8, struct.pack("<d", ASAP))


def stored(client, shared, identifier):
    return list(unpack_doubles(client.get(shared.key(identifier))[24:]))


def messages(steps, rules, start=EPOCH):
    """Return timestamps and the times of their arrival; the clock only advances."""
    now, events = start, []
    for step, offset in steps:
        now += getattr(rules[0], step) if isinstance(step, str) else step
        events.append((now + offset, now))
    return events


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(rules=st.lists(RULES, min_size=1, max_size=3), steps=HISTORIES)
def test_domain__equal_the_algorithms_in_memory(client, algorithm, rules, steps):
    shared = SharedDomain(Domain("api", tuple(rules), algorithm), UNLIMITED)
    expected, history, identifier = ALGORITHMS[algorithm](rules), new_history(), b"%d" % next(names)
    for timestamp, now in messages(steps, rules):
        without_hold(client, shared, identifier)
        release = expected.record(history, timestamp, now)
        (answer,) = call(client, RECORD, shared, [identifier], [timestamp, now])
        assert answer == release
        kept = stored(client, shared, identifier)
        assert kept[-len(history) + 1 :] == history[1:].tolist()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(rules=st.lists(RULES, min_size=1, max_size=2), steps=HISTORIES, sizes=st.lists(st.integers(1, 9), min_size=1))
def test_batches_equal_single_calls_and_the_answer_is_the_latest_hold(client, algorithm, rules, steps, sizes):
    shared = SharedDomain(Domain("api", tuple(rules), algorithm), UNLIMITED)
    histories = [new_history(), new_history()]
    expected, holds, prefix = ALGORITHMS[algorithm](rules), [ASAP, ASAP], next(names)
    events = [(index * index % 2, *event) for index, event in enumerate(messages(steps, rules))]
    while events:
        size = sizes[len(events) % len(sizes)]
        batch, events = events[:size], events[size:]
        releases = []
        for which, timestamp, now in batch:
            release = expected.record(histories[which], timestamp, now)
            holds[which] = max(holds[which], release)
            releases.append(holds[which])
        instants = [instant for event in batch for instant in event[1:]]
        identifiers = [b"%d-%d" % (prefix, which) for which, _, _ in batch]
        assert list(call(client, RECORD, shared, identifiers, instants)) == releases


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(rules=st.lists(RULES, min_size=1, max_size=3), steps=HISTORIES)
def test_values_expire_within_the_window_and_an_hour(client, algorithm, rules, steps):
    shared = SharedDomain(Domain("api", tuple(rules), algorithm), UNLIMITED)
    identifier, longest = b"%d" % next(names), max(rule.window for rule in rules) + 3_600
    expected, history = ALGORITHMS[algorithm](rules), new_history()
    for timestamp, now in messages(steps, rules):
        call(client, RECORD, shared, [identifier], [timestamp, now])
        expected.record(history, timestamp, now)
        seconds = client.pttl(shared.key(identifier)) / 1_000
        assert min(expected.expiry(history) - now, longest - 1) <= seconds <= math.ceil(longest)
    later = messages(steps, rules, now)
    for timestamp, now in later:
        call(client, RECORD, shared, [identifier], [timestamp, now])
        call(client, EXTEND, shared, [identifier], [now + 1e6, now])
        assert 0 < client.pttl(shared.key(identifier)) <= math.ceil(longest * 1_000)
    assert all(key.startswith(b"headgate:") for key in client.scan_iter())


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@given(
    rules=st.lists(RULES, min_size=1, max_size=2),
    before=HISTORIES,
    after=HISTORIES,
    ahead=st.sampled_from([3_600.0, 1e7, 1e12]),
)
def test_state_of_a_clock_that_was_ahead_holds_no_longer_than_the_rules_allow(
    client, algorithm, rules, before, after, ahead
):
    domain, longest = Domain("api", tuple(rules), algorithm), 100.0 + max(rule.window for rule in rules)
    shared, identifier = SharedDomain(domain, longest), b"%d" % next(names)
    for timestamp, now in messages(before, rules):
        call(client, RECORD, shared, [identifier], [timestamp + ahead, now + ahead])
    client.pexpire(shared.key(identifier), 30_000)
    for timestamp, now in messages(after, rules):
        (answer,) = call(client, RECORD, shared, [identifier], [timestamp, now])
        assert answer <= now + longest
    assert client.pttl(shared.key(identifier)) > 30_000 or ahead <= longest
    # Nor once more, when that hold has ended.
    now += longest + 60.0
    (answer,) = call(client, RECORD, shared, [identifier], [now, now])
    assert answer <= now + max(rule.window + rule.interval for rule in rules)
    (answer,) = call(client, EXTEND, shared, [identifier], [now + ahead, now])
    assert answer <= now + longest


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("rate", ["3/s", "7/s", "11/s", "13/s"])
def test_sums_round_down_where_doubles_become_coarser(client, algorithm, rate):
    """At 2 to the power of 31 seconds the next lower double is half as far away."""
    rule = Rule.parse(f"{rate} burst 1")
    shared, expected = SharedDomain(Domain("api", (rule,), algorithm), UNLIMITED), ALGORITHMS[algorithm]([rule])
    limit = 2.0**31
    for step in range(-40, 40):
        instant = limit - rule.interval + step * math.ulp(limit) / 2
        release = expected.record(new_history(), instant, instant)
        answer = call(client, RECORD, shared, [b"%d" % next(names)], [instant, instant])
        assert answer == (release,)


def test_log_with_a_large_burst_is_changed_in_place(client):
    """The server reads and writes a few bytes for each record, whatever the length of the history."""
    rule = Rule.parse("100000/h burst 50000")
    shared = SharedDomain(Domain("api", (rule,), "log"), UNLIMITED)
    expected, history = ALGORITHMS["log"]([rule]), new_history()
    for start in range(0, 60_000, 1_000):
        now = EPOCH + start / 100
        instants = [instant for index in range(1_000) for instant in (now + index / 128, now)]
        releases = [expected.record(history, instant, now) for instant in instants[::2]]
        answers = call(client, RECORD, shared, [b"large"] * 1_000, instants)
    assert answers[-1] == releases[-1] > now
    client.config_resetstat()
    call(client, RECORD, shared, [b"large"], [now + 9, now + 9])
    used = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
    assert used <= {"evalsha", "getrange", "strlen", "append", "setrange", "pexpire", "config|resetstat", "info"}
    assert client.strlen(shared.key(b"large")) <= 8 * 50_000 * 5 / 4 + 100


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_value_of_other_rules_or_another_type_is_no_history(client, algorithm):
    one, other = (
        SharedDomain(Domain("api", (Rule.parse(rule),), algorithm), UNLIMITED) for rule in ("1/h", "2/h burst 1")
    )
    held = b"%d" % next(names)
    for _ in range(3):
        (release,) = call(client, RECORD, one, [held], [EPOCH, EPOCH])
    assert release > EPOCH + 3_000
    (release,) = call(client, RECORD, other, [held], [EPOCH, EPOCH])
    assert release <= EPOCH + 1_800
    client.delete(one.key(held))
    client.sadd(one.key(held), "x")
    fresh = b"%d" % next(names)
    for function in (RECORD, EXTEND):
        assert call(client, function, one, [held], [EPOCH, EPOCH]) == call(
            client, function, one, [fresh], [EPOCH, EPOCH]
        )
