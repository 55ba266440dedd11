import pytest

from headgate.errors import ConfigurationError
from headgate.token.keys import Ed25519Key, decode_base64url, encode_base64url

# RFC 8037, appendix A.
D = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"
X = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
THUMBPRINT = "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
MESSAGE = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc"
SIGNATURE = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"


@pytest.fixture
def private():
    return Ed25519Key.from_private(decode_base64url(D))


@pytest.fixture
def public():
    return Ed25519Key.from_public(decode_base64url(X))


def test_example_of_rfc_8037(private, public):
    assert encode_base64url(private.sign(MESSAGE)) == SIGNATURE
    for key in (private, public):
        assert key.key_id == decode_base64url(THUMBPRINT)[:8]
        assert key.verify(MESSAGE, decode_base64url(SIGNATURE))
        assert not key.verify(MESSAGE + b"!", decode_base64url(SIGNATURE))
        assert key.to_jwk(public=True) == {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": X}
    assert private.to_jwk(public=False) == {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": X, "d": D}


def test_public_key_cannot_sign(private, public):
    assert (private.can_mint, public.can_mint) == (True, False)
    for call in (lambda: public.sign(b""), lambda: public.to_jwk(public=False)):
        with pytest.raises(ConfigurationError, match="this is a public key"):
            call()


def test_signature_of_another_length_is_refused(public):
    for length in (0, 32, 63, 65):
        assert not public.verify(b"", bytes(length))
