"""Bundles signed by hand, from the facts of the format alone: the verifier's tests do not depend on the signer."""

import base64
import hashlib
import io
from collections.abc import Mapping, Sequence
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from headgate.bundle.api import open_bundle
from headgate.bundle.files.writer import BundleWriter
from headgate.bundle.format import cbor
from headgate.bundle.reader import Bundle
from tests import signers
from tests.webbundles import add_sections

URL = "https://example.com/"
OTHER_URL = "https://example.com/other"
NEGOTIATED_URL = "https://example.com/negotiated"
VARIANTS = "Accept-Language;en;fr"
INTEGRITY = "digest/mi-sha256-03"
RECORD = 4096
DATE = int(signers.NOW) - 60
EXPIRES = int(signers.NOW) + 3600
LEAF = signers.certificate()


def proven(content: bytes) -> tuple[bytes, str]:
    """Encode a payload of one record; return it and its digest."""
    digest = hashlib.sha256(content + b"\0").digest()
    encoded = RECORD.to_bytes(8, "big") + content if content else b""
    return encoded, f"mi-sha256-03={base64.b64encode(digest).decode()}"


def headers_of(content: bytes, **changes: str) -> dict[str, str]:
    _, digest = proven(content)
    known = {"content-type": "text/plain", "content-encoding": "mi-sha256-03", "digest": digest}
    return {name: value for name, value in {**known, **changes}.items() if value}


def header_sha256(headers: Mapping[str, str], status: int = 200) -> bytes:
    encoded = {name.encode(): value.encode() for name, value in headers.items()}
    return hashlib.sha256(cbor.encode({b":status": str(status).encode(), **encoded})).digest()


def hashes(*contents: bytes) -> list[Any]:
    return [part for content in contents for part in (header_sha256(headers_of(content)), INTEGRITY)]


SUBSET_HASHES = {
    URL: [b"", *hashes(b"one")],
    OTHER_URL: [b"", *hashes(b"")],
    NEGOTIATED_URL: [VARIANTS.encode(), *hashes(b"en", b"fr")],
}


def members(**changes: Any) -> dict[str, Any]:
    """Return the members of a signed subset; None leaves one out."""
    known = {
        "validity-url": "https://example.com/validity",
        "auth-sha256": hashlib.sha256(signers.der(LEAF)).digest(),
        "date": DATE,
        "expires": EXPIRES,
        "subset-hashes": SUBSET_HASHES,
    }
    named = {name.replace("_", "-"): value for name, value in changes.items()}
    return {name: value for name, value in {**known, **named}.items() if value is not None}


def signed_by(signed: bytes, key: ec.EllipticCurvePrivateKey, lead: bytes = b" " * 64 + b"Web Package 1 b1\0") -> bytes:
    return key.sign(lead + signed, ec.ECDSA(SHA256()))


def vouch(
    signed: bytes | None = None, *, key: ec.EllipticCurvePrivateKey | None = None, authority: int = 0, **changes: Any
) -> dict[str, Any]:
    """Make a vouched subset, with members that differ."""
    content = cbor.encode(members(**changes)) if signed is None else signed
    return {"authority": authority, "sig": signed_by(content, key or signers.p256()), "signed": content}


def written(
    *vouched: Mapping[str, Any],
    authorities: Sequence[Any] = ({"cert": signers.der(LEAF)},),
    stored: Mapping[str, tuple[bytes, dict[str, str]]] | None = None,
    version: Any = "b1",
) -> bytes:
    """Write the bundle with these vouched subsets; `stored` replaces responses, by URL."""
    replaced = stored or {}
    out = io.BytesIO()
    sections = {"signatures": cbor.encode([list(authorities), list(vouched)])}
    with BundleWriter(out, version=version, primary_url=URL, manifest_url=URL) as writer:
        add_sections(writer, sections)
        for url, content in ((URL, b"one"), (OTHER_URL, b"")):
            payload, headers = replaced.get(url, (proven(content)[0], headers_of(content)))
            writer.add(url, headers=headers, payload=payload)
        for language in ("en", "fr"):
            content = language.encode()
            writer.add(
                NEGOTIATED_URL,
                headers=headers_of(content),
                payload=proven(content)[0],
                variants=VARIANTS,
                variant_key=language,
            )
    return out.getvalue()


def opened(*vouched: Mapping[str, Any], **options: Any) -> Bundle:
    return open_bundle(written(*vouched, **options))
