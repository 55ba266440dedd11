"""Sign bundles and verify signatures, of two kinds.

A *vouched subset* is a signature in the bundle over some of its responses, by the key of a certificate (3.3.3). An
*integrity block* precedes the bundle and signs all of it; the bundle's id is derived from the key. Both need the extra
`sign` (cryptography).
"""

import importlib.util
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from headgate.bundle.files.atomic_file import Progress, Target, check_target, open_output
from headgate.bundle.layout import BundleSpec
from headgate.bundle.model import Location
from headgate.bundle.reader import Bundle
from headgate.bundle.signing.report import Kind, Reason, Signature, UnsignedUrls, Verification
from headgate.errors import ConfigurationError, HeadgateError, MissingExtra, fail_if
from headgate.http.url import parse_url, without_fragment

if TYPE_CHECKING:
    from headgate.bundle.signing.subset_signer import SignedBundle

__all__ = [
    "Reason",
    "Signature",
    "Verification",
    "add_integrity",
    "remove_integrity",
    "sign_bundle",
    "verify_bundle",
    "ConfigurationError",
]

_LISTED = 10


def verify_bundle(
    bundle: Bundle,
    *,
    now: float,
    trust: bytes | None = None,
    any_certificate: bool = False,
    web_bundle_id: str | None = None,
) -> Verification:
    """Verify every signature of a bundle at the time `now`; valid if all are, and together cover every URL.

    `trust` is PEM with the roots that certificates must lead to, or with the certificates themselves. Without it no
    certificate is trusted, unless `any_certificate` accepts all of them. `web_bundle_id` is the id that the integrity
    block must have; without it a block by any key is valid, for the id that comes from that key. With `trust` there
    must be a signature by a certificate, and with `web_bundle_id` an integrity block. An integrity block covers the
    whole bundle, a vouched subset the URLs that it lists; the primary and the manifest URL must be covered too.

    Invalid signatures are results with a reason, never exceptions. Raises `ConfigurationError` for a `trust` that has
    no certificates, and for one beside `any_certificate`.
    """
    fail_if(trust is not None and any_certificate, "trust and any_certificate exclude each other; give one of them")
    block = bundle.integrity_block
    if block is None and not bundle.metadata.vouched_subsets:
        return Verification(valid=False, web_bundle_id=None, signatures=(), unsigned_urls=_unsigned_urls(bundle, ()))
    _need_cryptography("verifying a bundle")
    from headgate.bundle.signing.integrity import bundle_digest, verify_block
    from headgate.bundle.signing.keys import read_certificate_chain
    from headgate.bundle.signing.subset_verifier import verify_subsets

    roots = () if trust is None else read_certificate_chain(trust)
    signatures = (
        *(verify_block(block, bundle_digest(bundle), web_bundle_id=web_bundle_id) if block is not None else ()),
        *verify_subsets(bundle, now=now, trust=None if any_certificate else roots),
    )
    if web_bundle_id is not None and block is None:
        signatures += (_missing("integrity-block", "the integrity block with the web bundle id is missing"),)
    if trust is not None and not bundle.metadata.vouched_subsets:
        signatures += (_missing("vouched-subset", "no certificate signed the bundle"),)
    unsigned = _unsigned_urls(bundle, signatures)
    valid = not unsigned.count and all(signature.valid for signature in signatures)
    return Verification(valid, block.web_bundle_id if block is not None else None, signatures, unsigned)


def _unsigned_urls(bundle: Bundle, signatures: Sequence[Signature]) -> UnsignedUrls:
    """Return the URLs of responses, the primary and the manifest URL, that no valid signature covers."""
    valid = [signature for signature in signatures if signature.valid]
    if any(signature.kind == "integrity-block" for signature in valid):
        return UnsignedUrls(0, ())
    covered = {parse_url(url) for signature in valid for url in signature.urls}
    metadata = bundle.metadata
    named = [without_fragment(url) for url in (metadata.primary_url, metadata.manifest_url) if url is not None]
    left = [url for url in dict.fromkeys((*named, *metadata.requests)) if url not in covered]
    return UnsignedUrls(len(left), tuple(left[:_LISTED]))


def _missing(kind: Kind, sentence: str) -> Signature:
    return Signature(kind, valid=False, reason=f"{Reason.NO_SIGNATURE}: {sentence}")


