"""The OpenAPI document as types and fields, without the details of JSON Schema."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

Json = dict[str, Any]

BODY = ("body", "body_text", "body_base64", "body_bytes")
"""The fields that contain a body in one of its forms. In the clients they are one value."""


@dataclass(frozen=True)
class Type:
    """The type of a field.

    `name` is text, time, duration, int, bool, any, list, map, enum, object, body, result, rate or either. A
    `rate` is an object that can also be written as text.
    """

    name: str
    of: Type | None = None
    """The type of the items of a list or map."""
    schema: str = ""
    """The schema of an enum or object."""
    big: bool = False
    """Whether an integer may have more than 32 bits."""
    nullable: bool = False
    """Whether an item of a list or map may be null."""


@dataclass(frozen=True)
class Field:
    """A field of an object, or a parameter."""

    name: str
    type: Type
    text: str
    required: bool
    nullable: bool
    bounds: tuple[str, ...] = ()

    @property
    def optional(self) -> bool:
        """Whether the field may have no value. A field that is neither required nor nullable has a default."""
        return not self.required and self.nullable


class Document:
    """The OpenAPI document."""

    def __init__(self, json: Json) -> None:
        self.json = json
        self.schemas: Json = dict(json["components"]["schemas"])
        for name, schema in json["components"]["schemas"].items():
            if name.startswith("Entry_"):
                # The result of an entry of a batch: it has a schema of its own only if it is returned alone, too.
                self.schemas.setdefault(name.removeprefix("Entry_"), schema["oneOf"][1])
        self.names = {name for schema in self.schemas.values() for name in schema.get("properties", {})}

    def text(self, schema: str) -> str:
        """Returns the description of a schema."""
        return flat(self.schemas[schema].get("description", ""))

    def objects(self, schemas: list[str]) -> list[str]:
        """Returns the schemas, and those of the objects in their fields: each after those that it contains."""
        found: list[str] = []

        def add(schema: str) -> None:
            for field in self.model(schema):
                type = field.type.of or field.type
                if type.name in ("object", "rate") and type.schema not in found:
                    add(type.schema)
            if schema not in found:
                found.append(schema)

        for schema in schemas:
            add(schema)
        return found

    def enums(self, schemas: list[str]) -> list[str]:
        """Returns the enums that the fields of the schemas have."""
        types = (field.type.of or field.type for schema in schemas for field in self.model(schema))
        return sorted({type.schema for type in types if type.name == "enum"})

    def problems(self) -> list[tuple[str, str, str]]:
        """Returns the name, the title and the status of each problem."""
        text = self.schemas["ProblemType"]["description"]
        return re.findall(r"- `/v1/problems/([a-z-]+)`: (.*?) \(status (\d+)\)", text)

    def has_null(self, schema: str, field: Field) -> bool:
        """Returns whether null has a meaning of its own in a request: then the document says which."""
        return field.nullable and ("`null`" in field.text or "`null`" in self.text(schema))

    def values(self, schema: str) -> list[str]:
        """Returns the values of an enum."""
        return list(self.schemas[schema]["enum"])

    def fields(self, schema: str) -> list[Field]:
        """Returns the fields of an object: first those that are required, in their order."""
        return self.fields_of(self.schemas[schema])

    def fields_of(self, json: Json) -> list[Field]:
        """Returns the fields of the schema of an object."""
        required = json.get("required", [])
        names = sorted(json["properties"], key=lambda name: required.index(name) if name in required else 99)
        return [self.field(name, json["properties"][name], name in required) for name in names]

    def model(self, schema: str) -> list[Field]:
        """Returns the fields of an object, with one field for the body."""
        fields = self.fields(schema)
        body = next((field for field in fields if field.name == "body_base64"), None)
        if body is None:
            return fields
        text = re.sub(r"( as any JSON value|, if it is JSON).*", ".", next(f.text for f in fields if f.name == "body"))
        one = replace(body, name="body", type=Type("body"), text=text, nullable=True)
        return [field for field in fields if field.name not in BODY] + [one]

    def field(self, name: str, json: Json, required: bool) -> Field:
        """Returns a field with this schema."""
        schema, nullable = _without_null(json)
        text = flat(schema.get("description") or json.get("description", ""))
        type = self.type(name, schema)
        # The server sends all fields that have a default. Only the usual one, such as 0, may be left out.
        required = required or (json.get("default") is not None and type.name in ("text", "time", "duration", "object"))
        # A missing number is 0, and a missing list is empty, but there is no empty time or object.
        nullable = nullable or (not required and type.name in ("any", "time", "duration", "object", "map"))
        return Field(name, type, text, required, nullable, tuple(_bounds(schema)))

    def type(self, name: str, schema: Json) -> Type:
        """Returns the type of a schema. `name` is the name of the field."""
        if ref := schema.get("$ref"):
            return self._named(ref.rpartition("/")[2])
        if "anyOf" in schema:
            # A known value, or one of a later version.
            return Type("text")
        match schema.get("type"):
            case "string":
                return Type(FORMATS.get(schema.get("format", ""), "text"))
            case "integer" | "number":
                return Type("int", big=schema.get("format") == "int64")
            case "boolean":
                return Type("bool")
            case "array":
                return Type("list", self._item(name, schema["items"]))
            case "object" if isinstance(of := schema.get("additionalProperties"), dict):
                return Type("map", self._item(name, of))
        return Type("any")

    def _item(self, name: str, schema: Json) -> Type:
        schema, nullable = _without_null(schema)
        return replace(self.type(name, schema), nullable=nullable)

    def _named(self, name: str) -> Type:
        schema = self.schemas[name]
        if "enum" in schema:
            return Type("enum", schema=name)
        if name == "JobResult":
            return Type("result", schema=name)
        if "oneOf" in schema:
            refs = [one["$ref"].rpartition("/")[2] for one in schema["oneOf"] if "$ref" in one]
            is_rate = len(schema["oneOf"]) == 2 and len(refs) == 1
            return Type("rate", schema=refs[0]) if is_rate else Type("either", schema=name)
        return Type("object", schema=name)


FORMATS = {"time-text": "time", "date-time": "time", "duration-text": "duration"}


def _without_null(schema: Json) -> tuple[Json, bool]:
    if isinstance(schema.get("type"), list):
        types = [one for one in schema["type"] if one != "null"]
        return {**schema, "type": types[0]}, len(types) < len(schema["type"])
    either = [one for one in schema.get("oneOf", []) if one != {"type": "null"}]
    if len(either) == 1:
        return either[0], True
    return schema, False


def _bounds(schema: Json) -> list[str]:
    bounds = []
    low, high = schema.get("minimum"), schema.get("maximum")
    if high is not None:
        bounds.append(f"{low or 0:,} to {high:,}")
    elif low:
        bounds.append(f"at least {low:,}")
    if length := schema.get("maxLength"):
        bounds.append(f"length {schema.get('minLength', 0)} to {length:,}")
    if items := schema.get("maxItems"):
        bounds.append(f"at most {items:,} entries")
    if values := schema.get("enum"):
        bounds.append("one of " + ", ".join(f"`{value}`" for value in values))
    if pattern := schema.get("pattern"):
        bounds.append(f"pattern `{pattern}`")
    return bounds


def flat(text: str) -> str:
    """Returns a text in one line."""
    return " ".join(text.split())
