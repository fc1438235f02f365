"""The hub: gathers the records of many VMs in one ledger and answers as the collector of one VM does.

``batch`` is what travels, ``accept`` what of it is taken, ``tokens`` who may send, ``fleet`` what a store of many VMs
must be able to do (``collector.ledger.sqlite_fleet`` and ``.clickhouse`` are), ``writer`` the one thread that commits,
``limits`` how much is too much, ``server`` the HTTP side, ``trends`` which VMs went quiet or grew.
"""
