"""Exports: the ledger's records as CSV or Parquet, as FOCUS-shaped rows, as OpenTelemetry metrics.

Each module is one format. Records are streamed in order of time, so a ledger of any size goes through; sums come from
the query layer. An unknown number is an empty cell, a null or a point that is not there, and never a zero.
"""
