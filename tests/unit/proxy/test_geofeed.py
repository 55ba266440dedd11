import pytest

from headgate.errors import ConfigurationError
from headgate.proxy.geofeed import LONGEST, check_geofeed

# RFC 8805, section 2.2, and more.
FEED = """\
# IETF 106 (Singapore) - November 2019 - Singapore, SG
130.129.0.0/16,SG,SG-01,Singapore,
2001:df8::/32,SG,SG-01,Singapore,
31.133.128.0/18,SG,SG-01,Singapore,

192.0.2.1,,,,
192.0.2.2,,US-AL,,
192.0.2.5,us,US-AL,Alabaster,
2001:db8::1/128,PL,,, # and a comment
203.0.113.0/24
198.51.100.0/24,DE,DE-BE,"Berlin",10115,and,more
"""


@pytest.mark.parametrize("text", [FEED, FEED.replace("\n", "\r\n"), "\ufeff" + FEED])
def test_a_feed_is_read(text):
    assert check_geofeed(text.encode()) == 9


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no entry"),
        (b"# nothing\n", "no entry"),
        (b"\xff", "UTF-8"),
        (b"x" * (LONGEST + 1), "too long"),
        (b"# a\nnowhere,NL,,,", "line 2: 'nowhere' is no address"),
        (b",NL,,,", "'' is no address"),
        (b"192.0.2.1/24,NL,,,", "'192.0.2.1/24' is no address"),
        (b"192.0.2.0/24,NLD,,,", "'NLD' is no country"),
        (b"192.0.2.0/24,NL,NH,,", "'NH' is no region"),
        (b"192.0.2.0/24,NL,US-AL,,", "no region of NL"),
        (b"192.0.2.0/24,NL,,,\n192.0.2.0/24,DE,,,", "line 2: 192.0.2.0/24 is there twice"),
        (b'192.0.2.0/24,"NL,,', "no line of values"),
    ],
)
def test_what_is_off_is_told_by_its_line(content, said):
    with pytest.raises(ConfigurationError) as caught:
        check_geofeed(content)
    assert said in str(caught.value)
