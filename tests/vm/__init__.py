"""A whole Debian 12 that boots, and everything a fleet would do to it."""
