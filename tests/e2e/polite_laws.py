"""The tests that every library's polite client must pass.

The origin is a real one, and counts. The clock is the test's where the law is about a hold, so that none is over too
soon; it is the real one where the law is about waiting.
"""

import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol

import pytest
import trustme

from headgate.agent import Courtesy, RetryLater, attempt
from headgate.throttle import Policy, Throttle
from tests.e2e.polite_origin import Answer, Origin, running

NOW = 1_800_000_000.0
PROGRAM = Policy(jitter_factor=0)
SOON = Policy(num_errors_to_ignore=0, initial_backoff=0.05, multiply_factor=1, jitter_factor=0)
PAUSE = 0.05
DRIPS = 100


class Client(Protocol):
    """A client of some library with a courtesy in it."""

    def ask(
        self, url: str, method: str = "GET", body: object = None, *, interactive: bool = False, follow: bool = True
    ) -> tuple[int, bytes]:
        """Send a request, and give status and body of what came, whatever the status."""

    def read_in_two(self, url: str, go_on: Callable[[], None]) -> tuple[bytes, bytes]:
        """Send a GET, and give the first piece of the body, and after a call of `go_on` the rest."""


def courtesy(policy: Policy = PROGRAM, *, throttle: dict[str, Any] | None = None, **options: Any) -> Courtesy:
    """Make one that holds back from loopback too."""
    return Courtesy(throttle=Throttle(policy, hold_localhost=True, **(throttle or {})), **options)


def frozen(policy: Policy = PROGRAM, **options: Any) -> Courtesy:
    """Make one for which no time passes."""
    return courtesy(policy, clock=lambda: NOW, **options)


