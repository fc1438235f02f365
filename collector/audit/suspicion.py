"""Strings that could carry content, a credential or a path, and have no place in a usage line.

Every string of our own lines is a closed vocabulary, a checked name or a keyed reference; so anything below is a sign
of another writer, a wrong model name or a leak. The rules err on the side of asking a person.
"""

from __future__ import annotations

import re
from typing import Any, Final

from shim.line import KEYS, OUTCOMES, SERVICE_TIERS, SESSION_SOURCES, USAGE_STATES, WIRES

RULES: Final = (
    ("credential", re.compile(r"(?i)\b(sk|pk|rk|key|token|xox[abps]|gh[pousr]|glpat|akia|asia|aiza)[-_][\w-]{8,}")),
    ("cloud key", re.compile(r"\b(AKIA|ASIA)[A-Z0-9]{12,}|\bAIza[\w-]{30,}")),
    ("jwt", re.compile(r"\beyJ[\w-]{10,}")),
    ("e-mail", re.compile(r"[\w.+-]+@[\w-]+\.[a-z]{2,}", re.I)),
    ("url", re.compile(r"[a-z][a-z0-9+.-]*://", re.I)),
    ("path", re.compile(r"(^|[\s=:])(/|~/|[A-Za-z]:\\)(home|Users|root|etc|var|tmp|srv|mnt|opt|work)\b")),
    ("ip address", re.compile(r"\b\d{1,3}(\.\d{1,3}){3}\b")),
    ("words", re.compile(r"[A-Za-z]{2,}\s+[A-Za-z]{2,}")),
    ("long token", re.compile(r"[A-Za-z0-9_=-]{65,}")),
)  # fmt: skip
# Strings of a closed vocabulary: a stranger there is not a fault of the schema (a later release may write it), yet
# worth a look.
VOCABULARIES: Final = {
    "wire": frozenset(WIRES),
    "session_source": frozenset(SESSION_SOURCES),
    "usage": frozenset(USAGE_STATES),
    "outcome": frozenset(OUTCOMES),
    "service_tier": frozenset(SERVICE_TIERS),
}
# A VM's own name may be an address or a long host name: the operator chose it.
UNSUSPECTED: Final = frozenset({"id", "vm"})
KNOWN: Final = frozenset(KEYS)
# What ``shim.identity.reference`` makes: nothing can be read in it, and it is new in nearly every line.
REFERENCE: Final = re.compile(r"[a-z2-7]{24}")
REFERENCES: Final = frozenset({"session", "response"})


class Suspicion:
    """Judges lines; what was judged clean once is remembered (bounded), because most strings repeat."""

    def __init__(self, remembered: int = 100_000) -> None:
        self._clean: set[tuple[str, str]] = set()
        self._remembered = remembered

    def of(self, value: dict[str, Any]) -> list[tuple[str, str]]:
        """``(key, rule)`` of every suspicious string in the JSON object of a line, known keys or not."""
        found: list[tuple[str, str]] = []
        clean = self._clean
        for key, text in value.items():
            if isinstance(text, str):
                if key in UNSUSPECTED or (key, text) in clean:
                    continue
                if key in REFERENCES and REFERENCE.fullmatch(text):
                    continue
                rule = suspect(key, text)
                if rule is not None:
                    found.append((key, rule))
                elif len(clean) < self._remembered:
                    clean.add((key, text))
            elif text.__class__ in (dict, list):
                found.append((key, "nested value"))
        return found


def suspect(key: str, text: str) -> str | None:
    """The rule that one string breaks, ``None`` for a clean one."""
    if key in VOCABULARIES:
        return None if text in VOCABULARIES[key] else "not in the vocabulary"
    return next((name for name, pattern in RULES if pattern.search(text)), None)
