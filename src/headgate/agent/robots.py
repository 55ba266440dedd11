"""robots.txt (RFC 9309), parsed by Protego: which URLs of an origin an agent may request, and how fast.

The rules are a well-known resource like traffic advice, so the same cache and the same fetches serve both.
"""

from typing import Final, NamedTuple, Self

from headgate.advice.decision import Advice
from headgate.advice.fetching import AdviceRequest, AdviceResponse, Interpretation
from headgate.advice.freshness import MIN_FRESHNESS, UNREACHABLE_FOR, retry_release
from headgate.advice.parser import UNREACHABLE
from headgate.errors import MissingExtra
from headgate.http.freshness import freshness
from headgate.http.url import serialised_origin
from headgate.release import ASAP

try:
    from protego import Protego
except ImportError:
    raise MissingExtra("robots", "Courtesy(robots=True)") from None

_PATH: Final = "/robots.txt"
_MAX_REDIRECTS: Final = 5
"""RFC 9309, 2.3.1.2: "at least five consecutive redirects"."""
_MAX_FRESHNESS: Final = 86_400.0
"""2.4: "Crawlers SHOULD NOT use the cached version for more than 24 hours"."""
_MAX_DELAY: Final = 300.0
"""Seconds between two requests at most that a robots.txt can ask for."""


class RobotRules(NamedTuple):
    """The rules of one robots.txt for one agent."""

    parser: Protego
    agent: str

    @classmethod
    def parse(cls, body: bytes, agent: str) -> Self:
        """Parse a document, which is UTF-8; malformed lines are ignored."""
        return cls(Protego.parse(body.decode("utf-8", "replace")), agent)

    def allows(self, url: str) -> bool:
        """Return whether the agent may request `url`."""
        return bool(self.parser.can_fetch(url, self.agent))

    @property
    def delay(self) -> float:
        """The seconds between two requests: the longer of Crawl-delay and Request-rate."""
        rate = self.parser.request_rate(self.agent)
        spacing = rate.seconds / rate.requests if rate is not None and rate.requests else 0.0
        return min(max(self.parser.crawl_delay(self.agent) or 0.0, spacing), _MAX_DELAY)


class RobotsResource:
    """How robots.txt is requested and interpreted, for `WellKnownCache`."""

    kind = "robots"
    min_freshness = MIN_FRESHNESS
    key = staticmethod(serialised_origin)

    def __init__(self, agent: str) -> None:
        self._agent = agent

    def request(self, origin: str) -> AdviceRequest | None:
        """Return the request for the robots.txt of an http or https origin."""
        serialised = serialised_origin(origin)
        if serialised is None or not serialised.startswith(("http://", "https://")):
            return None
        fields = (("Accept", "text/plain"), ("Accept-Encoding", "identity"))
        return AdviceRequest(serialised + _PATH, fields, any_type=True, redirects=_MAX_REDIRECTS)

    def interpret(self, response: AdviceResponse) -> Interpretation:
        """Return the rules; None, which allows everything, after 4xx (2.3.1.3), unreachable after 5xx (2.3.1.4)."""
        if response.body is not None and 200 <= response.status <= 299:
            return Interpretation(RobotRules.parse(response.body, self._agent), "robots.txt has rules")
        if response.status == 0 or response.status >= 500 or response.status == 429:
            reason = f"robots.txt is unreachable: {response.failure or f'status {response.status}'}"
            return Interpretation(UNREACHABLE, reason)
        return Interpretation(None, f"there is no robots.txt: status {response.status}")

    def fresh_for(self, response: AdviceResponse, result: object, *, now: float) -> float:
        """Return the seconds for which a result stays fresh: a day at most."""
        if result is UNREACHABLE:
            release = retry_release(response.fields, now=now)
            return UNREACHABLE_FOR if release == ASAP else min(max(release - now, 1.0), _MAX_FRESHNESS)
        given = freshness(response.fields, now=now)
        lifetime = _MAX_FRESHNESS if given.lifetime is None else given.lifetime - given.age
        return min(max(lifetime, MIN_FRESHNESS), _MAX_FRESHNESS)


def rules_of(known: Advice) -> RobotRules | None:
    """Return the rules that apply: also the last ones of an origin that is unreachable now."""
    entry: object = known.entry  # of a cache with a `RobotsResource`
    return entry if isinstance(entry, RobotRules) else None


def robots_hold(known: Advice, url: str) -> tuple[float, str]:
    """Return until when, and why, a URL must not be requested; until `ASAP` if it may be."""
    rules = rules_of(known)
    if rules is not None:
        return (ASAP if rules.allows(url) else known.fresh_until), "robots_disallowed"
    # 2.3.1.4: "Crawlers MUST assume complete disallow".
    return (known.fresh_until if known.result is UNREACHABLE else ASAP), "robots_unreachable"
