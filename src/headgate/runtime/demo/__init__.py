"""The demonstration, `headgate demo`: an origin of fixed capacity, the gate, people and agents, each a real process.

From the top: `show` runs the phases; `site` has the processes, and `children` starts and stops them. `load` sends the
requests of people and agents (`agents`) over `connections`; `origin` answers them. `measure` and `plan` are data.
`guarded` is a `headgate` that ends with the demonstration.
"""
