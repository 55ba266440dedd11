"""The cache: who is told to fetch, who to wait, and what is known meanwhile."""

import pytest

from headgate.advice import MEDIA_TYPE, AdviceCache, AgentIdentity
from headgate.advice.cache import REPORT_TIMEOUT, Fetch, FetchPending
from headgate.advice.decision import Advice
from headgate.advice.fetching import NETWORK_ERROR, AdviceResponse
from headgate.advice.parser import UNREACHABLE, AdviceEntry
from headgate.errors import ConfigurationError
from headgate.release import ASAP, NEVER

IDENTITY = AgentIdentity(["ExampleBot", "*"])
ORIGIN = "https://example.com"
NOW, HOUR = 1_700_000_000.0, 3600.0
HALF = b'[{"user_agent":"*","fraction":0.5}]'
DISALLOWED = b'[{"user_agent":"*","disallow":true}]'


def response(body: bytes | None = HALF, *fields: tuple[str, str], status: int = 200) -> AdviceResponse:
    return AdviceResponse(status, [("Content-Type", MEDIA_TYPE), *fields], body)


@pytest.fixture
def cache() -> AdviceCache:
    return AdviceCache(IDENTITY)


def fetched(cache: AdviceCache, answer: AdviceResponse, *, now: float = NOW) -> Advice:
    fetch = cache.ask(ORIGIN, now=now)
    assert isinstance(fetch, Fetch)
    return cache.received(fetch, answer, now=now)


def conditions(fetch: object) -> dict[str, str]:
    assert isinstance(fetch, Fetch)
    return {name: value for name, value in fetch.request.fields if name.startswith("If-")}


