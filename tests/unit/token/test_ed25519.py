import pytest

from headgate.errors import ConfigurationError
from headgate.token import base64url
from headgate.token.ed25519 import Ed25519Key

# RFC 8037, appendix A.
D = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"
X = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"
THUMBPRINT = "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
SIGNED = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc"
SIGNATURE = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg"


@pytest.fixture
def key():
    return Ed25519Key.of_seed(base64url.decode(D))


@pytest.fixture
def public():
    return Ed25519Key.of_public(base64url.decode(X))


def test_it_is_the_standards_key(key, public):
    assert base64url.encode(key.sign(SIGNED)) == SIGNATURE
    for half in (key, public):
        assert base64url.decode(THUMBPRINT).startswith(half.key_id)
        assert half.holds(SIGNED, base64url.decode(SIGNATURE))
        assert not half.holds(SIGNED + b"!", base64url.decode(SIGNATURE))
        assert half.jwk(public=True) == {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": X}
    assert key.jwk(public=False) == {"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": X, "d": D}


def test_a_public_half_mints_nothing(key, public):
    assert (key.can_mint, public.can_mint) == (True, False)
    for use in (lambda: public.sign(b""), lambda: public.jwk(public=False)):
        with pytest.raises(ConfigurationError, match="public half"):
            use()


def test_a_signature_of_another_length_holds_nothing(public):
    for length in (0, 32, 63, 65):
        assert not public.holds(b"", bytes(length))
