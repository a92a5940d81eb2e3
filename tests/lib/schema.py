# SPDX-License-Identifier: Apache-2.0
"""Validates against a JSON schema: always by the few keywords that our schemas use, so that the
tests work everywhere, and by python3-jsonschema, too, where it is installed."""
import functools
import json
import re

import ctrun

try:
    import jsonschema
except ImportError:
    jsonschema = None

FOLDER = ctrun.ROOT / "packaging" / "schema"
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool,
         "number": (int, float), "null": type(None)}
KNOWN = {"$schema", "title", "description", "definitions", "$ref", "type", "const", "enum", "pattern",
         "minimum", "maximum", "maxItems", "properties", "additionalProperties", "required",
         "items", "oneOf"}


@functools.cache
def load(name):
    return json.loads((FOLDER / f"{name}.schema.json").read_text())


def _has_type(value, names):
    names = [names] if isinstance(names, str) else names
    return any(isinstance(value, TYPES[name]) and isinstance(value, bool) == (name == "boolean")
               for name in names)


def complaints(value, schema, root=None, where="$"):
    """What is wrong with the value, one text each."""
    root = root or schema
    unknown = set(schema) - KNOWN
    assert not unknown, f"this validator does not know {unknown}"
    if "$ref" in schema:
        schema = root["definitions"][schema["$ref"].rpartition("/")[2]]
    found = []
    if "type" in schema and not _has_type(value, schema["type"]):
        return [f"{where}: {value!r} is no {schema['type']}"]
    if "const" in schema and value != schema["const"]:
        found.append(f"{where}: {value!r} is not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{where}: {value!r} is none of {schema['enum']}")
    if isinstance(value, str) and not re.search(schema.get("pattern", ""), value):
        found.append(f"{where}: {value!r} does not match {schema['pattern']}")
    if isinstance(value, int) and not (schema.get("minimum", value) <= value
                                       <= schema.get("maximum", value)):
        found.append(f"{where}: {value} is out of range")
    if isinstance(value, dict):
        found += [f"{where}: no {name}" for name in schema.get("required", ()) if name not in value]
        for name, inner in schema.get("properties", {}).items():
            if name in value:
                found += complaints(value[name], inner, root, f"{where}.{name}")
        for name in set(value) - set(schema.get("properties", {})):
            found += complaints(value[name], schema.get("additionalProperties", {}), root, f"{where}.{name}")
    if isinstance(value, list):
        if len(value) > schema.get("maxItems", len(value)):
            found.append(f"{where}: {len(value)} items")
        for i, item in enumerate(value):
            found += complaints(item, schema.get("items", {}), root, f"{where}[{i}]")
    if "oneOf" in schema:
        tries = [complaints(value, inner, root, where) for inner in schema["oneOf"]]
        if sum(not each for each in tries) != 1:
            found += min(tries, key=len) or [f"{where}: fits more than one"]
    return found


@functools.cache
def _validator(name):
    """The schema itself is validated once."""
    made = jsonschema.validators.validator_for(load(name))
    made.check_schema(load(name))
    return made(load(name))


def check(value, name):
    found = complaints(value, load(name))
    assert not found, f"{found}\n{json.dumps(value)}"
    if jsonschema:
        _validator(name).validate(value)


def check_events(box):
    for event in box.events():
        check(event, "events")
