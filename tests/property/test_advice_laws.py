"""Laws of traffic advice, for all documents, responses and orders of events."""

import json
import math

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headgate.advice import MEDIA_TYPE, AdviceCache, AgentIdentity, parse_advice, permits
from headgate.advice.cache import REPORT_TIMEOUT, Fetch, FetchPending
from headgate.advice.decision import Advice, sticky_draw
from headgate.advice.fetching import NETWORK_ERROR, AdviceResponse, interpret, interpret_fully, needs_body
from headgate.advice.freshness import MAX_FRESHNESS, MIN_FRESHNESS, fresh_for
from headgate.advice.lint import lint_document
from headgate.advice.parser import UNREACHABLE, AdviceEntry, parse_advice_bytes
from headgate.advice_control import Entry, document

IDENTITY = AgentIdentity(["ExampleProxy", "prefetch-proxy", "*"])
NOW = 1_700_000_000.0

agents = st.sampled_from(["ExampleProxy", "prefetch-proxy", "*", "Other", "exampleproxy", ""])
scalars = st.none() | st.booleans() | st.integers(-2, 2) | st.floats(-2, 2) | st.text(max_size=3)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(agents, inner, max_size=2))
members = st.sampled_from(["user_agent", "disallow", "fraction", "x"])
entries = st.dictionaries(members, agents | values, max_size=4) | st.fixed_dictionaries(
    {"user_agent": agents}, optional={"disallow": values, "fraction": values, "x": values}
)
documents = st.lists(entries | values, max_size=5)
fractions = st.floats(0, 1)


def parse_by_the_steps(parsed: object) -> AdviceEntry | None:
    """Follow section 6, steps 2 to 9, literally."""
    if not isinstance(parsed, list):
        return None
    best_match = None
    for entry in parsed:
        if not isinstance(entry, dict):
            continue
        if "user_agent" not in entry or not isinstance(entry["user_agent"], str):
            continue
        if entry["user_agent"] not in list(IDENTITY):
            continue
        if best_match is None or IDENTITY.index(entry["user_agent"]) < IDENTITY.index(best_match["user_agent"]):
            best_match = entry
    if best_match is None:
        return None
    disallowed, fraction = False, 1.0
    if "disallow" in best_match and best_match["disallow"] is True:
        disallowed = True
    given = best_match.get("fraction")
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given <= 1:
        fraction = float(given)
    return AdviceEntry(disallowed, fraction)


@given(documents | values, st.booleans(), st.sampled_from([None, 1]))
def test_parsing_equals_the_steps_of_the_document(parsed: object, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(parsed, ensure_ascii=ascii_only, indent=indent)
    assert parse_advice(text, IDENTITY) == parse_by_the_steps(json.loads(text))


@given(st.binary() | st.text().map(str.encode) | documents.map(lambda parsed: json.dumps(parsed).encode()), st.data())
def test_any_bytes_are_an_entry_or_none(data: bytes, drawn: st.DataObject) -> None:
    if data and drawn.draw(st.booleans()):
        at = drawn.draw(st.integers(0, len(data)))
        data = data[:at] + drawn.draw(st.binary(max_size=3)) + data[at + drawn.draw(st.integers(0, 2)) :]
    entry = parse_advice_bytes(data, IDENTITY)
    if entry is not None:
        assert 0 <= entry.fraction <= 1
        assert math.copysign(1, entry.fraction) == 1
        assert isinstance(entry.disallowed, bool)


@given(
    st.lists(
        st.builds(Entry, st.sampled_from([*IDENTITY, "Other"]), st.booleans(), fractions),
        unique_by=lambda e: e.user_agent,
    )
)
def test_published_document_is_read_as_written(published: list[Entry]) -> None:
    named = {entry.user_agent: entry for entry in published}
    mine = next((named[name] for name in IDENTITY if name in named), None)
    read = parse_advice_bytes(document(published), IDENTITY)
    assert read == (mine and AdviceEntry(mine.disallow, abs(mine.fraction)))


@given(documents.map(lambda parsed: json.dumps(parsed).encode()) | st.binary(max_size=50))
def test_lint_never_raises_and_reads_what_agents_read(data: bytes) -> None:
    report = lint_document(data)
    assert report.conforming == parse_advice_bytes(
        data, AgentIdentity(["Chrome Privacy Preserving Prefetch Proxy", *IDENTITY[1:]])
    )
    for found in report.findings:
        assert found.message.isprintable()


# fmt: off
NAMES = ["Cache-Control", "cache-control", "Expires", "Date", "Age", "Retry-After", "Content-Type", "ETag",
         "Last-Modified"]
TEXTS = ["", "0", "60", "900", "99999999999", "-1", "1.5", '"900"', "x", "max-age=900", "max-age=1", "s-maxage=5000",
         "max-age=99999999", "no-store", "private, max-age=7", 'x="', "Sun, 06 Nov 1994 08:49:37 GMT",
         "Fri, 31 Dec 9999 23:59:59 GMT", MEDIA_TYPE, "text/html, x", '"a"', 'W/"b"']
# fmt: on
fields = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(TEXTS) | st.text(st.characters(max_codepoint=255))))
statuses = st.sampled_from([0, 200, 204, 206, 301, 304, 403, 404, 429, 500, 503]) | st.integers(100, 999)
bodies = st.none() | st.sampled_from([b"", b"[]", b'[{"user_agent":"*","disallow":true}]', b'[{"user_agent":"*"}]'])