class TestSingleFlight:
    def test_of_a_hundred_who_ask_at_once_one_fetches(self, cache: AdviceCache) -> None:
        answers = [cache.ask(ORIGIN, now=NOW) for _ in range(100)]
        fetches = [answer for answer in answers if isinstance(answer, Fetch)]
        assert len(fetches) == 1
        assert answers[1:] == [FetchPending(NOW + REPORT_TIMEOUT)] * 99
        known = cache.received(fetches[0], response(), now=NOW + 1)
        assert [cache.ask(ORIGIN, now=NOW + 1) for _ in range(100)] == [known] * 100

    def test_of_a_hundred_who_ask_of_what_is_stale_one_fetches(self, cache: AdviceCache) -> None:
        fetched(cache, response())
        answers = [cache.ask(ORIGIN, now=NOW + HOUR) for _ in range(100)]
        assert [type(answer) for answer in answers] == [Fetch] + [FetchPending] * 99

    def test_each_origin_has_a_flight_of_its_own(self, cache: AdviceCache) -> None:
        origins = [ORIGIN, "https://example.com:8443", "http://localhost", "https://www.example.com"]
        assert [type(cache.ask(origin, now=NOW)) for origin in origins] == [Fetch] * 4

    def test_waiting_has_a_bound_behind_which_the_next_to_ask_fetches(self, cache: AdviceCache) -> None:
        # Every fetch reports in time, whatever the origin does: what is missing is its reporter.
        first = cache.ask(ORIGIN, now=NOW)
        assert isinstance(first, Fetch)
        assert cache.ask(ORIGIN, now=NOW + REPORT_TIMEOUT - 0.001) == FetchPending(NOW + REPORT_TIMEOUT)
        assert cache.known(ORIGIN, now=NOW + REPORT_TIMEOUT) is None
        second = cache.ask(ORIGIN, now=NOW + REPORT_TIMEOUT)
        assert isinstance(second, Fetch)
        assert second.give_up == NOW + 2 * REPORT_TIMEOUT

    def test_a_late_report_counts(self, cache: AdviceCache) -> None:
        fetch = cache.ask(ORIGIN, now=NOW)
        assert isinstance(fetch, Fetch)
        cache.ask(ORIGIN, now=NOW + REPORT_TIMEOUT)
        late = cache.received(fetch, response(), now=NOW + 30)
        assert late.result == AdviceEntry(fraction=0.5)
        assert cache.ask(ORIGIN, now=NOW + 30) == late

    def test_a_late_report_that_nothing_came_does_not_undo_what_came(self, cache: AdviceCache) -> None:
        first = cache.ask(ORIGIN, now=NOW)
        assert isinstance(first, Fetch)
        cache.ask(ORIGIN, now=NOW + REPORT_TIMEOUT)
        known = fetched(cache, response(), now=NOW + 100)
        assert cache.received(first, NETWORK_ERROR, now=NOW + 101) == known
        assert cache.ask(ORIGIN, now=NOW + 101) == known

    def test_that_nothing_came_does_not_undo_what_came_late_meanwhile(self, cache: AdviceCache) -> None:
        first = cache.ask(ORIGIN, now=NOW)
        second = cache.ask(ORIGIN, now=NOW + 100)
        assert isinstance(first, Fetch)
        assert isinstance(second, Fetch)
        known = cache.received(first, response(), now=NOW + 101)
        assert cache.received(second, NETWORK_ERROR, now=NOW + 102) == known
        assert cache.ask(ORIGIN, now=NOW + 102) == known

    def test_what_an_origin_says_later_counts_even_so(self, cache: AdviceCache) -> None:
        first = cache.ask(ORIGIN, now=NOW)
        second = cache.ask(ORIGIN, now=NOW + 100)
        assert isinstance(first, Fetch)
        assert isinstance(second, Fetch)
        cache.received(first, response(), now=NOW + 101)
        busy = cache.received(second, response(None, ("Retry-After", "30"), status=503), now=NOW + 102)
        assert (busy.result, busy.hold_until) == (UNREACHABLE, NOW + 132)
        assert cache.ask(ORIGIN, now=NOW + 103) == busy

    def test_a_late_report_leaves_the_next_flight_in_the_air(self, cache: AdviceCache) -> None:
        first = cache.ask(ORIGIN, now=NOW)
        assert isinstance(first, Fetch)
        second = cache.ask(ORIGIN, now=NOW + 100)
        assert isinstance(second, Fetch)
        cache.received(first, NETWORK_ERROR, now=NOW + 101)
        assert cache.ask(ORIGIN, now=NOW + 101) == FetchPending(second.give_up)

    def test_an_abandoned_fetch_is_the_next_one_s_to_make(self, cache: AdviceCache) -> None:
        fetch = cache.ask(ORIGIN, now=NOW)
        assert isinstance(fetch, Fetch)
        cache.abandoned(fetch)
        again = cache.ask(ORIGIN, now=NOW + 1)
        assert isinstance(again, Fetch)
        cache.abandoned(fetch)  # the one before, once more
        assert isinstance(cache.ask(ORIGIN, now=NOW + 2), FetchPending)
        cache.abandoned(Fetch("https://example.org", fetch.request, NOW))

    def test_a_fetch_that_was_abandoned_may_have_to_wait_for_its_repetition(self, cache: AdviceCache) -> None:
        fetch = cache.ask(ORIGIN, now=NOW)
        assert isinstance(fetch, Fetch)
        cache.abandoned(fetch, retry_at=NOW + 1)
        assert cache.ask(ORIGIN, now=NOW + 0.5) == FetchPending(NOW + 1)
        assert cache.known(ORIGIN, now=NOW + 0.5) is None
        assert isinstance(cache.ask(ORIGIN, now=NOW + 1), Fetch)

    def test_a_clock_that_was_set_back_makes_nobody_wait_for_long(self, cache: AdviceCache) -> None:
        cache.ask(ORIGIN, now=NOW)
        again = cache.ask(ORIGIN, now=NOW - HOUR)
        assert isinstance(again, Fetch)
        cache.abandoned(again, retry_at=NOW - HOUR + 1)
        assert isinstance(cache.ask(ORIGIN, now=NOW - 2 * HOUR), Fetch)


