"""Runs a candidate on a task in a hardened child process that never holds a measurement.

    host    owns the measurements, answers rows with costs over a socket (`pool`, `serving`)
    zygote  a clean ``exec``: libraries and spaces, no measurements, no secrets (`zygote`)
    child   one fork a run: hardened, then handed the candidate (`hardening`, `child`)

Nothing is imported here: the zygote, which lives in this package too, never loads the host's half.
"""
