"""headgate.agent.bundle.collection: calling an ASGI application."""

from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from headgate.agent import Courtesy
from headgate.agent.bundle import asgi_client, collect
from headgate.bundle import Exchange
from headgate.errors import FetchError

SITE = "https://app.example"
TEXT = "text/plain; charset=utf-8"


class Site:
    """A Starlette application, and the events of its lifespan."""

    def __init__(self, *, fails=""):
        self.events = []

        @asynccontextmanager
        async def lifespan(app):
            if fails == "startup":
                raise ValueError("no database")
            self.events.append("started")
            yield {"name": "shared"}
            self.events.append("stopped")
            if fails == "shutdown":
                raise ValueError("no database")

        def fail(request):
            raise ValueError("no such row")

        routes = [
            Route("/", lambda request: PlainTextResponse(f"{request.state.name} at {request.url}")),
            Route("/\xfc", lambda request: PlainTextResponse(request.query_params["q"])),
            Route("/moved", lambda request: RedirectResponse("/", 301)),
            Route("/raises", fail),
            Route("/cookie", lambda request: Response(b"x", headers={"Set-Cookie": "a=b"})),
        ]
        self.app = Starlette(routes=routes, lifespan=lifespan)


def collected(site, *paths, tell=lambda _: None):
    with asgi_client(site.app) as client:
        return list(collect([SITE + path for path in paths], client=client, courtesy=Courtesy(), tell=tell))


def test_responses_are_collected_between_startup_and_shutdown():
    site = Site()
    assert collected(site, "/moved", "/%C3%BC?q=%C3%A9", "/cookie") == [
        Exchange(f"{SITE}/moved", 301, {"content-type": "application/octet-stream", "location": "/"}, b""),
        Exchange(f"{SITE}/", 200, {"content-type": TEXT}, b"shared at https://app.example/"),
        Exchange(f"{SITE}/%C3%BC?q=%C3%A9", 200, {"content-type": TEXT}, "\xe9".encode()),
        Exchange(f"{SITE}/cookie", 200, {"content-type": "application/octet-stream"}, b"x"),
    ]
    assert site.events == ["started", "stopped"]


def test_errors_of_the_application_are_left_out():
    messages = []
    site = Site()
    assert len(collected(site, "/", "/raises", "/missing", tell=messages.append)) == 1
    assert messages == [
        f"left out {SITE}/raises: answered 500",
        f"left out {SITE}/missing: answered 404",
    ]


def test_only_the_urls_are_requested():
    """No request for traffic advice."""
    app = Plain()
    with asgi_client(app) as client:
        assert len(list(collect([f"{SITE}/page"], client=client, courtesy=Courtesy()))) == 1
    assert app.paths == ["/page"]


def test_applications_without_lifespan():
    for error in (None, ValueError("only HTTP"), KeyError("path")):
        with asgi_client(Plain(error)) as client:
            assert client.get(f"{SITE}/page").content == b"x"


class Plain:
    """An application without lifespan: called with one, it returns or raises."""

    def __init__(self, error=None):
        self.paths = []
        self.error = error

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http":
            self.paths.append(scope["path"])
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]})
            await send({"type": "http.response.body", "body": b"x"})
        elif self.error is not None:
            raise self.error


def test_failures_of_startup_and_shutdown_are_raised():
    for phase in ("startup", "shutdown"):
        with pytest.raises(FetchError, match=f"the application's {phase} failed: ValueError: no database"):
            collected(Site(fails=phase), "/")
