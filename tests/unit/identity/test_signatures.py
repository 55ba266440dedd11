"""Signing and verifying: the vectors of draft-ietf-webbotauth-httpsig-protocol-01, and cases named by its sentences.

`@quotes` is for the four documents that `scripts/conformance.py` reads; the draft is not among them.
"""

import base64
import json
import os
import re

import pytest

from headgate.errors import ConfigurationError
from headgate.http.base64url import decode_base64url
from headgate.identity import (
    PublicKey,
    RequestSigner,
    SignedMessage,
    SigningKey,
    accept_signature,
    agent_url,
    asks_for_signature,
    new_signing_key,
    read_claims,
    read_signing_keys,
    write_signing_key,
)
from headgate.identity.fields import parse_dictionary
from headgate.identity.message import NoComponent, component_value, signature_base

NOW = 1_735_690_000.0
KEY = SigningKey(bytes(range(32)))
TEST_KEY = PublicKey(decode_base64url("JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs"))
SIGNER = RequestSigner(KEY, "https://bot.example", entropy=bytes)


def message(fields, *, method="GET", authority="www.example.org", target="/a?b=c"):
    return SignedMessage(method, authority, target, [(name.lower(), value) for name, value in fields])


def signed(components='"@authority" "signature-agent";key="sig1"', agent='sig1="https://bot.example"', **changes):
    """Return a request with a signature by `KEY`, whose parameters and parts may differ from those of the profile."""
    label = changes.pop("label", "sig1")
    parts = {"method": "GET", "authority": "www.example.org", "target": "/a?b=c"}
    parts |= {name: changes.pop(name) for name in parts if name in changes}
    parameters = {
        "created": int(NOW), "expires": int(NOW) + 60, "keyid": f'"{KEY.key_id}"', "tag": '"web-bot-auth"', **changes
    }  # fmt: skip
    given = "".join(f";{name}={value}" for name, value in parameters.items() if value is not None)
    fields = [*([("Signature-Agent", agent)] if agent is not None else ()), ("Accept", "a"), ("Accept", " b")]
    request = message(fields, **parts)
    item = parse_dictionary([f"x=({components}){given}"])["x"]
    base = signature_base(item, lambda component: component_value(request, component))
    fields += [
        ("Signature-Input", f"{label}=({components}){given}"),
        ("Signature", f"{label}=:{_base64(KEY.sign(base))}:"),
    ]
    return message(fields, **parts)


def _base64(content):
    return base64.b64encode(content).decode()


def agents(request, *, now=NOW, key=KEY.public, **limits):
    return [claim.agent.identifier for claim in read_claims(request, now=now, **limits) if claim.is_signed_by(key)]


WELL_KNOWN = "https://bot.example/.well-known/http-message-signatures-directory"


def test_a_signed_request_is_verified_and_names_the_url_where_its_key_is():
    request = message(SIGNER.sign("https://WWW.example.org:443/a?b", now=NOW))
    (claim,) = read_claims(request, now=NOW)
    assert claim.agent == (WELL_KNOWN, WELL_KNOWN)
    assert claim.is_signed_by(KEY.public)
    assert not claim.is_signed_by(new_signing_key(entropy=os.urandom).public)
    assert not claim.is_narrow
    assert len(claim.nonce) == 86
    assert agents(message(SIGNER.sign("www.example.org", now=NOW))) == [WELL_KNOWN]
    assert agents(message(SIGNER.sign("https://user@www.example.org?", now=NOW))) == [WELL_KNOWN]


ACCEPTED = {
    "It treats the host like Signature-Agent's own label": signed(),
    "MAY include additional components": signed('"@authority" "@method" "@path" "accept" "signature-agent";key="sig1"'),
    "MUST include at least one of the following components": signed('"@target-uri" "signature-agent";key="sig1"'),
    "@query-param narrows": signed(
        '"@authority" "@query-param";name="q%20q" "@query" "signature-agent";key="sig1"', target="/?q+q=%7E&r"
    ),
    "A verifier MAY accept that form": signed('"@authority" "signature-agent"', agent='"https://bot.example"'),
    "Relabeling the Signature dictionary member remains permitted": signed(label="other"),
    "unknown parameters are signed too": signed(other='"x"', number="1.5", flag="?1", octets=":YQ==:", token="a"),
    "alg is that of the key": signed(alg='"ed25519"'),
    "the skew of both clocks": signed(created=int(NOW) + 60, expires=int(NOW) + 60),
    "members of others may be covered": signed(
        '"@authority" "signature-agent";key="sig1" "signature-agent";key="b"',
        agent='b="https://b.example", sig1="https://bot.example"',
    ),
}


