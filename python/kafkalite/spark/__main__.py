"""`python -m kafkalite.spark` prints where the columnar engine's jar is, as --jars wants it."""

import sys

from kafkalite.spark.columnar import NO_JAR, jar_path

if __name__ == "__main__":
    jar = jar_path()
    if jar is None:
        sys.exit(NO_JAR)
    sys.stdout.write(f"{jar}\n")
