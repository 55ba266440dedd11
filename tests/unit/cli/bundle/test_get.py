import pytest

from tests.malformed import parts

BASE = "https://example.com/"
VARIANTS = {"variants": "Accept-Language;en;fr"}


@pytest.fixture
def site(make):
    return make({
        BASE: b"home",
        BASE + "a/logo.png": {"payload": b"\x89PNG\0\0", "headers": {"content-type": "image/png", "x-a": "1"}},
        BASE + "page": [{"payload": key.encode(), "variant_key": key, **VARIANTS} for key in ("en", "fr")],
    })  # fmt: skip


def test_payload_is_printed_alone(run, site):
    assert run("get", site, BASE) == (0, b"home", "")
    assert run("get", site, BASE + "a/logo.png") == (0, b"\x89PNG\0\0", "")


@pytest.mark.parametrize("url", ["HTTPS://EXAMPLE.com:443", "https://example.com/x/../#top", "/", ".", ""])
def test_url_is_normalized_and_may_be_relative(run, site, url):
    assert run("get", site, url) == (0, b"home", "")


def test_relative_urls_are_found_and_extracted(run, tmp_path):
    path, urls = tmp_path / "rel.wbn", {"./docs/": parts.LOCATIONS[0], "./a.css": parts.LOCATIONS[1]}
    entries = {url: parts.array(*map(parts.uint, place)) for url, place in urls.items()}
    path.write_bytes(parts.b2().having(primary=None, index=parts.index(entries)).written())
    for url in ("/docs/", "docs/", "./docs/"):
        assert run("get", path, url) == (0, b"hello", "")
    assert run("extract", path, "-o", tmp_path / "out").code == 0
    files = {str(file.relative_to(tmp_path / "out")) for file in (tmp_path / "out/files").rglob("*.*")}
    assert files == {"files/relative/docs/index.html", "files/relative/a.css"}


def test_headers_are_printed_as_curl_does(run, site):
    got = run("get", site, BASE + "a/logo.png", "--headers")
    head, _, payload = got.out.partition(b"\r\n\r\n")
    assert payload == b"\x89PNG\0\0"
    first, *lines = head.decode().split("\r\n")
    assert first == "HTTP/1.1 200 OK"
    assert dict(line.split(": ") for line in lines) == {
        "content-type": "image/png", "x-a": "1", "x-content-type-options": "nosniff",
    }  # fmt: skip


def test_output_file_gets_the_payload_only(run, site, tmp_path):
    out = tmp_path / "logo.png"
    got = run("get", site, BASE + "a/logo.png", "-o", out, "--headers")
    assert got.code == 0
    assert got.out.endswith(b"\r\n\r\n")
    assert out.read_bytes() == b"\x89PNG\0\0"
    assert run("get", site, BASE, "-o", "-") == (0, b"home", "")


def test_request_headers_choose_the_variant(run, site):
    url = BASE + "page"
    assert run("get", site, url, "--variant-key", "fr") == (0, b"fr", "")
    assert run("get", site, url, "-H", "Accept-Language: fr;q=0.9, en;q=0.1") == (0, b"fr", "")
    assert run("get", site, f"{url}#top") == (0, b"en", "")
    missing = run("get", site, url, "--variant-key", "de")
    assert (missing.code, missing.out) == (1, b"")
    assert "'de'" in missing.err
    assert "en, fr" in missing.err
    assert "similar: " not in missing.err
    assert run("get", site, BASE, "--variant-key", "en").code == 1


def test_first_variant_is_used_without_an_acceptable_one(run, make):
    value = "Accept-Encoding;br;gzip"
    path = make({BASE: [{"payload": key.encode(), "variant_key": key, "variants": value} for key in ("br", "gzip")]})
    got = run("get", path, BASE)
    assert (got.code, got.out) == (0, b"br")
    assert got.err == f"{BASE} has variants; got br, choose another with -H or --variant-key\n"
    refused = run("get", path, BASE, "-H", "Accept-Encoding: zstd")
    assert (refused.code, refused.out) == (1, b"")
    assert "has no variant that the request accepts" in refused.err


def test_missing_url_is_reported_with_similar_ones(run, site):
    got = run("get", site, BASE + "a/logo.gif")
    assert (got.code, got.out) == (1, b"")
    assert got.err.startswith(f"headgate: {site}: https://example.com/a/logo.gif is not in the bundle; similar: ")
    assert got.err.split("similar: ")[1].split()[0] == BASE + "a/logo.png"
    assert run("get", site, "https://[").code == 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["-H", "Accept"], "invalid header field 'Accept'; expected 'Name: value', such as 'Accept-Language: fr'"),
        (["-H", "a b: c"], "invalid header field"),
        (["-H", "a: b\nc: d"], "invalid header field"),
        (["-H", "a: \u20ac"], "invalid header field"),
        (["-o", "."], "is a directory"),
        (["-o", "nowhere/out"], "does not exist"),
        (["--profile", "lax"], "'lax'"),
    ],
)
def test_wrong_use_is_exit_code_2(run, site, flags, words):
    got = run("get", site, BASE, *flags)
    assert (got.code, got.out) == (2, b"")
    assert words in got.err
    assert got.err.count("\n") == 1


def test_bundle_may_be_stdin_or_the_end_of_a_file(run, site, tmp_path):
    assert run("get", "-", BASE, stdin=site.read_bytes()) == (0, b"home", "")
    appended = tmp_path / "installer"
    appended.write_bytes(b"#!/bin/sh\n" + site.read_bytes())
    assert run("get", appended, BASE).code == 1
    assert run("get", appended, BASE, "--from-end") == (0, b"home", "")


def test_control_characters_in_names_are_escaped(run, make):
    path = make({BASE: b""}, name="\x1b[2J.wbn")
    path.write_bytes(b"no bundle")
    got = run("get", path, BASE)
    assert "\x1b" not in got.err
    assert r"\x1b[2J.wbn" in got.err
