from hashlib import sha256

from headgate.token import ReplayTable, ValidToken
from headgate.token.replay_table import table_size

NOW = 1_700_000_000.0


def new_table(max_tokens=10):
    return ReplayTable(memoryview(bytearray(table_size(max_tokens))))


def token(number, expires=NOW + 60):
    return ValidToken(b"key 1234" + number.to_bytes(16, "little"), expires, is_bound=False)


def test_same_random_bytes_under_another_key_are_another_token():
    table = new_table()
    first, second = (ValidToken(key + bytes(16), NOW + 60, is_bound=False) for key in (b"key 1111", b"key 2222"))
    assert (table.consume(first, now=NOW), table.consume(second, now=NOW)) == (None, None)


def test_full_bucket_refuses_new_tokens_until_one_expires():
    table = new_table(32)
    for number in range(64):
        assert table.consume(token(number, NOW + 10 + number), now=NOW) is None
    assert table.consume(token(64), now=NOW) == table.consume(token(64), now=NOW + 9.999) == "tokens"
    assert table.consume(token(63, NOW + 73), now=NOW) == "token_replayed"
    assert table.consume(token(64), now=NOW + 10) is None
    assert table.consume(token(65), now=NOW + 10) == "tokens"
    assert table.consume(token(64), now=NOW + 10) == "token_replayed"


def test_overwritten_token_stays_refused_when_the_clock_is_set_back():
    table = new_table(32)
    for number in range(64):
        table.consume(token(number, NOW + 10 + number), now=NOW)
    assert table.consume(token(64), now=NOW + 10) is None
    assert table.consume(token(0, NOW + 10), now=NOW) == "token_expired"
    assert table.consume(token(1, NOW + 11), now=NOW) == "token_replayed"


def test_bytes_across_two_entries_are_not_a_token():
    table = new_table()
    for number in (1, 2):
        table.consume(token(number), now=NOW)
    across = b"\0" * 8 + b"key 1234" + (2).to_bytes(8, "little")
    assert table.consume(ValidToken(across, NOW + 60, is_bound=False), now=NOW) is None
    assert table.consume(token(2), now=NOW) == "token_replayed"
    alike = [ValidToken(identity, NOW + 60, is_bound=False) for identity in (b"b" * 23 + b"a", b"a" * 24)]
    table = new_table()
    assert [table.consume(one, now=NOW) for one in (*alike, alike[1])] == [None, None, "token_replayed"]


def test_table_has_room_for_its_maximum_of_random_tokens():
    assert [table_size(count) for count in (32, 33)] == [64 + 64 * 32, 64 + 128 * 32]
    for count in (1, 32, 33, 1000):
        table = new_table(count)
        tokens = [
            ValidToken(b"key 1234" + sha256(bytes([n % 256, n >> 8])).digest()[:16], NOW + 60, False)
            for n in range(count)
        ]
        assert [table.consume(one, now=NOW) for one in tokens] == [None] * count
        assert [table.consume(one, now=NOW) for one in tokens] == ["token_replayed"] * count


def test_release_allows_the_buffer_to_be_closed():
    buffer = bytearray(table_size(1))
    view = memoryview(buffer)
    table = ReplayTable(view)
    table.consume(token(1), now=NOW)
    assert any(buffer)
    table.release()
    view.release()
    buffer.clear()  # raises BufferError while a view exists


def test_tables_over_one_buffer_share_their_tokens():
    buffer = bytearray(table_size(10))
    first, second = (ReplayTable(memoryview(buffer)) for _ in range(2))
    assert first.consume(token(1), now=NOW) is None
    assert second.consume(token(1), now=NOW) == "token_replayed"
