"""Whether a call is metered. Pure; every reason not to is a word that is counted and shown, and the call goes on.

The runtime is the URL's, else ``VM_USAGE_RUNTIME``'s. A User-Agent of a self-reporting runtime stops the metering of a
call whatever the URL says: such a runtime keeps its own record, and both together would count twice (CONTRACTS 4).
"""

from __future__ import annotations

from typing import Final

from shim.allowlist import Allowlist
from shim.routes import Place
from shim.wires.paths import CANCEL, wire_of

METERING_OFF: Final = "metering_off"
COUNTING_ENDPOINT: Final = "counting_endpoint"
UNKNOWN_WIRE: Final = "unknown_wire"
UPGRADE: Final = "upgrade"
# A read of a response that no call of ours made in the background, or that was written as its call ended.
UNKNOWN_RESPONSE: Final = "unknown_response"
SELF_REPORTING_AGENT: Final = "self_reporting_agent"
NO_RUNTIME: Final = "no_runtime"
SELF_REPORTING_RUNTIME: Final = "self_reporting_runtime"
NOT_ALLOWLISTED: Final = "not_allowlisted"


def is_poll(method: str, place: Place) -> bool:
    """Whether a request asks for a response that was made before: ``GET /v1/responses/{id}``, or its cancellation."""
    if method == "POST":
        return place.wire == "openai-responses" and CANCEL.fullmatch(place.path) is not None
    return method == "GET" and wire_of(place.path, method) is not None


def refusal(
    place: Place, method: str, self_reporting: bool, allowlist: Allowlist, *, logging: bool, upgrade: bool = False
) -> str | None:
    """Why a call is not metered, ``None`` where it is.

    ``self_reporting``: whether the User-Agent is a self-reporting runtime's. ``logging``: whether there is a log.
    """
    if place.counting:
        return COUNTING_ENDPOINT
    if upgrade:
        return UPGRADE
    if place.wire is None or (method != "POST" and not is_poll(method, place)):
        return UNKNOWN_WIRE
    if not logging:
        return METERING_OFF
    if self_reporting:
        return SELF_REPORTING_AGENT
    if place.runtime is None:
        return NO_RUNTIME
    if place.runtime in allowlist.self_reporting:
        return SELF_REPORTING_RUNTIME
    if not allowlist.allows(place.runtime):
        return NOT_ALLOWLISTED
    return None
