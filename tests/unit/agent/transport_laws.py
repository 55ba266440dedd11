"""The laws that the transport of each library obeys, before a library that sends nothing."""

import contextvars
import pickle
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from headgate.agent import Courtesy, RetryLater
from headgate.errors import ConfigurationError
from headgate.throttle import Policy, Throttle

NOW = 1000.0
URL = "https://example.com/path"

OURS = "ExampleBot/1.0 (+https://example.com/bot)"

TARGETS = {
    "http://example.com": "http://example.com/",
    "http://name:word@EXAMPLE.com:80/Path?query#there": "http://example.com/Path",
    "https://example.com:443/a/./b/../c//d": "https://example.com/a/c//d",
    "http://example.com:8080/a;b=c,d": "http://example.com:8080/a;b=c,d",
    "http://bücher.example/": "http://xn--bcher-kva.example/",
    "http://xn--bcher-kva.example/": "http://xn--bcher-kva.example/",
    "http://example.com/café": "http://example.com/caf%C3%A9",
    "http://example.com/caf%C3%A9": "http://example.com/caf%C3%A9",
    "http://example.com/caf%E9": "http://example.com/caf%E9",
    "http://example.com/a b": "http://example.com/a%20b",
    "http://example.com/a%2Fb": "http://example.com/a%2Fb",
    "http://127.1/": "http://127.0.0.1/",
    "http://[0::1]:80/": "http://[::1]/",
}
"""URLs as people write them, and their throttling targets."""


def frozen(**options: Any) -> Courtesy:
    """Make a courtesy for which no time passes."""
    policy = options.pop("policy", replace(Policy.draft(), jitter_factor=0))
    options = {"throttle": Throttle(policy, hold_localhost=True), **options}
    return Courtesy(clock=lambda: NOW, **options)


