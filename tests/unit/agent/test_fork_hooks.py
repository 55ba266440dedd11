import subprocess
import sys

from headgate.agent.fork_hooks import FORK_HOOKS

SCRIPT = """
import os, signal, sys
from headgate.agent.fork_hooks import FORK_HOOKS

class Watcher:
    def __init__(self):
        self.said = []
    def before(self):
        self.said.append("before")
    def after(self, is_child):
        self.said.append("child" if is_child else "parent")

one, two = Watcher(), Watcher()
for each in (one, two):
    FORK_HOOKS.register(each, Watcher.before, Watcher.after)
del two
child = os.fork()
if not child:
    signal.alarm(20)
    FORK_HOOKS.register(Watcher(), Watcher.before, Watcher.after)
    os._exit(0 if one.said == ["before", "child"] else 1)
assert one.said == ["before", "parent"], one.said
FORK_HOOKS.register(Watcher(), Watcher.before, Watcher.after)
sys.exit(os.waitpid(child, 0)[1])
"""


def test_hooks_run_in_parent_and_child():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


class Watcher:
    def __init__(self):
        self.said = []

    def before(self):
        self.said.append("before")

    def after(self, is_child):
        self.said.append(is_child)


def test_hooks_run_in_the_child_of_a_fork_outside_python():
    watcher = Watcher()
    FORK_HOOKS.register(watcher, Watcher.before, Watcher.after)
    FORK_HOOKS.after(is_child=True)
    FORK_HOOKS.before()
    FORK_HOOKS.after(is_child=False)
    assert watcher.said == [True, "before", False]


def test_newer_objects_are_called_first():
    said, watchers = [], [Watcher(), Watcher()]
    for watcher in watchers:
        FORK_HOOKS.register(watcher, said.append, lambda _watcher, _is_child: None)
    FORK_HOOKS.before()
    FORK_HOOKS.after(is_child=False)
    assert [watcher for watcher in said if watcher in watchers] == watchers[::-1]


def test_collected_objects_are_not_called():
    watcher = Watcher()
    said = watcher.said
    FORK_HOOKS.register(watcher, Watcher.before, Watcher.after)
    del watcher
    FORK_HOOKS.before()
    FORK_HOOKS.after(is_child=False)
    assert said == []
