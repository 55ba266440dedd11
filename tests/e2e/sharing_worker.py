"""One of several processes with a throttle on one file; does what the lines on its standard input say, one at a time.

`ask URL TIMES` sends requests through a courtesy, and answers how many were sent and how many held. `fail URL TIMES`
tells the throttle of so many failures; `failures URL` answers with the count that it knows of. Before and after each,
what the processes know is exchanged.
"""

import sys
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from headgate.agent import Courtesy, SharedThrottle
from headgate.agent import shared_file as file
from headgate.agent.urllib import Handler, Held
from headgate.throttle import Policy

NOW = 1_763_683_200.0
TIMEOUT = 20.0
POLICY = Policy(initial_backoff=300.0)  # the first hold outlasts any test


def ask(throttle: SharedThrottle, url: str, times: int) -> tuple[int, ...]:
    opener = build_opener(ProxyHandler({}), Handler(Courtesy(throttle=throttle)))
    sent = held = 0
    for _ in range(times):
        try:
            opener.open(url, timeout=20).close()
        except HTTPError as error:
            error.close()
            sent += 1
        except Held:
            held += 1
    return sent, held


def fail(throttle: SharedThrottle, url: str, times: int) -> tuple[int, ...]:
    for _ in range(times):
        throttle.response_received(url, 503, {}, now=NOW)
    return (times,)


def failures(throttle: SharedThrottle, url: str, _: int) -> tuple[int, ...]:
    return (throttle.explain(url, now=NOW).failures,)


VERBS = {"ask": ask, "fail": fail, "failures": failures}


def main(path: str) -> None:
    file._BUSY_TIMEOUT = TIMEOUT  # type: ignore[misc]  # however slow the machine is
    with SharedThrottle(path, POLICY, hold_localhost=True) as throttle:
        print("ready", flush=True)
        for line in sys.stdin:
            verb, url, times = line.split()
            throttle.synchronize(TIMEOUT)
            answer = VERBS[verb](throttle, url, int(times))
            throttle.synchronize(TIMEOUT)
            print(*answer, throttle.trouble or "fine", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
