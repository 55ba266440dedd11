import pytest

from headgate.bundle import open_bundle

BASE = "https://example.com/"


def contents(path, profile="compat"):
    with open_bundle(path, profile=profile) as bundle:
        return {
            (found.url, found.variant_key): (
                found.response.status,
                found.response.headers,
                bytes(found.response.payload),
            )
            for found in bundle.exchanges()
        }


@pytest.fixture
def site(make):
    return make({BASE: b"home", BASE + "x": {"payload": b"", "status": 301, "headers": {"location": "/", **TYPE}}})


TYPE = {"content-type": "text/plain"}


@pytest.mark.parametrize("version", ["b1", "b2", "draft-01"])
def test_exchanges_are_unchanged(run, site, tmp_path, version):
    out = tmp_path / "out.wbn"
    assert run("convert", site, "--version", version, "-o", out) == (0, b"", "")
    assert run("info", out, "--json").json["version"] == version
    assert contents(out) == contents(site)
    assert run("convert", out, "--version", "b1", "-o", out).code == 0  # over the file that is read
    assert out.read_bytes() == site.read_bytes()


def test_lost_and_missing_parts_are_printed(run, make, tmp_path):
    plain = make({BASE: b"home"}, version="b2", primary_url=None)
    refused = run("convert", plain, "--version", "b1", "-o", tmp_path / "out.wbn")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert not (tmp_path / "out.wbn").exists()
    refused = run("convert", plain, "--version", "b1", "--primary-url", BASE, "-o", tmp_path / "out.wbn")
    assert (refused.code, refused.err.count("\n")) == (1, 1)
    assert "--manifest-url" in refused.err
    assert not (tmp_path / "out.wbn").exists()
    whole = ("--primary-url", BASE, "--manifest-url", BASE)
    assert run("convert", plain, "--version", "draft-01", *whole, "-o", tmp_path / "out.wbn") == (0, b"", "")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["convert", "SITE", "-o", "o"], "missing option '--version'"),
        (["convert", "SITE", "--version", "b1"], "missing option '-o'"),
        (["convert", "SITE", "--version", "b1", "-o", "."], "is a directory"),
        (["convert", "SITE", "--version", "b1", "-o", "nowhere/o"], "does not exist"),
        (["convert", "nowhere.wbn", "--version", "b1", "-o", "o"], "nowhere.wbn: No such file"),
    ],
)
def test_wrong_use_is_exit_code_2(run, site, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    result = run(*(site if word == "SITE" else word for word in arguments))
    assert (result.code, result.out) == (2, b"")
    assert words in result.err
    assert result.err.count("\n") == 1
    assert not (tmp_path / "o").exists()