@pytest.mark.parametrize("request_", ACCEPTED.values(), ids=ACCEPTED)
def test_the_profile_is_accepted(request_):
    assert agents(request_) == [WELL_KNOWN]


REJECTED = {
    "Agents MUST include at least one of the following components": signed('"@method" "signature-agent";key="sig1"'),
    "Agents MUST include created": signed(created=None),
    "Agents MUST include expires": signed(expires=None),
    "Agents MUST include keyid": signed(keyid=None),
    "keyid MUST be a base64url JWK SHA-256 Thumbprint": signed(keyid='"key-1"'),
    "tag MUST be web-bot-auth": signed(tag='"other"'),
    "Agents MUST include tag": signed(tag=None),
    "expires no more than 24 hours after created": signed(expires=int(NOW) + 86_401),
    "created after expires": signed(expires=int(NOW) - 1),
    "created in the future": signed(created=int(NOW) + 61, expires=int(NOW) + 90),
    "expired": signed(created=int(NOW) - 90, expires=int(NOW) - 60),
    "created is an Integer": signed(created=f"{NOW}"),
    "MUST NOT use shared HMAC": signed(alg='"hmac-sha256"'),
    "member values MUST be String Items": signed(agent="sig1=https"),
    "that contain an absolute URI": signed(agent='sig1="/keys"'),
    "whose scheme MUST be https": signed(agent='sig1="http://bot.example"'),
    "A verifier MUST ignore a member that carries parameters": signed(agent='sig1="https://bot.example";type=cimd'),
    "A signed request MUST carry the Signature-Agent header": signed('"@authority"', agent=None),
    "Its member keyed to the signature label MUST be signed": signed('"@authority"'),
    "the whole field is not its member": signed('"@authority" "signature-agent"'),
    "MUST NOT attribute a signature to a member that signature does not cover": signed(
        '"@authority" "signature-agent";key="b" "signature-agent";key="c"',
        agent='sig1="https://bot.example", b="https://b.example", c="https://c.example"',
    ),
}


@pytest.mark.parametrize("request_", REJECTED.values(), ids=REJECTED)
def test_a_request_that_breaks_the_profile_is_not_attributed(request_):
    assert agents(request_) == []


