"""Attacks on contrasent from outside: damaged indexes, forged files, bombs, kills.

    python -m benchmarks.attack [--only CASE] [--count N] [--seconds N] [--json FILE] [--list]

Each case makes hostile input, gives it to commands that run in processes of their own, and counts
what failed: a traceback, a crash, a hang, an escape sequence in the output, too much memory, or a
wrong answer. A table is printed, and the same as JSON with ``--json``. It ends with 1 on a failure.
"""
