"""The documentation page: the OpenAPI document as plain HTML, with nothing from elsewhere."""

from __future__ import annotations

from html import escape
from typing import Any

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code, pre { font-family: ui-monospace, monospace; font-size: 0.9em; }
details { border-top: 1px solid #8884; padding: 0.5rem 0; }
summary { cursor: pointer; }
.method { display: inline-block; min-width: 4.5rem; font-weight: 600; }
table { border-collapse: collapse; } td, th { text-align: left; padding: 0.1rem 1rem 0.1rem 0; vertical-align: top; }
"""


def page(document: dict[str, Any]) -> str:
    groups: dict[str, list[str]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if isinstance(operation, dict):
                tag = (operation.get("tags") or ["Other"])[0]
                groups.setdefault(tag, []).append(_operation(path, method, operation))
    parts = "".join(f"<h2>{escape(tag)}</h2>{''.join(found)}" for tag, found in groups.items())
    info = document["info"]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(info["title"])}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style><h1>{escape(info["title"])} '
        f"{escape(info['version'])}</h1><p>{escape(info.get('description', ''))} "
        f'<a href="openapi.json">openapi.json</a></p>{parts}</html>'
    )


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    parameters = [
        f"<tr><td><code>{escape(one['name'])}</code></td><td>{escape(one['in'])}</td>"
        f"<td>{escape(one.get('description', ''))}</td></tr>"
        for one in operation.get("parameters", ())
    ]
    answers = [
        f"<tr><td><code>{escape(status)}</code></td><td>{escape(one.get('description', ''))}</td></tr>"
        for status, one in operation.get("responses", {}).items()
    ]
    body = operation.get("requestBody")
    schema = "" if body is None else f"<p>Body: <code>{escape(_named(body))}</code></p>"
    return (
        f'<details><summary><span class="method">{method.upper()}</span> <code>{escape(path)}</code> '
        f"{escape(operation.get('summary', ''))}</summary>"
        f"{schema}<table>{''.join(parameters)}</table><table>{''.join(answers)}</table></details>"
    )


def _named(body: dict[str, Any]) -> str:
    content: dict[str, Any] = next(iter(body.get("content", {}).values()), {})
    schema = content.get("schema", {})
    return str(schema.get("$ref", schema.get("type", "any"))).rsplit("/", 1)[-1]
