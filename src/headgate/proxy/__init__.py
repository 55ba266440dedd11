"""The prefetch proxy: a CONNECT proxy that asks an origin for its traffic advice before it opens a tunnel there.

What a CONNECT names is read (`authority`), held against the operator's rules (`hosts`), resolved once (`resolving`,
`lookup`), every address of it held against the table of what is nobody's business of a stranger (`prefixes`,
`addresses`), and then one of those very addresses is dialled (`dialling`). Whatever says no says so in one way
(`refusal`).
"""

__all__: list[str] = []
