"""sign and verify: signatures are valid until anything that they cover changes."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headgate.bundle import open_bundle
from headgate.cli.bundle.signing import parse_time, seconds_since_1970
from tests import signers
from tests.malformed import named

BASE = "https://example.com/"


@pytest.fixture
def keys(tmp_path):
    """A folder with a certificate that is valid today, its key, and keys for integrity blocks."""
    folder = tmp_path / "keys"
    folder.mkdir()
    today = datetime.now(UTC)
    valid = today - timedelta(days=30), today + timedelta(days=30)
    (folder / "chain.pem").write_bytes(signers.certificate_pem(signers.certificate(valid=valid)))
    (folder / "key.pem").write_bytes(signers.pem(signers.p256()))
    (folder / "ed.pem").write_bytes(signers.pem(signers.ed()))
    (folder / "locked.pem").write_bytes(signers.pem(signers.ed(2), passphrase=b"secret"))
    return folder


@pytest.fixture
def site(make):
    return make({BASE: b"home", BASE + "x": b"other"})


def vouch(run, site, keys, *flags):
    certificate = ("--certificate", keys / "chain.pem", "--key", keys / "key.pem")
    return run("sign", site, *certificate, "--validity-url", BASE + "validity", *flags)


def add_block(run, site, keys, key="ed.pem", *, out=None):
    return run("sign", site, "--integrity-block", "--key", keys / key, "-o", out or site)


def test_signature_is_invalid_after_a_change(run, site, keys, tmp_path):
    out = tmp_path / "signed.wbn"
    result = vouch(run, site, keys, "-o", out)
    assert (result.code, result.out) == (0, b"")
    assert result.err.startswith(f"{out}: 2 URLs signed until ")
    trust = ("--trust", keys / "chain.pem")
    assert run("verify", out, *trust, "--json").json == {
        "result": "valid",
        "valid": True,
        "web_bundle_id": None,
        "signatures": [
            {
                "kind": "vouched-subset",
                "valid": True,
                "reason": None,
                "urls": [BASE, BASE + "x"],
                "unchecked": [
                    "whether the certificate was revoked, is in a log, or was issued for signing exchanges",
                    "whether the signer chose the primary URL and the manifest URL: only their responses are signed",
                ],
            }
        ],
        "unsigned_urls": {"count": 0, "first": []},
    }
    info = run("info", out, "--json").json
    assert (info["authorities"], info["vouched_subsets"], info["requests"]) == (1, 1, 2)
    shown = run("verify", out, *trust)
    assert shown.code == 0
    assert shown.out.decode().splitlines()[:2] == [f"{out}: valid", "vouched-subset over 2 URLs: valid"]
    out.write_bytes(out.read_bytes().replace(b"home", b"hole"))
    changed = run("verify", out, *trust, "--json")
    assert (changed.code, changed.json["valid"], changed.json["result"]) == (1, False, "not-valid")
    assert changed.json["signatures"][0]["reason"].startswith("wrong-digest: ")
    assert b"not valid: wrong-digest: " in run("verify", out).out


def test_bundle_with_a_page_that_nobody_signed_is_partly_signed(run, make, keys):
    pages = {f"https://elsewhere.example/{number:02}": b"not ours" for number in range(12)}
    site = make({BASE: b"home", **pages})
    assert vouch(run, site, keys, "-o", site).code == 0
    trust = ("--trust", keys / "chain.pem")
    result = run("verify", site, *trust, "--json")
    assert (result.code, result.json["result"], result.json["valid"]) == (1, "partly-signed", False)
    assert result.json["unsigned_urls"] == {"count": 12, "first": sorted(pages)[:10]}
    lines = run("verify", site, *trust).out.decode().splitlines()
    assert lines[:4] == [
        f"{site}: partly signed", "vouched-subset over 1 URL: valid",
        "12 URLs without a signature:", "  https://elsewhere.example/00",
    ]  # fmt: skip
    assert lines[13] == "  and 2 more"
    accepted = run("verify", site, *trust, "--allow-unsigned", "--json")
    assert (accepted.code, accepted.json) == (0, result.json)
    assert run("verify", site, "--allow-unsigned").code == 1  # nothing is trusted
    assert add_block(run, site, keys).code == 0
    assert run("verify", site, *trust).code == 0


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--date", "-10d"), "expired"),
        (("--date", "+1h"), "not-yet-valid"),
        (("--date", "-2h", "--expires", "+1h"), "expired"),
        (("--date", "-6d", "--expires", "+7d"), None),
        (("--date", "{now}", "--expires", "{tomorrow}"), None),
    ],
)
def test_dates_may_be_absolute_or_relative(run, site, keys, tmp_path, flags, reason):
    now = time.time()
    result = {"now": now, "tomorrow": now + 86_400}
    moments = {name: f"{datetime.fromtimestamp(when, UTC):%Y-%m-%dT%H:%M:%SZ}" for name, when in result.items()}
    assert vouch(run, site, keys, "-o", site, *(flag.format(**moments) for flag in flags)).code == 0
    (signature,) = run("verify", site, "--any-certificate", "--json").json["signatures"]
    assert (signature["reason"] or "").partition(":")[0] == (reason or "")


def test_certificate_is_untrusted_without_roots(run, site, keys):
    assert vouch(run, site, keys, "-o", site).code == 0
    result = run("verify", site, "--json")
    assert (result.code, result.json["result"], result.json["valid"]) == (1, "untrusted", False)
    assert [one["reason"] for one in result.json["signatures"]] == ["untrusted: no trusted roots were given"]
    result = run("verify", site)
    assert (result.code, result.out.decode().splitlines()[0]) == (1, f"{site}: untrusted")
    assert "--trust FILE names trusted roots" in result.err
    accepted = run("verify", site, "--any-certificate")
    assert (accepted.code, accepted.out.decode().splitlines()[0]) == (0, f"{site}: valid")
    assert "not checked: whether the certificate leads to a trusted root" in accepted.out.decode()


def test_expected_web_bundle_id_is_compared(run, site, keys):
    assert vouch(run, site, keys, "-o", keys / "vouched.wbn").code == 0
    assert add_block(run, site, keys).code == 0
    found = run("verify", site, "--json").json
    name = found["web_bundle_id"]
    result = run("verify", site, "--web-bundle-id", name, "--json")
    assert (result.code, result.json["result"]) == (0, "valid")
    sentence = "whether the web bundle id is the expected one: anyone can sign with a key of their own"
    assert sentence in found["signatures"][0]["unchecked"]
    assert sentence not in result.json["signatures"][0]["unchecked"]
    for other in ("a" * 56, name.upper()):
        result = run("verify", site, "--web-bundle-id", other, "--json")
        assert (result.code, result.json["result"]) == (1, "not-valid")
        assert result.json["signatures"][0]["reason"].startswith(f"wrong-web-bundle-id: the web bundle id is '{name}'")
    result = run("verify", keys / "vouched.wbn", "--any-certificate", "--web-bundle-id", name, "--json")
    assert (result.code, result.json["result"]) == (1, "not-valid")
    assert result.json["signatures"][1]["reason"].startswith("no-signature: the integrity block with")


def test_integrity_block_is_added_shown_and_removed(run, site, keys, tmp_path):
    out, before = tmp_path / "app.swbn", site.read_bytes()
    result = add_block(run, site, keys, out=out)
    with open_bundle(out) as bundle:
        name = bundle.integrity_block.web_bundle_id
    assert result == (0, b"", f"{out}: signed as web bundle {name}\n")
    assert out.read_bytes().endswith(before)
    assert run("verify", out, "--json").json == {
        "result": "valid",
        "valid": True,
        "web_bundle_id": name,
        "signatures": [
            {
                "kind": "integrity-block",
                "valid": True,
                "reason": None,
                "urls": [],
                "unchecked": [
                    "whether the web bundle id is the expected one: anyone can sign with a key of their own",
                    "whether the key was lost or revoked: keys of integrity blocks never expire",
                ],
            }
        ],
        "unsigned_urls": {"count": 0, "first": []},
    }
    assert run("list", out, "--json").out == run("list", site, "--json").out
    assert run("sign", out, "--remove", "-o", out).code == 0
    assert out.read_bytes() == before


def test_unsigned_bundle_is_not_valid(run, site):
    result = run("verify", site, "--json")
    unsigned = {"count": 2, "first": [BASE, BASE + "x"]}
    nothing = {"result": "not-signed", "valid": False, "web_bundle_id": None, "signatures": []}
    assert (result.code, result.json) == (1, {**nothing, "unsigned_urls": unsigned})
    assert run("verify", site, "--allow-unsigned").code == 1
    assert run("verify", site) == (1, f"{site}: not signed\n".encode(), "")
    result = run("sign", site, "--remove", "-o", site)
    assert (result.code, result.out) == (1, b"")
    assert "no integrity block" in result.err


WRONG = [
    (["sign", "SITE", "-o", "o"], "missing option '--key'"),
    (["sign", "SITE", "--key", "ed.pem"], "missing option '-o'"),
    (["sign", "SITE", "--key", "ed.pem", "-o", "o"], "missing option '--certificate'"),
    (["sign", "SITE", "--key", "k", "--certificate", "c", "-o", "o"], "missing option '--validity-url'"),
    (["sign", "SITE", "--key", "ed.pem", "--integrity-block", "--date", "+1d", "-o", "o"], "excludes"),
    (["sign", "SITE", "--key", "ed.pem", "--integrity-block", "--date", "soon", "-o", "o"], "invalid time 'soon'"),
    (["sign", "SITE", "--key", "nowhere.pem", "--integrity-block", "-o", "o"], "nowhere.pem: No such file"),
    (["sign", "SITE", "--key", "chain.pem", "--integrity-block", "-o", "o"], "the key is a certificate"),
    (["sign", "SITE", "--key", "locked.pem", "--integrity-block", "-o", "o"], "is encrypted"),
    (["sign", "SITE", "--key", "ed.pem", "--integrity-block", "-o", "."], "is a directory"),
    (["sign", "SITE", "--integrity-block", "-o", "o"], "missing option '--key'"),
    (["sign", "SITE", "--remove", "--certificate", "c", "-o", "o"], "--remove excludes --certificate"),
    (["sign", "SITE", "--remove"], "missing option '-o'"),
]  # fmt: skip


def test_wrong_use_is_exit_code_2(run, site, keys, monkeypatch):
    monkeypatch.chdir(keys)
    for arguments, words in WRONG:
        with named(" ".join(arguments)):
            result = run(*(site if word == "SITE" else word for word in arguments))
            assert (result.code, result.out) == (2, b"")
            assert words in result.err
            assert result.err.count("\n") == 1
            assert not Path("o").exists()


NOW = 1_700_000_000


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2023-11-14T22:13:20Z", NOW),
        ("2023-11-14t22:13:20z", NOW),
        ("2023-11-14 22:13:20+00:00", NOW),
        ("2023-11-14T23:13:20.999+01:00", NOW),
        ("1969-12-31T23:59:59Z", -1),
        ("+7d", NOW + 7 * 86_400),
        ("+12h", NOW + 43_200),
        ("+30m", NOW + 1_800),
        ("-1h", NOW - 3_600),
        ("+1w", NOW + 604_800),
        ("+90s", NOW + 90),
    ],
)
def test_times_are_rfc_3339_or_relative(text, seconds):
    assert seconds_since_1970(parse_time(text), NOW) == seconds