@given(statuses, fields, bodies, st.integers(0, 4_000_000_000))
def test_any_response_has_a_result_a_reason_and_a_bounded_freshness(
    status: int, given_fields: list[tuple[str, str]], body: bytes | None, now: int
) -> None:
    response = AdviceResponse(status, given_fields, body)
    result, reason = interpret_fully(response, IDENTITY)
    assert result == interpret(response, IDENTITY)
    assert reason
    assert needs_body(status, given_fields) or not isinstance(result, AdviceEntry)
    seconds = fresh_for(response, result, now=now)
    assert (1 if result is UNREACHABLE else MIN_FRESHNESS) <= seconds <= MAX_FRESHNESS


@given(st.binary(max_size=8), st.text(max_size=8), st.floats(-1e12, 1e12))
def test_sticky_draw_obeys_the_fractions_0_and_1(client: bytes, origin: str, now: float) -> None:
    draw = sticky_draw(b"k" * 16, client, origin, now=now)
    assert 0 < draw <= 1
    assert draw == sticky_draw(b"k" * 16, client, origin, now=now)
    assert not permits(AdviceEntry(fraction=0.0), draw)
    assert permits(AdviceEntry(fraction=1.0), draw)


about_freshness = st.lists(st.tuples(st.sampled_from(NAMES[:5]), st.sampled_from(TEXTS)))


@given(about_freshness, bodies.filter(lambda body: body is not None))
def test_304_without_new_fields_renews_as_the_same_200(given_fields: list[tuple[str, str]], body: bytes) -> None:
    typed = [("Content-Type", MEDIA_TYPE), ("ETag", '"a"'), *given_fields]
    whole = AdviceResponse(200, typed, body)
    renewed, replaced = AdviceCache(IDENTITY), AdviceCache(IDENTITY)
    for cache in (renewed, replaced):
        fetch = cache.ask("https://example.com", now=NOW)
        assert isinstance(fetch, Fetch)
        cache.received(fetch, whole, now=NOW)
    later = NOW + MAX_FRESHNESS
    fetch, other = (cache.ask("https://example.com", now=later) for cache in (renewed, replaced))
    assert fetch == other
    assert isinstance(fetch, Fetch)
    assume(fetch.request.is_conditional)  # unless nothing of it may be kept
    unchanged = renewed.received(fetch, AdviceResponse(304, typed, None), now=later)
    assert unchanged == replaced.received(fetch, whole, now=later)


