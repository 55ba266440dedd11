"""Verify the signatures section (3.3.3); the document leaves to readers what makes a signature valid.

The checks are those of the signed exchanges draft and the reference verifier, and that the certificate names the URLs'
hosts. Without roots a signature is untrusted, unless the caller accepts any certificate.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.x509 import DNSName, IPAddress, verification
from msgspec import Struct

from headgate.bundle.format import cbor, merkle_integrity
from headgate.bundle.model import Location, VariantSet, VouchedSubset
from headgate.bundle.reader import Bundle, reject_overlapping_responses
from headgate.bundle.signing import keys
from headgate.bundle.signing.keys import AugmentedCertificate, certificate_host, read_augmented
from headgate.bundle.signing.report import Reason, Signature
from headgate.bundle.signing.signed_subset import (
    MAX_LIFETIME,
    ResourceIntegrity,
    SignedSubset,
    SubsetEntry,
    load_signed,
    read_subset,
    signed_message,
)
from headgate.errors import HeadgateError, ResponseError
from headgate.http.url import parse_url

_UNCHECKED: Final = (
    "whether the certificate was revoked, is in a log, or was issued for signing exchanges",
    "whether responses that no signature covers are the author's",
)
_UNCHECKED_ROOT: Final = "whether the certificate leads to a trusted root"


class _InvalidError(Exception):
    """A signature is not valid."""

    def __init__(self, reason: Reason, sentence: str) -> None:
        super().__init__(f"{reason}: {sentence}")


class _Signer(Struct, frozen=True):
    certificate: AugmentedCertificate
    key: EllipticCurvePublicKey


def verify_subsets(
    bundle: Bundle, *, now: float, trust: Sequence[AugmentedCertificate] | None = ()
) -> tuple[Signature, ...]:
    """Verify each vouched subset by itself, at the time `now`; a certificate must be one of `trust`, or lead to one.

    With None any certificate is accepted. A bundle without vouched subsets has an empty result. Raises
    nothing for invalid signatures: they are results.
    """
    verifier = _Verifier(bundle, now, trust)
    return tuple(verifier.verify(vouched) for vouched in bundle.metadata.vouched_subsets)


class _Verifier:
    """Verifies subsets of one bundle; a response that several of them cover is hashed once."""

    def __init__(self, bundle: Bundle, now: float, trust: Sequence[AugmentedCertificate] | None) -> None:
        self._bundle = bundle
        self._now = now
        self._trust = trust
        self._valid: set[tuple[Location, ResourceIntegrity]] = set()
        self._overlap = _overlap(bundle)
        # Once for all subsets: untrusted input controls how many there are.
        self._readable = [] if not trust else list(_readable(bundle.metadata.authorities))

    def verify(self, vouched: VouchedSubset) -> Signature:
        urls: tuple[str, ...] = ()
        unchecked = (_UNCHECKED_ROOT, *_UNCHECKED) if self._trust is None else _UNCHECKED
        try:
            signer = self._signer(vouched)
            subset = _subset(vouched, signer)
            urls = tuple(subset.subset_hashes)
            self._check_times(subset, signer)
            _check_validity_url(subset, signer)
            if self._overlap:
                raise _InvalidError(Reason.RESPONSES_NESTED, self._overlap)
            for url, entry in subset.subset_hashes.items():
                self._check_url(url, entry, signer)
            self._check_trust(subset, signer)  # last: an untrusted signature is valid otherwise
        except _InvalidError as wrong:
            return Signature("vouched-subset", valid=False, reason=str(wrong), urls=urls, unchecked=unchecked)
        return Signature("vouched-subset", valid=True, urls=urls, unchecked=unchecked)

    def _signer(self, vouched: VouchedSubset) -> _Signer:
        authorities = self._bundle.metadata.authorities
        if vouched.authority >= len(authorities):
            fault = f"authority {vouched.authority} of {len(authorities)}"
            raise _InvalidError(Reason.AUTHORITY_OUT_OF_RANGE, fault)
        try:
            certificate = read_augmented(cbor.Items(authorities[vouched.authority]))
        except cbor.CborError as error:
            raise _InvalidError(Reason.CERTIFICATE_UNREADABLE, error.reason) from None
        key = _p256_key(certificate)
        if not keys.verify_signature(key, vouched.sig, signed_message(vouched.signed)):
            raise _InvalidError(Reason.BAD_SIGNATURE, f"the key of authority {vouched.authority} did not sign this")
        return _Signer(certificate, key)

    def _check_times(self, subset: SignedSubset, signer: _Signer) -> None:
        date, expires, now = subset.date, subset.expires, self._now
        if expires < date:
            raise _InvalidError(
                Reason.EXPIRES_BEFORE_DATE, f"it expires at {_time(expires)}, before its date {_time(date)}"
            )
        if expires - date > MAX_LIFETIME:
            raise _InvalidError(Reason.LIFETIME_TOO_LONG, f"{expires - date} seconds, more than {MAX_LIFETIME}")
        if now < date:
            raise _InvalidError(Reason.NOT_YET_VALID, f"its date is {_time(date)}")
        if now > expires:
            raise _InvalidError(Reason.EXPIRED, f"it expired at {_time(expires)}")
        certificate = signer.certificate.certificate
        if now < certificate.not_valid_before_utc.timestamp():
            raise _InvalidError(
                Reason.CERTIFICATE_NOT_YET_VALID, f"it is valid from {certificate.not_valid_before_utc:%FT%TZ}"
            )
        if now > certificate.not_valid_after_utc.timestamp():
            raise _InvalidError(Reason.CERTIFICATE_EXPIRED, f"it was valid to {certificate.not_valid_after_utc:%FT%TZ}")

    def _check_trust(self, subset: SignedSubset, signer: _Signer) -> None:
        if self._trust is None or any(root.der == signer.certificate.der for root in self._trust):
            # A certificate that is trusted itself does not need a chain; its dates and names are checked.
            return
        if not self._trust:
            raise _InvalidError(Reason.UNTRUSTED, "no trusted roots were given")
        store = verification.Store([root.certificate for root in self._trust])
        policy = verification.PolicyBuilder().store(store).time(datetime.fromtimestamp(self._now, UTC))
        intermediates = [one.certificate for one in self._readable if one.der != signer.certificate.der]
        for host in {certificate_host(parse_url(url) or "") for url in subset.subset_hashes}:
            try:
                policy.build_server_verifier(_subject(host)).verify(signer.certificate.certificate, intermediates)
            except (verification.VerificationError, ValueError) as error:
                raise _InvalidError(Reason.UNTRUSTED, f"for {host[:80]}: {error}") from None

    def _check_url(self, text: str, entry: SubsetEntry, signer: _Signer) -> None:
        url = parse_url(text)
        found = self._bundle.metadata.requests.get(url) if url else None
        shown = text[:200]
        if url is None or found is None:
            raise _InvalidError(Reason.NOT_IN_BUNDLE, f"{shown} is not in the bundle")
        if not signer.certificate.names.cover(certificate_host(url)):
            raise _InvalidError(Reason.HOST_NOT_COVERED, f"the certificate does not name the host of {shown}")
        negotiated = isinstance(found, VariantSet)
        variants = found.variants.encode("latin-1") if isinstance(found, VariantSet) else b""
        locations = list(found.locations.values()) if isinstance(found, VariantSet) else [found]
        if entry.variants != variants:
            has = "other variants" if negotiated else "no variants"
            raise _InvalidError(
                Reason.WRONG_VARIANTS, f"{shown} has {has} than were signed" if negotiated else f"{shown} has {has}"
            )
        if len(entry.integrities) != len(locations):
            fault = f"{shown} has {len(locations)} responses, {len(entry.integrities)} were signed"
            raise _InvalidError(Reason.WRONG_NUMBER_OF_HASHES, fault)
        for location, integrity in zip(locations, entry.integrities, strict=True):
            self._check_response(shown, location, integrity)

    def _check_response(self, url: str, location: Location, integrity: ResourceIntegrity) -> None:
        if (location, integrity) in self._valid:
            return
        try:
            response, header_map = load_signed(self._bundle, location)
        except ResponseError as error:
            raise _InvalidError(Reason.RESPONSE_UNREADABLE, f"{url}: {error}") from None
        if hashlib.sha256(header_map).digest() != integrity.header_sha256:
            raise _InvalidError(
                Reason.WRONG_HEADER_SHA256, f"the status or headers of {url} are not those that were signed"
            )
        if integrity.payload_integrity_header != merkle_integrity.PAYLOAD_INTEGRITY:
            found = integrity.payload_integrity_header
            fault = f"{found[:80]!r} for {url}, only {merkle_integrity.PAYLOAD_INTEGRITY!r} is known"
            raise _InvalidError(Reason.UNKNOWN_PAYLOAD_INTEGRITY, fault)
        proof = merkle_integrity.parse_mi_digest(response.stored_headers.get("digest", ""))
        if proof is None:
            raise _InvalidError(Reason.NO_DIGEST, f"{url} lacks a Digest of {merkle_integrity.MI_CODING}")
        try:
            merkle_integrity.verify_payload(response.payload, proof)
        except merkle_integrity.MerkleIntegrityError as error:
            raise _InvalidError(Reason.WRONG_DIGEST, f"{url}: {error}") from None
        self._valid.add((location, integrity))


def _overlap(bundle: Bundle) -> str:
    """Return how the responses overlap; empty if they do not."""
    try:
        reject_overlapping_responses(bundle)
    except HeadgateError as error:
        return str(error)
    return ""


def _readable(authorities: Iterable[bytes]) -> Iterator[AugmentedCertificate]:
    for item in authorities:
        with suppress(cbor.CborError):
            yield read_augmented(cbor.Items(item))


def _p256_key(certificate: AugmentedCertificate) -> EllipticCurvePublicKey:
    try:
        key = certificate.certificate.public_key()
    except Exception as error:
        # For unknown kinds of keys the library raises errors without a common base.
        raise _InvalidError(Reason.NOT_P256, f"the certificate's key cannot be read: {error}") from None
    if not isinstance(key, EllipticCurvePublicKey) or not keys.is_p256(key):
        # "Reject all signatures by an RSA public key."
        raise _InvalidError(Reason.NOT_P256, "the certificate's key is not on P-256")
    return key


def _subset(vouched: VouchedSubset, signer: _Signer) -> SignedSubset:
    try:
        subset = read_subset(vouched.signed)
    except cbor.CborError as error:
        raise _InvalidError(Reason.NOT_A_SIGNED_SUBSET, f"{error.reason} at byte {error.offset} of it") from None
    if subset.auth_sha256 != hashlib.sha256(signer.certificate.der).digest():
        raise _InvalidError(Reason.WRONG_AUTH_SHA256, "it is for another certificate")
    return subset


def _check_validity_url(subset: SignedSubset, signer: _Signer) -> None:
    url = parse_url(subset.validity_url)
    shown = subset.validity_url[:200]
    if url is None or not url.startswith("https://"):
        raise _InvalidError(Reason.VALIDITY_URL_NOT_HTTPS, f"{shown!r} is not an https URL")
    if not signer.certificate.names.cover(certificate_host(url)):
        raise _InvalidError(Reason.VALIDITY_URL_ELSEWHERE, f"the certificate does not name the host of {shown}")


def _subject(host: str) -> DNSName | IPAddress:
    import ipaddress

    try:
        return IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return DNSName(host)


def _time(seconds: int) -> str:
    try:
        return f"{datetime.fromtimestamp(seconds, UTC):%FT%TZ}"
    except (OverflowError, ValueError, OSError):
        return f"second {seconds}"
