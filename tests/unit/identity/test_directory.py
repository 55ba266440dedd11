"""Directories of keys: what draft-ietf-webbotauth-httpsig-protocol-01 says of them, and its vector."""

import json

import pytest

from headgate.http.base64url import encode_base64url
from headgate.identity import SigningKey, agent_url, directory, parse_directory, sign_directory, write_directory
from headgate.identity.directory import MEDIA_TYPE, InvalidDirectory

NOW = 1_735_690_000.0
KEYS = [SigningKey(bytes([number]) * 32) for number in range(3)]
BODY = write_directory(key.public for key in KEYS)
AGENT = agent_url("https://bot.example")
OTHER_PATH = agent_url("https://bot.example/jwks.json")
TYPE = [("Content-Type", MEDIA_TYPE)]


def ids(body=BODY, fields=(), agent=AGENT, now=NOW):
    return set(parse_directory(agent, [*TYPE, *fields], body, now=now).keys)


def jwks(*changes):
    return json.dumps({"keys": [{**KEYS[0].public.to_jwk(), **each} for each in changes]}).encode()


def test_a_directory_is_written_signed_and_read():
    fields = sign_directory(BODY, KEYS, "bot.example", now=NOW)
    found = parse_directory(AGENT, fields, BODY, now=NOW)
    assert set(found.keys) == {key.key_id for key in KEYS}
    assert found.key(KEYS[0].key_id, now=NOW).raw == KEYS[0].public.raw
    assert found.key("other", now=NOW) is None


def test_a_key_is_used_only_within_its_validity():
    key = SigningKey(bytes(32), not_before=NOW + 10, expires=NOW + 20)
    found = parse_directory(AGENT, TYPE, write_directory([key.public]), now=NOW)
    valid = [found.key(key.key_id, now=NOW + seconds) is not None for seconds in (9, 10, 19, 20)]
    assert valid == [False, True, True, False]


RESPONSES = {
    "The resource MUST be a JSON Web Key Set": (TYPE, b'{"keys": 1}', "not a JSON Web Key Set"),
    "it is not JSON": (TYPE, b"<html>", "not a JSON Web Key Set"),
    "it is not UTF-8": (TYPE, b'{"keys": ["\xff"]}', "not a JSON Web Key Set"),
    "MUST be served with media type": ([("Content-Type", "application/json")], BODY, "media type is application/json"),
    "without a type": ([], BODY, "media type is missing"),
    "SHOULD reject responses exceeding a defined byte limit": (TYPE, b" " * 65_537, "longer than 65536 bytes"),
    "SHOULD enforce a maximum key count": (TYPE, jwks(*[{}] * 33), "more than 32 keys"),
}


@pytest.mark.parametrize(("fields", "body", "why"), RESPONSES.values(), ids=RESPONSES)
def test_a_response_that_is_no_directory(fields, body, why):
    with pytest.raises(InvalidDirectory, match=why):
        parse_directory(AGENT, fields, body, now=NOW)


def test_the_media_type_is_that_of_the_well_known_uri_only():
    assert ids(fields=[("Content-Type", "application/json")], agent=OTHER_PATH)


ENTRIES = {
    "kid MUST be set to the thumbprint": {"kid": "key-1"},
    "use": {"use": "enc"},
    "alg": {"alg": "HS256"},
    "kty": {"kty": "RSA"},
    "crv": {"crv": "X25519"},
    "a short key": {"x": "AAAA"},
    "not text": {"x": 1},
    "Verifiers SHOULD reject known test keys": {"x": "JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs", "kid": None},
    "exp": {"exp": "never"},
}


@pytest.mark.parametrize("change", ENTRIES.values(), ids=ENTRIES)
def test_malformed_entries_are_left_out(change):
    """A verifier SHOULD validate the directory format and reject malformed entries."""
    jwk = {**KEYS[0].public.to_jwk(), **change}
    body = json.dumps({"keys": [{k: v for k, v in jwk.items() if v is not None}, KEYS[1].public.to_jwk()]}).encode()
    assert ids(body) == {KEYS[1].key_id}


