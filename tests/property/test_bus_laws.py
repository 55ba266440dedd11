"""Laws of the bus: what is lost, repeated or reordered never shortens a hold."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import WireError
from headgate.limit import Accounting, DelayUntil, Gatekeeper
from headgate.limit.messages import control_frames, decode_accounting, decode_control, encode_accounting, topic
from headgate.link.batch import BATCH, MAX_RECORDS, decode_batch, encode_batch, to_record
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
    records = [record for piece in pieces for record in decode_batch(encode_batch(map(to_record, piece)))]
    read = [decode_accounting(encode_accounting(one)) for one in sent]
    assert [(identifier, received, loginfo) for _, identifier, received, _, loginfo in records] == [
        (one.identifier, round(one.received * 1_000), one.loginfo) for one in read
    ]
    delayed = [round(one.release * 1_000) if one.status is Status.DELAYED else 0 for one in read]
    assert [record[3] for record in records] == delayed


@given(st.binary(max_size=200))
def test_any_bytes_are_a_batch_or_a_wire_error(payload):
    try:
        records = decode_batch(payload)
    except WireError:
        return
    assert len(records) <= MAX_RECORDS
