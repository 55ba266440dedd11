import pytest

from headgate.limit import Domain, Master, Rule
from headgate.link.sliding_range import SlidingRange
from headgate.runtime.master.watch import Watch

NOW = 1_700_000_000.0
ONE = (Rule.parse("1/s"),)


class Link:
    """What a watch reads of a link."""

    def __init__(self):
        self.master = Master([Domain("api", ONE)])
        self.ages = SlidingRange()


@pytest.fixture
def link():
    return Link()


@pytest.fixture
def watch(link):
    """Return a function that checks once, and returns what was logged by it."""
    messages = []
    watch = Watch(link, messages.append)

    def check():
        messages.clear()
        watch.check(NOW)
        return list(messages)

    return check


def test_unknown_domain_is_logged_once(link, watch):
    assert watch() == []
    link.master.note_unknown("other")
    assert watch() == [
        "headgate: warning: gatekeepers use the domain 'other', which is not configured; its requests are not limited"
    ]
    link.master.note_unknown("other")
    assert watch() == []


def test_control_characters_of_a_name_are_escaped(link, watch):
    link.master.note_unknown("\x1b[2J\n\u202e\udcff")
    (message,) = watch()
    assert r"'\x1b[2J\n\u202e\udcff'" in message
    assert message.isprintable()


def test_number_of_names_is_limited(link, watch):
    for number in range(1_000):
        link.master.note_unknown(f"{number}")
    assert len(watch()) == 32
    link.master.note_unknown("x" * 100_000)
    assert watch() == []


def test_name_that_a_reload_adds_and_another_removes_is_logged_again(link, watch):
    link.master.note_unknown("other")
    assert len(watch()) == 1
    link.master, old = Master([Domain("api", ONE), Domain("other", ONE)]), link.master
    link.master.adopt(old)
    assert watch() == []
    link.master, old = Master([Domain("api", ONE)]), link.master
    link.master.adopt(old)
    assert watch() == []
    link.master.note_unknown("other")
    assert len(watch()) == 1


@pytest.mark.parametrize(
    ("age", "words"), [(-1.5, "is 1.5 s ahead of this machine's"), (2.25, "arrived 2.2 s after its request")]
)
def test_clock_skew_is_logged_once(link, watch, age, words):
    link.ages.add(age, NOW)
    (message,) = watch()
    assert words in message
    link.ages.add(2 * age, NOW)
    assert watch() == []


def test_clocks_within_a_second_are_not_logged(link, watch):
    link.ages.add(-1.0, NOW)
    link.ages.add(1.0, NOW)
    assert watch() == []
