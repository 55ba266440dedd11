"""A throttle's store in a SQLite file that several processes share: its schema, its rows, and the thread that uses it.

`store` is what a throttle is given; `file` reads and writes the rows; `database` opens the file and says what is wrong
with it; `fork_hooks` is for whatever must not be open while a process is forked.
"""

__all__: list[str] = []
