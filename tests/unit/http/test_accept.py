from headgate.http import negotiate, quality
from headgate.http.media_type import parse_weights

TEXT, PROBLEM = b"text/plain", b"application/problem+json"


NEGOTIATIONS = [
    (None, TEXT),
    (b"", TEXT),
    (b"*/*", TEXT),
    (b"text/html, */*;q=0.1", TEXT),
    (b"application/problem+json", PROBLEM),
    (b"APPLICATION/Problem+JSON", PROBLEM),
    (b"application/*", PROBLEM),
    (b"application/problem+json;q=0.4, text/plain;q=0.5", TEXT),
    (b"application/problem+json;q=0.6, text/plain;q=0.5", PROBLEM),
    (b"text/plain;q=0, */*", PROBLEM),
    (b"*/*, text/*;q=0.2", PROBLEM),
    (b"application/problem+json;q=0, */*;q=0.1", TEXT),
    (b"image/png", TEXT),
    (b"application/problem+json ; charset=utf-8 ; Q=0.9 , text/plain ; q=0.8", PROBLEM),
]


def test_preferred_offer_is_chosen_and_the_first_of_equals():
    for accept, expected in NEGOTIATIONS:
        assert negotiate(accept, (TEXT, PROBLEM)) == expected, accept


WEIGHTS = [
    (b"text/plain;q=0.25", 0.25),
    (b"text/plain;q=1.000", 1.0),
    (b"text/plain;q=7", 1.0),
    (b"text/plain;q=-1", 1.0),
    (b"text/plain;q=nan", 1.0),
    (b"text/plain;q=\xb2", 1.0),
    (b"text/plain;q=", 1.0),
    (b"text/plain;q=1.2.3", 1.0),
    (b",,;q=,text/plain;q=0.5,", 0.5),
    (b"text/html", 0.0),
    (b"text/plain;q=0.1, text/*, */*", 0.1),
]


def test_malformed_weight_counts_as_one():
    for accept, expected in WEIGHTS:
        assert quality(accept, TEXT) == expected, accept


LISTS = [
    (b"", []),
    (b"gzip", [(b"gzip", 1.0)]),
    (b"fr;q=0.5, EN, *;Q=0", [(b"fr", 0.5), (b"en", 1.0), (b"*", 0.0)]),
    (b"a;q=0.2, b;q=0.3, A;q=0.4, b;q=0.1", [(b"a", 0.4), (b"b", 0.3)]),
    (b" , ;q=1,\t,a ; level=1 ; q=0.001 ,", [(b"a", 0.001)]),
    (b"a;, b;;q=0.5, c;q", [(b"a", 1.0), (b"b", 0.5), (b"c", 1.0)]),
]


def test_weighted_list_keeps_its_order_and_the_greater_of_two_weights():
    for field, expected in LISTS:
        assert list(parse_weights(field).items()) == expected, field
