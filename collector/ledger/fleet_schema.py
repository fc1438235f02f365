"""Tables that a fleet needs beside the ledger's: a hub's tokens, VMs and refusals, and what a hub refused of a VM.

The hub's tables are the same in SQLite and ClickHouse; both engines make them of these columns.
"""

from __future__ import annotations

from typing import Final

from collector.ledger.schema import Table

TOKEN: Final = Table(
    "hub_token",
    "Tokens of VMs: the hash of each, and the names (JSON) as which its holder may write. Times in epoch s.",
    "id name, hash unique, vm text!, names text!, created int!, expires int, revoked int",
)
VM: Final = Table(
    "hub_vm",
    "What a VM said of itself when it last pushed: its ledger (born, epoch ms) and how far its journal is here, clock "
    "skew and delay, version, and facts (JSON: gaps, refusals). first and last contact in epoch ms.",
    "vm name, born int!, cursor int!, first int!, last int!, skew int, version text, waiting int!, facts text!",
)
REFUSED: Final = Table(
    "hub_refused",
    "Records that the hub did not take, and why.",
    "vm text!, id text!, reason text!, at int!",
    key="vm, id, reason",
)
HUB_TABLES: Final = (TOKEN, VM, REFUSED)

PUSH_REFUSED: Final = Table(
    "push_refused",
    "On a VM: which of its records a hub refused, and why.",
    "id name, reason text!, at int!",
)
