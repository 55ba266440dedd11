"""robots.txt (RFC 9309): what its responses mean, and how requests obey it."""

import pytest

from headgate.advice.fetching import NETWORK_ERROR, AdviceResponse
from headgate.advice.parser import UNREACHABLE
from headgate.agent import Courtesy, RetryLater
from headgate.agent.httpx import Client
from headgate.errors import ConfigurationError
from headgate.throttle import Throttle
from tests.e2e.polite_origin import Answer, running

robots = pytest.importorskip("headgate.agent.robots")

NOW = 1_000_000.0
ORIGIN = "https://example.com"
RULES = b"""
User-agent: ExampleBot
Disallow: /private
Allow: /private/page
Crawl-delay: 2
Request-rate: 1/5s

User-agent: *
Disallow: /

Sitemap: https://example.com/sitemap.xml
"""


def ok(body=RULES, *fields):
    return AdviceResponse(200, [("Content-Type", "text/plain"), *fields], body)


def test_responses_mean_what_rfc_9309_says():
    for response, expected, seconds in (
        (ok(), robots.RobotRules, 86_400),
        (ok(b"\xff\xfe <html>", ("Cache-Control", "max-age=3600")), robots.RobotRules, 3600),
        (ok(RULES, ("Cache-Control", "max-age=999999")), robots.RobotRules, 86_400),
        (ok(RULES, ("Cache-Control", "max-age=1")), robots.RobotRules, 600),
        (AdviceResponse(404, [], None), type(None), 86_400),
        (AdviceResponse(403, [], None), type(None), 86_400),
        (AdviceResponse(302, [], None), type(None), 86_400),  # one too many
        (AdviceResponse(500, [], None), type(UNREACHABLE), 60),
        (AdviceResponse(503, [("Retry-After", "120")], None), type(UNREACHABLE), 120),
        (AdviceResponse(429, [], None), type(UNREACHABLE), 60),
        (NETWORK_ERROR, type(UNREACHABLE), 60),
    ):
        resource = robots.RobotsResource("ExampleBot")
        result, reason = resource.interpret(response)
        assert isinstance(result, expected), response
        assert "robots.txt" in reason, response
        assert resource.fresh_for(response, result, now=NOW) == seconds, response


def test_rules_are_those_of_the_most_specific_group():
    rules = robots.RobotRules.parse(RULES, "examplebot")
    allowed = [rules.allows(ORIGIN + path) for path in ("/", "/private", "/private/page", "/private/x?y")]
    assert allowed == [True, False, True, False]
    assert rules.delay == 5
    other = robots.RobotRules.parse(RULES, "OtherBot")
    assert (other.allows(ORIGIN), other.delay) == (False, 0)
    assert robots.RobotRules.parse(b"User-agent: *\nCrawl-delay: 1e9", "*").delay == 300


def crawler(answer, **options):
    """Make a courtesy whose fetches of robots.txt are answered at once."""
    courtesy = Courtesy("ExampleBot", robots=True, clock=lambda: NOW, **options)
    for source in courtesy._state.sources:
        source._default = lambda request, report: report(
            answer if request.url.endswith("/robots.txt") else AdviceResponse(404, [], None)
        )
    return courtesy


def test_requests_obey_it_and_sitemaps_are_known():
    courtesy = crawler(ok())
    assert courtesy.sitemaps(f"{ORIGIN}/any") == ["https://example.com/sitemap.xml"]
    assert courtesy.attempt("GET", f"{ORIGIN}/page").wait() is None
    with pytest.raises(RetryLater, match=r"is held by its robots\.txt; retry") as caught:
        courtesy.attempt("GET", f"{ORIGIN}/private").wait()
    assert (caught.value.reason, caught.value.release_time) == ("robots_disallowed", NOW + 86_400)
    assert courtesy.release(f"{ORIGIN}/private") == NOW + 86_400
    assert "its robots.txt disallows the URL" in str(courtesy.explain(f"{ORIGIN}/private"))
    assert courtesy.attempt("GET", f"{ORIGIN}/page").wait().seconds == 5  # Request-rate
    with pytest.raises(ConfigurationError, match="make the Courtesy with robots=True"):
        Courtesy().sitemaps(ORIGIN)


@pytest.mark.parametrize(("status", "reason"), [(404, None), (503, "robots_unreachable"), (0, "robots_unreachable")])
def test_an_unreachable_file_forbids_everything_and_a_missing_one_nothing(status, reason):
    attempt = crawler(AdviceResponse(status, [], None)).attempt("GET", f"{ORIGIN}/page")
    attempt.wait().block()
    if reason is None:
        assert attempt.wait() is None
    else:
        with pytest.raises(RetryLater) as caught:
            attempt.wait()
        assert (caught.value.reason, caught.value.release_time) == (reason, NOW + 60)


def test_a_real_origin_is_asked_once_through_redirects_and_a_long_file_is_cut():
    with running() as origin, running() as other:
        origin.say("/robots.txt", Answer(301, {"Location": f"{other.url}/first"}))
        other.say("/first", Answer(302, {"Location": "/second"}))
        long = RULES + b"# " + b"x" * 600_000 + b"\nUser-agent: ExampleBot\nDisallow: /"
        other.say("/second", Answer(200, {"Content-Type": "text/plain"}, iter([long])))
        courtesy = Courtesy("ExampleBot/2.0", robots=True, throttle=Throttle())
        with Client(courtesy) as client:
            assert client.get(f"{origin.url}/page").status_code == 200
            with pytest.raises(RetryLater):
                client.get(f"{origin.url}/private/x")
        assert [asked.path for asked in other.asked] == ["/first", "/second"]
        asked = {asked.path: asked.fields["user-agent"] for asked in (*origin.asked, *other.asked)}
        assert set(asked.values()) == {"ExampleBot/2.0"}
        assert set(asked) == {"/robots.txt", "/.well-known/traffic-advice", "/page", "/first", "/second"}
