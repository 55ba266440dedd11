import hashlib
from dataclasses import replace

import pytest

from headgate.bundle import open_bundle
from tests.malformed import parts

BASE = "https://example.com/"


def test_info_json_has_the_documented_fields(run, make):
    site = make({BASE: b"home", BASE + "x": b"other"})
    fields = run("info", site, "--json").json
    assert list(fields) == [
        "version", "primary_url", "manifest_url", "requests", "sections", "length", "authorities", "vouched_subsets",
    ]  # fmt: skip
    assert (fields["primary_url"], fields["manifest_url"], fields["requests"]) == (BASE, BASE, 2)
    assert [section["name"] for section in fields["sections"]] == ["manifest", "index", "responses"]
    assert fields["length"] == site.stat().st_size
    manifest = fields["sections"][0]
    assert site.read_bytes()[manifest["offset"] : manifest["offset"] + manifest["length"]] == parts.text(BASE)


def test_info_json_has_lengths_beyond_63_bits(run, tmp_path):
    # The last section may claim any length: nothing is read of it, and nothing is allocated for it.
    good = parts.Bundle()
    claimed = {name: len(content) for name, content in good.sections.items()} | {"responses": (1 << 64) - 1}
    items = (item for name, length in claimed.items() for item in (parts.text(name), parts.uint(length)))
    path = tmp_path / "claims.wbn"
    path.write_bytes(replace(good, lengths=parts.array(*items)).written())
    result = run("info", path, "--json")
    assert result.code == 0
    assert result.json["length"] > 1 << 64
    assert "18446744073709551615" in run("info", path).out.decode()


def test_info_resolves_relative_urls_with_a_base_only(run, tmp_path):
    site = tmp_path / "relative.wbn"
    first, second = parts.response(payload=b"home"), parts.response(payload=b"other")
    places = (1, len(first)), (1 + len(first), len(second))
    index = parts.index(
        {url: parts.array(*map(parts.uint, place)) for url, place in zip(("/", "/x"), places, strict=True)}
    )
    relative = parts.b2().having(primary=None, index=index, responses=parts.array(first, second))
    site.write_bytes(relative.written())
    assert [line["url"] for line in run("list", site, "--json").objects] == ["/", "/x"]
    lines = run("list", site, "--json", "--base-url", "HTTPS://Example.com/a/b").objects
    assert [line["url"] for line in lines] == [BASE, BASE + "x"]
    assert run("get", site, "/x").out == b"other"
    assert run("get", site, BASE + "x", "--base-url", BASE).out == b"other"


@pytest.mark.parametrize("command", [["info"], ["list"], ["get", BASE], ["extract", "-o", "out"], ["verify"]])
def test_invalid_base_urls_are_refused(run, make, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    name, *more = command
    for base in ("junk", "", "/x/", "https://[", "mailto:a@example.com"):
        result = run(name, make({BASE: b""}), *more, "--base-url", base)
        assert (result.code, result.out) == (2, b"")
        assert f"invalid base URL {base!r}; expected an absolute URL such as https://example.com/" in result.err
        assert result.err.count("\n") == 1
        assert not (tmp_path / "out").exists()


HTML = {"content-type": "text/html; charset=utf-8"}


@pytest.fixture
def site(make):
    axes = {"variants": "Accept-Language;en;fr;ja"}
    shared = {"payload": b"shared", "variant_key": ["en", "ja"], **axes}
    return make({
        BASE + "z": {"payload": b"<p>", "headers": HTML},
        BASE + "page": [shared, {"payload": b"fr", "variant_key": "fr", **axes}],
        BASE: b"",
    })  # fmt: skip


def test_list_json_has_every_field(run, site):
    line = run("list", site, "--json").objects[0]
    with open_bundle(site) as bundle:
        location = bundle.metadata.requests[BASE + "z"]
    assert line == {
        "url": BASE + "z", "variant_key": None, "offset": location.offset, "length": location.length, "status": 200,
        "headers": HTML, "payload_length": 3, "payload_sha256": None,
    }  # fmt: skip


def test_list_shows_responses_beside_a_malformed_one(run, site, tmp_path):
    content = site.read_bytes()
    at = content.index(b":status") + len(b":statusC")
    site.write_bytes(content[:at] + b"2x0" + content[at + 3 :])
    result = run("list", site, "--json", "--digest")
    assert (result.code, result.err) == (1, "")
    bad, *others = result.objects
    assert set(bad) == {
        "url", "variant_key", "offset", "length", "error", "message", "step", "fallback_url", "error_offset",
    }  # fmt: skip
    assert (bad["error"], bad["step"], bad["url"]) == ("response", "3.4 step 8", BASE + "z")
    assert content[bad["offset"]] == 0x82
    assert bad["offset"] < bad["error_offset"] < bad["offset"] + bad["length"]
    assert len(others) == 4
    assert not any("error" in line for line in others)
    shown = run("list", site)
    assert shown.code == 1
    assert b"refused" in shown.out
    assert b"(3.4 step 8)" in shown.out
    assert shown.err.endswith("5 responses, 1 refused, 14 B of payloads\n")


def test_list_prints_a_table(run, site):
    result = run("list", site)
    assert result.code == 0
    lines = result.out.decode().splitlines()
    assert lines[0].split() == ["status", "size", "type", "URL"]
    assert lines[1].split() == ["200", "3", "B", "text/html", BASE + "z"]
    assert lines[2].split() == ["200", "6", "B", "text/plain", BASE + "page", "[en]"]
    assert result.err == "5 responses, 0 refused, 17 B of payloads\n"
    digests = run("list", site, "--digest").out.decode().splitlines()
    assert digests[1].split()[0] == hashlib.sha256(b"<p>").hexdigest()


def test_list_escapes_control_characters(run, make):
    path = make({BASE: {"payload": b"x", "headers": {"content-type": "a/1[2J2b"}}})
    path.write_bytes(path.read_bytes().replace(b"1[2J2", b"\x1b[2J\x07"))
    result = run("list", path)
    assert b"\x1b" not in result.out
    assert rb"a/\x1b[2J\x07b" in result.out


@pytest.fixture
def bad(tmp_path):
    """Two things wrong, one unwise: a response without a status, an index entry with a fragment, and the head 0x84."""
    untyped = parts.response(parts.header_map({b"content-type": b"text/plain"}))
    path = tmp_path / "bad.wbn"
    path.write_bytes(parts.Bundle(version=b"\x44b1\0\0").answering(untyped).having(manifest=None).written())
    return path


def test_check_reports_every_error(run, bad):
    result = run("check", bad, "--json")
    assert (result.code, result.err) == (1, "")
    report = result.json
    assert set(report) == {"errors", "warnings"}
    assert all(set(one) == {"code", "message", "step", "offset"} for one in report["errors"] + report["warnings"])
    assert {"3.3 step 24", "3.4 step 7"} <= {one["step"] for one in report["errors"]}


def test_check_lines_have_the_form_of_compilers(run, bad):
    result = run("check", bad)
    assert result.code == 1
    lines = result.out.decode().splitlines()
    assert all(line.startswith(f"{bad}:") for line in lines)
    assert any(": error: " in line and line.endswith("(3.3 step 24) [section-missing]") for line in lines)
    assert result.err.startswith(f"{bad}: {len(lines)} errors, 0 warnings")
