"""What a courtesy is made of, and what is refused."""

import re
import subprocess
import sys
import threading

import pytest

from headgate.agent import Courtesy, NoContact
from headgate.errors import ConfigurationError
from headgate.throttle import Policy, Throttle

URL = "https://example.com/path"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_delay": -1}, "max_delay must be a non-negative number of seconds, got -1"),
        ({"max_delay": float("nan")}, "max_delay must be a non-negative number of seconds, got nan"),
        ({"retry": -1}, "retry must be a non-negative number of retries, got -1"),
        ({"retry": 1.5}, "retry must be a non-negative number of retries, got 1.5"),
        ({"retry": True}, "retry must be a non-negative number of retries, got True"),
        ({"identity": "ExampleBot,*"}, "must be one name or a list of names"),
        ({"identity": ["*"]}, "['*'] must be a brand name, other names if any, and '*' at the end"),
        ({"identity": []}, "[] must be a brand name"),
        ({"policy": Policy.chromium(), "throttle": Throttle()}, "policy: the throttle has one of its own"),
    ],
)
def test_what_cannot_be_meant_is_refused(options, said):
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        Courtesy(**options)


def test_the_policy_is_the_throttle_s():
    assert Courtesy(policy=Policy.chromium()).throttle.policy == Policy.chromium()
    chromium = Throttle(Policy.chromium())
    assert Courtesy(throttle=chromium).throttle is chromium
    assert Courtesy(throttle=chromium, policy=Policy.chromium()).throttle is chromium


def test_only_an_agent_with_an_identity_asks_for_advice():
    assert Courtesy().advice is None
    assert Courtesy(identity=["ExampleBot", "*"]).advice is not None
    assert Courtesy("ExampleBot").advice is not None


def failing(courtesy: Courtesy, times: int, url: str = URL) -> None:
    for _ in range(times):
        passage = courtesy.passage("GET", url)
        assert passage.wait() is None
        assert passage.received(503, {})


def test_interactive_holds_for_what_is_begun_inside_and_in_this_thread_alone():
    courtesy = Courtesy(clock=lambda: 1000.0)
    failing(courtesy, 3)
    held: list[bool] = []

    def elsewhere() -> None:
        try:
            courtesy.passage("GET", URL).wait()
        except NoContact:
            held.append(True)

    with courtesy.interactive():
        assert courtesy.passage("GET", URL).wait() is None
        other = threading.Thread(target=elsewhere)
        other.start()
        other.join(10)
    assert held == [True]
    with pytest.raises(NoContact):
        courtesy.passage("GET", URL).wait()


def test_a_user_gesture_and_another_network_free_what_was_held():
    now = [1000.0]
    courtesy = Courtesy(clock=lambda: now[0], throttle=Throttle(draw=lambda: 0.0))
    with courtesy.interactive():
        failing(courtesy, 8)
    assert courtesy.explain(URL).reason == "backoff"
    courtesy.user_gesture()
    assert courtesy.passage("GET", URL).wait() is None
    now[0] = 1003.5
    with pytest.raises(NoContact):
        courtesy.passage("GET", URL).wait()
    courtesy.network_changed()
    assert courtesy.passage("GET", URL).wait() is None


def test_a_body_that_proves_broken_counts():
    courtesy = Courtesy(clock=lambda: 1000.0)
    for _ in range(3):
        passage = courtesy.passage("GET", URL)
        passage.wait()
        passage.received(200, {})
        courtesy.malformed_body(URL, 200)
    with pytest.raises(NoContact):
        courtesy.passage("GET", URL).wait()


def test_many_threads_share_a_courtesy_and_no_failure_is_lost():
    courtesy = Courtesy(clock=lambda: 1000.0, throttle=Throttle(Policy(num_errors_to_ignore=1000)))
    threads = [threading.Thread(target=failing, args=(courtesy, 50)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert courtesy.explain(URL).failures == 400


FORKING = """
import os, signal, sys, threading
from headgate.agent import Courtesy

courtesy, stop = Courtesy(["ExampleBot", "*"]), threading.Event()


def ask():
    while not stop.is_set():
        courtesy.explain("https://example.com/")
        courtesy.advice.known("https://example.com", now=0.0)


asking = [threading.Thread(target=ask) for _ in range(4)]
for thread in asking:
    thread.start()
codes = []
for _ in range(8):
    child = os.fork()
    if not child:
        signal.alarm(20)
        courtesy.explain("https://example.com/")
        courtesy.advice.known("https://example.com", now=0.0)
        os._exit(0)
    codes.append(os.waitpid(child, 0)[1])
    if codes[-1]:
        break
stop.set()
for thread in asking:
    thread.join()
sys.exit(any(codes))
"""


def test_a_child_that_is_forked_while_others_ask_is_not_left_with_their_locks():
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKING]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_child_that_nobody_announced_goes_on():
    courtesy = Courtesy(["ExampleBot", "*"])
    courtesy._resume(is_child=True)
    assert courtesy.explain("https://example.com/").reason == "free"
