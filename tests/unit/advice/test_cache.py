import pytest

from headgate.advice import MEDIA_TYPE, AdviceCache, AgentIdentity
from headgate.advice.cache import REPORT_TIMEOUT, Fetch, FetchPending
from headgate.advice.fetching import NETWORK_ERROR, AdviceResponse, advice_request
from headgate.advice.parser import UNREACHABLE, AdviceEntry
from headgate.errors import ConfigurationError
from headgate.release import ASAP, NEVER
from tests.quotes import quotes

IDENTITY = AgentIdentity(["ExampleBot", "*"])
ORIGIN = "https://example.com"
NOW, HOUR = 1_700_000_000.0, 3600.0
HALF = b'[{"user_agent":"*","fraction":0.5}]'
DISALLOWED = b'[{"user_agent":"*","disallow":true}]'


def response(body=HALF, *fields, status=200):
    return AdviceResponse(status, [("Content-Type", MEDIA_TYPE), *fields], body)


@pytest.fixture
def cache():
    return AdviceCache(IDENTITY)


def fetched(cache, answer, *, now=NOW):
    fetch = cache.ask(ORIGIN, now=now)
    assert isinstance(fetch, Fetch)
    return cache.received(fetch, answer, now=now)


def conditions(fetch):
    assert isinstance(fetch, Fetch)
    return {name: value for name, value in fetch.request.fields if name.startswith("If-")}


class TestSingleFlight:
    def test_one_of_a_hundred_callers_fetches(self, cache):
        answers = [cache.ask(ORIGIN, now=NOW) for _ in range(100)]
        fetches = [answer for answer in answers if isinstance(answer, Fetch)]
        assert len(fetches) == 1
        assert answers[1:] == [FetchPending(NOW + REPORT_TIMEOUT)] * 99
        known = cache.received(fetches[0], response(), now=NOW + 1)
        assert [cache.ask(ORIGIN, now=NOW + 1) for _ in range(100)] == [known] * 100

    def test_fetch_without_a_report_is_made_again_after_the_timeout(self, cache):
        assert isinstance(cache.ask(ORIGIN, now=NOW), Fetch)
        assert cache.ask(ORIGIN, now=NOW + REPORT_TIMEOUT - 0.001) == FetchPending(NOW + REPORT_TIMEOUT)
        assert cache.known(ORIGIN, now=NOW + REPORT_TIMEOUT) is None
        second = cache.ask(ORIGIN, now=NOW + REPORT_TIMEOUT)
        assert second.give_up == NOW + 2 * REPORT_TIMEOUT

    def test_late_report_counts(self, cache):
        fetch = cache.ask(ORIGIN, now=NOW)
        cache.ask(ORIGIN, now=NOW + REPORT_TIMEOUT)
        late = cache.received(fetch, response(), now=NOW + 30)
        assert late.result == AdviceEntry(fraction=0.5)
        assert cache.ask(ORIGIN, now=NOW + 30) == late

    @pytest.mark.parametrize("late", [NETWORK_ERROR, response(None, status=503)])
    def test_late_failure_is_ignored_if_there_is_newer_advice(self, cache, late):
        first = cache.ask(ORIGIN, now=NOW)
        cache.ask(ORIGIN, now=NOW + REPORT_TIMEOUT)
        known = fetched(cache, response(), now=NOW + 100)
        assert cache.received(first, late, now=NOW + 101) == known
        assert cache.ask(ORIGIN, now=NOW + 101) == known

    def test_later_503_counts_although_other_advice_is_fresh(self, cache):
        first = cache.ask(ORIGIN, now=NOW)
        second = cache.ask(ORIGIN, now=NOW + 100)
        cache.received(first, response(), now=NOW + 101)
        busy = cache.received(second, response(None, ("Retry-After", "30"), status=503), now=NOW + 102)
        assert (busy.result, busy.hold_until) == (UNREACHABLE, NOW + 132)
        assert cache.ask(ORIGIN, now=NOW + 103) == busy

    def test_late_report_does_not_end_the_next_fetch(self, cache):
        first = cache.ask(ORIGIN, now=NOW)
        second = cache.ask(ORIGIN, now=NOW + 100)
        cache.received(first, NETWORK_ERROR, now=NOW + 101)
        assert cache.ask(ORIGIN, now=NOW + 101) == FetchPending(second.give_up)

    def test_abandoned_fetch_is_made_by_the_next_caller(self, cache):
        fetch = cache.ask(ORIGIN, now=NOW)
        cache.abandoned(fetch)
        assert isinstance(cache.ask(ORIGIN, now=NOW + 1), Fetch)
        cache.abandoned(fetch)  # the first one, again
        assert isinstance(cache.ask(ORIGIN, now=NOW + 2), FetchPending)
        cache.abandoned(Fetch("https://example.org", fetch.request, NOW))

    def test_abandoned_fetch_is_made_again_from_retry_at_on(self, cache):
        fetch = cache.ask(ORIGIN, now=NOW)
        cache.abandoned(fetch, retry_at=NOW + 1)
        assert cache.ask(ORIGIN, now=NOW + 0.5) == FetchPending(NOW + 1)
        assert cache.known(ORIGIN, now=NOW + 0.5) is None
        assert isinstance(cache.ask(ORIGIN, now=NOW + 1), Fetch)

    def test_clock_set_back_does_not_extend_a_wait(self, cache):
        cache.ask(ORIGIN, now=NOW)
        again = cache.ask(ORIGIN, now=NOW - HOUR)
        cache.abandoned(again, retry_at=NOW - HOUR + 1)
        assert isinstance(cache.ask(ORIGIN, now=NOW - 2 * HOUR), Fetch)