class Cache(RuleBasedStateMachine):
    """A few origins, asked and reported in any order, with a clock that goes forward."""

    ORIGINS = ("https://a.example", "https://b.example:8443", "http://localhost", "https://c.example")
    MAX_ORIGINS = 3

    def __init__(self) -> None:
        super().__init__()
        self.cache = AdviceCache(IDENTITY, most_origins=self.MAX_ORIGINS)
        self.now = NOW
        self.fetches: list[Fetch] = []
        self.latest: dict[str, Advice] = {}
        """The last advice for each origin, until an origin is evicted."""

    @rule(seconds=st.sampled_from([0.0, 0.5, REPORT_TIMEOUT, 59.0, 600.0, 1800.0, 200_000.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(origin=st.sampled_from(ORIGINS))
    def ask(self, origin: str) -> None:
        evicted = self.cache.evicted
        in_flight = [fetch for fetch in self.fetches if fetch.origin == origin and self.now < fetch.give_up]
        answer = self.cache.ask(origin, now=self.now)
        if self.cache.evicted > evicted:
            self.latest.clear()
        known = self.latest.get(origin)
        if known is not None and self.now < known.fresh_until:
            assert answer == known
        if isinstance(answer, Fetch):
            assert answer.origin == origin
            if self.cache.evicted == 0:
                assert not in_flight
            self.fetches.append(answer)
        elif isinstance(answer, FetchPending):
            assert self.now < answer.until <= self.now + REPORT_TIMEOUT
        else:
            assert self.now < answer.fresh_until <= self.now + MAX_FRESHNESS
            self.latest[origin] = answer

    @precondition(lambda self: self.fetches)
    @rule(drawn=st.data(), status=statuses, given_fields=fields, body=bodies)
    def report(
        self, drawn: st.DataObject, status: int, given_fields: list[tuple[str, str]], body: bytes | None
    ) -> None:
        fetch = self.fetches.pop(drawn.draw(st.integers(0, len(self.fetches) - 1)))
        evicted = self.cache.evicted
        known = self.cache.received(fetch, AdviceResponse(status, given_fields, body), now=self.now)
        if self.cache.evicted > evicted:
            self.latest.clear()
        assert known.origin == fetch.origin
        assert known.fresh_until <= self.now + MAX_FRESHNESS
        is_cut = body is None and needs_body(status, given_fields)
        if status not in {0, 304, 429, 503} and not is_cut:
            assert known.fresh_until >= self.now + MIN_FRESHNESS
            assert known.result == interpret(AdviceResponse(status, given_fields, body), IDENTITY)
        if self.cache.known(fetch.origin, now=self.now) == known:
            self.latest[fetch.origin] = known

    @precondition(lambda self: self.fetches)
    @rule(drawn=st.data())
    def fail(self, drawn: st.DataObject) -> None:
        fetch = self.fetches.pop(drawn.draw(st.integers(0, len(self.fetches) - 1)))
        evicted = self.cache.evicted
        before = self.cache.known(fetch.origin, now=self.now)
        known = self.cache.received(fetch, NETWORK_ERROR, now=self.now)
        if self.cache.evicted > evicted:
            self.latest.clear()
        if before is None:
            self.latest.pop(fetch.origin, None)
        else:
            assert known == before  # a network error is ignored while other advice is fresh

    @precondition(lambda self: self.fetches)
    @rule(drawn=st.data())
    def abandon(self, drawn: st.DataObject) -> None:
        fetch = self.fetches.pop(drawn.draw(st.integers(0, len(self.fetches) - 1)))
        self.cache.abandoned(fetch)

    @rule()
    def forget(self) -> None:
        known = {origin: self.cache.known(origin, now=self.now) for origin in self.ORIGINS}
        self.cache.forget(now=self.now)
        assert known == {origin: self.cache.known(origin, now=self.now) for origin in self.ORIGINS}

    @invariant()
    def number_of_origins_is_bounded(self) -> None:
        assert self.cache.origins <= self.MAX_ORIGINS


TestCache = Cache.TestCase
TestCache.settings = settings(stateful_step_count=40)
