"""Other implementations verify what we sign, and we verify what they sign."""

import datetime
import time
from dataclasses import dataclass, field
from typing import Any

import pytest
from http_message_signatures import HTTPMessageSigner, HTTPMessageVerifier, HTTPSignatureKeyResolver, algorithms

from headgate.identity import (
    RequestSigner,
    SignedMessage,
    SigningKey,
    agent_url,
    parse_directory,
    read_claims,
    sign_directory,
    write_directory,
)
from headgate.identity.directory import MEDIA_TYPE
from tests.e2e.node_process import NodeProcess

KEY = SigningKey(bytes(range(1, 33)))
URL = "https://www.example.org/a?b=c"
AGENT = "https://bot.example/.well-known/http-message-signatures-directory"


def fields():
    return dict(
        RequestSigner(KEY, "https://bot.example", entropy=lambda size: b"\x07" * size).sign(URL, now=time.time())
    )


def verified(headers):
    request = SignedMessage("GET", "www.example.org", "/a?b=c", [(k.lower(), v) for k, v in headers.items()])
    claims = read_claims(request, now=time.time())
    return [claim.agent.identifier for claim in claims if claim.is_signed_by(KEY.public)]


@pytest.fixture(scope="module")
def node():
    with NodeProcess("web_bot_auth.mjs", "web-bot-auth") as process:
        yield process


@pytest.mark.needs("node-web-bot-auth", "node-http-message-sig")
@pytest.mark.parametrize("components", [["@authority"], ["@target-uri", "@method", "@path", "@query"]])
def test_we_verify_what_the_packages_of_npm_sign(node, components):
    assert verified(node("sign", jwk=KEY.to_jwk(), url=URL, agent='"https://bot.example"')) == [AGENT]
    dictionary = 'other="https://other.example", sig1="https://bot.example"'
    assert verified(node("signMember", jwk=KEY.to_jwk(), url=URL, agent=dictionary, components=components)) == [AGENT]


@pytest.mark.needs("node-web-bot-auth", "node-http-message-sig")
def test_the_packages_of_npm_verify_what_we_sign(node):
    assert node("keyId", jwk=KEY.public.to_jwk()) == KEY.key_id
    assert node("verifyMember", jwk=KEY.public.to_jwk(), url=URL, headers=fields())
    member = {**fields(), "Signature-Agent": f'"{AGENT}"'}
    assert node("verify", jwk=KEY.public.to_jwk(), url=URL, headers=member)
    for task in ("verify", "verifyMember"):
        with pytest.raises(ValueError, match="ignature"):
            node(task, jwk=KEY.public.to_jwk(), url="https://other.example", headers=member)


@pytest.mark.needs("node-web-bot-auth", "node-http-message-sig")
def test_we_accept_a_directory_that_web_bot_auth_signs(node):
    body = write_directory([KEY.public])
    given = node("directory", jwks=[KEY.to_jwk()], url="https://bot.example/", headers={"Content-Type": MEDIA_TYPE})
    headers = [("Content-Type", MEDIA_TYPE), *given.items()]
    assert parse_directory(agent_url("https://bot.example"), headers, body, now=time.time()).keys
    assert not parse_directory(agent_url("https://other.example"), headers, body, now=time.time()).keys


@dataclass
class Request:
    """What http-message-signatures takes for a request."""

    method: str = "GET"
    url: str = URL
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Response(Request):
    request: Any = None
    status_code: int = 200


class Keys(HTTPSignatureKeyResolver):
    def resolve_public_key(self, key_id):
        assert key_id == KEY.key_id
        return KEY._key.public_key()

    def resolve_private_key(self, key_id):
        return KEY._key


def test_http_message_signatures_verifies_what_we_sign():
    verifier = HTTPMessageVerifier(signature_algorithm=algorithms.ED25519, key_resolver=Keys())
    (result,) = verifier.verify(Request(headers=fields()), max_age=datetime.timedelta(minutes=5))
    assert set(result.covered_components) >= {'"@authority"', '"signature-agent";key="sig1"'}


def test_we_verify_what_http_message_signatures_signs():
    signer = HTTPMessageSigner(signature_algorithm=algorithms.ED25519, key_resolver=Keys())
    request = Request(headers={"Signature-Agent": 'sig1="https://bot.example"', "Accept": "a"})
    covered = "@authority", '"signature-agent";key="sig1"', "@method", "@path", '"accept"'
    parameters = {"expires": datetime.datetime.now(datetime.UTC) + datetime.timedelta(minutes=5), "tag": "web-bot-auth"}
    signer.sign(request, key_id=KEY.key_id, label="sig1", covered_component_ids=covered, **parameters)
    assert verified(request.headers) == [AGENT]


def test_http_message_signatures_verifies_the_directory_that_we_sign():
    body = write_directory([KEY.public])
    headers = dict(sign_directory(body, [KEY], "bot.example", now=time.time()))
    response = Response(headers=headers, request=Request(url="https://bot.example/x"))
    verifier = HTTPMessageVerifier(signature_algorithm=algorithms.ED25519, key_resolver=Keys())
    assert verifier.verify(response, max_age=datetime.timedelta(minutes=5))
