from hypothesis import given
from hypothesis import strategies as st

from headgate.http.conditional import ConditionalResult, Validators, apply_preconditions, evaluate

MODIFIED = 784_111_777
DATE = b"Sun, 06 Nov 1994 08:49:37 GMT"
EARLIER, LATER = b"Sun, 06 Nov 1994 08:49:36 GMT", b"Sun, 06 Nov 1994 08:49:38 GMT"
STRONG = Validators(b'"a"', MODIFIED)
WEAK = Validators(b'W/"a"', MODIFIED)


def ask(*fields, validators=STRONG, method=b"GET", length=10):
    return evaluate(method, fields, validators, length)


def test_request_without_conditions_gets_the_whole():
    assert ask((b"host", b"a"), (b"accept", b"*/*")) == ConditionalResult(200, 0, 10)


IF_NONE_MATCH = [
    (b'"a"', 304),
    (b'W/"a"', 304),  # 9110 13.1.2: the weak comparison
    (b'"b", W/"a" ,, "c"', 304),
    (b"*", 304),
    (b" * ", 304),
    (b'"b"', 200),
    (b'"A"', 200),
    (b"a", 200),
    (b'"a', 200),
    (b'"x,"a', 200),
    (b"", 200),
    (b'"a*"', 200),
    (b'"*"', 200),
]


def test_if_none_match():
    for value, status in IF_NONE_MATCH:
        for validators in (STRONG, WEAK):
            for method in (b"GET", b"HEAD"):
                assert ask((b"if-none-match", value), validators=validators, method=method).status == status, value


def test_lines_of_one_field_are_one_list():
    assert ask((b"if-none-match", b'"b"'), (b"if-none-match", b'"a"')).status == 304


def test_if_none_match_overrides_if_modified_since():
    assert ask((b"if-modified-since", DATE)).status == 304
    assert ask((b"if-modified-since", LATER)).status == 304
    assert ask((b"if-modified-since", EARLIER)).status == 200
    assert ask((b"if-modified-since", b"yesterday")).status == 200
    assert ask((b"if-modified-since", DATE), (b"if-none-match", b'"b"')).status == 200
    assert ask((b"if-modified-since", EARLIER), (b"if-none-match", b'"a"')).status == 304
    assert ask((b"if-modified-since", DATE), validators=Validators(b'"a"', None)).status == 200


def test_if_match_compares_strongly():
    for value, strong, weak in (
        (b'"a"', 200, 412),
        (b'W/"a"', 412, 412),
        (b"*", 200, 200),
        (b'"b"', 412, 412),
        (b'"b", "a"', 200, 412),
    ):
        assert ask((b"if-match", value)).status == strong, value
        assert ask((b"if-match", value), validators=WEAK).status == weak, value


def test_if_match_overrides_if_unmodified_since():
    assert ask((b"if-unmodified-since", EARLIER)).status == 412
    assert ask((b"if-unmodified-since", DATE)).status == 200
    assert ask((b"if-unmodified-since", b"soon")).status == 200
    assert ask((b"if-unmodified-since", EARLIER), (b"if-match", b'"a"')).status == 200


def test_first_failing_precondition_decides():
    assert ask((b"if-match", b'"b"'), (b"if-none-match", b'"a"'), (b"range", b"bytes=0-1")).status == 412
    assert ask((b"if-none-match", b'"a"'), (b"range", b"bytes=0-1")).status == 304


RANGES = [
    (b"bytes=0-0", (206, 0, 1)),
    (b"bytes=2-5", (206, 2, 6)),
    (b"bytes=2-", (206, 2, 10)),
    (b"bytes=9-", (206, 9, 10)),
    (b"bytes=0-9", (206, 0, 10)),
    (b"bytes=0-99", (206, 0, 10)),
    (b"bytes=-3", (206, 7, 10)),
    (b"bytes=-10", (206, 0, 10)),
    (b"bytes=-99", (206, 0, 10)),
    (b"BYTES=1-1", (206, 1, 2)),
    (b"bytes= 1-1 ", (206, 1, 2)),
    (b"bytes=,1-1,", (206, 1, 2)),
    (b"bytes=0-" + b"9" * 5000, (206, 0, 10)),
    (b"bytes=" + b"0" * 5000 + b"3-4", (206, 3, 5)),
    (b"bytes=10-", (416, 0, 0)),
    (b"bytes=10-10", (416, 0, 0)),
    (b"bytes=" + b"9" * 5000 + b"-", (416, 0, 0)),
    (b"bytes=-0", (416, 0, 0)),
    # An invalid range, and several ranges, give the whole.
    (b"bytes=5-2", (200, 0, 10)),
    (b"bytes=0-1,3-4", (200, 0, 10)),
    (b"bytes=-", (200, 0, 10)),
    (b"bytes=", (200, 0, 10)),
    (b"bytes", (200, 0, 10)),
    (b"bytes=a-b", (200, 0, 10)),
    (b"bytes=+1-2", (200, 0, 10)),
    (b"bytes=1-2-3", (200, 0, 10)),
    (b"bytes=\xb2-3", (200, 0, 10)),
    (b"lines=0-1", (200, 0, 10)),
    (b"", (200, 0, 10)),
]