class TestFreshness:
    def test_result_is_kept_until_it_is_stale(self):
        for answer, result, seconds in (
            (response(), AdviceEntry(fraction=0.5), 1800),
            (response(HALF, ("Cache-Control", "max-age=0")), AdviceEntry(fraction=0.5), 600),
            (response(HALF, ("Cache-Control", "no-store")), AdviceEntry(fraction=0.5), 600),
            (response(HALF, ("Cache-Control", "max-age=9999999")), AdviceEntry(fraction=0.5), 172_800),
            (response(None, ("Cache-Control", "max-age=3600"), status=404), None, 3600),
            (response(None, status=404), None, 1800),
            (response(None, status=503), UNREACHABLE, 60),
            (response(None, ("Retry-After", "7"), status=429), UNREACHABLE, 7),
            (NETWORK_ERROR, UNREACHABLE, 60),
        ):
            cache = AdviceCache(IDENTITY)
            known = fetched(cache, answer)
            assert (known.origin, known.result, known.fresh_until) == (ORIGIN, result, NOW + seconds)
            assert known.reason
            assert cache.ask(ORIGIN, now=NOW + seconds - 0.001) == known
            assert cache.known(ORIGIN, now=NOW + seconds - 0.001) == known
            assert cache.known(ORIGIN, now=NOW + seconds) is None
            assert isinstance(cache.ask(ORIGIN, now=NOW + seconds), Fetch)

    def test_known_never_starts_a_fetch(self, cache):
        assert cache.known(ORIGIN, now=NOW) is None
        assert cache.origins == 0

    def test_clock_set_back_does_not_extend_freshness(self, cache):
        fetched(cache, response())
        assert isinstance(cache.ask(ORIGIN, now=NOW - 200_000), Fetch)

    def test_minimum_freshness_is_configurable(self):
        short = ("Cache-Control", "max-age=2"), ("ETag", '"a"')
        cache = AdviceCache(IDENTITY, min_freshness=1.5)
        assert fetched(cache, response(HALF, *short)).fresh_until == NOW + 2
        fetch = cache.ask(ORIGIN, now=NOW + 2)
        renewed = cache.received(fetch, AdviceResponse(304, [("Cache-Control", "max-age=1")], b""), now=NOW + 3)
        assert renewed.fresh_until == NOW + 3 + 1.5
        for seconds in (0.0, -1.0, 172_801.0, float("nan"), "600"):
            with pytest.raises(ConfigurationError, match="min_freshness"):
                AdviceCache(IDENTITY, min_freshness=seconds)

    @quotes(
        "traffic-advice 5",
        "If present, the [HTTP-SEMANTICS] Retry-After response header could be used as a hint about when to "
        "next retry.",
    )
    @quotes(
        "traffic-advice 7",
        'If the result is "unreachable", then the HTTP server was not able to service the request for traffic'
        " advice. Since this could indicate that the server cannot accept additional requests at this time, "
        "agents may stop traffic to the server for some interval.",
    )
    def test_unreachable_origin_is_held_only_with_retry_after(self, cache):
        known = fetched(cache, response(None, ("Retry-After", "7"), status=503))
        assert known.release_time(0.0) == known.hold_until == NOW + 7
        assert fetched(cache, NETWORK_ERROR, now=NOW + 7).release_time(1.0) == ASAP


