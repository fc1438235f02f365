"""usage-shim: a loopback proxy that forwards LLM calls untouched and writes one content-free line per call."""

__version__ = "0.1.0"
