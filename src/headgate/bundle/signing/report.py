"""The result of verifying: why signatures are invalid, and what was not checked."""

from enum import StrEnum
from typing import Literal

from msgspec import Struct

Kind = Literal["integrity-block", "vouched-subset"]
Result = Literal["valid", "partly-signed", "untrusted", "not-valid", "not-signed"]


class Reason(StrEnum):
    """Why a signature is not valid: the first reason found."""

    BLOCK_VERSION = "block-version"
    """The integrity block is of version 1b, which is obsolete."""
    NO_SIGNATURE = "no-signature"
    """The integrity block's list of signatures is empty, or a kind of signature that was asked for is missing."""
    UNKNOWN_KIND = "unknown-kind"
    """The signature is of an unknown kind, and was not checked."""
    BAD_KEY = "bad-key"
    """The signature's public key is not a point on its curve."""
    BAD_SIGNATURE = "bad-signature"
    """The key did not sign this: the bundle, the block, the attributes or the signed subset was changed."""
    WRONG_WEB_BUNDLE_ID = "wrong-web-bundle-id"
    """The block's web bundle id is derived from none of its keys, or is not the expected one."""

    TOO_MANY_SIGNATURES = "too-many-signatures"
    """A limit of ours: the signature was not checked."""
    AUTHORITY_OUT_OF_RANGE = "authority-out-of-range"
    CERTIFICATE_UNREADABLE = "certificate-unreadable"
    NOT_P256 = "not-p256"
    NOT_A_SIGNED_SUBSET = "not-a-signed-subset"
    """What was signed is not deterministic CBOR, or does not match the signed-subset rule."""
    WRONG_AUTH_SHA256 = "wrong-auth-sha256"
    """The signature names another certificate with the same key."""
    EXPIRES_BEFORE_DATE = "expires-before-date"
    LIFETIME_TOO_LONG = "lifetime-too-long"
    """More than seven days."""
    NOT_YET_VALID = "not-yet-valid"
    EXPIRED = "expired"
    CERTIFICATE_NOT_YET_VALID = "certificate-not-yet-valid"
    CERTIFICATE_EXPIRED = "certificate-expired"
    VALIDITY_URL_NOT_HTTPS = "validity-url-not-https"
    VALIDITY_URL_ELSEWHERE = "validity-url-elsewhere"
    """The certificate does not name the validity URL's host."""
    HOST_NOT_COVERED = "host-not-covered"
    """The certificate does not name the URL's host."""
    NOT_IN_BUNDLE = "not-in-bundle"
    WRONG_VARIANTS = "wrong-variants"
    WRONG_NUMBER_OF_HASHES = "wrong-number-of-hashes"
    RESPONSES_NESTED = "responses-nested"
    """The responses overlap: verifying all of them could take any time."""
    RESPONSE_UNREADABLE = "response-unreadable"
    WRONG_HEADER_SHA256 = "wrong-header-sha256"
    UNKNOWN_PAYLOAD_INTEGRITY = "unknown-payload-integrity"
    NO_DIGEST = "no-digest"
    """The signed headers lack the Digest that the signature requires."""
    WRONG_DIGEST = "wrong-digest"
    UNTRUSTED = "untrusted"
    """Everything else holds, but the certificate is not trusted and does not lead to a trusted root, or no roots were
    given."""


class Signature(Struct, frozen=True):
    """One signature, and whether it is valid."""

    kind: Kind
    valid: bool
    reason: str | None = None
    """A `Reason`, a colon, and a sentence; None where the signature is valid."""
    urls: tuple[str, ...] = ()
    """The URLs that it covers, where they could be read; a signature of an integrity block covers the whole bundle."""
    unchecked: tuple[str, ...] = ()
    """What was not checked, one sentence each."""


class UnsignedUrls(Struct, frozen=True):
    """URLs that no valid signature covers."""

    count: int
    first: tuple[str, ...]
    """Ten at most."""


class Verification(Struct, frozen=True):
    """A bundle's signatures. Removed signatures cannot be detected."""

    valid: bool
    """At least one signature is present, every signature is valid, and together they cover the whole bundle."""
    web_bundle_id: str | None
    """The id in the integrity block, valid or not."""
    signatures: tuple[Signature, ...]
    unsigned_urls: UnsignedUrls = UnsignedUrls(0, ())
    """Of the responses, the primary URL and the manifest URL."""

    @property
    def result(self) -> Result:
        """The result in one word; `untrusted` if only trust is missing, `partly-signed` if only coverage is."""
        if self.valid:
            return "valid"
        if not self.signatures:
            return "not-signed"
        reasons = [signature.reason for signature in self.signatures if signature.reason]
        if not reasons:
            return "partly-signed"
        untrusted = f"{Reason.UNTRUSTED}: "
        return "untrusted" if all(reason.startswith(untrusted) for reason in reasons) else "not-valid"
