"""headgate.bundle.signing.report."""

import pytest

from headgate.bundle import open_bundle
from headgate.bundle.signing import Reason, Signature, Verification, verify_bundle
from headgate.errors import ConfigurationError
from tests.malformed import parts

GOOD = Signature("vouched-subset", valid=True)
UNTRUSTED = Signature("vouched-subset", valid=False, reason=f"{Reason.UNTRUSTED}: no roots were given")
EXPIRED = Signature("vouched-subset", valid=False, reason=f"{Reason.EXPIRED}: a day ago")


@pytest.mark.parametrize(
    ("signatures", "result"),
    [
        ((), "not-signed"),
        ((GOOD,), "valid"),
        ((UNTRUSTED,), "untrusted"),
        ((GOOD, UNTRUSTED), "untrusted"),
        ((EXPIRED,), "not-valid"),
        ((UNTRUSTED, EXPIRED), "not-valid"),
        ((EXPIRED, UNTRUSTED), "not-valid"),
    ],
)
def test_result_is_untrusted_if_trust_alone_is_missing(signatures, result):
    valid = bool(signatures) and all(one.valid for one in signatures)
    assert Verification(valid, None, signatures).result == result


def test_trust_and_any_certificate_exclude_each_other():
    with (
        open_bundle(parts.b2().written()) as bundle,
        pytest.raises(ConfigurationError, match="trust and any_certificate exclude each other"),
    ):
        verify_bundle(bundle, now=0.0, trust=b"", any_certificate=True)