def sign_bundle(
    bundle: Bundle,
    target: Target,
    *,
    certificate: bytes,
    key: bytes,
    validity_url: str,
    date: int,
    expires: int,
    urls: Collection[str] | None = None,
    passphrase: Callable[[], bytes] | None = None,
    progress: Progress | None = None,
) -> tuple[str, ...]:
    """Write `bundle` to `target` with one more signature over responses, and return their URLs.

    `certificate` is a chain, in PEM or `application/cert-chain+cbor`; `key` is PEM. Dates are seconds since 1970, at
    most seven days apart. Without `urls` it signs every URL whose host the certificate names. The same arguments
    give the same bytes. Raises `ConfigurationError` for a signature that readers refuse, `HeadgateError` for a bundle
    that cannot be signed so, `ResponseError` for a malformed response, and the errors of writing.
    """
    _need_cryptography("signing a bundle")
    check_target(target)
    from headgate.bundle.signing.keys import read_certificate_chain, read_private_key
    from headgate.bundle.signing.subset_signer import SigningRequest, sign_subset

    private_key = read_private_key(key, passphrase=passphrase)
    chain = read_certificate_chain(certificate)
    vouched = sign_subset(bundle, SigningRequest(chain, private_key, validity_url, date, expires, urls))
    _write_vouched(bundle, target, vouched, progress)
    return vouched.urls


def add_integrity(
    bundle: Bundle,
    target: Target,
    *,
    key: bytes,
    web_bundle_id: str | None = None,
    passphrase: Callable[[], bytes] | None = None,
    progress: Progress | None = None,
) -> str:
    """Write `bundle` to `target` after an integrity block with a signature by `key`, and return its web bundle id.

    An existing block is kept, with the signatures of other keys. Raises `ConfigurationError` for a key that
    cannot sign, `HeadgateError` where that block is not valid, and the errors of writing.
    """
    _need_cryptography("signing a bundle")
    from headgate.bundle.signing.integrity import bundle_digest, sign_block
    from headgate.bundle.signing.keys import read_private_key
    from headgate.bundle.signing.keys import web_bundle_id as id_of

    private_key = read_private_key(key, passphrase=passphrase)
    block = bundle.integrity_block
    written = sign_block(bundle_digest(bundle), private_key, block=block, web_bundle_id=web_bundle_id)
    _write(target, written, bundle, progress)
    return (block and block.web_bundle_id) or web_bundle_id or id_of(private_key.public_key())


def remove_integrity(
    bundle: Bundle,
    target: Target,
    *,
    key: bytes | None = None,
    passphrase: Callable[[], bytes] | None = None,
    progress: Progress | None = None,
) -> None:
    """Write `bundle` to `target` without its integrity block or, with `key`, without the signature by that key.

    Raises `HeadgateError` where it is missing, and the errors of writing.
    """
    block = bundle.integrity_block
    if block is None:
        raise HeadgateError("the bundle has no integrity block")
    left = b""
    if key is not None:
        _need_cryptography("removing a signature")
        from headgate.bundle.signing.integrity import remove_signature
        from headgate.bundle.signing.keys import read_private_key

        left = remove_signature(block, read_private_key(key, passphrase=passphrase))
    _write(target, left, bundle, progress)


def _write_vouched(bundle: Bundle, target: Target, vouched: "SignedBundle", progress: Progress | None) -> None:
    metadata = bundle.metadata
    sections = {one.name: bytes(bundle.read(one.offset, one.length)) for one in metadata.sections[:-1]}
    if "signatures" not in sections:
        sections = {"signatures": b"", **sections}
    sections["signatures"] = vouched.section
    spec = BundleSpec(metadata.version, metadata.primary_url, sections)
    vouched.responses.write(target, spec, vouched.index, progress)


def _write(target: Target, block: bytes, bundle: Bundle, progress: Progress | None) -> None:
    with open_output(target, len(block) + bundle.size, progress) as output:
        output.put(block)
        for piece in bundle.pieces(Location(0, bundle.size)):
            output.put(piece)


def _need_cryptography(purpose: str) -> None:
    if importlib.util.find_spec("cryptography") is None:
        raise MissingExtra("sign", purpose)
