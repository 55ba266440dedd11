import pytest

from tests.malformed import parts

BASE = "https://example.com/"


@pytest.fixture
def bad(tmp_path):
    """Two things wrong, one unwise: a response without a status, an index entry with a fragment, and the head 0x84."""
    untyped = parts.response(parts.header_map({b"content-type": b"text/plain"}))
    path = tmp_path / "bad.wbn"
    path.write_bytes(parts.Bundle(version=b"\x44b1\0\0").answering(untyped).having(manifest=None).written())
    return path


def test_everything_is_found_and_not_the_first_thing_alone(run, bad):
    told = run("lint", bad, "--json")
    assert (told.code, told.err) == (1, "")
    report = told.json
    assert set(report) == {"errors", "warnings"}
    assert all(set(one) == {"code", "message", "step", "offset"} for one in report["errors"] + report["warnings"])
    assert {"3.3 step 24", "3.4 step 7"} <= {one["step"] for one in report["errors"]}


def test_a_good_bundle(run, make):
    site = make({BASE: b"home"})
    told = run("lint", site, "--json")
    assert (told.code, told.json, told.err) == (0, {"errors": [], "warnings": []}, "")
    assert run("lint", site) == (0, b"", f"{site}: 0 errors, 0 warnings\n")
    assert run("lint", "-", stdin=site.read_bytes()).code == 0


def test_warnings_do_not_fail(run, tmp_path):
    path = tmp_path / "literal.wbn"
    path.write_bytes(parts.draft01().written())
    told = run("lint", path, "--json")
    assert told.code == 0
    assert told.json["errors"] == []
    assert told.json["warnings"]


def test_what_a_profile_takes_is_a_warning_there(run, tmp_path):
    path = tmp_path / "no-manifest.wbn"
    path.write_bytes(parts.Bundle().having(manifest=None).written())
    assert run("lint", path, "--json").code == 1
    assert run("lint", path, "--json", "--profile", "compat").code == 0


def test_people_get_a_line_for_each_that_editors_understand(run, bad):
    told = run("lint", bad)
    assert told.code == 1
    lines = told.out.decode().splitlines()
    assert all(line.startswith(f"{bad}:") for line in lines)
    assert any(": error: " in line and line.endswith("(3.3 step 24) [section-missing]") for line in lines)
    assert told.err.startswith(f"{bad}: {len(lines)} errors, 0 warnings")


def test_invalid_content_is_a_finding_and_unreadable_files_are_wrong_use(run, tmp_path):
    (tmp_path / "no").write_bytes(b"no bundle")
    told = run("lint", tmp_path / "no", "--json")
    assert (told.code, [one["code"] for one in told.json["errors"]]) == (1, ["not-a-bundle"])
    assert run("lint", tmp_path / "nowhere").code == 2


def test_lint_takes_the_options_of_reading(run, tmp_path):
    path = tmp_path / "relative.wbn"
    path.write_bytes(b"MZ" * 7 + parts.b2().having(primary=parts.text("/")).written())
    told = run("lint", path, "--json", "--from-end")
    assert (told.code, {one["code"] for one in told.json["warnings"]}) == (
        0,
        {"relative-url", "primary-url-not-in-bundle"},
    )
    told = run("lint", path, "--json", "--from-end", "--base-url", parts.PRIMARY)
    assert (told.code, told.json) == (0, {"errors": [], "warnings": []})
