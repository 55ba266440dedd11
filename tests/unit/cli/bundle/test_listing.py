import hashlib
import os
import pty
import subprocess
import sys

import pytest

from headgate.bundle import open_bundle
from headgate.cli.bundle import inspection
from tests.malformed import parts

BASE = "https://example.com/"
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


def test_urls_as_they_lie_in_the_file_and_variants_as_they_are_in_the_index(run, site):
    lines = run("list", site, "--json").objects
    assert [(line["url"], line["variant_key"]) for line in lines] == [
        (BASE + "z", None),
        (BASE + "page", "en"),
        (BASE + "page", "fr"),
        (BASE + "page", "ja"),
        (BASE, None),
    ]
    english, french, japanese = lines[1:4]
    assert {**english, "variant_key": "ja"} == japanese
    assert english["offset"] < french["offset"]


def test_every_field_of_a_line(run, site):
    line = run("list", site, "--json").objects[0]
    with open_bundle(site) as bundle:
        location = bundle.metadata.requests[BASE + "z"]
    assert line == {
        "url": BASE + "z", "variant_key": None, "offset": location.offset, "length": location.length, "status": 200,
        "headers": HTML, "payload_length": 3, "payload_sha256": None,
    }  # fmt: skip


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_line_with_a_digest_is_printed_before_the_next_is_computed(run, site, monkeypatch, flags):
    sizes = []
    printed = inspection.print_in_batches

    def print_and_record(*given, **how):
        sizes.append(how)
        printed(*given, **how)

    monkeypatch.setattr(inspection, "print_in_batches", print_and_record)
    assert run("list", site, *flags).code == run("list", site, "--digest", *flags).code == 0
    assert sizes == [{}, {"size": 0}]


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_responses_inside_one_another_are_listed_and_not_hashed(run, tmp_path, flags):
    path = tmp_path / "nested.wbn"
    path.write_bytes(parts.nested(50).written())
    assert (run("list", path, *flags).code, len(run("list", path, "--json").objects)) == (0, 50)
    told = run("list", path, "--digest", *flags)
    assert (told.code, told.out, told.err.count("\n")) == (1, b"", 1)
    assert "the responses overlap" in told.err


def test_digests_are_those_of_the_payloads(run, site):
    found = [line["payload_sha256"] for line in run("list", site, "--json", "--digest").objects]
    assert found == [hashlib.sha256(payload).hexdigest() for payload in (b"<p>", b"shared", b"fr", b"shared", b"")]


def test_offsets_count_from_the_first_byte_of_the_bundle(run, site, tmp_path):
    appended = tmp_path / "appended"
    appended.write_bytes(b"before" * 100 + site.read_bytes())
    assert run("list", appended, "--json", "--from-end").out == run("list", site, "--json").out


def test_malformed_response_does_not_affect_others(run, site, tmp_path):
    content = site.read_bytes()
    at = content.index(b":status") + len(b":statusC")
    site.write_bytes(content[:at] + b"2x0" + content[at + 3 :])
    told = run("list", site, "--json", "--digest")
    assert (told.code, told.err) == (1, "")
    bad, *others = told.objects
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


def test_exactly_the_responses_that_were_cut_are_refused(run, site):
    whole = run("list", site, "--json").objects
    content = site.read_bytes()
    last = whole[-1]
    for length in range(whole[0]["offset"], len(content)):
        site.write_bytes(content[:length])
        lines = run("list", site, "--json").objects
        cut = [line["offset"] + line["length"] > length for line in whole]
        assert [("error" in line) for line in lines] == cut
        assert run("info", site, "--json").code == 0
    assert last["offset"] + last["length"] == len(content) - 9


def test_people_get_a_table(run, site):
    told = run("list", site)
    assert told.code == 0
    lines = told.out.decode().splitlines()
    assert lines[0].split() == ["status", "size", "type", "URL"]
    assert lines[1].split() == ["200", "3", "B", "text/html", BASE + "z"]
    assert lines[2].split() == ["200", "6", "B", "text/plain", BASE + "page", "[en]"]
    assert told.err == "5 responses, 0 refused, 17 B of payloads\n"
    digests = run("list", site, "--digest").out.decode().splitlines()
    assert digests[1].split()[0] == hashlib.sha256(b"<p>").hexdigest()


def test_an_empty_bundle(run, make):
    empty = make({}, version="b2", primary_url=None)
    assert run("list", empty, "--json") == (0, b"", "")
    assert run("list", empty).err == "0 responses, 0 refused, 0 B of payloads\n"


def test_control_characters_are_not_printed(run, make):
    path = make({BASE: {"payload": b"x", "headers": {"content-type": "a/1[2J2b"}}})
    path.write_bytes(path.read_bytes().replace(b"1[2J2", b"\x1b[2J\x07"))
    told = run("list", path)
    assert b"\x1b" not in told.out
    assert rb"a/\x1b[2J\x07b" in told.out


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
def test_colours_only_on_a_terminal_that_wants_them(site, environment, coloured):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "headgate", "bundle", "list", str(site)]
    clean = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    with os.fdopen(theirs, "wb") as terminal:
        subprocess.run(command, stdout=terminal, stderr=subprocess.PIPE, check=True, env={**clean, **environment})
    assert (b"\x1b[1m" in os.read(ours, 10_000)) is coloured
    os.close(ours)
    piped = subprocess.run(command, capture_output=True, check=True, env={**clean, **environment})
    assert b"\x1b" not in piped.stdout