def test_a_kid_elsewhere_is_the_label_of_its_operator():
    """A verifier that cannot match keyid against kid there computes thumbprints instead."""
    assert ids(jwks({"kid": "key-1"}), agent=OTHER_PATH) == {KEYS[0].key_id}


LIFETIMES = {"": 3600, "max-age=7200": 7200, "max-age=1": 60, "no-store": 60, "max-age=999999": 86_400}


@pytest.mark.parametrize(("control", "seconds"), LIFETIMES.items())
def test_freshness_follows_the_response_within_bounds(control, seconds):
    fields = [*TYPE, *([("Cache-Control", control)] if control else [])]
    assert parse_directory(AGENT, fields, BODY, now=NOW).fresh_until == NOW + seconds


def changed(name, change, **given):
    fields = dict(sign_directory(BODY, KEYS[:2], "bot.example", now=NOW, **given))
    return {**fields, name: change(fields[name])}.items()


PROOFS = {
    "valid": changed("Signature", str),
    "of another body": sign_directory(BODY + b" ", KEYS[:2], "bot.example", now=NOW),
    "of no body": changed("Content-Digest", lambda _value: "sha-512=:YQ==:"),
    "for another authority": sign_directory(BODY, KEYS[:2], "other.example", now=NOW),
    "whose created is in the future": sign_directory(BODY, KEYS[:2], "bot.example", now=NOW + 2),
    "without the authority": changed("Signature-Input", lambda value: value.replace('"@authority";req ', "")),
    "with the authority of a response": changed("Signature-Input", lambda value: value.replace(";req", "")),
    "that is no signature": changed("Signature", lambda value: "key1=1, key2=(1)"),
    "that has expired": sign_directory(BODY, KEYS[:2], "other.example", now=NOW - 90, lifetime=90),
    "with another tag": changed("Signature-Input", lambda value: value.replace('-directory"', '"')),
}


@pytest.mark.parametrize(("name", "fields"), PROOFS.items(), ids=PROOFS)
def test_a_key_whose_signature_of_the_directory_is_wrong_is_not_used(name, fields):
    """If either validation fails, the proof is invalid. Without a proof, a resolved key may be used."""
    used = {"valid", "that has expired", "with another tag"}
    assert ids(fields=fields) == {key.key_id for key in (KEYS if name in used else KEYS[2:])}


def test_vector_of_the_draft(monkeypatch):
    monkeypatch.setattr(directory, "_TEST_KEYS", frozenset())
    body = (
        b'{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U",'
        b'"x":"JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs","use":"sig"}]}'
    )
    value = "l6P8R67tm3kujAxbHWio7ll01qrEZ0dKD/WWlGhNYEmTnFZM8Wt0VQ9zqGfvo7T/UMkBxsigzChM1Gpz7gOVBg=="
    times = "created=1735689600;expires=4889289600"
    key = 'keyid="poqkLGiymh_W0uP6PZFw-dvez3QJT5SolqXBCW38r0U";tag="http-message-signatures-directory"'
    fields = [
        ("Content-Digest", "sha-256=:CADMT2aBdV/rqQr/NIru64ERQkCobVvllA4V0fLFDu0=:"),
        ("Signature-Input", f'binding=("@authority";req "content-digest");{times};{key}'),
        ("Signature", f"binding=:{value}:"),
    ]
    agent = agent_url("https://signature-agent.test")
    assert ids(body, fields, agent)
    assert not ids(body, [*fields[:2], ("Signature", "binding=:YQ==:")], agent)
    assert not ids(body, fields, agent_url("https://other.test"))


def test_the_members_of_a_public_key_are_those_of_rfc_8037():
    key = KEYS[0].public
    x = encode_base64url(key.raw)
    assert key.to_jwk() == {"kty": "OKP", "crv": "Ed25519", "kid": key.key_id, "x": x, "use": "sig"}
