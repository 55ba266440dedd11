import asyncio
from contextlib import asynccontextmanager

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from headgate.agent.bundle import Limits, acollect_app, collect_app
from headgate.agent.bundle.app import _Call
from headgate.bundle.files.spool import SpooledPayload
from headgate.bundle.model import Exchange
from headgate.bundle.sources.skipped import SkipExchange
from headgate.errors import ConfigurationError, FetchError

BASE = "https://app.example/"
TEXT = "text/plain; charset=utf-8"


class Site:
    """A Starlette application, and what its lifespan did."""

    def __init__(self):
        self.did = []

        @asynccontextmanager
        async def lifespan(app):
            self.did.append("up")
            yield {"name": "shared"}
            self.did.append("down")

        routes = [
            Route("/", lambda request: PlainTextResponse(f"{request.state.name} at {request.url}")),
            Route("/ü", lambda request: PlainTextResponse(request.query_params["q"])),
            Route("/moved", lambda request: RedirectResponse("/", 301)),
            Route("/large", self.large),
            Route("/raises", self.raises),
            Route("/cookie", lambda request: Response(b"x", headers={"Set-Cookie": "a=b"})),
        ]
        self.app = Starlette(routes=routes, lifespan=lifespan)

    async def large(self, request):
        async def chunks():
            for number in range(48):
                yield bytes([number]) * 65536

        return StreamingResponse(chunks(), media_type="application/octet-stream")

    async def raises(self, request):
        raise ValueError("no such row")


def test_paths_are_called_in_process_with_the_lifespan_about_them():
    site = Site()
    exchanges = collect_app(site.app, ["/", "/%C3%BC?q=%C3%A9", "/moved", "/cookie"], base_url=BASE)
    first = next(exchanges)
    assert site.did == ["up"]
    assert [first, *exchanges] == [
        Exchange(BASE, 200, {"content-type": TEXT}, b"shared at https://app.example/"),
        Exchange(f"{BASE}%C3%BC?q=%C3%A9", 200, {"content-type": TEXT}, "é".encode()),
        Exchange(f"{BASE}moved", 301, {"content-type": "application/octet-stream", "location": "/"}, b""),
        Exchange(f"{BASE}cookie", 200, {"content-type": "application/octet-stream"}, b"x"),
    ]
    assert site.did == ["up", "down"]


def test_the_base_may_have_a_path_which_is_the_root_of_the_application():
    (found,) = collect_app(Site().app, ["/"], base_url="http://app.example:8080/below/")
    assert found.url == "http://app.example:8080/below/"
    assert found.payload == b"shared at http://app.example:8080/below/"


def test_a_large_body_waits_on_disk_and_is_bounded():
    (found,) = collect_app(Site().app, ["/large"], base_url=BASE)
    assert isinstance(found.payload, SpooledPayload)
    assert b"".join(found.payload) == b"".join(bytes([number]) * 65536 for number in range(48))
    told = []
    limits = Limits(max_body=100_000)
    assert len(list(collect_app(Site().app, ["/large", "/"], base_url=BASE, limits=limits, tell=told.append))) == 1
    assert told == ["left out https://app.example/large: a body of more bytes than are allowed"]


def test_of_a_body_that_is_too_large_no_more_is_kept_than_is_allowed():
    async def called():
        call = _Call(BASE, 10)
        with pytest.raises(SkipExchange):
            await call.run(
                app_of(START, {**END, "body": b"12345678", "more_body": True}, {**END, "body": b"abc"}), HTTP
            )
        kept = b"".join(call.chunks())
        call.close()
        return kept

    assert asyncio.run(called()) == b"12345678"


def test_what_raises_is_an_error_that_names_the_path():
    site = Site()
    with pytest.raises(
        FetchError, match=r"^https://app\.example/raises: the application raised ValueError: no such row"
    ):
        list(collect_app(site.app, ["/raises"], base_url=BASE))
    assert site.did == ["up", "down"]


def test_a_page_that_is_not_there_is_told_of_and_none_at_all_is_an_error():
    told = []
    assert len(list(collect_app(Site().app, ["/missing", "/"], base_url=BASE, tell=told.append))) == 1
    assert told == ["left out https://app.example/missing: answered 404"]
    with pytest.raises(FetchError, match="none of the 1 paths gave a response to keep"):
        list(collect_app(Site().app, ["/missing"], base_url=BASE))


