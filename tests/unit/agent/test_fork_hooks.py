from headgate.agent.fork_hooks import FORK_HOOKS


class Watcher:
    def __init__(self):
        self.said = []

    def before_fork(self):
        self.said.append("before")

    def after_fork(self, *, is_child):
        self.said.append(is_child)


def test_hooks_run_in_the_child_of_a_fork_outside_python():
    watcher = Watcher()
    FORK_HOOKS.register(watcher)
    FORK_HOOKS.after(is_child=True)
    FORK_HOOKS.before()
    FORK_HOOKS.after(is_child=False)
    assert watcher.said == [True, "before", False]


def test_newer_objects_are_called_first():
    said, watchers = [], [Watcher(), Watcher()]
    for number, watcher in enumerate(watchers):
        watcher.before_fork = lambda number=number: said.append(number)
        FORK_HOOKS.register(watcher)
    FORK_HOOKS.before()
    FORK_HOOKS.after(is_child=False)
    assert said == [1, 0]


def test_collected_objects_are_not_called():
    watcher = Watcher()
    said = watcher.said
    FORK_HOOKS.register(watcher)
    del watcher
    FORK_HOOKS.before()
    FORK_HOOKS.after(is_child=False)
    assert said == []
