"""Send OTLP requests over HTTP and obey the receiver: retry what it says may be retried, report what it rejected.

https://opentelemetry.io/docs/specs/otlp/#otlphttp-response
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import orjson

from collector.export.otlp import protobuf
from shim.names import ConfigError

if TYPE_CHECKING:
    import httpx

RETRYABLE: Final = frozenset({429, 502, 503, 504})
MAX_TRIES: Final = 5
MAX_WAIT_SECONDS: Final = 60.0
PATH: Final = "/v1/metrics"
ENCODINGS: Final = {"protobuf": "application/x-protobuf", "json": "application/json"}


class ExportError(Exception):
    """The receiver did not take the metrics: one sentence for a person."""


def endpoint(given: str | None, environ: Mapping[str, str]) -> str:
    """The URL to send to: as given, else of OpenTelemetry's own variables. Raises ``ConfigError``.

    A signal's own variable is used as it is; a general endpoint gets ``/v1/metrics``.
    """
    if url := environ.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT") if given is None else None:
        return url
    url = given or environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if not url:
        raise ConfigError(
            "No OTLP endpoint is set: give --endpoint http://127.0.0.1:4318 or OTEL_EXPORTER_OTLP_ENDPOINT."
        )
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"{url} is no OTLP endpoint: it must be an http:// or https:// URL.")
    return url if url.endswith(PATH) else url.rstrip("/") + PATH


def headers(environ: Mapping[str, str]) -> dict[str, str]:
    """``OTEL_EXPORTER_OTLP_HEADERS``: name=value pairs with commas between, values percent-encoded."""
    text = environ.get("OTEL_EXPORTER_OTLP_METRICS_HEADERS") or environ.get("OTEL_EXPORTER_OTLP_HEADERS", "")
    pairs = (part.partition("=") for part in text.split(",") if "=" in part)
    return {name.strip().lower(): unquote(value.strip()) for name, _, value in pairs}


def send(
    requests: Iterable[Mapping[str, Any]],
    url: str,
    extra_headers: Mapping[str, str],
    encoding: str = "protobuf",
    wait: Callable[[float], None] = time.sleep,
) -> tuple[int, int]:
    """Send every request in order; how many data points were taken and how many rejected. Raises ``ExportError``."""
    import httpx  # when it is needed: a collector that follows sources does not hold it in memory

    taken = rejected = 0
    with httpx.Client(headers={**extra_headers, "content-type": ENCODINGS[encoding]}, timeout=30.0) as client:
        for request in requests:
            body = protobuf(request) if encoding == "protobuf" else orjson.dumps(request)
            response = _post(client, url, body, wait)
            refused = _rejected(response)
            taken += points(request) - refused
            rejected += refused
    return taken, rejected


def points(request: Mapping[str, Any]) -> int:
    """How many data points a request has."""
    return sum(
        len((metric.get("sum") or metric["histogram"])["dataPoints"])
        for resource in request["resourceMetrics"]
        for scope in resource["scopeMetrics"]
        for metric in scope["metrics"]
    )


def _post(client: httpx.Client, url: str, body: bytes, wait: Callable[[float], None]) -> httpx.Response:
    from httpx import TransportError

    trouble, pause = "", 0.0
    for attempt in range(MAX_TRIES):
        if attempt:
            wait(pause)
        pause = min(2.0**attempt, MAX_WAIT_SECONDS)
        try:
            response = client.post(url, content=body)
        except TransportError as error:
            trouble = f"cannot be reached ({type(error).__name__})"
            continue
        if response.is_success:
            return response
        trouble = f"said {response.status_code}"
        if response.status_code not in RETRYABLE:
            break
        after = response.headers.get("retry-after", "")
        pause = min(float(after), MAX_WAIT_SECONDS) if after.isdigit() else pause
    raise ExportError(f"The OTLP receiver {trouble}: nothing more was sent. Check --endpoint and its headers.")


def _rejected(response: httpx.Response) -> int:
    """``rejectedDataPoints`` of a partial success, in either encoding; an empty answer rejects nothing."""
    if not response.content:
        return 0
    if response.headers.get("content-type", "").startswith("application/json"):
        partial = orjson.loads(response.content).get("partialSuccess") or {}
        return int(partial.get("rejectedDataPoints", 0))
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

    return int(ExportMetricsServiceResponse.FromString(response.content).partial_success.rejected_data_points)