@pytest.mark.parametrize("path", ["", "x", "https://other.example/", "?q"])
def test_what_is_no_path_is_refused(path):
    with pytest.raises(ConfigurationError):
        list(collect_app(Site().app, [path], base_url=BASE))


def test_a_path_never_leads_to_another_host():
    told = []
    list(collect_app(Site().app, ["//other.example/", "/"], base_url=BASE, tell=told.append))
    assert told == ["left out https://app.example//other.example/: answered 404"]


@pytest.mark.parametrize("base_url", ["app.example", "ftp://app.example/", "https://me:pw@app.example/"])
def test_what_is_no_base_url_is_refused(base_url):
    with pytest.raises(ConfigurationError, match=r"give a base URL such as https://example\.com/"):
        list(collect_app(Site().app, ["/"], base_url=base_url))


def test_giving_up_early_shuts_the_application_down():
    site = Site()
    exchanges = collect_app(site.app, ["/", "/moved"], base_url=BASE)
    next(exchanges)
    exchanges.close()
    assert site.did == ["up", "down"]


def test_within_a_running_loop():
    async def collected():
        return [exchange async for exchange in acollect_app(Site().app, ["/"], base_url=BASE)]

    assert len(asyncio.run(collected())) == 1


def app_of(*messages, waits=False, lifespan=None):
    """An application that sends these messages."""

    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            if lifespan is None:
                raise NotImplementedError
            await lifespan(receive, send)
            return
        assert await receive() == {"type": "http.request", "body": b"", "more_body": False}
        for message in messages:
            await send(message)
        if waits:
            assert await receive() == {"type": "http.disconnect"}

    return app


START = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/html")]}
END = {"type": "http.response.body", "body": b"x"}
HTTP = {"type": "http"}


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ([], "ended without a whole response"),
        ([START], "ended without a whole response"),
        ([START, {**END, "more_body": True}], "ended without a whole response"),
        ([END], "raised RuntimeError: unexpected ASGI message 'http.response.body'"),
        ([START, START], "raised RuntimeError: unexpected ASGI message 'http.response.start'"),
        ([{"type": "websocket.accept"}], "raised RuntimeError"),
    ],
)
def test_an_application_that_breaks_the_protocol_is_told_of(messages, why):
    with pytest.raises(FetchError, match=why):
        list(collect_app(app_of(*messages), ["/"], base_url=BASE))


def test_an_application_without_lifespan_that_waits_for_the_end():
    (found,) = collect_app(app_of(START, END, END, waits=True), ["/"], base_url=BASE)
    assert found.payload == b"x"


def test_a_startup_or_shutdown_that_fails_is_an_error():
    async def fails(receive, send):
        await receive()
        await send({"type": "lifespan.startup.failed", "message": "Traceback\n  line\nValueError: no database\n"})

    with pytest.raises(FetchError, match="the application's startup failed: ValueError: no database"):
        list(collect_app(app_of(START, END, lifespan=fails), ["/"], base_url=BASE))

    async def fails_late(receive, send):
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.failed"})

    exchanges = collect_app(app_of(START, END, lifespan=fails_late), ["/"], base_url=BASE)
    next(exchanges)
    with pytest.raises(FetchError, match="the application's shutdown failed: it does not say why"):
        next(exchanges)


def test_a_startup_that_takes_too_long_is_given_up(monkeypatch):
    async def never(receive, send):
        await asyncio.Event().wait()

    monkeypatch.setattr("headgate.agent.bundle.lifespan._PATIENCE", 0)
    with pytest.raises(FetchError, match="startup takes more than"):
        list(collect_app(app_of(START, END, lifespan=never), ["/"], base_url=BASE))


def test_a_response_that_takes_too_long_is_given_up(monkeypatch):
    async def hangs(scope, receive, send):
        if scope["type"] == "http":
            await asyncio.Event().wait()

    monkeypatch.setattr("headgate.agent.bundle.app._PATIENCE", 0)
    with pytest.raises(FetchError, match=r"^https://app\.example/: the application takes more than"):
        list(collect_app(hangs, ["/"], base_url=BASE))
