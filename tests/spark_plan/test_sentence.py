"""What is left of Spark's exceptions where one sentence is wanted."""

import pytest

from kafkalite.spark import reason

PLAN = """
=== Streaming Query ===
Identifier: [id = 1, runId = 2]
Current Available Offsets: {kafkalite engine=jvm: {"orders":{"0":3}}}

Logical Plan:
WriteToMicroBatchDataSource noop-table
"""
FAILED = "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: "
IN_A_TASK = (
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: "
    "Lost task 0.0 in stage 1.0 (TID 2) (host executor driver): "
)
JAR = "name what has it in spark.jars or spark.jars.packages"
STACK = "\n\tat kafkalite.spark.RangeReader.next(RangeReader.java:7)\n\t... 9 more\n"
INVALID = f"java.io.IOException: invalid: it is{STACK}"


def traceback(last: str) -> str:
    return (
        'Traceback (most recent call last):\n  File "sink.py", line 3, in write\n    go()\n'
        f"{last}\n SQLSTATE: 38000 SQLSTATE: XXKST"
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("unknown option 'topik', did you mean topic?",) * 2,
        (
            f"{FAILED}[PYTHON_EXCEPTION] An exception was thrown from the Python worker: "
            + traceback("kafkalite.errors.KafkaliteError: orders-0: offset 3 is gone: so it is")
            + PLAN,
            "orders-0: offset 3 is gone: so it is",
        ),
        (
            f"{FAILED}[FOREACH_BATCH_USER_FUNCTION_ERROR] Return Message: "
            + traceback('psycopg.errors.UndefinedTable: relation "t" does not exist\nLINE 1: t\n ^')
            + PLAN,
            'relation "t" does not exist',
        ),
        (
            f"{FAILED}[FOREACH_BATCH_USER_FUNCTION_ERROR] Return Message: "
            + traceback(
                "py4j.protocol.Py4JJavaError: An error occurred while calling o114.getResult.\n"
                f": org.apache.spark.SparkException: Exception thrown in awaitResult: {STACK}"
                "Caused by: org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] the "
                f"key of orders-0 at offset 1 is no number SQLSTATE: P0001{STACK}"
                f"Caused by: {INVALID}"
            )
            + PLAN,
            "the key of orders-0 at offset 1 is no number",
        ),
        (f"{FAILED}Message: {traceback('KeyError: 7')}{PLAN}", "KeyError: 7"),
        (f"{FAILED}Message: {traceback('AssertionError')}{PLAN}", "AssertionError"),
        (
            f"{FAILED}{IN_A_TASK}java.io.UncheckedIOException: {INVALID}Caused by: {INVALID}{PLAN}",
            "invalid: it is",
        ),
        (
            f"{FAILED}the partition orders-0 is gone SQLSTATE: XXKST{PLAN}",
            "the partition orders-0 is gone",
        ),
        (f"java.lang.NullPointerException{STACK}", "java.lang.NullPointerException"),
        ("", ""),
    ],
)
def test_the_reason_is_one_line_without_tracebacks_stacks_and_plans(
    text: str, sentence: str
) -> None:
    assert reason(RuntimeError(text)) == sentence


class OfJava(Exception):  # noqa: N818
    """As py4j raises what PySpark has no exception of its own for."""

    class java_exception:  # noqa: N801
        def __init__(self, text: str) -> None:
            self.text = text

        def toString(self) -> str:  # noqa: N802
            return self.text

    def __init__(self, text: str) -> None:
        super().__init__(f"An error occurred while calling o65.load.\n: {text}{STACK}")
        self.java_exception = OfJava.java_exception(text)  # type: ignore[misc,assignment]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "java.lang.ClassNotFoundException: org.sqlite.JDBC",
            f"Spark has no class org.sqlite.JDBC: {JAR}",
        ),
        (
            "java.sql.SQLException: No suitable driver",
            f"Spark has no JDBC driver for the url: {JAR}",
        ),
        (
            "org.apache.spark.SparkException: [NOT_FOUND] Failed to find delta. SQLSTATE: 42K02",
            "[NOT_FOUND] Failed to find delta.",
        ),
    ],
)
def test_what_java_lacks_is_told_with_the_remedy(text: str, sentence: str) -> None:
    assert reason(OfJava(text)) == sentence
