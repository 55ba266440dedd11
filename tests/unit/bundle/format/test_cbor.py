"""headgate.bundle.format.cbor."""

import pytest

from headgate.bundle.format.cbor import MAX_NESTING, UINT, CborError, Items, encode, head, read_head, text


class TestHeads:
    def test_heads_are_written_in_their_shortest_form(self):
        for argument, written in (
            (0, "00"),
            (23, "17"),
            (24, "1818"),
            (255, "18ff"),
            (256, "190100"),
            (65_535, "19ffff"),
            (65_536, "1a00010000"),
            (2**32 - 1, "1affffffff"),
            (2**32, "1b0000000100000000"),
            (2**64 - 1, "1bffffffffffffffff"),
        ):
            assert head(UINT, argument).hex() == written, argument
            assert read_head(bytes.fromhex(written)) == (UINT, argument, len(written) // 2), argument


class TestEncode:
    def test_values_have_one_encoding(self):
        for value, written in (
            (1, "01"),
            (b"ab", "426162"),
            ("ü", "62c3bc"),
            ([1, [2]], "82018102"),
            ((), "80"),
            (True, "f5"),
            (False, "f4"),
            ({"b": 1, "a": 2, "": 3, b"zz": 4}, "a4427a7a04600361610261620 1".replace(" ", "")),
        ):
            assert encode(value).hex() == written, value

    def test_map_keys_sort_by_their_encoded_bytes(self):
        # RFC 8949, section 4.2.1: bytewise, so a shorter key comes first because its head does.
        assert encode({"bb": 1, "c": 2}) == b"\xa2" + text("c") + b"\x02" + text("bb") + b"\x01"

    @pytest.mark.parametrize("value", [-1, 2**64, 1.5, None, object()])
    def test_values_without_an_encoding_raise_type_errors(self, value):
        with pytest.raises(TypeError):
            encode(value)


class TestItems:
    def test_items_of_each_kind_are_read_in_turn(self):
        items = Items(encode([7, b"x", "y", {"k": 1}]))
        assert items.array(4) == 4
        assert (items.uint(), items.data(), items.text()) == (7, b"x", "y")
        assert [(key, items.uint()) for key in items.entries(items.text)] == [("k", 1)]
        items.end()
        assert items.peek() == -1

    @pytest.mark.parametrize(("keys", "fault"), [("ba", "is not in order"), ("aa", "appears twice")])
    def test_unsorted_and_duplicate_keys_are_refused(self, keys, fault):
        items = Items(b"\xa2" + b"".join(text(key) + b"\x01" for key in keys))
        with pytest.raises(CborError, match=fault) as caught:
            [items.uint() for _ in items.entries(items.text)]
        assert (caught.value.step, caught.value.offset) == ("3.5.1 step 2", 4)


class TestRecord:
    @pytest.mark.parametrize(
        ("value", "options", "found"),
        [
            ({"a": 1, "b": b"x"}, {}, {"a": 1, "b": b"x"}),
            ({"a": 1, "b": b"x", "c": [2]}, {}, {"a": 1, "b": b"x", "c": b"\x81\x02"}),
            ({"a": 1}, {"optional": "b"}, {"a": 1}),
            ({"a": 1}, {}, "a map lacks b at 1"),
            ({}, {"optional": "b"}, "a map lacks a at 1"),
            ({"a": 1, "b": b"x", "c": 2}, {"closed": True}, "unknown map key 'c' at 9"),
            ({"a": b"1"}, {}, "got a byte string, expected an unsigned integer at 4"),
            ({1: 1}, {}, "got an unsigned integer, expected a text string at 2"),
        ],
    )
    def test_members_are_read_by_name(self, value, options, found):
        items = Items(b"\0" + encode(value), 1)
        members = {"a": items.uint, "b": items.data}
        if isinstance(found, dict):
            assert items.record(members, **options) == found
        else:
            with pytest.raises(CborError) as caught:
                items.record(members, **options)
            assert f"{caught.value.reason} at {caught.value.offset}" == found


class TestAny:
    def test_well_formed_deterministic_items_are_read(self):
        for written in (
            "f6",
            "f0",
            "f820",
            "f93c00",  # 1.0 in two bytes
            "fa47c35000",  # 100000.0 needs four
            "fb3ff199999999999a",  # 1.1 needs eight
            "f97e00",  # not a number
            "c11a514b67b0",  # a tag
            "a28000a1010203",  # an array for a key, then a map
            "20",
            "80",
            "a0",
        ):
            source = bytes.fromhex(written)
            assert Items(source + b"\0").any() == source, written

    @pytest.mark.parametrize(
        ("written", "step"),
        [
            ("fb3ff0000000000000", "3.5.1 step 2"),  # 1.0 in eight bytes
            ("fa3f800000", "3.5.1 step 2"),
            ("fa7fc00000", "3.5.1 step 2"),  # not a number, in four
            ("f81f", "3.5.1 step 1"),  # a simple value below 32 in two bytes
            ("f8", "3.5.1 step 1"),
            ("fc", "3.5.1 step 1"),
            ("ff", "3.5.1 step 1"),
            ("a2616201616101", "3.5.1 step 2"),
            ("a26161016161 01".replace(" ", ""), "3.5.1 step 2"),
            ("82", "3.5.1 step 1"),
            ("c1", "3.5.1 step 1"),
            ("82017f", "3.5.1 step 2"),
            ("61ff", "3.5.1 step 1"),
        ],
    )
    def test_other_items_are_refused(self, written, step):
        with pytest.raises(CborError) as caught:
            Items(bytes.fromhex(written)).any()
        assert caught.value.step == step

    @pytest.mark.parametrize("level", [b"\x81", b"\xc1", b"\xa1\0"])
    def test_nesting_is_limited(self, level):
        deep = level * MAX_NESTING + b"\0"
        assert len(Items(deep).any()) == len(deep)
        with pytest.raises(CborError, match=f"items nest more than {MAX_NESTING} deep"):
            Items(level + deep).any()

    def test_long_keys_are_compared_to_their_ends(self):
        one, other = text("x" * 500 + "a"), text("x" * 500 + "b")
        assert Items(b"\xa2" + one + b"\0" + other + b"\0").any()
        with pytest.raises(CborError):
            Items(b"\xa2" + other + b"\0" + one + b"\0").any()
