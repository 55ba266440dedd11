from headgate.origin import RequestInfo


def test_lines_of_one_field_are_joined() -> None:
    info = RequestInfo(b"GET", b"/", b"a", [(b"x", b"1"), (b"y", b"2"), (b"x", b"3")], "")
    assert info.field(b"x") == b"1, 3"
    assert info.field(b"y") == b"2"
    assert info.field(b"z") is None