class TestRefresh:
    def test_advice_is_fetched_again_in_the_last_tenth_of_its_freshness(self, cache):
        assert cache.refresh(ORIGIN, now=NOW) is None
        fetched(cache, response())
        assert cache.refresh(ORIGIN, now=NOW + 1619) is None
        fetch = cache.refresh(ORIGIN, now=NOW + 1620)
        assert fetch.request == advice_request(ORIGIN, IDENTITY)
        assert cache.refresh(ORIGIN, now=NOW + 1621) is None  # one is in flight
        assert cache.ask(ORIGIN, now=NOW + 1621).fresh_until == NOW + 1800
        cache.received(fetch, response(), now=NOW + 1622)
        assert cache.ask(ORIGIN, now=NOW + 1622).fresh_until == NOW + 1622 + 1800
        assert cache.refresh(ORIGIN, now=NOW + 1622 + 1800) is None  # stale, so that a caller has to ask

    def test_an_abandoned_refresh_waits(self, cache):
        fetched(cache, response())
        cache.abandoned(cache.refresh(ORIGIN, now=NOW + 1700), retry_at=NOW + 1705)
        assert cache.refresh(ORIGIN, now=NOW + 1704) is None
        assert cache.refresh(ORIGIN, now=NOW + 1705) is not None

    def test_the_last_advice_is_known_for_48_hours_after_its_freshness(self, cache):
        assert cache.last(ORIGIN, now=NOW) is None
        advice = fetched(cache, response())
        assert cache.last(ORIGIN, now=NOW + 1800 + 172_799) == advice
        assert cache.last(ORIGIN, now=NOW + 1800 + 172_800) is None


class TestRevalidation:
    ETAG = ("ETag", '"a"')
    DATE = ("Last-Modified", "Wed, 01 Jan 2020 00:00:00 GMT")

    def test_advice_with_validators_is_renewed_by_a_304(self, cache):
        fetched(cache, response(DISALLOWED, self.ETAG, self.DATE, ("Cache-Control", "max-age=3600")))
        fetch = cache.ask(ORIGIN, now=NOW + HOUR)
        assert conditions(fetch) == {"If-None-Match": '"a"', "If-Modified-Since": self.DATE[1]}
        known = cache.received(fetch, AdviceResponse(304, [], b""), now=NOW + HOUR + 1)
        assert known.result == AdviceEntry(disallowed=True)
        assert known.fresh_until == NOW + HOUR + 1 + 3600
        assert cache.ask(ORIGIN, now=NOW + HOUR + 2) == known

    def test_lifetime_of_a_304_replaces_the_stored_one(self, cache):
        fetched(cache, response(HALF, self.ETAG, ("Cache-Control", "max-age=3600")))
        fetch = cache.ask(ORIGIN, now=NOW + HOUR)
        fields = [("ETag", '"b"'), ("Cache-Control", "max-age=7200")]
        known = cache.received(fetch, AdviceResponse(304, fields, None), now=NOW + HOUR)
        assert known.fresh_until == NOW + HOUR + 7200
        assert conditions(cache.ask(ORIGIN, now=NOW + 3 * HOUR)) == {"If-None-Match": '"b"'}

    def test_200_replaces_the_advice(self, cache):
        fetched(cache, response(HALF, self.ETAG))
        known = fetched(cache, response(DISALLOWED), now=NOW + HOUR)
        assert known.result == AdviceEntry(disallowed=True)
        assert conditions(cache.ask(ORIGIN, now=NOW + 2 * HOUR)) == {}

    def test_404_removes_the_advice(self, cache):
        fetched(cache, response(DISALLOWED, self.ETAG))
        known = fetched(cache, response(None, status=404), now=NOW + HOUR)
        assert (known.result, known.entry) == (None, None)
        assert conditions(cache.ask(ORIGIN, now=NOW + 2 * HOUR)) == {}

    def test_304_to_an_unconditional_request_is_null(self, cache):
        known = fetched(cache, response(b"", status=304))
        assert known.result is None
        assert known.fresh_until == NOW + 1800

    def test_304_for_dropped_advice_is_fetched_again(self):
        cache = AdviceCache(IDENTITY, most_origins=1)
        fetched(cache, response(HALF, self.ETAG))
        fetch = cache.ask(ORIGIN, now=NOW + HOUR)
        cache.ask("https://example.org", now=NOW + HOUR)
        known = cache.received(fetch, AdviceResponse(304, [], None), now=NOW + HOUR)
        assert (known.result, known.fresh_until) == (None, NOW + HOUR)
        assert conditions(cache.ask(ORIGIN, now=NOW + HOUR)) == {}

    def test_late_304_does_not_renew_newer_advice(self, cache):
        fetched(cache, response(HALF, self.ETAG))
        late = cache.ask(ORIGIN, now=NOW + HOUR)
        cache.ask(ORIGIN, now=NOW + HOUR + REPORT_TIMEOUT)
        known = fetched(cache, response(DISALLOWED, ("ETag", '"b"')), now=NOW + HOUR + 100)
        cache.received(late, AdviceResponse(304, [], None), now=NOW + HOUR + 101)
        assert cache.ask(ORIGIN, now=NOW + HOUR + 101) == known

    def test_incomplete_body_is_not_renewed(self, cache):
        fetched(cache, response(None, self.ETAG))
        assert conditions(cache.ask(ORIGIN, now=NOW + HOUR)) == {}

    def test_unreachable_origin_is_asked_conditionally_for_48_hours(self):
        for seconds, expected in ((HOUR, {"If-None-Match": '"a"'}), (172_800.0 + 1799, {})):
            cache = AdviceCache(IDENTITY)
            fetched(cache, response(HALF, self.ETAG))
            fetched(cache, NETWORK_ERROR, now=NOW + HOUR)
            assert conditions(cache.ask(ORIGIN, now=NOW + HOUR + seconds)) == expected