@pytest.fixture
def origin() -> Iterator[Origin]:
    """Run an origin."""
    with running() as origin:
        yield origin


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the pause before a retry shorter than the least there is, in every test of a module that has this."""
    monkeypatch.setattr(attempt, "retry_pause", lambda *_, **__: PAUSE)


class Laws:
    """To be derived from; `error` and `held` are the library's own error, and the one that is raised of it."""

    error: type[Exception]
    held: type[RetryLater]
    reuses_connections = True
    ends_with_body = False
    """Whether a request is in flight until the end of its body."""

    def client(self, courtesy: Courtesy) -> AbstractContextManager[Client]:
        """Make a client."""
        raise NotImplementedError

    def refused(self, client: Client, origin: Origin, url: str, **options: Any) -> RetryLater:
        """Ask for what is held, and see that nothing of it reaches the origin."""
        before = origin.connections, len(origin.asked)
        with pytest.raises(RetryLater) as caught:
            client.ask(url, **options)
        assert (origin.connections, len(origin.asked)) == before
        assert type(caught.value) is self.held
        return caught.value

    # -- holds

    def test_a_failing_target_is_held_and_the_library_s_own_error_is_raised(self, origin: Origin) -> None:
        origin.say("/path", 503)
        with self.client(frozen()) as client:
            for _ in range(3):
                assert client.ask(f"{origin.url}/path?query#there") == (503, b"hello")
            held = self.refused(client, origin, f"{origin.url}/other")
            assert isinstance(held, self.error)
            target = origin.url
            assert held.release_time == pytest.approx(NOW + 0.98)
            assert (held.reason, held.target) == ("backoff", target)
            assert str(held) == (
                f"{target} is held by the backoff after its failures; retry at 2027-01-15T08:00:01Z, in 1.0 s"
            )
            assert client.ask(f"{origin.url}/other", interactive=True)[0] == 200

    def test_nothing_of_a_body_is_read_ahead_and_its_request_is_in_flight_until_it_ends(self, origin: Origin) -> None:
        may_go_on, polite, seen = threading.Event(), courtesy(concurrency=1, retry=2), []

        def in_flight() -> int:
            assert polite._state.pace is not None
            return polite._state.pace.of(origin.url)._in_flight

        def go_on() -> None:
            seen.append(in_flight())
            may_go_on.set()

        def pieces() -> Iterator[bytes]:
            yield b"first"
            assert may_go_on.wait(10)
            yield b"second"

        origin.say("/", Answer(200, {}, pieces()))
        with self.client(polite) as client:
            assert client.read_in_two(f"{origin.url}/", go_on) == (b"first", b"second")
            assert (seen, in_flight()) == ([int(self.ends_with_body)], 0)
            assert client.ask(f"{origin.url}/other") == (200, b"hello")
            assert in_flight() == 0

    # -- redirects

    def test_each_redirect_is_a_separate_request(self, origin: Origin) -> None:
        origin.say("/from", Answer(302, {"Location": "/to"}))
        origin.say("/to", 503)
        with self.client(frozen(Policy.draft())) as client:
            for _ in range(3):
                assert client.ask(f"{origin.url}/from")[0] == 503
            before = origin.connections
            with pytest.raises(self.held) as caught:
                client.ask(f"{origin.url}/from")
            assert caught.value.target == f"{origin.url}/to"
            assert origin.connections - before <= 1  # for what was not held
            assert (len(origin.got("/from")), len(origin.got("/to"))) == (4, 3)

    # -- retries

    def test_a_request_is_retried_as_often_as_configured(self, origin: Origin) -> None:
        origin.say("/", 503, 503, 200)
        with self.client(courtesy(SOON, wait=60, retry=2)) as client:
            assert client.ask(f"{origin.url}/") == (200, b"hello")
            connections = {asked.connection for asked in origin.got("/")}
            assert len(connections) == (1 if self.reuses_connections else 3)
            origin.say("/", 503, 503, 503, 200)
            assert client.ask(f"{origin.url}/")[0] == 503

    @pytest.mark.parametrize("fields", [{}, {"Content-Length": str(DRIPS)}])
    def test_a_retry_does_not_wait_for_a_body_sent_byte_by_byte(self, origin: Origin, fields: dict[str, str]) -> None:
        dripped: list[bytes] = []

        def dripping() -> Iterator[bytes]:
            for _ in range(DRIPS):
                time.sleep(0.05)
                dripped.append(b"x")
                yield b"x"

        origin.say("/", Answer(503, fields, dripping()), 200)
        with self.client(courtesy(SOON, wait=60, retry=1)) as client:
            assert client.ask(f"{origin.url}/") == (200, b"hello")
            assert len(dripped) < DRIPS
        assert len({asked.connection for asked in origin.got("/")}) == 2

    def test_a_retry_does_not_wait_for_a_body_that_stalls(self, origin: Origin) -> None:
        is_over, waited = threading.Event(), []

        def stalled() -> Iterator[bytes]:
            waited.append(is_over.wait(10))
            yield b"hello"

        origin.say("/", Answer(503, {"Content-Length": "5"}, stalled()), 200)
        try:
            with self.client(courtesy(SOON, wait=60, retry=1)) as client:
                assert client.ask(f"{origin.url}/") == (200, b"hello")
                assert False not in waited
        finally:
            is_over.set()

    @pytest.mark.parametrize("piece", [b"", b"not what it says it is"])
    def test_a_retry_is_made_after_a_malformed_body(self, origin: Origin, piece: bytes) -> None:
        origin.say("/", Answer(503, {"Content-Encoding": "gzip"}, iter([piece] if piece else [])), 200)
        with self.client(courtesy(SOON, wait=60, retry=1)) as client:
            assert client.ask(f"{origin.url}/") == (200, b"hello")

    # -- advice

    def test_a_client_that_does_not_trust_the_origin_fails_as_without_headgate(self) -> None:
        with tls_origin(trustme.CA()) as origin:
            origin.advise('[{"user_agent":"*","disallow":true}]')
            with self.client(Courtesy("ExampleBot")) as client, pytest.raises(self.error) as caught:
                client.ask(f"{origin.url}/")
            assert not isinstance(caught.value, RetryLater)
            assert origin.asked == []


def tls_origin(authority: trustme.CA | None) -> AbstractContextManager[Origin]:
    """Run an origin with a certificate of this authority's, or without TLS."""
    if authority is None:
        return running()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return running(tls=context)
