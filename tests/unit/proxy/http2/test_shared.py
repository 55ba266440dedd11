"""What connections share."""

from headgate.proxy.http2.flow_control import MOST_OF_ALL
from headgate.proxy.http2.frames import LONGEST_PAYLOAD
from headgate.proxy.http2.shared import INBOX, Shared
from headgate.proxy.tunnel_end import RECORD


def test_a_whole_record_fits_behind_what_was_read() -> None:
    shared = Shared()
    assert len(shared.inbox) == INBOX + RECORD
    assert sum(map(len, shared.outbox.slots(1 << 30))) == INBOX
    assert RECORD == LONGEST_PAYLOAD


def test_windows_grow_out_of_what_there_is() -> None:
    shared = Shared()
    assert shared.to_grant() == MOST_OF_ALL
    for _ in range(31):
        shared.grant(MOST_OF_ALL)
    shared.grant(MOST_OF_ALL // 2)
    assert shared.to_grant() == MOST_OF_ALL // 2
    shared.grant(MOST_OF_ALL)
    assert shared.to_grant() < 0
    shared.grant(-MOST_OF_ALL)
    assert shared.to_grant() == MOST_OF_ALL // 2
