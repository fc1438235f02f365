"""``python -m tests.bench``: what a call through the shim costs, beside nginx and a naive proxy, in one run."""
