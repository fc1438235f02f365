"""The review of per-VM usage logs on their own, without ledger, stores or network.

``suspicion`` is the table of strings that have no place in a line, ``review`` reads logs into an ``Audit``, ``show``
prints it. Findings (schema faults, gaps, duplicates, unknown keys, suspicious strings) make the exit status 1;
restarts and interrupted calls are facts.
"""
