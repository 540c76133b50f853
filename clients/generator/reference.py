"""docs/http-reference.md: every request of the HTTP API, with the fields of requests and responses."""

from __future__ import annotations

import re

from schema import Document, Field, Json, Type, flat

HEAD = """\
<!-- Generated from clients/openapi.json by scripts/generate: do not edit. -->

# HTTP reference

Every request of the [HTTP API](http-api.md), with its parameters, the fields of its request and of its response, and
their limits. The same description is at `/v1/openapi.json` of every server, in OpenAPI 3.1.

- *time*: in responses RFC 3339 in UTC with milliseconds; in requests also with another offset, or such as
  `tomorrow 09:00 Europe/Berlin` and `1h ago`. A time without a time zone is rejected.
- *duration*: numbers with units, such as `250ms`, `30s`, `5m`, `1h30m` or `7d`. A number without a unit is rejected.
- `{kind}` in a path is 1 to 128 of the characters `A-Z a-z 0-9 . _ -`. `{id}` is any text of 1 to 512 bytes in UTF-8,
  percent-encoded.
- A field in **bold** is required. In a response, it is always there; any other field is left out if it has no value.
- A request that fails gets a [problem](#problems), with a status of 400 or more.
"""

PROBLEMS = """
## Problems

An error is a JSON object with the content type `application/problem+json` (RFC 9457).

| Type | Status | Title |
|---|---|---|
"""


def generate(document: Document) -> str:
    """Returns the page."""
    return Reference(document).page()


class Reference:
    def __init__(self, document: Document) -> None:
        self.document = document
        self.paths: Json = document.json["paths"]
        self.linked: list[str] = []

    def page(self) -> str:
        text = HEAD
        operations = [(m, path, op) for path, item in self.paths.items() for m, op in item.items()]
        for tag in self.document.json["tags"]:
            of_tag = [operation for operation in operations if tag["name"] in operation[2]["tags"]]
            text += f"\n## Requests: {tag['name']}\n\n{tag['description']}.\n\n| Request | |\n|---|---|\n"
            for method, path, operation in of_tag:
                heading = f"{method.upper()} {path}"
                text += f"| [`{heading}`](#{anchor(heading)}) | {operation['summary']} |\n"
            text += "".join(self._operation(*operation) for operation in of_tag)
        objects, done = "", 0
        while done < len(self.linked):
            objects += self._object(self.linked[done])
            done += 1
        problems = "".join(f"| `{name}` | {status} | {title} |\n" for name, title, status in self.document.problems())
        return text + "\n## Objects\n" + objects + PROBLEMS + problems

    def _operation(self, method: str, path: str, operation: Json) -> str:
        summary = " ".join(filter(None, [operation["summary"], flat(operation.get("description", ""))]))
        text = f"\n### {method.upper()} {path}\n\n{summary} Requires {self._access(method, operation)}.\n"
        parameters = [
            self.document.field(one["name"], {**one["schema"], "description": one["description"]}, one["required"])
            for one in operation.get("parameters", [])
            if one["in"] == "query"
        ]
        if parameters:
            text += "\nParameters of the query:\n\n" + self._table(parameters)
        if body := operation.get("requestBody"):
            text += f"\nRequest: {self._content(body['content'])}\n"
        for status, response in operation["responses"].items():
            if status.startswith("2") or ("content" in response and not status.endswith("XX")):
                content = self._content(response["content"]) + ". " if "content" in response else ""
                text += f"\nResponse {status}: {content}{flat(response['description'])}\n"
        return text

    def _access(self, method: str, operation: Json) -> str:
        if operation.get("security") == [{}]:
            return "no token"
        return "any token" if method == "get" else "a full token"

    def _content(self, content: Json) -> str:
        parts = []
        for media_type, of in content.items():
            schema = of["schema"]
            either = schema.get("oneOf", [schema])
            named = [self._link(one["$ref"].rpartition("/")[2]) for one in either if "$ref" in one]
            in_type = "" if media_type == "application/json" else f"`{media_type}`"
            parts.append(" of ".join(filter(None, [in_type, " or ".join(named)])))
        return ", or ".join(parts)

    def _object(self, schema: str) -> str:
        json = self.document.schemas[schema]
        text = f"\n### {schema}\n\n"
        if "oneOf" in json:
            text += (flat(json["description"]) + "\n\n" if "description" in json else "") + "One of:\n"
            for one in json["oneOf"]:
                if ref := one.get("$ref"):
                    text += f"\n- {self._link(ref.rpartition('/')[2])}: {flat(one.get('description', ''))}\n"
                elif "properties" in one:
                    text += f"\n{flat(one.get('description', ''))}\n\n" + self._table(self.document.fields_of(one))
                else:
                    text += f"\n- text: {flat(one.get('description', ''))}\n"
            return text
        text += f"{self.document.text(schema)}\n\n" if self.document.text(schema) else ""
        if "enum" in json:
            return text + "One of " + ", ".join(f"`{value}`" for value in json["enum"]) + ".\n"
        return text + self._table(self.document.fields(schema))

    def _table(self, fields: list[Field]) -> str:
        text = "| Field | Type | |\n|---|---|---|\n"
        for field in fields:
            name = f"**`{field.name}`**" if field.required else f"`{field.name}`"
            limits = f" ({'; '.join(field.bounds)})" if field.bounds else ""
            text += f"| {name} | {self._type(field.type)}{' or null' if field.required and field.nullable else ''} | "
            text += f"{field.text.replace('|', chr(92) + '|')}{limits.replace('|', chr(92) + '|')} |\n"
        return text

    def _type(self, type: Type) -> str:
        simple = {"int": "integer", "bool": "boolean", "any": "any JSON"}
        match type.name:
            case "list":
                return f"list of {self._type(type.of or type)}"
            case "map":
                return f"object of {self._type(type.of or type)}"
            case "enum":
                return " ".join(f"`{value}`" for value in self.document.values(type.schema)) if type.schema else "text"
            case "object" | "result" | "either":
                return self._link(type.schema)
            case "rate":
                return f"{self._link(type.schema)} or text"
        return simple.get(type.name, type.name)

    def _link(self, schema: str) -> str:
        if schema not in self.linked:
            self.linked.append(schema)
        return f"[{schema}](#{schema.lower()})"


def anchor(heading: str) -> str:
    """Returns the anchor of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
