import pytest

from headgate.token import ReplayTable, Valid
from headgate.token.replay import table_size

NOW = 1_700_000_000.0


def table(most=10):
    return ReplayTable(memoryview(bytearray(table_size(most))))


def token(number, expires=NOW + 60):
    return Valid(b"key 1234" + number.to_bytes(16, "little"), expires, is_bound=False)


def test_a_token_is_new_once():
    shown = table()
    assert [shown.use(token(1), now=NOW) for _ in range(3)] == [None, "token_replayed", "token_replayed"]
    assert shown.use(token(2), now=NOW) is None
    assert shown.use(token(1), now=NOW + 59) == "token_replayed"


def test_keys_do_not_take_one_anothers_tokens():
    shown = table()
    mine, theirs = (Valid(key + bytes(16), NOW + 60, is_bound=False) for key in (b"key 1111", b"key 2222"))
    assert (shown.use(mine, now=NOW), shown.use(theirs, now=NOW)) == (None, None)


def test_a_full_table_takes_no_more_until_something_expires():
    shown = table(32)
    for number in range(64):
        assert shown.use(token(number, NOW + 10 + number), now=NOW) is None
    assert shown.use(token(64), now=NOW) == shown.use(token(64), now=NOW + 9.999) == "tokens"
    assert shown.use(token(63, NOW + 73), now=NOW) == "token_replayed"
    assert shown.use(token(64), now=NOW + 10) is None
    assert shown.use(token(65), now=NOW + 10) == "tokens"
    assert shown.use(token(64), now=NOW + 10) == "token_replayed"


def test_a_clock_that_is_put_back_brings_no_token_back():
    shown = table(32)
    for number in range(64):
        shown.use(token(number, NOW + 10 + number), now=NOW)
    assert shown.use(token(64), now=NOW + 10) is None
    assert shown.use(token(0, NOW + 10), now=NOW) == "token_expired"
    assert shown.use(token(1, NOW + 11), now=NOW) == "token_replayed"


def test_bytes_of_two_neighbours_are_not_a_token():
    shown = table()
    for number in (1, 2):
        shown.use(token(number), now=NOW)
    between = b"\0" * 8 + b"key 1234" + (2).to_bytes(8, "little")
    assert shown.use(Valid(between, NOW + 60, is_bound=False), now=NOW) is None
    assert shown.use(token(2), now=NOW) == "token_replayed"


@pytest.mark.parametrize("most", [1, 32, 33, 1000])
def test_there_is_room_for_as_many_as_were_asked_for(most):
    shown = table(most)
    # As evenly as chance does not: the bucket is in the first of the random bytes.
    tokens = [Valid(b"key 1234" + n.to_bytes(8, "big") + bytes(8), NOW + 60, is_bound=False) for n in range(most)]
    assert [shown.use(one, now=NOW) for one in tokens] == [None] * most
    assert [shown.use(one, now=NOW) for one in tokens] == ["token_replayed"] * most


def test_the_buffer_can_be_let_go_of():
    buffer = bytearray(table_size(1))
    view = memoryview(buffer)
    shown = ReplayTable(view)
    shown.use(token(1), now=NOW)
    assert any(buffer)
    shown.release()
    view.release()
    buffer.clear()  # which a view on it would forbid


def test_two_tables_over_one_buffer_are_one():
    buffer = bytearray(table_size(10))
    here, there = (ReplayTable(memoryview(buffer)) for _ in range(2))
    assert here.use(token(1), now=NOW) is None
    assert there.use(token(1), now=NOW) == "token_replayed"
