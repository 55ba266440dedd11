"""Bundles that other tools made, and small malformed ones: what `info`, `list`, `get` and `verify` say of each."""

import hashlib
import json
from collections import defaultdict
from pathlib import Path

import pytest

from tests.malformed import named

VECTORS = Path(__file__).parents[3] / "vectors" / "bundle"
REAL = json.loads((VECTORS / "manifest.json").read_text())
READABLE = {name: case for name, case in REAL.items() if "info" in case}
CASES = json.loads((VECTORS / "cases" / "expect.json").read_text())
FALLBACK = "https://test.example.com/"


@pytest.fixture(params=READABLE)
def real(request):
    return VECTORS / request.param, READABLE[request.param]


def test_vector_files_match_their_manifest():
    for name, case in REAL.items():
        content = (VECTORS / name).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (case["bytes"], case["sha256"])
    assert {path.stem for path in (VECTORS / "cases").glob("*.wbn")} == set(CASES)


def test_info_of_each_vector(run, real):
    path, case = real
    result = run("info", path, "--json", "--profile", "compat")
    assert (result.code, result.err) == (0, "")
    fields = result.json
    sections = fields.pop("sections")
    assert fields == case["info"]
    assert [set(section) for section in sections] == [{"name", "offset", "length"}] * len(sections)
    assert sections[-1]["name"] == "responses"
    assert sections[-1]["offset"] + sections[-1]["length"] + 9 == fields["length"]


def test_list_of_each_vector(run, real):
    path, case = real
    result = run("list", path, "--json", "--digest", "--profile", "compat")
    assert (result.code, result.err) == (0, "")
    content = path.read_bytes()
    for line in result.objects:
        start, length = line.pop("offset"), line.pop("length")
        assert content[start] == 0x82
        size = line["payload_length"]
        payload = content[start + length - size : start + length]
        assert hashlib.sha256(payload).hexdigest() == line["payload_sha256"]
        assert line in case["responses"]
    assert len(result.objects) == len(case["responses"])
    assert keys_by_url(result.objects) == keys_by_url(case["responses"])


def keys_by_url(lines):
    found = defaultdict(list)
    for line in lines:
        found[line["url"]].append(line["variant_key"])
    return found


def test_default_profile_is_strict(run, real):
    path, case = real
    if "error" in case["strict"]:
        for command in ("info", "list"):
            result = run(command, path, "--json")
            assert (result.code, result.json["error"]) == (1, case["strict"]["error"])
            assert has_step(result.json["step"], case["strict"]["steps"])
        return
    result = run("list", path, "--json")
    refused = [line["url"] for line in result.objects if "error" in line]
    assert refused == case["strict"]["refused_responses"]
    assert result.code == (1 if refused else 0)
    assert len(result.objects) == len(case["responses"])


def has_step(step, steps):
    """Return whether `step` contains one of these: "3.3 step 20" does not contain "3.3 step 2"."""
    return not steps or any(f" {step}, ".find(f" {wanted}{end}") >= 0 for wanted in steps for end in ("", ".", ","))


def test_each_case_has_the_expected_result(run):
    for name, case in CASES.items():
        path = VECTORS / "cases" / f"{name}.wbn"
        with named(name):
            EXPECTED[case["expect"]](run, path, case)
            if "compat" in case:
                EXPECTED[case["compat"]](run, path, case, "--profile", "compat")


def ok(run, path, case, *flags):
    result = run("info", path, "--json", *flags)
    assert (result.code, result.err) == (0, "")
    given = {name: case[name] for name in ("version", "requests", "authorities", "vouched_subsets") if name in case}
    assert {name: result.json[name] for name in given} == given
    listed = run("list", path, "--json", *flags)
    assert listed.code == 0
    assert not any("error" in line for line in listed.objects)


def refused(kinds, fallbacks):
    def check(run, path, case, *flags):
        for command in ("info", "list"):
            result = run(command, path, "--json", *flags)
            assert (result.code, result.err) == (1, "")
            assert set(result.json) == {"error", "message", "step", "offset", "fallback_url"}
            assert result.json["error"] in kinds
            assert result.json["fallback_url"] in fallbacks
            assert has_step(result.json["step"], case["steps"])
            assert 0 <= result.json["offset"] <= path.stat().st_size
        text = run("info", path, *flags)
        assert (text.code, text.out) == (1, b"")
        assert text.err.startswith(f"headgate: {path}: ")
        assert text.err.count("\n") == 1

    return check


def one_response(run, path, case, *flags):
    assert run("info", path, "--json", *flags).code == 0
    listed = run("list", path, "--json", *flags)
    assert listed.code == 1
    lines = {line["url"]: line for line in listed.objects}
    assert set(lines) == {FALLBACK, f"{FALLBACK}manifest"}
    bad = lines[FALLBACK]
    assert bad["error"] == "response"
    assert has_step(bad["step"], case["steps"])
    assert {"url", "variant_key", "offset", "length", "message"} <= set(bad)
    assert lines[f"{FALLBACK}manifest"]["status"] == 200
    got = run("get", path, FALLBACK, *flags)
    assert (got.code, got.out) == (1, b"")
    assert run("get", path, f"{FALLBACK}manifest", *flags).code == 0


def from_end(run, path, case):
    result = run("info", path, "--json", "--from-end")
    if case["expect"] == "end-ok":
        assert (result.code, result.json["requests"]) == (0, case["requests"])
        return
    assert (result.code, result.json["error"]) == (1, "format")
    assert has_step(result.json["step"], case["steps"])


def anything(run, path, case):
    assert run("info", path, "--json").code in {0, 1}


EXPECTED = {
    "ok": ok,
    "format": refused({"format"}, {None}),
    "format+fallback": refused({"format"}, {FALLBACK}),
    "version+fallback": refused({"version"}, {FALLBACK}),
    "reject": refused({"format", "version"}, {None, FALLBACK}),
    "response": one_response,
    "end-ok": from_end,
    "end-format": from_end,
    "impl": anything,
}


def test_bundle_after_an_integrity_block_is_read(run):
    behind = VECTORS / REAL["small_b2_signed.swbn"]["signed_file"]
    signed = VECTORS / "small_b2_signed.swbn"
    flags = ("--json", "--digest", "--profile", "compat")
    assert run("list", signed, *flags).out == run("list", behind, *flags).out
    info = run("info", signed, "--json").json
    block = info.pop("integrity_block")
    assert info == run("info", behind, "--json").json
    assert (block["signatures"], block["version"]) == ([block["web_bundle_id"]], "2b")
