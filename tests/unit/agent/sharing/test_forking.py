import subprocess
import sys

from headgate.agent.sharing.forking import FORKS

SCRIPT = """
import os, signal, sys
from headgate.agent.sharing.forking import FORKS

class Watcher:
    def __init__(self):
        self.said = []
    def before(self):
        self.said.append("before")
    def after(self, is_child):
        self.said.append("child" if is_child else "parent")

one, two = Watcher(), Watcher()
for each in (one, two):
    FORKS.tell(each, Watcher.before, Watcher.after)
del two
child = os.fork()
if not child:
    signal.alarm(20)
    FORKS.tell(Watcher(), Watcher.before, Watcher.after)
    os._exit(0 if one.said == ["before", "child"] else 1)
assert one.said == ["before", "parent"], one.said
FORKS.tell(Watcher(), Watcher.before, Watcher.after)
sys.exit(os.waitpid(child, 0)[1])
"""


def test_both_sides_are_told():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


class Watcher:
    def __init__(self):
        self.said = []

    def before(self):
        self.said.append("before")

    def after(self, is_child):
        self.said.append(is_child)


def test_a_child_that_nobody_told_before_is_told_after():
    watcher = Watcher()
    FORKS.tell(watcher, Watcher.before, Watcher.after)
    FORKS.after(is_child=True)
    FORKS.before()
    FORKS.after(is_child=False)
    assert watcher.said == [True, "before", False]


def test_who_may_have_another_in_use_lets_go_before_it():
    said, watchers = [], [Watcher(), Watcher()]
    for watcher in watchers:
        FORKS.tell(watcher, said.append, lambda _watcher, _is_child: None)
    FORKS.before()
    FORKS.after(is_child=False)
    assert [watcher for watcher in said if watcher in watchers] == watchers[::-1]


def test_who_is_gone_is_not_told():
    watcher = Watcher()
    said = watcher.said
    FORKS.tell(watcher, Watcher.before, Watcher.after)
    del watcher
    FORKS.before()
    FORKS.after(is_child=False)
    assert said == []
