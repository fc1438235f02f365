"""One module per command of ``usage-collector``; each holds a click command called ``command``."""
