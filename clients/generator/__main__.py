"""Writes what is generated from the OpenAPI document: the models of the clients, and the reference of the HTTP API.

    scripts/generate            writes the files
    scripts/generate --check    fails if one of them is out of date
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import go
import python
import reference
import sync
import typescript
from schema import Document

ROOT = Path(__file__).parents[2]


def main() -> int:
    document = Document(json.loads((ROOT / "clients/openapi.json").read_text()))
    package = "clients/python/src/requeue_client"
    outputs = {
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


if __name__ == "__main__":
    sys.exit(main())
