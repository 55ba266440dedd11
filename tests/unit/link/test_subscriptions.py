import pytest

from headgate.errors import ConfigurationError
from headgate.link.batch import BATCH, batch_topic
from headgate.link.subscriptions import Subscriptions

ALL, BATCHES = b"\1", b"\1" + BATCH


def after(*messages, mode="auto", domains=("api",)):
    subscriptions = Subscriptions(domains, mode)
    for message in messages:
        subscriptions.update(message)
    return subscriptions.encodings


ENCODINGS = [
    ([], "unheard", "unheard", "unheard"),
    ([ALL], "frames", "frames", "unheard"),
    ([ALL, BATCHES], "batch", "frames", "batch"),
    ([BATCHES, ALL], "batch", "frames", "batch"),
    ([b"\1api\0"], "frames", "frames", "unheard"),
    ([b"\1api"], "frames", "frames", "unheard"),
    ([b"\1other\0"], "unheard", "unheard", "unheard"),
    ([BATCHES], "batch", "unheard", "batch"),
    ([b"\1" + batch_topic("api"), ALL], "batch", "frames", "batch"),
    ([b"\1" + batch_topic("other"), ALL], "frames", "frames", "unheard"),
    # An original master beside a headgate master: both read frames.
    ([ALL, BATCHES, ALL], "frames", "frames", "batch"),
    ([ALL, BATCHES, ALL, BATCHES], "batch", "frames", "batch"),
    # A headgate master is replaced by an original one.
    ([ALL, BATCHES, b"\0", b"\0" + BATCH, ALL], "frames", "frames", "unheard"),
    ([ALL, BATCHES, b"\0", b"\0" + BATCH], "unheard", "unheard", "unheard"),
    # Invalid messages change nothing.
    ([ALL, b"", b"\0never", b"\2what", b"api"], "frames", "frames", "unheard"),
    # A prefix of the batch topic that is shorter than its name does not count.
    ([b"\1\0", ALL], "frames", "frames", "unheard"),
]
"""Messages, and the encoding that follows in the modes `auto`, `frames` and `batch`."""


def test_the_encoding_is_one_that_all_subscribers_read():
    found = [
        (messages, *[after(*messages, mode=mode)["api"] for mode in ("auto", "frames", "batch")])
        for messages, *_ in ENCODINGS
    ]
    assert [row for row in found if row not in ENCODINGS] == []


def test_each_domain_has_an_encoding_of_its_own():
    ways = after(b"\1api\0", b"\1" + batch_topic("web"), b"\1web\0", domains=("api", "web", "img"))
    assert ways == {"api": "frames", "web": "batch", "img": "unheard"}


def test_the_number_of_unknown_topics_is_bounded():
    subscriptions = Subscriptions(["api"], "auto")
    for number in range(5_000):
        subscriptions.update(b"\1%d" % number)
    subscriptions.update(ALL)
    assert len(subscriptions._counts) == 1_001
    assert subscriptions.encodings == {"api": "frames"}
    for number in range(5_000):
        subscriptions.update(b"\0%d" % number)
    assert list(subscriptions._counts) == [b""]


def test_an_added_domain_uses_earlier_subscriptions():
    subscriptions = Subscriptions(["api"], "auto")
    for message in (b"\1web\0", b"\1" + batch_topic("web"), b"\1img\0"):
        subscriptions.update(message)
    subscriptions.set_domains(["api", "web"])
    assert subscriptions.encodings == {"api": "unheard", "web": "batch"}
    subscriptions.set_domains(["img"])
    assert subscriptions.encodings == {"img": "frames"}


def test_an_unknown_mode_is_rejected():
    with pytest.raises(ConfigurationError, match="invalid accounting 'fast'; expected one of auto, frames, batch"):
        Subscriptions(["api"], "fast")
