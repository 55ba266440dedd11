import pytest

from headgate.agent.sharing.mirror import Mirror
from headgate.agent.sharing.rows import BUCKET, BUDGET, OPT_OUT, TARGET, News, Position, Row
from headgate.release import ASAP
from headgate.throttle import Policy

NOW = 1_763_683_200.0
ORIGIN = "http://www.example.com"
X = ORIGIN + "/x"
SPENT = (10, ASAP, ASAP, ASAP)


def mirror(**settings):
    return Mirror(Policy(jitter_factor=0), draw=lambda: 0.0, **settings)


def fail(throttle, url=X, headers=(), status=503):
    throttle.response_received(url, status, headers, now=NOW)


def changed(throttle, *operations):
    """Give what operations changed: kinds cleared, keys gone, rows by key."""
    with throttle.recording():
        for operation in operations:
            operation()
    changes = throttle.changes()
    return changes.cleared, changes.gone, dict(changes.rows)


def news(rows=(), gone=(), *, is_whole=False):
    return News(Position("", 1), is_whole=is_whole, gone=list(gone), rows=list(rows), is_cut=False)


class TestChanges:
    def test_a_failure_is_a_row(self):
        throttle = mirror()
        assert changed(throttle, lambda: fail(throttle)) == (set(), [], {(TARGET, X): (1, NOW, ASAP, ASAP)})

    def test_several_operations_are_told_at_once(self):
        throttle = mirror()
        _, _, rows = changed(throttle, lambda: fail(throttle), lambda: fail(throttle), lambda: fail(throttle))
        assert rows == {(TARGET, X): (3, pytest.approx(NOW + 0.98), ASAP, ASAP)}

    def test_what_was_touched_and_is_the_same_is_none(self):
        throttle = mirror()
        fail(throttle)
        assert changed(throttle, lambda: fail(throttle, headers={"Retry-After": "soon"}, status=502)) == (set(), [], {})

    def test_what_came_and_went_is_none(self):
        throttle = mirror()
        assert changed(throttle, lambda: fail(throttle), throttle.reset)[1:] == ([], {})

    def test_what_recovers_is_gone(self):
        throttle = mirror()
        fail(throttle)
        fail(throttle, status=200)
        assert changed(throttle, lambda: fail(throttle, status=200)) == (set(), [(TARGET, X)], {})

    def test_opting_out_and_buckets_and_budgets(self):
        throttle = mirror(retry_budget=2)
        fail(throttle)
        found = changed(
            throttle,
            lambda: fail(throttle, headers={"DDoS-Bucket-With": "/", "Exponential-Throttling": "disable"}),
            lambda: throttle.spend_retry(X),
        )
        rows = {
            (OPT_OUT, "www.example.com"): (0, ASAP, ASAP, ASAP),
            (BUCKET, ORIGIN + "/"): (1, NOW, ASAP, ASAP),
            (BUDGET, ORIGIN): SPENT,
        }
        assert found == (set(), [(TARGET, X)], rows)

    def test_a_reset_keeps_the_opt_outs(self):
        throttle = mirror(retry_budget=2)
        assert changed(throttle, throttle.reset) == ({TARGET, BUCKET, BUDGET}, [], {})

    def test_what_is_not_recorded_is_not_told(self):
        throttle = mirror()
        assert changed(throttle) == (set(), [], {})
        with pytest.raises(KeyError), throttle.recording():
            raise KeyError
        fail(throttle)
        assert throttle.changes().rows == []


