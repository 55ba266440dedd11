import pytest

from headgate.errors import ConfigurationError
from headgate.token import Checker, Valid, mint, new_key, read_keys
from headgate.token.checking import bearer_token
from headgate.token.jwk import write_keys
from headgate.token.key import HmacKey
from headgate.token.wire import Head, joined, signed

NOW = 1_700_000_000.0
A = "https://a.example"
B = "https://b.example"


@pytest.fixture
def check(key):
    checker = Checker([key])
    return lambda token, *, now=NOW, origin=A: checker.check(token, now=now, origin=origin)


@pytest.fixture
def minted(key, entropy):
    return lambda **changes: mint(key, **({"now": NOW, "ttl": 60, "entropy": entropy} | changes))


def test_a_token_is_valid_until_it_expires(check, minted):
    token = minted()
    valid = check(token)
    assert isinstance(valid, Valid)
    assert (len(valid.identity), valid.expires, valid.is_bound) == (24, NOW + 60, False)
    assert check(token, now=NOW + 59.999) == check(token, origin=B) == valid
    assert check(token, now=NOW + 60) == check(token, now=NOW + 1e6) == "token_expired"


def test_none_is_missing_and_what_is_no_token_invalid(check, minted):
    assert check(None) == "token_missing"
    token = minted()
    for wrong in ("", "x", token + "=", f" {token}", token[:-1], token + "A", token * 100, token.swapcase()):
        assert check(wrong) == "token_invalid"


def test_a_token_for_an_origin_opens_nothing_else(check, minted):
    token = minted(origin="https://A.example:443/page")
    assert check(token).is_bound
    for other in (B, "https://a.example:8443", "http://a.example", "", "https://a.example.", "\ud800"):
        assert check(token, origin=other) == "token_invalid"
    # It is genuine for A alone, so only there is it known to have expired.
    assert check(token, now=NOW + 60) == "token_expired"
    assert check(token, now=NOW + 60, origin=B) == "token_invalid"


def test_a_token_of_a_key_that_is_not_known(minted, entropy):
    other = Checker([new_key("hmac-sha256", entropy=entropy)])
    assert other.check(minted(), now=NOW, origin=A) == "token_invalid"


def test_a_token_that_would_have_to_be_remembered_for_too_long(key, check):
    def forged(expires):
        raw = Head(False, key.key_id, expires, key.key_id + bytes(16)).raw
        return joined(raw, key.sign(signed(raw, "")))

    assert isinstance(check(forged(NOW + 86_400)), Valid)
    # The site's clock may be a minute ahead of the proxy's.
    assert isinstance(check(forged(NOW + 86_460)), Valid)
    assert check(forged(NOW + 86_460.001)) == "token_invalid"


def test_the_key_says_how_it_is_signed(entropy):
    """What Ed25519 publishes is no secret for HMAC, whatever a token claims."""
    private = new_key("ed25519", entropy=entropy)
    public = read_keys(write_keys([private], public=True))
    raw = Head(False, private.key_id, NOW + 60, private.key_id + bytes(16)).raw
    as_secret = HmacKey(private._public.public_bytes_raw())
    forged = joined(raw, as_secret.sign(signed(raw, "")))
    padded = joined(raw, as_secret.sign(signed(raw, "")) * 2)
    for token in (forged, padded):
        assert Checker(public).check(token, now=NOW, origin=A) == "token_invalid"
    assert isinstance(Checker(public).check(joined(raw, private.sign(signed(raw, ""))), now=NOW, origin=A), Valid)


def test_old_and_new_keys_check_side_by_side(entropy):
    old, new = new_key("hmac-sha256", entropy=entropy), new_key("ed25519", entropy=entropy)
    checker = Checker([new, old, old])
    for key in (old, new):
        assert isinstance(checker.check(mint(key, now=NOW, ttl=1, entropy=entropy), now=NOW, origin=A), Valid)


def test_keys_that_do_not_make_a_ring():
    with pytest.raises(ConfigurationError, match="headgate token new-key"):
        Checker([])
    with pytest.raises(ConfigurationError, match="twice"):
        Checker([HmacKey(bytes(32)), HmacKey(bytes(32), max_ttl=60)])


@pytest.mark.parametrize(
    ("value", "token"),
    [
        (None, None),
        ("Bearer abc", "abc"),
        ("bearer   abc", "abc"),
        ("BEARER abc", "abc"),
        ("Bearer", ""),
        ("Bearer a b", "a b"),
        ("Basic abc", None),
        ("Bearerabc", None),
        ("", None),
    ],
)
def test_the_token_of_a_field(value, token):
    assert bearer_token(value) == token
