"""Fuzzing of the wire readers, outside the gate: ``python -m tests.fuzz --help``."""
