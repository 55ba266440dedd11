"""Bundles read by ranges from a scripted server: few requests, and inconsistent responses are rejected."""

import asyncio
from collections.abc import Callable

import httpx
import httpx2
import pytest

from headgate.agent.bundle import BundleTransport, RangeBundle
from headgate.errors import FetchError, FormatError, NotInBundle
from tests.bundle_site import LARGE, SERVED, SITE, Reading, Request, head, honest, make_bundle, serving

BUNDLE = make_bundle()


@pytest.fixture(params=[httpx2, httpx], ids=["httpx2", "httpx"])
def library(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def reading(request, library):
    return Reading(library, request.param)


def test_one_request_for_the_metadata_and_one_for_each_response():
    with serving(honest(BUNDLE)) as server, RangeBundle.open(server.url) as bundle:
        assert server.ranges == ["bytes=0-65535"]
        bundle.response(f"{SITE}/")
        bundle.response(f"{SITE}/page", "gzip")
        assert server.ranges == ["bytes=0-65535"], "what is here is not asked for again"
        large, last = (bundle.metadata.requests[f"{SITE}/{name}"] for name in ("large", "last"))
        bundle.response(f"{SITE}/large")
        bundle.response(f"{SITE}/last")
        assert server.ranges[1:] == [
            f"bytes={place.offset}-{place.offset + place.length - 1}" for place in (large, last)
        ]
        assert [request.fields.get("if-range") for request in server.requests] == [None, '"one"', '"one"']
        assert {request.fields["accept-encoding"] for request in server.requests} == {"identity"}
        assert server.connections == 1
        with pytest.raises(NotInBundle):
            bundle.response(f"{SITE}/other")


def test_a_large_response_is_never_whole_in_memory():
    with serving(honest(BUNDLE)) as server, RangeBundle.open(server.url, max_bytes=100_000) as bundle:
        with pytest.raises(FetchError, match="the limit is 100000"):
            bundle.response(f"{SITE}/large")
        with bundle.stream(bundle.metadata.requests[f"{SITE}/large"]) as response:
            first = next(response.chunks)
        assert LARGE.startswith(first)
        assert bundle.response(f"{SITE}/last").payload == b"the last"


def changed(
    change: Callable[[Request, bytes, dict[str, str]], tuple[int, dict[str, str], bytes]], *, first: bool = True
):
    """A server that is honest but for what `change` makes of a part; `first` says if it does so from the first on."""
    seen = []

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        seen.append(request)
        start, last = request.part(BUNDLE) or (0, len(BUNDLE) - 1)
        body = BUNDLE[start : last + 1]
        fields = {**SERVED, "Content-Range": f"bytes {start}-{last}/{len(BUNDLE)}", "Content-Length": str(len(body))}
        status = 206
        if first or len(seen) > 1:
            status, fields, body = change(request, body, fields)
        writer.write(head(status, fields) + body)

    return answer


def with_field(name: str, value: str):
    """Replace the value of one field."""
    return lambda request, body, fields: (206, {**fields, name: value}, body)


INCONSISTENT = {
    "another part": with_field("Content-Range", f"bytes 1-65536/{len(BUNDLE)}"),
    "more than requested": with_field("Content-Range", f"bytes 0-{len(BUNDLE) - 1}/{len(BUNDLE)}"),
    "body longer than Content-Range": lambda request, body, fields: (
        206, {**fields, "Content-Length": str(len(body) + 1)}, body + b"x",
    ),
    "several parts": lambda request, body, fields: (
        206, {"Content-Type": "multipart/byteranges; boundary=x", "Content-Length": "5"}, b"--x--",
    ),
    "content coding": with_field("Content-Encoding", "gzip"),
    "another status": lambda request, body, fields: (500, fields, body),
    "circular redirect": lambda request, body, fields: (302, {"Location": "/", "Content-Length": "0"}, b""),
    "redirect to gopher": lambda request, body, fields: (302, {"Location": "gopher://x", "Content-Length": "0"}, b""),
    "invalid status": lambda request, body, fields: ("x", {}, b""),
}  # fmt: skip
INCONSISTENT_FIRST = {
    **INCONSISTENT,
    "body shorter than Content-Range": lambda request, body, fields: (
        206, {**fields, "Content-Range": "bytes 0-65535/65536", "Content-Length": "65535"}, body[:-1],
    ),
}  # fmt: skip
INCONSISTENT_LATER = {
    **INCONSISTENT,
    "replaced": with_field("ETag", '"two"'),
    "whole resource": lambda request, body, fields: (200, {**SERVED, "Content-Length": str(len(BUNDLE))}, BUNDLE),
    "truncated resource": lambda request, body, fields: (
        416, {"Content-Range": "bytes */7", "Content-Length": "0"}, b"",
    ),
    "body shorter than Content-Range": lambda request, body, fields: (
        206, {**fields, "Content-Length": str(len(body) - 1)}, body[:-1],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "first"), [(INCONSISTENT_FIRST, True), (INCONSISTENT_LATER, False)], ids=["first", "later"]
)
def test_inconsistent_range_responses_are_rejected(reading, changes, first):
    wrong = []
    for name, change in changes.items():
        with serving(changed(change, first=first)) as server:
            try:
                reading.all(server.url)
            except FetchError as error:
                if not str(error).startswith(server.url):
                    wrong.append((name, error))
            else:
                wrong.append((name, "accepted"))
    assert wrong == []


def test_wrong_bytes_of_the_right_length_are_a_parser_error(reading):
    def garbled(request, body, fields):
        return 206, fields, bytes(len(body))

    with serving(changed(garbled)) as server, pytest.raises(FormatError, match=r"3\.3 step 2"):
        reading.open(server.url)


def test_a_silent_server_times_out(reading):
    async def silent(request: Request, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)  # a timer that the loop holds: nothing else refers to this task

    with serving(silent) as server, pytest.raises(FetchError, match="did not respond in time"):
        reading.open(server.url, timeout=0.2)


def test_an_unreachable_server_is_an_error(reading, free_port):
    with pytest.raises(FetchError, match=r"refused|connection attempts failed"):
        reading.open(f"http://127.0.0.1:{free_port()}/")


def test_a_truncated_response_is_an_error(library):
    async def cut(request: Request, writer: asyncio.StreamWriter) -> None:
        start, last = request.part(BUNDLE) or (0, 0)
        if start:
            own = {"Content-Range": f"bytes {start}-{last}/{len(BUNDLE)}", "Content-Length": str(last - start + 1)}
            writer.write(head(206, own) + BUNDLE[start : start + 70_000])
            await writer.drain()
            writer.close()
        else:
            await honest(BUNDLE)(request, writer)

    with (
        serving(cut) as server,
        RangeBundle.open(server.url) as bundle,
        library.Client(transport=BundleTransport(bundle, origins=[SITE])) as client,
        pytest.raises(FetchError),
    ):
        client.get(f"{SITE}/large")