CHANGES = {
    "another authority": {"authority": "other.example.org"},
    "a field that is covered": {"fields": (" b", " c")},
    "another agent": {"fields": ("https://bot.example", "https://other.example")},
    "a longer life": {"fields": (f"expires={int(NOW) + 60}", f"expires={int(NOW) + 99}")},
    "another method": {"method": "POST"},
    "another path": {"target": "/b?b=c"},
    "another query": {"target": "/a?b=d"},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_is_covered_cannot_be_changed(change):
    components = '"@authority" "@method" "@path" "@query" "accept" "signature-agent";key="sig1"'
    request = signed(components)
    assert agents(request) == [WELL_KNOWN]
    if "fields" in change:
        change = {"fields": [(name, value.replace(*change["fields"])) for name, value in request.fields]}
        assert change["fields"] != request.fields
    assert agents(request._replace(**change)) == []


MALFORMED = [
    ("signature-input", "sig1=("),
    ("signature-input", "sig1=?1"),
    ("signature-input", "sig1=" + "a" * 8192),
    ("signature", 'sig1="text"'),
    ("signature", "sig2=:YQ==:"),
    ("signature", "sig1=:YQ==:"),
    ("signature-agent", '"https://bot.example'),
    ("signature-agent", "\xff"),
]


@pytest.mark.parametrize(("name", "value"), MALFORMED)
def test_a_malformed_field_is_like_an_absent_one(name, value):
    request = signed()
    rest = [pair for pair in request.fields if pair[0] != name]
    assert agents(request._replace(fields=[*rest, (name, value)])) == []
    assert agents(request._replace(fields=rest)) == []


def test_each_signature_is_judged_on_its_own():
    """Verifiers MUST validate each signature independently against its own covered components and its own key."""
    first, second = signed(), message(SIGNER.sign("www.example.org", now=NOW))
    forged = [(name, value.replace("sig1=", "sig0=")) for name, value in second.fields]
    forged = [(name, re.sub(":.{8}", ":AAAAAAAA", value) if name == "signature" else value) for name, value in forged]
    both = first._replace(fields=[*forged, *first.fields])
    assert [claim.is_signed_by(KEY.public) for claim in read_claims(both, now=NOW)] == [False, True]


def test_the_work_for_one_request_is_bounded():
    request = signed()
    value = dict(request.fields)["signature-input"]
    many = [("signature-input", value.replace("sig1=", f"s{n}=")) for n in range(9)]
    values = [("signature", f"s{n}=:YQ==:") for n in range(9)]
    fields = [pair for pair in request.fields if not pair[0].startswith("signature-i")]
    assert len(read_claims(request._replace(fields=[*fields, *many, *values]), now=NOW)) == 4
    components = " ".join(f'"x{n}"' for n in range(16))
    assert read_claims(message([("Signature-Input", value.replace('("@a', f'({components} "@a'))]), now=NOW) == []


URLS = {
    "https://bot.example": WELL_KNOWN,
    "https://BOT.example:443/": WELL_KNOWN,
    "https://bot.example/keys?v=1": "https://bot.example/keys",
    "https://bot.example/%7ea/%2f%3b/../b": "https://bot.example/~a/b",
    "https://bot.example/?": "https://bot.example/",
    "https://bot.example/#a": None,
    "https://u@bot.example/": None,
    "http://bot.example/": None,
    "bot.example": None,
    "https://bot.example/" + "a" * 240: None,
    "https://bücher.example/": None,
}


@pytest.mark.parametrize(("text", "identifier"), URLS.items())
def test_the_identifier_is_the_normal_form_of_the_url_without_its_query(text, identifier):
    url = agent_url(text)
    assert (None if url is None else url.identifier) == identifier
    if url is not None and "v=" in text:
        assert url.fetch == text  # "so the query is dropped from the identifier and not from the request"


INPUT = (
    'sig2=("@authority" "signature-agent"{});created=1735689600;keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"'
    ';alg="ed25519";expires={};nonce="{}";tag="web-bot-auth"'
)
VECTORS = {
    "signature-agent included": (
        'agent2="https://signature-agent.test"',
        INPUT.format(
            ';key="agent2"',
            4889289600,
            "n9p433xm+NJ3ph3upfBIGmsuwHw387YV7Q/F+6BSpGCVjYCqQw6rznNA8PVVLySrAWsv0hQtFioQb6E1YsauiA==",
        ),
        "sig2=:RdNFx5Bj6au3YgAMQL/RzmUlZE8QZLIaXGRpw985hWnwPfMxT228NMk6ehRS1PSl4e8PhbNZACSanGdhEwYCCg==:",
    ),
    "legacy sf-string": (
        '"https://signature-agent.test"',
        INPUT.format(
            "", 1735693200, "e8N7S2MFd/qrd6T2R3tdfAuuANngKI7LFtKYI/vowzk4lAZYadIX6wW25MwG7DCT9RUKAJ0qVkU0mEeLElW1qg=="
        ),
        "sig2=:jdq0SqOwHdyHr9+r5jw3iYZH6aNGKijYp/EstF4RQTQdi5N5YYKrD+mCT1HA1nZDsi6nJKuHxUi/5Syp3rLWBA==:",
    ),
}


@pytest.mark.parametrize(("agent", "given", "signature"), VECTORS.values(), ids=VECTORS)
def test_vectors_of_the_draft(agent, given, signature):
    fields = [("signature-agent", agent), ("signature-input", given), ("signature", signature)]
    request = message(fields, authority="example.com", target="/path/to/resource")
    expected = ["https://signature-agent.test/.well-known/http-message-signatures-directory"]
    assert agents(request, now=1735689600, key=TEST_KEY, max_lifetime=float("inf")) == expected
    # "Deployments MUST NOT treat a precomputed Web Bot Auth signature as a long-lived access credential."
    assert agents(request, now=1735689600, key=TEST_KEY) == (expected if "1735693200" in given else [])


def test_vector_of_rfc_9421():
    """Appendix B.2.6, Signing a Request Using ed25519."""
    fields = [("date", "Tue, 20 Apr 2021 02:07:55 GMT"), ("content-type", "application/json"), ("content-length", "18")]
    request = message(fields, method="POST", authority="example.com", target="/foo?param=Value&Pet=dog")
    covered = '("date" "@method" "@path" "@authority" "content-type" "content-length")'
    item = parse_dictionary([f'x={covered};created=1618884473;keyid="test-key-ed25519"'])["x"]
    value = "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw=="
    base = signature_base(item, lambda component: component_value(request, component))
    assert TEST_KEY.verify(base, parse_dictionary([f"s=:{value}:"])["s"][0])
    assert TEST_KEY.key_id == "poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U"


DERIVED = {
    '"@method"': "GET",
    '"@authority"': "www.example.org",
    '"@scheme"': "https",
    '"@target-uri"': "https://www.example.org/a?b=c~",
    '"@request-target"': "/a?b=c~",
    '"@path"': "/a",
    '"@query"': "?b=c~",
    '"@query-param";name="b"': "c%7E",
    '"accept"': "a, b",
    '"x";key="m"': '"v";p=1',
}
NONE = [
    '"@unknown"',
    '"@method";req',
    '"absent"',
    '"Accept"',
    '"accept";bs',
    '"@query-param";name="x"',
    '"x";key="z"',
    "token",
]


def test_components_of_a_request():
    """RFC 9421, sections 2.1 and 2.2."""
    request = message(
        [("Accept", "a"), ("Accept", " b "), ("X", 'm="v";p=1')], authority="WWW.example.org:443", target="/a?b=c~"
    )
    for text, expected in DERIVED.items():
        item = parse_dictionary([f"x=({text})"])["x"]
        assert component_value(request, item[0][0]) == expected, text
    for text in NONE:
        with pytest.raises(NoComponent):
            component_value(request, parse_dictionary([f"x=({text})"])["x"][0][0])
    with pytest.raises(NoComponent, match="twice"):
        signature_base(parse_dictionary(['x=("a" "a")'])["x"], lambda _component: "")


def test_an_origin_asks_for_a_signature_that_satisfies_the_profile():
    """A resulting signature MUST satisfy this profile."""
    assert asks_for_signature([accept_signature()])
    assert asks_for_signature(['a=("@authority");tag="web-bot-auth"'])
    for other in ['a=("@method");tag="web-bot-auth"', 'a=("@authority");tag="other"', "a=1", "a=(", ""]:
        assert not asks_for_signature([other]), other


def test_keys_are_written_and_read():
    key = SigningKey(bytes(32), not_before=5, expires=9)
    (read,) = read_signing_keys(write_signing_key(key))
    assert read.to_jwk() == key.to_jwk()
    assert read.public.expires == 9
    assert len(read_signing_keys(b'{"keys": [%b, %b]}' % (write_signing_key(key), write_signing_key(KEY)))) == 2
    jwk = key.to_jwk()
    for wrong in [
        {**jwk, "d": jwk["x"]},
        {**jwk, "kty": "oct"},
        {**jwk, "d": "AA"},
        key.public.to_jwk(),
        [],
        {"keys": []},
    ]:
        with pytest.raises(ConfigurationError, match="expected a private Ed25519") as raised:
            read_signing_keys(json.dumps(wrong).encode())
        assert jwk["d"] not in str(raised.value)


@pytest.mark.parametrize(("url", "lifetime"), [("http://bot.example", 60), ("https://bot.example", 86_401), ("x", 60)])
def test_a_signer_needs_an_https_url_and_a_lifetime_of_a_day_at_most(url, lifetime):
    with pytest.raises(ConfigurationError, match=r"invalid agent URL|lifetime must be"):
        RequestSigner(KEY, url, entropy=os.urandom, lifetime=lifetime)
