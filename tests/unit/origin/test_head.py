from headgate.origin import Head


def test_lines_of_one_field_are_one_value() -> None:
    head = Head(b"GET", b"/", b"a", [(b"x", b"1"), (b"y", b"2"), (b"x", b"3")], "")
    assert head.field(b"x") == b"1, 3"
    assert head.field(b"y") == b"2"
    assert head.field(b"z") is None
