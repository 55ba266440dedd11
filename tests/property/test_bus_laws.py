"""Laws of a batch: it says what the frames of its records say."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.limit import Accounting
from headgate.limit.messages import decode_accounting, encode_accounting
from headgate.link.batch import BATCH, MAX_RECORDS, decode_batch, encode_batch, to_record
from headgate.release import Status

milliseconds = st.integers(0, 4_000_000_000_000)
identifiers = st.binary(max_size=20).filter(lambda frame: BATCH not in frame)


@st.composite
def accountings(draw):
    received = draw(milliseconds) / 1_000
    status = draw(st.sampled_from(Status))
    release = draw(milliseconds) / 1_000 + 0.001 if status is Status.DELAYED else received
    return Accounting("api", status, draw(identifiers), received, release, draw(identifiers))


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