class TestFreshness:
    @pytest.mark.parametrize(
        ("answer", "result", "seconds"),
        [
            (response(), AdviceEntry(fraction=0.5), 1800),
            (response(HALF, ("Cache-Control", "max-age=0")), AdviceEntry(fraction=0.5), 600),
            (response(HALF, ("Cache-Control", "no-store")), AdviceEntry(fraction=0.5), 600),
            (response(HALF, ("Cache-Control", "max-age=9999999")), AdviceEntry(fraction=0.5), 172_800),
            (response(None, ("Cache-Control", "max-age=3600"), status=404), None, 3600),
            (response(None, status=404), None, 1800),
            (response(None, status=503), UNREACHABLE, 60),
            (response(None, ("Retry-After", "7"), status=429), UNREACHABLE, 7),
            (NETWORK_ERROR, UNREACHABLE, 60),
        ],
    )
    def test_every_result_is_kept_and_asked_for_again_when_it_is_stale(
        self, cache: AdviceCache, answer: AdviceResponse, result: object, seconds: float
    ) -> None:
        known = fetched(cache, answer)
        assert (known.origin, known.result, known.fresh_until) == (ORIGIN, result, NOW + seconds)
        assert known.reason
        assert cache.ask(ORIGIN, now=NOW + seconds - 0.001) == known
        assert cache.known(ORIGIN, now=NOW + seconds - 0.001) == known
        assert cache.known(ORIGIN, now=NOW + seconds) is None
        assert isinstance(cache.ask(ORIGIN, now=NOW + seconds), Fetch)

    def test_knowing_asks_nobody_to_fetch(self, cache: AdviceCache) -> None:
        assert cache.known(ORIGIN, now=NOW) is None
        assert cache.origins == 0

    def test_a_clock_that_was_set_back_makes_nothing_fresh_for_longer(self, cache: AdviceCache) -> None:
        fetched(cache, response())
        assert isinstance(cache.ask(ORIGIN, now=NOW - 200_000), Fetch)

    def test_an_agent_may_ask_the_unreachable_sooner(self) -> None:
        known = fetched(AdviceCache(IDENTITY, unreachable_for=5.0), NETWORK_ERROR)
        assert known.fresh_until == NOW + 5

    def test_an_origin_that_gave_a_retry_after_is_held_and_one_that_gave_none_is_not(self, cache: AdviceCache) -> None:
        known = fetched(cache, response(None, ("Retry-After", "7"), status=503))
        assert known.release_time(0.0) == known.hold_until == NOW + 7
        assert fetched(cache, NETWORK_ERROR, now=NOW + 7).release_time(1.0) == ASAP


