"""`subscribePattern` finds the names that `java.util.regex` finds, which Spark's connector asks."""

import random
from typing import Any

import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

from kafkalite.spark.options.java_regex import java_pattern

pytestmark = pytest.mark.oracle

NAMES = """
orders Orders orders-2 a b ab aab B2 a.b x_1 __x - Z9.z
"""
SEED = 11
COUNT = 400

# Pieces that Java and Python read in different ways, or only one of them reads.
ATOMS = r"""
a b o O rders . - _ 2 ] } & \. \- \d \D \w \W \s \S \h \H \V \p{Alpha} \p{Lower} \P{Upper}
\pL \p{Lu} \p{IsAlphabetic} \p{Punct} \p{P} \p{IsPunctuation} \p{javaLowerCase} \x61
\x{62} \u0061 \0101 \Qa.b\E \Q- [ab] [^ab] [a-c] [a-z&&[^b]] [a-z&&b] [a[bc]] [^a[bc]]
[a-z&&[ab]b] [a-z&&a-m&&b] [\d_] [^\w] [-a] [a-] []a] [^]a] [\Qa\E] [a&b] [.]
[\p{L}&&[^a]] (a|b) (?:a|o) (?<n>a) \k<n> \1 (?=a) (?!a) (?<=a) (?<!b) (?>a|ab) (?i) (?-i)
(?i:o) (?s) (?u) ^ $ \b \A \z \Z (?P<m>a) { (?#c) (?x) [[:alpha:]] ( \y \cA \t [b-a]
[a-\d] [&&a] [a&&] (?<1>a) a{,2}
"""
QUANTIFIERS = "* + ? {2} {1,} {0,2} *? ++ ?+ ** {,1}"

# Java takes these; `java_regex` says that it does not.
BEYOND = ("is not understood here", "look-behind", "there is no group", "multiple repeat")


def expressions() -> list[str]:
    draw = random.Random(SEED)
    atoms, quantifiers = ATOMS.split(), ["", "", "", "", *QUANTIFIERS.split()]
    found = list(atoms)
    for _ in range(COUNT):
        parts = [draw.choice(atoms) + draw.choice(quantifiers) for _ in range(draw.randrange(1, 4))]
        found.append("".join(parts) + draw.choice(["", "", ".*", "|orders", "|(?i)A"]))
    return found


def test_patterns_find_what_java_finds(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    # Each call is a message to the JVM: five a pattern, and not two a name.
    patterns, copy, join = jvm.java.util.regex.Pattern, jvm.java.util.ArrayList, jvm.String.join
    names, agreed = NAMES.split(), 0
    all_names = copy()
    for name in names:
        all_names.add(name)
    for text in expressions():
        try:
            java = patterns.compile(text)
        except IllegalArgumentException:
            expected = None
        else:
            others = copy(all_names)
            others.removeIf(java.asPredicate())
            left = join(" ", others).split()
            expected = [name for name in names if name not in left]
        try:
            pattern = java_pattern(text)
        except ValueError as error:
            assert expected is None or any(each in str(error) for each in BEYOND), (text, error)
            continue
        assert [name for name in names if pattern.search(name)] == expected, text
        agreed += bool(expected)
    assert agreed > COUNT // 4
