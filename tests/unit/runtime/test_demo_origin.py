import asyncio
import http.client
import json

from headgate.config import check
from headgate.runtime.demo_origin import DemoOrigin, demo_banner, demo_configuration

TARGET = "/a%2Fb?q=%7B&r"


def ask(url, method="GET", body=None, **fields):
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
    try:
        connection.request(method, TARGET, body, fields)
        response = connection.getresponse()
        return response.status, response.headers["content-type"], response.read().decode()
    finally:
        connection.close()


def answer(*arguments, **fields):
    """Ask a running origin once, in a thread."""

    async def main():
        origin = DemoOrigin()
        try:
            return await asyncio.to_thread(ask, await origin.start(), *arguments, **fields)
        finally:
            await origin.close()

    return asyncio.run(main())


def test_configuration_is_valid_once_it_has_an_origin():
    tree = demo_configuration()
    check(tree)
    assert [section.name for section in tree.domain] == ["queue", "default"]


def test_banner_names_all_three_listeners():
    banner = demo_banner("http://gate", "http://admin", "http://origin")
    for name in ("gate", "admin", "origin"):
        assert f"  {name:<8}http://{name} " in banner
    assert "'http://gate/queue?[1-6]'" in banner


def test_programs_get_the_request_as_json():
    status, media_type, text = answer("POST", b"x" * 70_000, **{"X-Word": "a<b"})
    assert (status, media_type) == (200, "application/json")
    echo = json.loads(text)
    assert (echo["method"], echo["target"], echo["body_bytes"]) == ("POST", TARGET, 70_000)
    assert echo["fields"]["x-word"] == "a<b"


def test_browsers_get_a_page_without_markup_of_the_request():
    status, media_type, text = answer(**{"Accept": "text/html,*/*", "X-Word": "<script>&"})
    assert (status, media_type) == (200, "text/html; charset=utf-8")
    assert "&lt;script>&amp;" in text
    assert "<script>" not in text