class TestTakingIn:
    def test_rows_of_every_kind(self):
        throttle = mirror(retry_budget=2)
        rows = [
            Row((TARGET, X), (4, NOW + 9, ASAP, ASAP)),
            Row((BUCKET, ORIGIN + "/b"), (1, NOW, NOW + 7, ASAP)),
            Row((OPT_OUT, "other.example"), (0, ASAP, ASAP, ASAP)),
            Row((BUDGET, ORIGIN), SPENT),
        ]
        assert throttle.take_in(news(rows))
        assert throttle.release_time(X, now=NOW) == NOW + 9
        assert throttle.release_time(ORIGIN + "/b/c", now=NOW) == NOW + 7
        assert throttle.explain("http://other.example/", now=NOW).reason == "opted out"
        assert throttle.retries_left(X) == 1
        assert throttle.take_in(news(gone=[row.key for row in rows] * 2))
        assert (len(throttle), throttle.retries_left(X)) == (0, 2)
        assert throttle.explain("http://other.example/", now=NOW).reason == "free"

    def test_what_is_whole_leaves_nothing_else(self):
        throttle = mirror(retry_budget=2)
        fail(throttle, headers={"Exponential-Throttling": "disable", "Retry-After": "5"})
        throttle.spend_retry(X)
        throttle.take_in(news(is_whole=True))
        assert (len(throttle), throttle.retries_left(X)) == (0, 2)
        assert throttle.explain(X, now=NOW).reason == "free"

    def test_a_budget_is_nothing_to_one_without(self):
        throttle = mirror()
        assert throttle.take_in(news([Row((BUDGET, ORIGIN), SPENT)], gone=[(BUDGET, ORIGIN)]))
        assert throttle._values((BUDGET, ORIGIN)) is None

    @pytest.mark.parametrize("kind", [TARGET, BUCKET, OPT_OUT, BUDGET])
    def test_more_than_there_may_be(self, kind):
        throttle = mirror(max_targets=2, max_opt_outs=2, retry_budget=2)
        names = [f"http://{number}.example" for number in range(3)]
        end = {TARGET: "/", BUCKET: "/", OPT_OUT: "", BUDGET: ""}[kind]
        values = (0, ASAP, ASAP, ASAP)
        assert throttle.take_in(news([Row((kind, name + end), values) for name in names[:2]]))
        assert not throttle.take_in(news([Row((kind, names[2] + end), values)]))


class TestNames:
    def test_a_long_path_is_cut_once(self, monkeypatch):
        throttle = mirror()
        long = X + "l" * 5_000
        fail(throttle, long)
        fail(throttle, long)
        monkeypatch.setattr("headgate.agent.sharing.rows.sha256", lambda _: pytest.fail("hashed"))
        assert throttle.explain(long, now=NOW).failures == 2
        assert len(throttle.explain(long, now=NOW).target) < 1_324

    def test_a_host_that_can_be_none_is_not_held(self):
        throttle, url = mirror(), f"http://{'h' * 400}/"
        for _ in range(9):
            fail(throttle, url)
        assert throttle.release_time(url, now=NOW) == ASAP
        assert throttle.explain(url, now=NOW).reason == "no target"

    @pytest.mark.parametrize(("length", "size"), [(900, 1), (901, 2)])
    def test_a_long_bucket_is_not_declared(self, length, size):
        throttle, bucket = mirror(), "/" + "b" * (length - 1)
        fail(throttle, ORIGIN + bucket + "/1", {"DDoS-Bucket-With": bucket})
        fail(throttle, ORIGIN + bucket + "/2", {"DDoS-Bucket-With": bucket})
        assert len(throttle) == size


class TestConcern:
    @pytest.mark.parametrize(
        ("url", "status", "headers"),
        [
            (X, 200, {}),
            (X, 502, {"Date": "now"}),
            ("ftp://a/", 503, {}),
            ("http://localhost/", 503, {}),
            ("http://127.0.0.1/", 200, {"Retry-After": "9"}),
        ],
    )
    @pytest.mark.parametrize("is_healthy", [True, False])
    def test_none(self, url, status, headers, is_healthy):
        throttle = mirror()
        if not is_healthy:
            fail(throttle, ORIGIN + "/y")
        assert throttle._concerned(url, status, throttle._words(headers), now=NOW) is None

    @pytest.mark.parametrize(
        ("status", "headers"), [(503, {}), (404, {"Retry-After": "9"}), (502, {"DDoS-Bucket-With": "/"})]
    )
    def test_some(self, status, headers):
        throttle = mirror()
        assert throttle._concerned(X, status, throttle._words(headers), now=NOW).name == X

    def test_a_success_where_something_is_kept(self):
        throttle = mirror(retry_budget=1)
        fail(throttle)
        assert throttle._concerned(X, 200, None, now=NOW).name == X
        assert throttle._concerned(X, 502, None, now=NOW) is None
        assert throttle._concerned(X, 200, None, now=NOW + 901) is None
        throttle.spend_retry(X)
        assert throttle._concerned(ORIGIN + "/y", 200, None, now=NOW).origin == ORIGIN

    def test_clearing_concerns_what_backs_off(self):
        throttle = mirror()
        fail(throttle)
        fail(throttle, headers={"Retry-After": "50"})
        assert not throttle._is_backing_off(X, now=NOW)
        fail(throttle)
        assert throttle._is_backing_off(X, now=NOW)
        assert not throttle._is_backing_off("http://other.example/", now=NOW)
        assert not throttle._is_backing_off("nonsense", now=NOW)
        assert not throttle._is_backing_off(X, now=NOW + 1)