class Script:
    """Answers with what it was made with, one after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.sent: list[Any] = []

    def answer(self, request: Any) -> Any:
        """Return or raise the next answer."""
        self.sent.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


def caused(error: Exception, cause: BaseException) -> Exception:
    """Return `error` with a cause."""
    error.__cause__ = cause
    return error


def outcome(send: Callable[[Any], Any], request: Any) -> Any:
    """Send a request; return the response or the error."""
    try:
        return send(request)
    except BaseException as error:
        return error


class TransportLaws:
    """Derive the test class of a transport from this, and say how messages of its library are made and sent."""

    error: type[Exception]
    """The library's own error, which a held request raises too."""
    errors: Sequence[tuple[BaseException, str]]
    """What the library raises for a request without a response, and which kind of failure it is."""
    default_user_agent: str
    """What the library sends as its User-Agent, or a beginning of it."""
    cannot_be_counted: type[Exception] = StopIteration
    """What the fixture `broken` raises while a response is counted."""

    def request(self, url: str = URL, method: str = "GET", *, body: object = None, options: object = None) -> Any:
        """Make a request, with options for headgate where the library has a place for them."""
        raise NotImplementedError

    def response(self, status: int = 200, *fields: tuple[str, str], from_cache: bool = False) -> Any:
        """Make a response."""
        raise NotImplementedError

    def send(self, courtesy: Courtesy, requests: Sequence[Any], answers: Sequence[Any]) -> list[Any]:
        """Send requests one after the other, in one task; return what is received or raised for each."""
        raise NotImplementedError

    def is_closed(self, response: Any) -> bool:
        """Return whether a response was closed."""
        raise NotImplementedError

    def headers(self, request: Any) -> Any:
        """Return the fields of a request that can be changed."""
        return request.headers

    def status(self, response: Any) -> int:
        """Return the status of a response."""
        status: int = response.status
        return status

    def repeatable_bodies(self) -> list[tuple[Any, bool]]:
        """Return requests with bodies of all kinds, and whether each may be sent again."""
        raise NotImplementedError

    def sent(self, courtesy: Courtesy, requests: Sequence[Any], answers: Sequence[Any]) -> list[Any]:
        """Send requests in a context of their own; return the status or the error of each."""
        outcomes = contextvars.Context().run(self.send, courtesy, requests, answers)
        return [outcome if isinstance(outcome, BaseException) else self.status(outcome) for outcome in outcomes]

    def test_a_held_request_raises_both_errors_and_is_not_sent(self) -> None:
        answer = self.response(200, ("Retry-After", "60"))
        received, held = self.sent(frozen(), [self.request(), self.request()], [answer])
        assert received == 200
        assert isinstance(held, RetryLater)
        assert isinstance(held, self.error)
        assert (held.release_time, held.reason, held.target) == (NOW + 60, "retry-after", URL)
        assert str(held) == f"{URL} is held by its Retry-After; retry at 1970-01-01T00:17:40Z, in 60.0 s"
        again = pickle.loads(pickle.dumps(held))
        assert (type(again), str(again), again.args) == (type(held), str(held), held.args)

    def test_every_line_of_a_field_is_read(self) -> None:
        courtesy = frozen()
        self.sent(courtesy, [self.request()], [self.response(200, ("Retry-After", "60"), ("retry-after", "90"))])
        assert courtesy.explain(URL).retry_after == NOW + 90

    def test_a_response_from_a_cache_is_not_counted(self) -> None:
        courtesy = frozen(retry=1)
        answer = self.response(503, ("Retry-After", "60"), from_cache=True)
        assert self.sent(courtesy, [self.request()], [answer]) == [503]
        assert (courtesy.explain(URL).failures, courtesy.explain(URL).held) == (0, False)

    def test_a_request_for_which_no_connection_is_made_counts(self) -> None:
        for error, failure in self.errors:
            courtesy = frozen(policy=Policy())
            assert self.sent(courtesy, [self.request()], [error]) == [error]
            assert (error, courtesy.explain(URL).failures) == (error, int(failure == "unsent"))

    @pytest.mark.usefixtures("short_pauses")
    def test_it_is_sent_again_if_that_is_safe(self) -> None:
        for error, failure in self.errors:
            for method, is_safe in (("GET", failure != "ours"), ("POST", failure == "unsent")):
                answers = [error, self.response(204)]
                (outcome,) = self.sent(frozen(retry=1), [self.request(method=method)], answers)
                assert (error, method, outcome) == (error, method, 204 if is_safe else error)

    def test_the_user_agent_is_the_agent_s_unless_the_program_sets_one(self) -> None:
        for given, sent in ((self.default_user_agent, OURS), ("Mine/2", "Mine/2")):
            request = self.request()
            self.headers(request)["User-agent"] = given
            self.sent(frozen(), [request], [self.response()])
            assert self.headers(request)["User-agent"] == given
            courtesy = frozen(identity="ExampleBot/1.0", info="https://example.com/bot")
            courtesy._state.sources = []  # which would be fetched
            courtesy.fetches_advice = False
            self.sent(courtesy, [request], [self.response()])
            assert self.headers(request)["User-agent"] == sent

    @pytest.mark.usefixtures("short_pauses")
    def test_the_agent_s_own_fields_are_made_for_each_sending(self) -> None:
        courtesy, made = frozen(retry=1, wait=5), iter("123")
        courtesy._state.adds_fields = True

        def own_fields(*sent: object) -> dict[str, str]:
            return {"User-Agent": f"{sent[0]} {sent[1]} {next(made)}"}

        courtesy._state.own_fields = own_fields  # type: ignore[method-assign, assignment]  # for this one object
        request = self.request()
        assert self.sent(courtesy, [request], [self.response(503), self.response()]) == [200]
        assert self.headers(request)["User-agent"] == f"GET {URL} 2"

    def test_a_response_that_cannot_be_counted_is_closed(self, broken: Courtesy) -> None:
        answer = self.response()
        (error,) = self.sent(broken, [self.request()], [answer])
        assert isinstance(error, self.cannot_be_counted)
        assert self.is_closed(answer)

    @pytest.mark.usefixtures("short_pauses")
    def test_only_a_body_that_is_there_as_a_whole_is_sent_again(self) -> None:
        bodies = self.repeatable_bodies()
        assert len({repeatable for _, repeatable in bodies}) == 2
        for request, repeatable in bodies:
            refused = self.response(503)
            expected = 200 if repeatable else 503
            assert self.sent(frozen(retry=1, wait=5), [request], [refused, self.response()]) == [expected]

    def test_an_interactive_request_is_not_held(self) -> None:
        all_options: list[Any] = [None, {"interactive": True}, {}, {"interactive": False}]
        requests = [self.request(options=options) for options in all_options]
        answers = [self.response(200, ("Retry-After", "60")), self.response(204)]
        outcomes = self.sent(frozen(), requests, answers)
        assert outcomes[:2] == [200, 204]
        assert all(isinstance(outcome, RetryLater) for outcome in outcomes[2:])

    def test_a_request_with_invalid_options_is_not_sent(self) -> None:
        for options in ("interactive", {"interactive": "yes"}, {"interactve": True}, ["interactive"], 1):
            (error,) = self.sent(frozen(), [self.request(options=options)], [])
            assert isinstance(error, ConfigurationError)
            assert "expected {'interactive': True} or False" in str(error)

    def test_each_way_to_write_a_url_has_the_same_target(self) -> None:
        wrong = []
        for url, target in TARGETS.items():
            courtesy = frozen()
            self.sent(courtesy, [self.request(url)], [self.response(200, ("Retry-After", "60"))])
            if not courtesy.explain(target).held:
                wrong.append(url)
        assert wrong == []
