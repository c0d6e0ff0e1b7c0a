"""The options and the schema of a query that writes, checked before anything is written.

Names and sentences are those of Spark's Kafka connector (`KafkaWriter.validateQuery`). A task gets
`WriteOptions` as they came out of here.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from kafkalite.client.producer.settings import ProducerSettings
from kafkalite.errors import InvalidArgumentError
from kafkalite.spark.options.rows import BATCH, READ, STREAM, row_of

__all__ = ["WriteOptions"]

TRANSACTIONAL_ID_PREFIX = "kafkalite-spark"
HEADERS = "array<struct<key:string,value:binary>>"
# What Spark itself puts among the options of a streaming query.
OF_SPARK = ("checkpointlocation", "queryname", "outputmode", "asyncprogresstrackingenabled")
QUERY_ID = "kafkalite.query.id"
"""The option by which the columnar engine tells the id of a stream (KafkaliteSource.java)."""


@dataclass(frozen=True)
class WriteOptions:
    """Checked options of a writing query."""

    bootstrap_servers: str
    topic: str | None
    settings: ProducerSettings
    transactional_id_prefix: str | None
    """None: no transactions."""
    checkpoint: str | None = None
    """Its location, of a stream that says it by an option."""
    query_id: str | None = None
    """That of the streaming query that writes, if the columnar engine is there to say it."""
    warnings: tuple[str, ...] = ()

    @staticmethod
    def of(given: Mapping[str, str], schema: StructType) -> "WriteOptions":
        """Raises `InvalidArgumentError`, which names the option or the column."""
        options = {name.lower(): value for name, value in given.items()}
        warnings = _check_names(options)
        settings = {
            name.removeprefix("kafka."): value
            for name, value in options.items()
            if name.startswith("kafka.")
        }
        servers = settings.pop("bootstrap.servers", "").strip()
        if not servers:
            raise InvalidArgumentError("Option 'kafka.bootstrap.servers' must be specified")
        topic = options.get("topic")
        topic = None if topic is None else topic.strip()
        _check_schema(schema, topic)
        checked = ProducerSettings.of({"client.id": "kafkalite-spark"} | settings, "kafka.")
        warnings += [f"{name} is not known, and ignored" for name in checked.unknown]
        prefix = checked.transactional_id
        if _flag(options, "transactional", prefix is not None):
            prefix = prefix or TRANSACTIONAL_ID_PREFIX
            if checked.acks != "all" or checked.idempotent is False:
                raise InvalidArgumentError(
                    "transactional=true needs kafka.acks=all and kafka.enable.idempotence=true"
                )
        elif prefix is not None:
            raise InvalidArgumentError(
                "transactional is false, but kafka.transactional.id names a transactional id"
            )
        checkpoint, query_id = options.get("checkpointlocation"), options.get(QUERY_ID)
        return WriteOptions(servers, topic, checked, prefix, checkpoint, query_id, tuple(warnings))


def _check_names(options: Mapping[str, str]) -> list[str]:
    warnings = []
    for name in options:
        if name.startswith("kafka.") or name in (*OF_SPARK, QUERY_ID):
            continue
        row = row_of(name)
        if row.name in ("path", "paths"):
            raise InvalidArgumentError(f"{row.name} is for reading: rows are written to brokers")
        if row.used in (READ, BATCH, STREAM):
            warnings.append(f"{row.name} is ignored when writing")
    return warnings


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = options.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise InvalidArgumentError(f"{name} is '{options[name]}', it must be true or false")
    return text == "true"


def _check_schema(schema: StructType, topic: str | None) -> None:
    """In the connector's order. It has no column `timestamp`, and looks at no other ones either."""
    types: dict[str, DataType] = {field.name: field.dataType for field in schema.fields}
    if topic is None:
        if "topic" not in types:
            raise InvalidArgumentError(
                "topic option required when no 'topic' attribute is present. Use the topic option "
                "for setting a topic."
            )
        _check_type("topic", types, isinstance(types["topic"], StringType), "string")
    elif not topic:
        raise InvalidArgumentError("topic is empty")
    _check_bytes("key", types)
    if "value" not in types:
        raise InvalidArgumentError("Required attribute 'value' not found")
    _check_bytes("value", types)
    headers = types.get("headers")
    _check_type("headers", types, _is_headers(headers), HEADERS)
    _check_type("partition", types, isinstance(types.get("partition"), IntegerType), "int")
    _check_type("timestamp", types, isinstance(types.get("timestamp"), TimestampType), "timestamp")


def _check_bytes(name: str, types: Mapping[str, DataType]) -> None:
    is_right = isinstance(types.get(name), StringType | BinaryType)
    _check_type(name, types, is_right, "string or binary")


def _is_headers(found: DataType | None) -> bool:
    if not isinstance(found, ArrayType) or not isinstance(found.elementType, StructType):
        return False
    fields = found.elementType.fields
    kinds = [(field.name, type(field.dataType)) for field in fields]
    return kinds == [("key", StringType), ("value", BinaryType)]


def _check_type(name: str, types: Mapping[str, DataType], is_right: bool, expected: str) -> None:
    if name in types and not is_right:
        raise InvalidArgumentError(
            f"{name} attribute unsupported type {types[name].simpleString()}. "
            f"{name} must be a(n) {expected}"
        )
