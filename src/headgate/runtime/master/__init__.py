"""`headgate master` as a server process: its life-cycle, its state and its reports."""
