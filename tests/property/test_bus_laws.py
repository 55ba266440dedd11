"""Laws of the bus: what is lost, repeated or reordered never shortens a hold, and no message is mixed with another."""

import zmq
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import WireError
from headgate.limit import Accounting, DelayUntil, Domain, Gatekeeper, Master, Rule
from headgate.limit.messages import control_frames, decode_accounting, decode_control, encode_accounting, topic
from headgate.link.accounting_receiver import AccountingReceiver
from headgate.link.batch import BATCH, MAX_RECORDS, batch_topic, decode_batch, encode_batch, to_record
from headgate.link.master_counters import MasterCounters
from headgate.link.subscriptions import Subscriptions
from headgate.release import ASAP, Status

NOW = 1_700_000_000.0

milliseconds = st.integers(0, 4_000_000_000_000)
identifiers = st.binary(max_size=20).filter(lambda frame: BATCH not in frame)
statuses = st.sampled_from(Status)
controls = st.lists(
    st.builds(
        DelayUntil,
        domain=st.sampled_from(["api", "web"]),
        identifier=st.sampled_from([b"a", b"b", b"\xff\0"]),
        release=st.integers(0, 10_000).map(lambda second: NOW + second),
    ),
    max_size=30,
)


def encode_control(control):
    """Return the frames that a master publishes for a control."""
    return list(control_frames(topic(control.domain), control.identifier, control.release))


@st.composite
def accountings(draw):
    received = draw(milliseconds) / 1_000
    status = draw(statuses)
    release = draw(milliseconds) / 1_000 + 0.001 if status is Status.DELAYED else received
    return Accounting("api", status, draw(identifiers), received, release, draw(identifiers))


def obeyed(frames):
    gatekeeper = Gatekeeper()
    for message in frames:
        gatekeeper.obey(decode_control(message))
    return {
        (domain, identifier): gatekeeper.held(domain, identifier, now=0.0)
        for domain in ("api", "web")
        for identifier in (b"a", b"b", b"\xff\0")
    }


@given(controls, st.randoms(use_true_random=False))
def test_controls_repeated_and_reordered_hold_as_long(sent, chance):
    frames = [encode_control(control) for control in sent]
    again = frames + chance.choices(frames, k=len(frames)) if frames else []
    chance.shuffle(again)
    assert obeyed(again) == obeyed(frames)


@given(controls, st.data())
def test_a_hold_is_never_shorter_than_any_control_that_arrived(sent, data):
    """Lost ones make no hold; whatever arrives, in whatever order, never takes anything off one."""
    arrived = data.draw(st.permutations(sent))[: data.draw(st.integers(0, len(sent)))]
    gatekeeper = Gatekeeper()
    before = {}
    for control in arrived:
        gatekeeper.obey(decode_control(encode_control(control)))
        name = (control.domain, control.identifier)
        held = gatekeeper.held(*name, now=0.0)
        assert held >= max(control.release, before.get(name, ASAP))
        before[name] = held


@given(st.lists(accountings(), max_size=600), st.integers(1, MAX_RECORDS))
def test_a_batch_says_what_the_frames_say(sent, size):
    pieces = [sent[at : at + size] for at in range(0, len(sent), size)]
    records = [record for piece in pieces for record in decode_batch(encode_batch(map(to_record, piece)))[0]]
    read = [decode_accounting(encode_accounting(one)) for one in sent]
    assert [(identifier, received, loginfo) for _, identifier, received, _, loginfo in records] == [
        (one.identifier, round(one.received * 1_000), one.loginfo) for one in read
    ]
    delayed = [round(one.release * 1_000) if one.status is Status.DELAYED else 0 for one in read]
    assert [record[3] for record in records] == delayed


@given(st.binary(max_size=200))
def test_any_bytes_are_a_batch_or_a_wire_error(payload):
    try:
        records, bad = decode_batch(payload)
    except WireError:
        return
    assert len(records) + bad <= MAX_RECORDS


@given(st.lists(st.tuples(st.sampled_from([b"\0", b"\1", b"\2"]), st.sampled_from([b"", b"api\0", b"a"])), max_size=20))
def test_subscriptions_are_counted_as_they_come_and_go(messages):
    subscriptions = Subscriptions(["api"], "auto")
    there = dict.fromkeys([b"", b"api\0", b"a"], 0)
    for kind, prefix in messages:
        subscriptions.update(kind + prefix)
        there[prefix] = max(0, there[prefix] + {b"\0": -1, b"\1": 1, b"\2": 0}[kind])
        assert subscriptions.encodings["api"] == ("frames" if any(there.values()) else "unheard")


# Frames as peers that are wrong, not as peers that forge a whole message out of parts: such a peer could send it.
strange = st.sampled_from([b"", b"x", b"other\0", b"ACCEPTE", b"nan", b"\xff\xff", b"id"])


@st.composite
def messages(draw):
    """Give a message of the document, cut short, with a frame replaced, or with more behind it."""
    frames = encode_accounting(draw(accountings()))
    kind = draw(st.sampled_from(["whole", "whole", "cut", "replaced", "longer", "batch"]))
    if kind == "cut":
        return frames[: draw(st.integers(1, 5))]
    if kind == "replaced":
        at = draw(st.sampled_from([0, 1, 3, 4]))
        frames[at] = batch_topic("api") if at == 0 and draw(st.booleans()) else draw(strange)
    elif kind == "longer":
        frames += draw(st.lists(strange, max_size=70))
    elif kind == "batch":
        return [batch_topic("api"), encode_batch([to_record(draw(accountings()))])]
    return frames


def by_the_core(sent):
    """Give what a master that is handed each message by itself makes of them: totals, and how many were malformed."""
    master, malformed = Master([Domain("api", (Rule.parse("1/min burst 3"),))]), 0
    for frames in sent:
        try:
            if frames[0] == batch_topic("api"):
                one = decode_batch(frames[1])[0][0] if len(frames) > 1 else None
                if one is None:
                    raise WireError("no payload")
                status = (Status.ACCEPTED, Status.DELAYED, Status.REJECTED)[one[0]]
                counted = one[3] if one[0] == 1 else one[2]
                master.account(Accounting("api", status, one[1], one[2] / 1_000, counted / 1_000), NOW)
            else:
                master.account(decode_accounting(frames), NOW)
        except (WireError, IndexError):
            malformed += 1
    return master, malformed


@given(st.lists(messages(), max_size=30), st.integers(1, 40))
def test_a_run_of_messages_is_read_as_if_each_came_alone(sent, most):
    """The fast path, which asks ZeroMQ only now and then where a message ends, comes to what the core comes to."""
    expected, _ = by_the_core(sent)
    with zmq.Context() as context, context.socket(zmq.PUSH) as sender, context.socket(zmq.PULL) as receiver:
        for socket in (sender, receiver):
            socket.set_hwm(0)
        receiver.bind("inproc://accounting")
        sender.connect("inproc://accounting")
        for frames in sent:
            sender.send_multipart(frames)
        master = Master([Domain("api", (Rule.parse("1/min burst 3"),))])
        accounting = AccountingReceiver(receiver, master, lambda *_: None, MasterCounters())
        while accounting.receive(most, NOW):
            pass
        sender.close(0)
    assert master.totals == expected.totals
    assert set(master.holds("api", now=NOW)) == set(expected.holds("api", now=NOW))
