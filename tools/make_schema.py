"""Writes the schema table out of the message definitions in Kafka's jars.

Kafka keeps the layout of every message, metadata record and coordinator record as JSON in its jars.
This takes the facts (names, types, versions, tags, defaults), leaves the prose, and writes one line
a field to `python/kafkalite/protocol/schema.txt`, which the codec reads. For a newer Kafka give it
that release's jars kafka-clients, kafka-metadata, kafka-group-coordinator,
kafka-transaction-coordinator, kafka-share-coordinator, kafka-raft and kafka-storage:

    python3 tools/make_schema.py path/to/*.jar

The table:

    # comment
    message NAME KIND KEY VALID_VERSIONS FLEXIBLE_VERSIONS     KIND: request response header data
     FIELD TYPE VERSIONS [nullable=VERSIONS] [tag=N] [tagged=VERSIONS] [flexible=none] [default=X]
      FIELD ...                                    a field of the struct that the line above holds

VERSIONS is `3-7`, `3+`, `3` or `none`. TYPE is bool, int8, int16, uint16, int32, uint32, int64,
float64, string, uuid, bytes, records or `{Struct`, with `[]` in front for an array. KEY is `-`
where there is none. Field names are Kafka's in snake case.
"""

from __future__ import annotations

import json
import re
import sys
import zipfile
from pathlib import Path

OUTPUT = Path(__file__).parent.parent / "python/kafkalite/protocol/schema.txt"
PRIMITIVES = frozenset(
    re.findall(
        r"\w+",
        "bool int8 int16 uint16 int32 uint32 int64 float64 string uuid bytes records",
    )
)


def snake(name: str) -> str:
    """`NumPartitions` -> `num_partitions`, `ISR` -> `isr`, `V3AndBelow` -> `v3_and_below`."""
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()


def definitions(jar: Path) -> list[dict]:
    """Every definition in a jar. The files are JSON with `//` comment lines."""
    found = []
    with zipfile.ZipFile(jar) as archive:
        for name in sorted(archive.namelist()):
            if not re.fullmatch(r"(common/)?(message|metadata)/\w+\.json", name):
                continue
            text = archive.read(name).decode()
            found.append(json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.M)))
    return found


def field_lines(fields: list[dict], structs: dict[str, list[dict]], depth: int) -> list[str]:
    lines = []
    for field in fields:
        array, element = re.fullmatch(r"((?:\[\])?)(\w+)", field["type"]).groups()
        kind = array + (element if element in PRIMITIVES else "{" + element)
        # A field with a tag is in the versions alone that tag it (`TransactionLogValue`).
        versions = field.get("taggedVersions", field.get("versions", "0+"))
        words = [snake(field["name"]), kind, versions]
        if field.get("nullableVersions", "none") != "none":
            words.append("nullable=" + field["nullableVersions"])
        if "tag" in field:
            words += [f"tag={field['tag']}", "tagged=" + field["taggedVersions"]]
        if field.get("flexibleVersions") == "none":
            words.append("flexible=none")
        default = str(field.get("default", "")).replace("None", "null").lower()
        if default not in ("", "0", "false"):
            words.append("default=" + default)
        lines.append(" " * depth + " ".join(words))
        if element not in PRIMITIVES:
            inner = field.get("fields") or structs[element]
            lines += field_lines(inner, structs, depth + 1)
    return lines


def message_lines(message: dict) -> list[str]:
    structs = {each["name"]: each["fields"] for each in message.get("commonStructs", [])}
    pending = list(message["fields"])
    while pending:
        # A struct may be named again after its first use, as LeaderIdAndEpoch is.
        field = pending.pop()
        if field.get("fields"):
            structs.setdefault(field["type"].removeprefix("[]"), field["fields"])
            pending += field["fields"]
    kind = message["type"] if message["type"] in ("request", "response", "header") else "data"
    key = str(message.get("apiKey", "-"))
    flexible = message.get("flexibleVersions", "none")
    versions = message["validVersions"]
    if message.get("latestVersionUnstable"):
        # A broker does not know it unless `unstable.api.versions.enable` is set.
        first, last = versions.split("-")
        versions = f"{first}-{int(last) - 1}"
    head = f"message {message['name']} {kind} {key} {versions} {flexible}"
    return [head, *field_lines(message["fields"], structs, 1)]


def main(jars: list[str]) -> int:
    if not jars:
        print(__doc__, file=sys.stderr)
        return 2
    messages = {message["name"]: message for jar in jars for message in definitions(Path(jar))}
    releases = sorted({re.sub(r".*-(\d[\w.]*)\.jar", r"\1", Path(jar).name) for jar in jars})
    lines = [f"# Made by tools/make_schema.py from the definitions of Kafka {releases[-1]}."]
    for name in sorted(messages):
        if messages[name]["validVersions"] != "none":
            lines += message_lines(messages[name])
    OUTPUT.write_text("\n".join(lines) + "\n")
    print(f"{OUTPUT}: {len(messages)} messages, {len(lines)} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
