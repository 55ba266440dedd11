import json

from headgate.origin.response import prefers_problem, problem, remembered


def test_a_problem_is_a_line_of_text_or_a_document():
    response = problem(502, "Bad gateway", "The origin refused the connection.", b"application/problem+json")
    assert json.loads(response.body) == {
        "type": "about:blank",
        "title": "Bad gateway",
        "status": 502,
        "detail": "The origin refused the connection.",
    }
    text = problem(502, "Bad gateway", "No.")
    assert text.body == b"Bad gateway. No.\n"
    for one in (response, text):
        assert dict(one.fields)[b"content-length"] == b"%d" % len(one.body)
        assert dict(one.fields)[b"cache-control"] == b"no-store"


def test_only_short_values_of_accept_are_remembered():
    asked = []

    def verdict(accept):
        asked.append(accept)
        return prefers_problem(accept)

    remembering = remembered(verdict)
    for accept in (None, b"application/json", b"application/json" + b" " * 300):
        assert remembering(accept) is remembering(accept) is prefers_problem(accept)
    assert [len(accept or b"") for accept in asked] == [0, 16, 316, 316]
