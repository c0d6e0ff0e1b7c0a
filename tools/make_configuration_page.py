#!/usr/bin/env python3
"""Writes docs/CONFIGURATION.md out of the rows of the keys.

With `--check` nothing is written: exit code 1 says that the page is not what the rows say.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/CONFIGURATION.md"
sys.path.insert(0, str(ROOT / "python"))

from kafkalite.config.keys import REASONS, Key, KeyTable  # noqa: E402 - not installed, maybe

INTRODUCTION = """\
# Configuration

Made by `tools/make_configuration_page.py` of the rows in `python/kafkalite/config/`: edit those.

Names, defaults and meanings are Kafka 4.3.1's, so that `kafkalite serve server.properties` takes a
file of Kafka's as it is; kafkalite's own keys start with `kafkalite.`. `--config KEY=VALUE` comes
over the file. Of the keys that may change while the broker runs (`kafkalite configs alter`, Kafka's
`kafka-configs`, or any client), what is set for one broker comes before what is set for all, and
both before the file; they are kept in the metadata and hold after a restart.

- A value that cannot be is refused at the start, by the key's name, in Kafka's words.
- A key that kafkalite does not obey and whose value would change something is refused at the start.
- A key without a row gets a warning and nothing else.

**Values:** `1..10` and `1..` are bounds, both inclusive; `a, b` are the words that are allowed. An
empty default is null. **Changes:** `start` takes effect at the start; `broker` may be set for one
broker while it runs; `any` for one or all.
"""

TAKEN = """\
## Keys that are taken and change nothing

Taken, so that a file of Kafka's does, and without effect, for the reason above each list. Their
values are checked, and DescribeConfigs tells them. Of one with *(told)* the log warns at the start
if it is not at its default.
"""

REFUSED = """\
## Keys that are refused

Only the default is accepted: TLS, SASL, authorizers, delegation tokens, tiered storage, plug-ins.
So is every key that starts with `listener.name.` but `listener.name.<name>.max.connections` and
`listener.name.<name>.max.connection.creation.rate`, and those of plug-ins (`rsm.config.`,
`rlmm.config.`).
"""


def main() -> int:
    page = render()
    if "--check" in sys.argv[1:]:
        is_current = PAGE.exists() and PAGE.read_text() == page
        if not is_current:
            sys.stderr.write("docs/CONFIGURATION.md: run tools/make_configuration_page.py\n")
        return 0 if is_current else 1
    PAGE.write_text(page)
    return 0


def render() -> str:
    """The page."""
    broker = rows("broker.txt")
    topic = rows("topic.txt")
    obeyed = [key for key in broker if key.support in ("obeyed", "at-start")]
    own = [key for key in obeyed if key.name.startswith("kafkalite.")]
    kafkas = [key for key in obeyed if key not in own]
    parts = [
        INTRODUCTION,
        section("kafkalite's own keys", own),
        section("Keys of Kafka", kafkas),
        "## Topics\n\nA topic inherits from the first of the broker's keys that is set.\n\n"
        + topic_table(topic),
        "## Groups\n\nKept and described; the protocols that obey them are not there yet.\n\n"
        + topic_table(rows("group.txt")),
        "## Client metrics\n\nKept and described; no client is asked for metrics.\n\n"
        + topic_table(rows("client_metrics.txt")),
        TAKEN,
        *(
            f"**Since {why}:**\n\n" + names(key for key in broker if key.reason == reason)
            for reason, why in REASONS.items()
        ),
        REFUSED + "\n" + names(key for key in broker if key.support == "refused"),
    ]
    return "\n".join(parts)


def rows(file_name: str) -> list[Key]:
    table = KeyTable(file_name)
    return [table[name] for name in table if table[name].mode != "internal"]


def section(title: str, keys: Iterable[Key]) -> str:
    lines = ["| Key | Type | Default | Values | Changes | Meaning |", "|---|---|---|---|---|---|"]
    for key in keys:
        changes = {"per-broker": "broker", "cluster-wide": "any", "dynamic-only": "any"}.get(
            key.mode, "start"
        )
        if key.support == "at-start":
            changes = "start"
        lines.append(line(key, changes))
    return f"## {title}\n\n" + "\n".join(lines) + "\n"


def topic_table(keys: Iterable[Key]) -> str:
    lines = ["| Key | Type | Default | Values | Inherits | Meaning |", "|---|---|---|---|---|---|"]
    for key in keys:
        if key.name.startswith("internal."):
            continue
        inherits = ", ".join(f"`{name}`" for name, _ in key.synonyms)
        lines.append(line(key, inherits))
    return "\n".join(lines) + "\n"


def line(key: Key, fifth: str) -> str:
    default = f"`{key.default}`" if key.default else ""
    words = {
        "replicas": "`PARTITION:BROKER`, or `*`",
        "reset": "see Meaning",
        "words": "none empty",
        "-": "",
    }
    values = words.get(key.values, key.values.lstrip("~").replace("|", ", "))
    taken = f" *(no effect: {REASONS[key.reason]})*" if key.reason else ""
    return f"| `{key.name}` | {key.kind} | {default} | {values} | {fifth} | {key.doc}{taken} |"


def names(keys: Iterable[Key]) -> str:
    told = {True: " *(told)*", False: ""}
    return "".join(f"- `{key.name}`: {key.doc}{told[key.is_told]}\n" for key in keys)


if __name__ == "__main__":
    sys.exit(main())
