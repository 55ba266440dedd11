import pytest

from headgate.link.frames import split_messages

TOPICS = {b"api\0", b"api"}
WHOLE = [b"api\0", b"ACCEPTED", b"id", b"1", b"", b""]


@pytest.mark.parametrize("size", range(1, 6))
@pytest.mark.parametrize("times", [1, 3])
def test_what_is_too_short_costs_no_frame_of_the_next(size, times):
    short = WHOLE[:size]
    assert list(split_messages(short * times + WHOLE, TOPICS))[-1] == WHOLE


def test_a_message_for_an_unknown_domain_is_seen_by_its_nul():
    unknown = [b"other\0", *WHOLE[1:]]
    assert list(split_messages([*WHOLE[:4], *unknown], TOPICS)) == [WHOLE[:4], unknown]


@pytest.mark.parametrize("frame", [b"ACCEPTED", b"api\0", b"api"])
@pytest.mark.parametrize("at", [2, 5, 6])
def test_identifiers_and_log_info_that_look_like_other_frames_stay(frame, at):
    message = [*WHOLE, b"more"]
    message[at] = frame
    assert list(split_messages(message, TOPICS)) == [message]
