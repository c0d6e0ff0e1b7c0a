"""Has errors told as one sentence: what Spark's callbacks raise, and what Spark makes of it.

PySpark prints a traceback before the message; the way that a wrong option took through this package
is of no use to who wrote it. Around that Spark puts the query's id, its plan, and Java's stack.
"""

import logging
import re
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from kafkalite.errors import KafkaliteError

__all__ = ["log_warnings", "reason", "without_traceback"]

P = ParamSpec("P")
R = TypeVar("R")


def without_traceback(method: Callable[P, R]) -> Callable[P, R]:
    """Wraps what Spark calls, so that a KafkaliteError has neither traceback nor cause."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except KafkaliteError as refusal:
            raise refusal.with_traceback(None) from None

    return call


def log_warnings(sentences: Iterable[str]) -> None:
    """Logs what a user should know."""
    logger = logging.getLogger("kafkalite.spark")
    for sentence in sentences:
        logger.warning(sentence)


TRACEBACK = "Traceback (most recent call last):"
# What Spark says before the error of a query, of a task, and of a class of Java's.
OF_A_QUERY = re.compile(r"\A\[STREAM_FAILED] Query \[[^]]*] terminated with exception: ")
OF_A_TASK = re.compile(r"\A(?:[\w.]+: )?Job aborted due to stage failure: .*? executor [^)]*\): ")
OF_JAVA = re.compile(r"\A(?:[a-z]\w*\.)+(\w+): ")
# Beyond it: where a query was, and a code.
END = re.compile(r"\s*(?:SQLSTATE: |\n)")
# What Spark says of an error that `raise_error` has put in words.
RAISED = "[USER_RAISED_EXCEPTION] "
# Java's error in Python: what it said follows, with its causes, of which some only waited.
PY4J = "py4j.protocol.Py4JJavaError: "
CAUSE = re.compile(r"\n(?:: |Caused by: )")
WAITED = "Exception thrown in awaitResult"
JAR = "name what has it in spark.jars or spark.jars.packages"
# Classes of Python's whose sentences need no name of a class before them.
SPEAKING = ("kafkalite.", "psycopg.", "pipeline.")


def reason(error: BaseException) -> str:
    """One line that says why Spark has failed: the sentence of this package, of PostgreSQL or of
    whatever else was raised, out of the tracebacks, stacks and plans of Spark's exception."""
    java: Any = getattr(error, "java_exception", None)  # py4j's, where PySpark has none of its own
    text = str(error) if java is None else str(java.toString())
    _, has_traceback, traceback = text.rpartition(TRACEBACK)
    return (_of_python(traceback) if has_traceback else "") or _of_java(text)


def _of_python(traceback: str) -> str:
    """The first line that is not indented."""
    told = next((line for line in traceback.splitlines() if line[:1].strip()), "")
    if told.startswith(PY4J):
        causes = CAUSE.split(traceback.partition("\n===")[0])[1:]
        return _of_java(
            next((each for each in causes if WAITED not in each.partition("\n")[0]), told)
        )
    kind, _, sentence = told.partition(": ")
    return sentence if sentence and kind.startswith(SPEAKING) else told


def _of_java(text: str) -> str:
    text = OF_A_TASK.sub("", OF_A_QUERY.sub("", text.strip()))
    kind = ""
    while (named := OF_JAVA.match(text)) is not None:
        kind, text = named[1], text[named.end() :]
    text = END.split(text, 1)[0].removeprefix(RAISED)
    if kind in ("ClassNotFoundException", "NoClassDefFoundError"):
        return f"Spark has no class {text}: {JAR}"
    if text == "No suitable driver":
        return f"Spark has no JDBC driver for the url: {JAR}"
    return text or kind
