import pytest

from headgate.http.h1 import RequestHead
from headgate.origin.gateway.arrivals import MAX_KNOWN, PEOPLE, ArrivalClasses, ArrivalMeter
from tests.unit.origin.gateway.stub import parse_request

CHROME = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/130.0 Safari/537.36"
BOT = "ExampleBot/1.0"
PREFETCH = "Sec-Purpose: prefetch;anonymous-client-ip"


def request(user_agent: str = CHROME, *fields: str, name: str = "User-Agent") -> RequestHead:
    return parse_request(b"GET / HTTP/1.1", f"{name}: {user_agent}".encode(), *map(str.encode, fields))


@pytest.mark.parametrize(
    ("names", "one", "domain", "counted"),
    [
        (("*",), request(), None, PEOPLE),
        (("*",), request("Mozilla/5.0 (iPhone) compatible"), None, PEOPLE),
        # Programs that are no browsers, and crawlers that call themselves compatible with one.
        (("*",), request(BOT), None, "*"),
        (("*",), request(BOT, name="user-AGENT"), None, "*"),
        (("*",), request(""), None, "*"),
        (("*",), request("Mozilla/5.0 (compatible; ExampleBot/1.0)"), None, "*"),
        (("prefetch-proxy",), request(BOT), None, PEOPLE),
        # A brand with an entry, as a whole word.
        (("ExampleBot", "*"), request(BOT), None, "ExampleBot"),
        (("ExampleBot", "*"), request("Mozilla/5.0 (X11; ExampleBot/1)"), None, "ExampleBot"),
        (("ExampleBot", "*"), request("NotExampleBot/1"), None, "*"),
        (("ExampleBot",), request("ExampleBots/1"), None, PEOPLE),
        (("ExampleBot",), request("My-ExampleBot/1"), None, PEOPLE),
        (("a.b",), request("Mozilla/5.0 axb"), None, PEOPLE),
        # Browsers behind a prefetch proxy.
        (("prefetch-proxy", "*"), request(CHROME, PREFETCH), None, "prefetch-proxy"),
        (("*",), request(CHROME, PREFETCH), None, "*"),
        (("ExampleBot", "prefetch-proxy"), request(BOT, PREFETCH), None, "ExampleBot"),
        (("prefetch-proxy", "*"), request(CHROME, "Sec-Purpose: prefetch"), None, PEOPLE),
        (("prefetch-proxy", "*"), request(CHROME, "X-Other: anonymous-client-ip"), None, PEOPLE),
        (("Other",), request(CHROME, PREFETCH), None, PEOPLE),
        # The domain decides first.
        (("ExampleBot", "*"), request(BOT), "api", "*"),
        (("ExampleBot", "*"), request(), "other", PEOPLE),
    ],
)
def test_a_request_belongs_to_the_first_class_that_fits(
    names: tuple[str, ...], one: RequestHead, domain: str | None, counted: str
) -> None:
    meter = ArrivalMeter(ArrivalClasses(names, {"api": "*"}))
    for _ in range(2):  # as when the User-Agent is known
        meter.count(one, domain)
    assert meter.take() == {counted: 2}
    assert meter.take() == {}


def test_what_is_remembered_is_bounded() -> None:
    meter = ArrivalMeter(ArrivalClasses(("*",), {}))
    for number in range(MAX_KNOWN + 5):
        meter.count(request(f"Bot{number}/1"), None)
    meter.count(request("x" * 1_000), None)
    assert len(meter._known) <= MAX_KNOWN
    assert all(len(user_agent) <= 512 for user_agent in meter._known)
    assert meter.take() == {"*": MAX_KNOWN + 6}
