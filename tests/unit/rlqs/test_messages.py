import pytest

from headgate.errors import WireError
from headgate.rlqs import messages
from tests.unit.rlqs.envoys import decode_reports

# As Envoy 1.40 sent it: three buckets after five seconds, one with a value that is not UTF-8.
REPORT = bytes.fromhex(
    "0a0361706912180a120a100a0a6964656e746966696572120261321202080412180a120a100a0a6964656e74696669657212026131"
    "1202080412180a120a100a0a6964656e7469666965721202fffe12020804"
)
FIRST = bytes.fromhex("0a0361706912180a120a100a0a6964656e7469666965721202613112001801")


def test_a_report_of_envoy():
    reports = decode_reports(REPORT)
    assert reports.domain == b"api"
    usages = [messages.decode_usage(one) for one in reports.usages]
    assert [messages.decode_bucket(usage.bucket_id) for usage in usages] == [
        ((b"identifier", value),) for value in (b"a2", b"a1", b"\xff\xfe")
    ]
    assert [(usage.elapsed, usage.allowed, usage.denied) for usage in usages] == [(4.0, 0, 0)] * 3


def test_the_first_report_of_a_bucket():
    (usage,) = map(messages.decode_usage, decode_reports(FIRST).usages)
    assert usage == (bytes.fromhex("0a100a0a6964656e7469666965721202") + b"a1", 0.0, 1, 0)


def test_unknown_fields_are_skipped():
    unknown = bytes.fromhex("28013101020304050607083d010203044203616263")
    (usage,) = decode_reports(FIRST + unknown).usages
    assert messages.decode_usage(usage + unknown) == messages.decode_usage(usage)


@pytest.mark.parametrize(
    "data",
    [
        *(b"\x0a", b"\x0a\x05abc", b"\x18\xff", b"\x18" + b"\xff" * 10 + b"\x01"),
        *(b"\x00\x01", b"\x0b", b"\x31\x01", b"\x3d\x01"),
        b"\x0a\x81\x08" + b"x" * 1_025,  # the domain
    ],
)
def test_a_malformed_message(data):
    with pytest.raises(WireError):
        decode_reports(data)


def test_a_report_of_a_bucket_that_is_too_large():
    with pytest.raises(WireError, match="at most 8192 bytes, got 8194"):
        messages.decode_usage(b"\x18\x01" * 4_097)


def test_a_bucket_without_keys_and_one_with_too_many():
    assert messages.decode_bucket(b"\x12\x03\x0a\x01x\x0a\x03\x0a\x01a") == ((b"a", b""),)  # an unknown field
    with pytest.raises(WireError, match="1 to 16 keys, got 0"):
        messages.decode_bucket(b"")
    with pytest.raises(WireError, match="1 to 16 keys, got 17"):
        messages.decode_bucket(b"".join(b"\x0a\x03\x0a\x01%c" % key for key in range(40)))


def test_actions():
    bucket = b"\x0a\x02\x0a\x00"
    assert messages.assign(bucket, 300, messages.DENY_ALL).hex() == "0a110a040a020a001209120308ac021a020801"
    assert messages.assign(bucket, 10, messages.ALLOW_ALL).hex() == "0a100a040a020a0012081202080a1a020800"
    assert messages.abandon(bucket).hex() == "0a080a040a020a001a00"
    filled = messages.token_bucket(29, 290_000, 1_000)
    assert messages.assign(bucket, 10, filled).hex() == "0a1d0a040a020a0012151202080a1a0f1a0d081d120408d0d9111a0308e807"
