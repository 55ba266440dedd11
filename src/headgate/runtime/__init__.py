"""Server processes, built from configuration: event loop, listeners, workers, reload and drain.

Nothing here knows the command line.
"""
