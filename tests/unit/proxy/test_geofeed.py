"""Geofeeds are checked strictly."""

import pytest

from headgate.errors import ConfigurationError
from headgate.proxy.geofeed import MAX_SIZE, check_geofeed

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
def test_a_valid_feed(text):
    assert check_geofeed(text.encode()) == 9


INVALID = {
    b"": "is empty",
    b"# nothing\n": "is empty",
    b"\xff": "UTF-8",
    b"x" * (MAX_SIZE + 1): "larger than",
    b"# a\nnowhere,NL,,,": "line 2: invalid prefix 'nowhere'",
    b",NL,,,": "invalid prefix ''",
    b"192.0.2.1/24,NL,,,": "invalid prefix '192.0.2.1/24'",
    b"192.0.2.0/24,NLD,,,": "invalid country 'NLD'",
    b"192.0.2.0/24,NL,NH,,": "invalid region 'NH'",
    b"192.0.2.0/24,NL,US-AL,,": "not in NL",
    b"192.0.2.0/24,NL,,,\n192.0.2.0/24,DE,,,": "line 2: duplicate prefix 192.0.2.0/24",
    b'192.0.2.0/24,"NL,,': "invalid CSV",
}


def test_the_error_names_the_invalid_line():
    for content, message in INVALID.items():
        with pytest.raises(ConfigurationError) as caught:
            check_geofeed(content)
        assert message in str(caught.value)
