from dataclasses import replace

import pytest

from tests.malformed import parts

BASE = "https://example.com/"


def test_exactly_the_documented_fields(run, make):
    site = make({BASE: b"home", BASE + "x": b"other"}, sections={"extra": b"\x01"})
    fields = run("info", site, "--json").json
    assert list(fields) == [
        "version", "primary_url", "manifest_url", "requests", "sections", "length", "authorities", "vouched_subsets",
    ]  # fmt: skip
    assert (fields["primary_url"], fields["manifest_url"], fields["requests"]) == (BASE, BASE, 2)
    assert [section["name"] for section in fields["sections"]] == ["manifest", "extra", "index", "responses"]
    assert fields["length"] == site.stat().st_size
    extra = fields["sections"][1]
    assert site.read_bytes()[extra["offset"] : extra["offset"] + extra["length"]] == b"\x01"


@pytest.mark.parametrize("version", ["b1", "b2", "draft-01"])
def test_the_version(run, make, version):
    assert run("info", make({BASE: b""}, version=version), "--json").json["version"] == version


def test_people_get_sentences(run, make):
    site = make({BASE: b"x" * 2_000})
    told = run("info", site)
    assert told.code == 0
    lines = told.out.decode().splitlines()
    assert lines[0] == f"{site}: a b1 bundle of 2.2 kB"
    assert ["primary", "URL", BASE] in [line.split() for line in lines]
    assert ["URLs", "1"] in [line.split() for line in lines]
    assert not any(line.startswith("missing") for line in lines)


def test_a_bundle_that_is_cut_says_how_much_is_missing(run, make):
    site = make({BASE: b"x" * 2_000})
    site.write_bytes(site.read_bytes()[:-1_500])
    told = run("info", site)
    assert told.code == 0
    assert "missing          1500 bytes at the end" in told.out.decode()
    assert run("info", site, "--json").code == 0


def test_a_length_beyond_64_bits_is_a_number_all_the_same(run, tmp_path):
    # The last section may claim any length: nothing is read of it, and nothing is allocated for it.
    good = parts.Bundle()
    claimed = {name: len(content) for name, content in good.sections.items()} | {"responses": (1 << 64) - 1}
    items = (item for name, length in claimed.items() for item in (parts.text(name), parts.uint(length)))
    path = tmp_path / "claims.wbn"
    path.write_bytes(replace(good, lengths=parts.array(*items)).written())
    told = run("info", path, "--json")
    assert told.code == 0
    assert told.json["length"] > 1 << 64
    assert "18446744073709551615" in run("info", path).out.decode()


def test_relative_urls_stand_as_they_are_or_have_a_base(run, make):
    site = make({"/": b"home", "/x": b"other"}, version="b2", primary_url=None, relative_urls=True)
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
        told = run(name, make({BASE: b""}), *more, "--base-url", base)
        assert (told.code, told.out) == (2, b"")
        assert f"invalid base URL {base!r}; expected an absolute URL such as https://example.com/" in told.err
        assert told.err.count("\n") == 1
        assert not (tmp_path / "out").exists()
