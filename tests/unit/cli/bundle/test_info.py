import pytest

BASE = "https://example.com/"


def test_every_field_and_no_other(run, make):
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
    assert ["requests", "1"] in [line.split() for line in lines]
    assert not any(line.startswith("missing") for line in lines)


def test_a_bundle_that_is_cut_says_how_much_is_missing(run, make):
    site = make({BASE: b"x" * 2_000})
    site.write_bytes(site.read_bytes()[:-1_500])
    told = run("info", site)
    assert told.code == 0
    assert "missing          1500 bytes: the file ends too early" in told.out.decode()
    assert run("info", site, "--json").code == 0


def test_a_length_beyond_64_bits_is_a_number_all_the_same(run, make):
    # The last section may claim any length: nothing is read of it, and nothing is allocated for it.
    site = make({BASE: b""}, version="b2", primary_url=None)
    whole = site.read_bytes()
    name = b"\x69responses"
    at = whole.index(name) + len(name)
    size = whole[at + 1] if whole[at] == 0x18 else whole[at]
    claimed = whole[:at] + b"\x1b" + b"\xff" * 8 + whole[at + (2 if whole[at] == 0x18 else 1) :]
    head = claimed.index(b"\x58") if b"\x58" in claimed[:20] else whole.index(whole[15:16], 15)
    grown = bytearray(claimed)
    grown[head] += 8 if claimed[head] != 0x58 else 0
    if claimed[head] == 0x58:
        grown[head + 1] += 8
    site.write_bytes(grown)
    told = run("info", site, "--json")
    assert size < 2_000
    assert told.code == 0, told
    assert told.json["length"] > 1 << 64
