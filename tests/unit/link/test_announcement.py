import pytest

from headgate.errors import ConfigurationError
from headgate.link.announcement import announcement, is_announcement, resent_topic, split_resent_topic

TOPIC = b"\0headgate.new.1\x000123456789abcdef\0"


def test_an_announcement_has_the_digits_of_the_master():
    assert announcement("0123456789abcdef") == TOPIC
    assert is_announcement(TOPIC)


@pytest.mark.parametrize(
    "identity", ["0123456789abcde", "0123456789abcdef0", "0123456789ABCDEF", "", "0123456789abcdé"]
)
def test_invalid_digits_are_refused(identity):
    with pytest.raises(ConfigurationError, match="16 hexadecimal digits"):
        announcement(identity)


@pytest.mark.parametrize(
    "prefix", [b"", TOPIC[:-1], TOPIC + b"api\0", TOPIC.upper(), b"x" + TOPIC, b"\0headgate.batch.1\0", TOPIC + b"\n"]
)
def test_other_subscriptions_are_no_announcements(prefix):
    assert not is_announcement(prefix)


@pytest.mark.parametrize("domain", ["api", "é", "0123456789abcdef"])
def test_the_topic_of_a_resent_batch_has_the_announcement_and_the_domain(domain):
    frame = resent_topic(TOPIC, domain)
    assert frame == TOPIC + domain.encode() + b"\0"
    assert split_resent_topic(frame) == (TOPIC, domain)


@pytest.mark.parametrize("frame", [b"", b"api\0", TOPIC[:-1], b"\0headgate.batch.1\0api\0"])
def test_other_topics_are_not_of_resent_batches(frame):
    assert split_resent_topic(frame) == (b"", "")
