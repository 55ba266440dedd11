"""The gate's traffic advice: served by each process, computed by one loop for all.

`worker` is the part of each process: it serves the document, counts, and reports. `supervisor` has the loop of several
workers; a single process has its own. `messages` go between the two. `loop` decides; `persistent_loop` is a loop that
saves its state in a `state_file`. `entries` reads the configuration, `change_log` writes the lines of the log.
"""
