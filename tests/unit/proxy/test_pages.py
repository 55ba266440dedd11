"""Published pages, and geofeeds, which are checked strictly."""

import asyncio

import pytest

from headgate.errors import ConfigurationError
from headgate.proxy.connect import RefusedConnect
from headgate.proxy.pages import MAX_GEOFEED_SIZE, Page, check_geofeed
from headgate.proxy.server import TunnelServer
from tests.e2e.http2_client import async_test

PAGE = Page("text/csv", b"192.0.2.0/24,NL,,,\r\n")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/csv\r\ncontent-length: 20\r\n"


def test_a_page_is_one_message():
    assert bytes(PAGE.message(is_last=False)) == HEAD + b"\r\n" + PAGE.body
    assert bytes(PAGE.message(is_last=True)) == HEAD + b"connection: close\r\n\r\n" + PAGE.body
    assert bytes(PAGE.message(is_last=False, with_body=False)) == HEAD + b"\r\n"
    assert bytes(Page("a/b", b"").message(is_last=False, with_body=False)).endswith(b"\r\n\r\n")


def answers(*requests, pages):
    """Return everything that is received in response to these bytes."""

    async def ask():
        async def decide(_asked):
            raise AssertionError("nothing is decided on")

        def refuse_early(reason, _peer):
            return RefusedConnect(status=405 if reason == "method" else 400, reason=reason)

        server = TunnelServer(decide, refuse_early, pages=pages)
        await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*server.addresses[0])
        writer.writelines(requests)
        writer.write_eof()
        async with asyncio.timeout(10):
            came = await reader.read()
        writer.close()
        await writer.wait_closed()
        await server.drain(0)
        return came

    return asyncio.run(ask())


def request(target="/geofeed.csv", method="GET", more=""):
    return f"{method} {target} HTTP/1.1\r\nHost: a\r\n{more}\r\n".encode()


def test_pages_keep_the_connection():
    came = answers(request(), request("/geofeed.csv?x", "HEAD"), request(more="Connection: close\r\n"), pages=PAGES)
    message = HEAD + b"\r\n" + PAGE.body
    assert came == message + HEAD + b"\r\n" + HEAD + b"connection: close\r\n\r\n" + PAGE.body


PAGES = {"/geofeed.csv": PAGE}


@pytest.mark.parametrize(
    "wrong",
    [
        request("/"),
        request("/geofeed.csv/"),
        request("https://a/geofeed.csv"),
        request(method="POST"),
        request(method="get"),
        request(more="Content-Length: 3\r\n"),
        request(more="Transfer-Encoding: chunked\r\n"),
    ],
)
def test_other_requests_are_refused(wrong):
    assert answers(wrong, pages=PAGES).startswith(b"HTTP/1.1 405 ")


def test_a_long_page_arrives_complete():
    long = Page("text/csv", bytes(8 << 20))
    came = answers(request(), request(more="Connection: close\r\n"), pages={"/geofeed.csv": long})
    assert len(came) == 2 * len(long.message(is_last=False)) + len("connection: close\r\n")


def test_a_long_page_arrives_complete_after_a_half_close():
    long = Page("text/csv", bytes(8 << 20))
    assert len(answers(request(), pages={"/geofeed.csv": long})) == len(long.message(is_last=False))


@async_test
async def test_input_ahead_of_responses_is_limited():
    def refuse_early(reason, _peer):
        return RefusedConnect(status=400, reason=reason)

    server = TunnelServer(None, refuse_early, pages={"/geofeed.csv": Page("text/csv", bytes(32 << 20))})
    await server.start("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.addresses[0])
    for _ in range(64):
        writer.write(request() + bytes(1 << 16))
    for _ in range(40):
        await asyncio.sleep(0.005)
        await reader.read(1 << 20)  # some room again and again
    (connection,) = server.connections
    assert len(connection._buffer) < 1 << 18
    writer.transport.abort()
    await server.drain(0)


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
    b"x" * (MAX_GEOFEED_SIZE + 1): "larger than",
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