class TestRevalidation:
    ETAG = ("ETag", '"a"')
    DATE = ("Last-Modified", "Wed, 01 Jan 2020 00:00:00 GMT")

    def test_what_had_validators_is_asked_for_conditionally_and_renewed_by_a_304(self, cache: AdviceCache) -> None:
        fetched(cache, response(DISALLOWED, self.ETAG, self.DATE, ("Cache-Control", "max-age=3600")))
        fetch = cache.ask(ORIGIN, now=NOW + HOUR)
        assert conditions(fetch) == {"If-None-Match": '"a"', "If-Modified-Since": self.DATE[1]}
        known = cache.received(fetch, AdviceResponse(304, [], b""), now=NOW + HOUR + 1)
        assert known.result == AdviceEntry(disallowed=True)
        assert known.fresh_until == NOW + HOUR + 1 + 3600
        assert cache.ask(ORIGIN, now=NOW + HOUR + 2) == known

    def test_what_a_304_says_of_freshness_replaces_what_was_said(self, cache: AdviceCache) -> None:
        fetched(cache, response(HALF, self.ETAG, ("Cache-Control", "max-age=3600")))
        fetch = cache.ask(ORIGIN, now=NOW + HOUR)
        fields = [("ETag", '"b"'), ("Cache-Control", "max-age=7200")]
        known = cache.received(fetch, AdviceResponse(304, fields, None), now=NOW + HOUR)
        assert known.fresh_until == NOW + HOUR + 7200
        assert conditions(cache.ask(ORIGIN, now=NOW + 3 * HOUR)) == {"If-None-Match": '"b"'}

    def test_a_200_replaces_what_was_known(self, cache: AdviceCache) -> None:
        fetched(cache, response(HALF, self.ETAG))
        known = fetched(cache, response(DISALLOWED), now=NOW + HOUR)
        assert known.result == AdviceEntry(disallowed=True)
        assert conditions(cache.ask(ORIGIN, now=NOW + 2 * HOUR)) == {}

    def test_a_404_withdraws_what_was_known(self, cache: AdviceCache) -> None:
        fetched(cache, response(DISALLOWED, self.ETAG))
        known = fetched(cache, response(None, status=404), now=NOW + HOUR)
        assert (known.result, known.entry) == (None, None)
        assert conditions(cache.ask(ORIGIN, now=NOW + 2 * HOUR)) == {}

    def test_a_304_nobody_asked_for_is_no_advice(self, cache: AdviceCache) -> None:
        known = fetched(cache, response(b"", status=304))
        assert known.result is None
        assert known.fresh_until == NOW + 1800

    def test_a_304_to_what_was_dropped_meanwhile_settles_nothing(self) -> None:
        cache = AdviceCache(IDENTITY, most_origins=1)
        fetched(cache, response(HALF, self.ETAG))
        fetch = cache.ask(ORIGIN, now=NOW + HOUR)
        assert isinstance(fetch, Fetch)
        cache.ask("https://example.org", now=NOW + HOUR)
        known = cache.received(fetch, AdviceResponse(304, [], None), now=NOW + HOUR)
        assert (known.result, known.fresh_until) == (None, NOW + HOUR)
        assert conditions(cache.ask(ORIGIN, now=NOW + HOUR)) == {}

    def test_a_late_304_does_not_renew_what_came_after_it_was_asked_for(self, cache: AdviceCache) -> None:
        fetched(cache, response(HALF, self.ETAG))
        late = cache.ask(ORIGIN, now=NOW + HOUR)
        assert isinstance(late, Fetch)
        cache.ask(ORIGIN, now=NOW + HOUR + REPORT_TIMEOUT)
        known = fetched(cache, response(DISALLOWED, ("ETag", '"b"')), now=NOW + HOUR + 100)
        cache.received(late, AdviceResponse(304, [], None), now=NOW + HOUR + 101)
        assert cache.ask(ORIGIN, now=NOW + HOUR + 101) == known

    def test_a_body_that_was_cut_leaves_nothing_to_renew(self, cache: AdviceCache) -> None:
        fetched(cache, response(None, self.ETAG))
        assert conditions(cache.ask(ORIGIN, now=NOW + HOUR)) == {}

    @pytest.mark.parametrize("last", [HOUR, 172_800.0 + 1799])
    def test_an_unreachable_origin_is_asked_conditionally_for_48_hours(self, cache: AdviceCache, last: float) -> None:
        fetched(cache, response(HALF, self.ETAG))
        fetched(cache, NETWORK_ERROR, now=NOW + HOUR)
        assert conditions(cache.ask(ORIGIN, now=NOW + HOUR + last)) == (
            {"If-None-Match": '"a"'} if last == HOUR else {}
        )


class TestLastAdvice:
    def test_the_last_advice_stands_while_nobody_answers_for_48_hours_at_most(self, cache: AdviceCache) -> None:
        fetched(cache, response(DISALLOWED))
        stale = NOW + 1800
        for now in (stale, stale + 60, stale + 172_800 - 0.001):
            known = fetched(cache, NETWORK_ERROR, now=now)
            assert (known.result, known.previous) == (UNREACHABLE, AdviceEntry(disallowed=True))
            assert known.release_time(0.0) == known.fresh_until == now + 60
        known = fetched(cache, NETWORK_ERROR, now=stale + 172_800 + 60)
        assert (known.result, known.previous, known.release_time(1.0)) == (UNREACHABLE, None, ASAP)

    def test_it_does_not_stand_longer_because_a_report_was_late(self, cache: AdviceCache) -> None:
        fetched(cache, response(DISALLOWED))
        fetch = cache.ask(ORIGIN, now=NOW + 1800 + 172_799)
        assert isinstance(fetch, Fetch)
        assert cache.received(fetch, NETWORK_ERROR, now=NOW + 1800 + 172_801).previous is None

    def test_a_clock_that_was_set_back_lets_it_stand_no_longer(self, cache: AdviceCache) -> None:
        fetched(cache, response(DISALLOWED))
        assert fetched(cache, NETWORK_ERROR, now=NOW - 400_000).previous is None

    @pytest.mark.parametrize("directive", ["no-store", "must-revalidate", "private"])
    def test_an_origin_can_forbid_it(self, cache: AdviceCache, directive: str) -> None:
        fetched(cache, response(DISALLOWED, ("Cache-Control", directive)))
        assert fetched(cache, NETWORK_ERROR, now=NOW + HOUR).previous is None

    def test_no_advice_is_no_last_advice(self, cache: AdviceCache) -> None:
        fetched(cache, response(b"[]"))
        assert fetched(cache, NETWORK_ERROR, now=NOW + HOUR).previous is None