def test_ranges():
    for value, outcome in RANGES:
        assert ask((b"range", value)) == ConditionalResult(*outcome), value[:40]


def test_ranges_require_get_and_a_body():
    assert ask((b"range", b"bytes=0-1"), method=b"HEAD") == ConditionalResult(200, 0, 10)
    assert ask((b"range", b"bytes=0-1"), length=0) == ConditionalResult(200, 0, 0)
    assert ask((b"range", b"bytes=-1"), length=0) == ConditionalResult(200, 0, 0)


IF_RANGE = [
    (b'"a"', STRONG, 206),
    (b'W/"a"', STRONG, 200),
    (b'"b"', STRONG, 200),
    (b'"a", "a"', STRONG, 200),
    (b"*", STRONG, 200),
    (b'W/"a"', WEAK, 200),
    (b'"a"', WEAK, 200),
    (DATE, STRONG, 200),
    (b"", STRONG, 200),
]


def test_if_range_compares_strongly_and_ignores_dates():
    for value, validators, status in IF_RANGE:
        assert ask((b"range", b"bytes=0-1"), (b"if-range", value), validators=validators).status == status, value


STORED = [
    (b"content-type", b"text/html"),
    (b"etag", b'"a"'),
    (b"cache-control", b"max-age=9"),
    (b"x-content-type-options", b"nosniff"),
    (b"link", b"</x>; rel=preload"),
]
LENGTH = (b"content-length", b"4")
RESPONSES = [
    # The stored status, a field of the request, and the response: status, fields, start and stop.
    (200, (b"host", b"a"), (200, [*STORED, (b"content-length", b"10")], 0, 10)),
    (203, (b"host", b"a"), (203, [*STORED, (b"content-length", b"10")], 0, 10)),
    (203, (b"range", b"bytes=2-5"), (206, [*STORED, (b"content-range", b"bytes 2-5/10"), LENGTH], 2, 6)),
    (200, (b"range", b"bytes=10-"), (416, [(b"content-range", b"bytes */10")], 0, 0)),
    (200, (b"if-none-match", b'"a"'), (304, STORED[1:4], 0, 0)),
    (200, (b"if-match", b'"b"'), (412, [], 0, 0)),
    # 13.2.1: preconditions apply only where the response without them is a success.
    *(
        (status, field, (status, [*STORED, (b"content-length", b"10")], 0, 10))
        for status in (201, 301, 404, 500)
        for field in ((b"if-none-match", b'"a"'), (b"if-match", b'"b"'), (b"range", b"bytes=0-1"))
    ),
]


def test_preconditions_applied_to_a_stored_response():
    for status, field, expected in RESPONSES:
        assert apply_preconditions(b"GET", [field], (status, STORED), STRONG, 10) == expected, (status, field)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"if-match", b"if-none-match", b"if-modified-since", b"if-range", b"range", b"x"]),
            st.binary(max_size=40) | st.from_regex(rb"bytes=[0-9, -]{0,30}", fullmatch=True) | st.just(DATE),
        ),
        max_size=6,
    ),
    st.integers(0, 2**64),
    st.sampled_from([STRONG, WEAK, Validators(b"", None)]),
)
def test_any_fields_give_an_outcome_within_the_body(fields, length, validators):
    status, start, stop = evaluate(b"GET", fields, validators, length)
    assert status in {200, 206, 304, 412, 416}
    assert 0 <= start <= stop <= length
    if status == 206:
        assert start < stop
