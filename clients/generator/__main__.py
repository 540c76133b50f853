"""Writes what is generated from the OpenAPI document: the models of the clients, and the reference of the HTTP API.

scripts/generate            writes the files
scripts/generate --check    fails if one of them is out of date
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import go
import python
import reference
import sync
import typescript
from schema import Document

ROOT = Path(__file__).parents[2]


def main() -> int:
    committed = json.loads((ROOT / "clients/openapi.json").read_text())
    document = Document(committed)
    package = "clients/python/src/requeue_client"
    outputs = {
        "clients/openapi.json": formatted(committed) + "\n",
        "docs/http-reference.md": reference.generate(document),
        "clients/go/models.go": go.generate(document),
        "clients/typescript/src/models.ts": typescript.generate(document),
        f"{package}/models.py": python.generate(document),
        f"{package}/client.py": sync.generate((ROOT / package / "async_client.py").read_text()),
    }
    stale = [path for path, text in outputs.items() if not (ROOT / path).exists() or (ROOT / path).read_text() != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path} is out of date: run scripts/generate", file=sys.stderr)
        return 1 if stale else 0
    for path in stale:
        (ROOT / path).write_text(outputs[path])
    return 0


def formatted(value: Any, key: str = "", indent: str = "") -> str:
    """Returns the document with a line per field, parameter and response, so that a change is a line, too."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []
    is_branch = isinstance(value, dict) and any(
        name in value for name in ("properties", "operationId", "openapi", "info")
    )
    if key not in BRANCHES and not is_branch and not key.startswith("/"):
        return json.dumps(value, ensure_ascii=False, sort_keys=True)
    lines = []
    for name, entry in sorted(entries):
        label = f"{json.dumps(name)}: " if isinstance(value, dict) else ""
        lines.append(f"{indent}  {label}{formatted(entry, str(name), indent + '  ')}")
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return begin + "\n" + ",\n".join(lines) + f"\n{indent}{end}"


BRANCHES = {"paths", "components", "schemas", "properties", "parameters", "responses", "tags"}
"""The names of objects and lists whose entries are lines."""


if __name__ == "__main__":
    sys.exit(main())