class TestPreviousAdvice:
    def test_previous_advice_applies_to_an_unreachable_origin_for_48_hours(self, cache):
        fetched(cache, response(DISALLOWED))
        stale = NOW + 1800
        for now in (stale, stale + 60, stale + 172_800 - 0.001):
            known = fetched(cache, NETWORK_ERROR, now=now)
            assert (known.result, known.previous) == (UNREACHABLE, AdviceEntry(disallowed=True))
            assert known.release_time(0.0) == known.fresh_until == now + 60
        known = fetched(cache, NETWORK_ERROR, now=stale + 172_800 + 60)
        assert (known.result, known.previous, known.release_time(1.0)) == (UNREACHABLE, None, ASAP)

    def test_late_report_does_not_extend_previous_advice(self, cache):
        fetched(cache, response(DISALLOWED))
        fetch = cache.ask(ORIGIN, now=NOW + 1800 + 172_799)
        assert cache.received(fetch, NETWORK_ERROR, now=NOW + 1800 + 172_801).previous is None

    def test_clock_set_back_does_not_extend_previous_advice(self, cache):
        fetched(cache, response(DISALLOWED))
        assert fetched(cache, NETWORK_ERROR, now=NOW - 400_000).previous is None

    def test_directives_forbid_previous_advice(self):
        for directive in ("no-store", "must-revalidate", "private"):
            cache = AdviceCache(IDENTITY)
            fetched(cache, response(DISALLOWED, ("Cache-Control", directive)))
            assert fetched(cache, NETWORK_ERROR, now=NOW + HOUR).previous is None, directive

    @quotes(
        "traffic-advice 7",
        "If the result is null, then no advice was received. Agents should adopt their default behavior.",
    )
    def test_previous_advice_stays_after_an_incomplete_body(self, cache):
        fetched(cache, response(b'[{"user_agent":"*","disallow":true}]'))
        broken = response(None, ("Cache-Control", "max-age=172800"))._replace(failure="broken off")
        advice = fetched(cache, broken, now=NOW + 1800)
        assert (advice.result, advice.entry.disallowed) == (UNREACHABLE, True)
        assert (advice.fresh_until, advice.reason) == (NOW + 1860, "no response received: broken off")

    def test_null_is_not_previous_advice(self, cache):
        fetched(cache, response(b"[]"))
        assert fetched(cache, NETWORK_ERROR, now=NOW + HOUR).previous is None


