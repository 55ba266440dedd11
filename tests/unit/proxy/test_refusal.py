"""The table of refusals, compared with the vectors."""

import json
import math
from pathlib import Path
from typing import get_args

import pytest

from headgate.proxy.refusal import REFUSALS, SPECIFIC_ERRORS, ProxyErrorType, Refusal, RefusalReason, RetryAfter

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "proxy" / "refusals.json").read_text())["cases"]

MEANT: dict[str, list[Refusal]] = {
    "advice disallows, fraction not drawn, advice unreachable, address or port or host forbidden": [
        Refusal("advice_disallowed"),
        Refusal("advice_fraction"),
        Refusal("advice_unreachable"),
        Refusal("address"),
        Refusal("port"),
        Refusal("host"),
    ],
    "name does not resolve, connection refused": [
        Refusal("name"),
        Refusal("dial_refused"),
        Refusal("dial_refused", error_type="destination_ip_unroutable"),
    ],
    "connect timeout": [Refusal("dial_timeout"), Refusal("name", error_type="dns_timeout")],
    "token bad, expired, replayed, foreign": [
        Refusal("token_missing"),
        Refusal("token_invalid"),
        Refusal("token_expired"),
        Refusal("token_replayed"),
    ],
    "the client's own rate": [
        Refusal("client_rate", retry_after=1.2),
        Refusal("client_tunnels"),
        Refusal("client_connections"),
    ],
    "--max-tunnels reached": [
        Refusal("tunnels", retry_after=0.0),
        Refusal("connections"),
        Refusal("tokens"),
        Refusal("internal"),
    ],
    "draining": [Refusal("draining", retry_after=29.5)],
    "authority or header section malformed": [Refusal("malformed")],
    "not CONNECT": [Refusal("method")],
}

# RFC 9209, section 2.3: the registered types that are used here.
REGISTERED = {
    "dns_timeout", "dns_error", "destination_unavailable", "destination_ip_prohibited", "destination_ip_unroutable",
    "connection_refused", "connection_timeout", "connection_limit_reached", "http_request_error", "http_request_denied",
    "proxy_internal_error",
}  # fmt: skip


@pytest.mark.parametrize("case", VECTORS, ids=lambda case: case["when"])
def test_every_row_of_the_vectors(case: dict[str, str | int]) -> None:
    for refusal in MEANT[str(case["when"])]:
        told = refusal.refused
        assert told.status == case["status"]
        fields = dict(told.fields)
        expected = str(case.get("retry_after", ""))
        if expected in {"", "0"}:
            assert fields.get("retry-after", "") == expected
        else:
            assert int(fields["retry-after"]) >= 1


def test_every_reason_has_a_vector() -> None:
    assert {refusal.reason for refusals in MEANT.values() for refusal in refusals} == set(get_args(RefusalReason))
    assert set(REFUSALS) == set(get_args(RefusalReason))
    assert set(SPECIFIC_ERRORS) == set(get_args(ProxyErrorType))
    assert {answer.error for answer in (*REFUSALS.values(), *SPECIFIC_ERRORS.values())} == REGISTERED


@pytest.mark.parametrize("reason", get_args(RefusalReason))
def test_proxy_status_has_the_reason(reason: RefusalReason) -> None:
    told = Refusal(reason, 'a "clause" of the log\r\n').refused
    assert told.reason == reason
    fields = dict(told.fields)
    assert len(fields) == len(told.fields)
    assert fields["proxy-status"] == f'headgate; error={REFUSALS[reason].error}; details="{reason}"'
    assert all(name == name.lower() for name in fields)
    assert "clause" not in str(told)


def test_407_and_405_have_their_required_fields() -> None:
    assert dict(Refusal("method").fields)["allow"] == "CONNECT"
    # 6750 3.1: no error code where there was no token.
    assert dict(Refusal("token_missing").fields)["proxy-authenticate"] == 'Bearer realm="headgate"'
    for reason in ("token_invalid", "token_expired", "token_replayed"):
        challenge = dict(Refusal(reason).fields)["proxy-authenticate"]
        assert challenge == 'Bearer realm="headgate", error="invalid_token"'


@pytest.mark.parametrize(
    ("pause", "seconds"),
    [(0.0, 1), (-3.0, 1), (0.1, 1), (1.0, 1), (1.01, 2), (29.5, 30), (math.inf, 999_999_999_999_999)],
)
def test_retry_after_is_rounded_up(pause: float, seconds: int) -> None:
    for reason, answer in REFUSALS.items():
        if answer.retry is RetryAfter.LATER:
            assert Refusal(reason, retry_after=pause).retry_after == seconds
            assert Refusal(reason).retry_after == 5
        else:
            assert Refusal(reason, retry_after=pause).retry_after == Refusal(reason).retry_after


def test_a_refusal_as_text() -> None:
    assert str(Refusal("port")) == "port"
    assert str(Refusal("port", "port 80 is not open")) == "port: port 80 is not open"
