"""Hours of mixed calls and random damage, and a balance at the end: ``python -m tests.soak --minutes 60``."""