class TestOrigins:
    @pytest.mark.parametrize(
        "origin", ["http://example.com", "ftp://localhost", "null", "", "file:///", "https://\ud800"]
    )
    def test_an_origin_that_may_not_be_asked_is_answered_for(self, cache: AdviceCache, origin: str) -> None:
        known = cache.ask(origin, now=NOW)
        assert isinstance(known, Advice)
        assert (known.result, known.fresh_until, known.release_time(1.0)) == (None, NEVER, ASAP)
        assert known.reason == "the origin must not be asked"
        assert cache.origins == 0

    def test_an_origin_longer_than_any_name_is_not_kept(self, cache: AdviceCache) -> None:
        known = cache.ask(f"https://{'a.' * 10_000}example", now=NOW)
        assert isinstance(known, Advice)
        assert known.fresh_until == NEVER
        assert len(known.origin) <= 300
        assert isinstance(cache.ask(f"https://{'a.' * 121}example.:65535", now=NOW), Fetch)
        assert cache.origins == 1

    def test_an_origin_is_one_however_it_is_written(self, cache: AdviceCache) -> None:
        assert isinstance(cache.ask("http://127.1:8000/a", now=NOW), Fetch)
        for other in ("http://127.0.0.1:8000", "HTTP://0x7f.1:8000/b?c", "http://u:p@127.0.1:8000"):
            assert isinstance(cache.ask(other, now=NOW), FetchPending)
        assert cache.origins == 1

    def test_there_are_never_more_than_may_be_and_those_asked_about_last_stay(self) -> None:
        cache = AdviceCache(IDENTITY, most_origins=3)
        for number in range(3):
            cache.ask(f"https://{number}.example", now=NOW)
        cache.ask("https://0.example", now=NOW)
        cache.ask("https://3.example", now=NOW)
        assert (cache.origins, cache.evicted) == (3, 1)
        kinds = [type(cache.ask(f"https://{number}.example", now=NOW)) for number in (0, 2, 3)]
        assert kinds == [FetchPending, FetchPending, FetchPending]
        assert isinstance(cache.ask("https://1.example", now=NOW), Fetch)

    def test_each_report_drops_two_origins_that_are_of_no_more_use(self) -> None:
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

    def test_those_that_answered_last_stay_too(self) -> None:
        cache = AdviceCache(IDENTITY, most_origins=2)
        fetch = cache.ask(ORIGIN, now=NOW)
        assert isinstance(fetch, Fetch)
        cache.ask("https://example.org", now=NOW)
        known = cache.received(fetch, response(), now=NOW)
        cache.ask("https://example.net", now=NOW)
        assert cache.known(ORIGIN, now=NOW) == known

    def test_what_comes_for_an_origin_that_was_dropped_is_known_again(self) -> None:
        cache = AdviceCache(IDENTITY, most_origins=1)
        fetch = cache.ask(ORIGIN, now=NOW)
        assert isinstance(fetch, Fetch)
        cache.ask("https://example.org", now=NOW)
        known = cache.received(fetch, response(), now=NOW)
        assert cache.ask(ORIGIN, now=NOW) == known
        assert cache.origins == 1

    def test_a_bound_without_room_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="most_origins must be at least 1, got 0"):
            AdviceCache(IDENTITY, most_origins=0)

    def test_forgetting_drops_what_can_bear_on_nothing(self, cache: AdviceCache) -> None:
        fetched(cache, response(HALF, ("ETag", '"a"')))
        cache.forget(now=NOW + 1800 + 172_799)
        assert cache.origins == 1
        cache.forget(now=NOW + 1800 + 172_800)
        assert cache.origins == 0

    def test_forgetting_leaves_what_is_fresh_and_what_is_waited_for(self, cache: AdviceCache) -> None:
        fetched(cache, response(None, status=404))
        cache.ask("https://example.org", now=NOW)
        cache.forget(now=NOW + REPORT_TIMEOUT - 0.001)
        assert cache.origins == 2
        cache.forget(now=NOW + REPORT_TIMEOUT)
        assert cache.known(ORIGIN, now=NOW + REPORT_TIMEOUT)
        assert cache.origins == 1
        cache.forget(now=NOW + 1800)
        assert cache.origins == 0
