"""The OpenAPI document, made of the same tables that answer: endpoints, parameters and the dataclasses of the rows."""

from __future__ import annotations

import types
import typing
from dataclasses import fields
from typing import Any, Final

from collector.api.endpoints import ENDPOINTS, PREFIX, Endpoint
from collector.api.parameters import PARAMETERS
from collector.honesty import BASES, SOURCES, STATUSES

TYPES: Final = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object"}
VOCABULARIES: Final = {"cost_status": STATUSES, "cost_source": tuple(SOURCES), "cost_basis": tuple(BASES)}
ERROR: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message"],
            "properties": {"message": {"type": "string"}, "parameter": {"type": "string"}},
        }
    },
}


def document(version: str, token: bool) -> dict[str, Any]:
    """OpenAPI 3.1 of this API; ``token``: whether readers need a bearer token."""
    paths = {PREFIX + endpoint.name: {"get": _operation(endpoint)} for endpoint in ENDPOINTS.values()}
    found: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "vm-usage collector",
            "version": version,
            "description": "Read-only. Unknown is null, never 0. Days are local days of the ledger's one time zone.",
        },
        "paths": paths,
    }
    if token:
        found["components"] = {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}}
        found["security"] = [{"token": []}]
    return found


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    return {
        "operationId": endpoint.name,
        "summary": endpoint.help,
        "parameters": [
            {
                "name": name,
                "in": "query",
                "required": name == "session_id",
                "description": PARAMETERS[name].help,
                "schema": PARAMETERS[name].schema,
            }
            for name in endpoint.parameters
        ],
        "responses": {
            "200": _response("The answer.", _body(endpoint)),
            "304": {"description": "Unchanged since the ETag that If-None-Match names."},
            "400": _response("A wrong parameter: its name, and what is allowed.", ERROR),
        },
    }


def _response(text: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _body(endpoint: Endpoint) -> dict[str, Any]:
    if endpoint.row is None:
        return {"type": "object"}
    properties: dict[str, Any] = {"rows": {"type": "array", "items": _row(endpoint.row)}}
    if "cursor" in endpoint.parameters:
        properties["next_cursor"] = {"type": ["string", "null"]}
    return {"type": "object", "required": list(properties), "properties": properties}


def _row(row: type) -> dict[str, Any]:
    hints = typing.get_type_hints(row)
    names = [field.name for field in fields(row)]
    return {"type": "object", "required": names, "properties": {name: _field(name, hints[name]) for name in names}}


def _field(name: str, hint: Any) -> dict[str, Any]:
    options = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    kinds = [_kind(option) for option in options]
    if name in VOCABULARIES:
        return {"enum": [*VOCABULARIES[name], *([None] if "null" in kinds else [])]}
    return {"type": kinds if len(kinds) > 1 else kinds[0]}


def _kind(hint: Any) -> str:
    if hint is type(None):
        return "null"
    origin = typing.get_origin(hint) or hint
    return "array" if origin in (tuple, list) else TYPES[origin]