class TestOrigins:
    @quotes(
        "traffic-advice 5",
        "To fetch traffic advice for origin origin, agent identity identity and algorithm whenComplete "
        "accepting a traffic advice result: 1. Let url be the result of generating a traffic advice URL for "
        "origin. If it results in failure, then return failure.",
    )
    def test_origin_that_must_not_be_asked_has_null_forever(self, cache):
        for origin in ("http://example.com", "ftp://localhost", "null", "", "file:///", "https://\ud800"):
            known = cache.ask(origin, now=NOW)
            assert (known.result, known.fresh_until, known.release_time(1.0)) == (None, NEVER, ASAP), origin
            assert known.reason == "the origin must not be asked"
        assert cache.origins == 0

    def test_overlong_origin_is_not_stored(self, cache):
        known = cache.ask(f"https://{'a.' * 10_000}example", now=NOW)
        assert known.fresh_until == NEVER
        assert len(known.origin) <= 300
        assert isinstance(cache.ask(f"https://{'a.' * 121}example.:65535", now=NOW), Fetch)
        assert cache.origins == 1

    def test_spellings_of_one_origin_share_a_record(self, cache):
        assert isinstance(cache.ask("http://127.1:8000/a", now=NOW), Fetch)
        for other in ("http://127.0.0.1:8000", "HTTP://0x7f.1:8000/b?c", "http://u:p@127.0.1:8000"):
            assert isinstance(cache.ask(other, now=NOW), FetchPending)
        assert cache.origins == 1

    def test_least_recently_asked_origin_is_evicted(self):
        cache = AdviceCache(IDENTITY, most_origins=3)
        for number in range(3):
            cache.ask(f"https://{number}.example", now=NOW)
        cache.ask("https://0.example", now=NOW)
        cache.ask("https://3.example", now=NOW)
        assert (cache.origins, cache.evicted) == (3, 1)
        kinds = [type(cache.ask(f"https://{number}.example", now=NOW)) for number in (0, 2, 3)]
        assert kinds == [FetchPending, FetchPending, FetchPending]
        assert isinstance(cache.ask("https://1.example", now=NOW), Fetch)

    def test_each_report_drops_two_expired_records(self):
        cache = AdviceCache(IDENTITY)
        for number in range(6):
            cache.ask(f"https://{number}.example", now=NOW)
        sizes = []
        for number in range(4):
            fetch = cache.ask(ORIGIN, now=NOW + 1000 * (number + 1))
            assert isinstance(fetch, Fetch)
            cache.received(fetch, NETWORK_ERROR, now=NOW + 1000 * (number + 1))
            sizes.append(cache.origins)
        assert sizes == [5, 3, 1, 1]
        assert cache.evicted == 0

    def test_report_counts_as_use(self):
        cache = AdviceCache(IDENTITY, most_origins=2)
        fetch = cache.ask(ORIGIN, now=NOW)
        cache.ask("https://example.org", now=NOW)
        known = cache.received(fetch, response(), now=NOW)
        cache.ask("https://example.net", now=NOW)
        assert cache.known(ORIGIN, now=NOW) == known

    def test_report_for_an_evicted_origin_is_stored(self):
        cache = AdviceCache(IDENTITY, most_origins=1)
        fetch = cache.ask(ORIGIN, now=NOW)
        cache.ask("https://example.org", now=NOW)
        known = cache.received(fetch, response(), now=NOW)
        assert cache.ask(ORIGIN, now=NOW) == known
        assert cache.origins == 1

    def test_maximum_of_0_origins_is_refused(self):
        with pytest.raises(ConfigurationError, match="most_origins must be at least 1, got 0"):
            AdviceCache(IDENTITY, most_origins=0)

    def test_forget_drops_expired_records(self, cache):
        fetched(cache, response(HALF, ("ETag", '"a"')))
        cache.forget(now=NOW + 1800 + 172_799)
        assert cache.origins == 1
        cache.forget(now=NOW + 1800 + 172_800)
        assert cache.origins == 0

    def test_forget_keeps_fresh_records_and_fetches_in_progress(self, cache):
        fetched(cache, response(None, status=404))
        cache.ask("https://example.org", now=NOW)
        cache.forget(now=NOW + REPORT_TIMEOUT - 0.001)
        assert cache.origins == 2
        cache.forget(now=NOW + REPORT_TIMEOUT)
        assert cache.known(ORIGIN, now=NOW + REPORT_TIMEOUT)
        assert cache.origins == 1
        cache.forget(now=NOW + 1800)
        assert cache.origins == 0
