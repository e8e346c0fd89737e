"""The keeper: one small process per user and TETHER_HOME that owns processes, so that they outlive their starters.

Everything in here runs on the standard library alone. `keeper` is the process itself, `client` how others use it.
"""
