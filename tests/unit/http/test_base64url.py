from headgate.http.base64url import decode_base64url, encode_base64url


def test_base64url_round_trip():
    for content in (*(b"abcdefghi"[:size] for size in range(10)), b"\xfb\xff"):
        text = encode_base64url(content)
        assert "=" not in text
        assert decode_base64url(text) == content


def test_only_canonical_base64url_is_decoded():
    malformed = ["Y", "+/+/", "YQ\n", " YQ", "Y Q", "YQ.", "äöü", "\ud800", "Y\0Q", "====", "Ｙ"]
    for text in [*malformed, "YQ==", "YR", "YWL"]:
        assert decode_base64url(text) is None, text
