"""usage-collector: merges usage lines and what runtimes report themselves into one honest ledger."""
