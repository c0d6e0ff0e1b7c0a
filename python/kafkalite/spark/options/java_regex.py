"""Regular expressions of Java's for names of topics: `subscribePattern` means what it means to
Spark's connector, which has `java.util.regex` look for it anywhere in a name.

Names of topics are ASCII without line ends. So every character class is a set of ASCII characters,
worked out here (`[a-z&&[^aeiou]]`, `\\p{Alpha}`, `(?i)`), and `re` gets what both languages read in
the same way:

    Java                    Python
    [a-z&&[^aeiou]]  \\d     the characters, one by one
    \\Qa.b\\E                 a\\.b
    (?<name>…) \\k<name>     (?P<name>…) (?P=name)
    (?i)… (?i:…)            each letter as a class of two; the flags d, m, s, u, U change nothing
    *+ (?>…) (?=…) …        the same

What Java does not know, such as `(?P<name>…)` and a literal `{`, is refused as Java refuses it; and
what is not worth having for names (`(?x)`, `\\G`, `\\R`, `\\X`, `\\N{…}`, a look-behind of no fixed
length) is refused, too.
"""

import re
import string

__all__ = ["java_pattern"]

ASCII = frozenset(map(chr, range(128)))
# Stands for an empty set: no name has such a character.
NOTHING = r"[^\x00-\x7f]"
FLAGS = frozenset("idmsuU")
CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}

LOWER = frozenset(string.ascii_lowercase)
UPPER = frozenset(string.ascii_uppercase)
DIGIT = frozenset(string.digits)
ALPHA = LOWER | UPPER
PUNCT = frozenset(string.punctuation)
SPACE = frozenset(" \t\n\x0b\f\r")
BLANK = frozenset(" \t")
CNTRL = frozenset(map(chr, [*range(32), 127]))
GRAPH = ALPHA | DIGIT | PUNCT

# `\d` and the like; the letter in upper case is the complement.
SHORT = {
    "d": DIGIT,
    "w": ALPHA | DIGIT | {"_"},
    "s": SPACE,
    "h": BLANK,
    "v": frozenset("\n\x0b\f\r"),
}

# `\p{…}`: those of POSIX and of `java.lang.Character`, and what ASCII has of categories, scripts
# and blocks.
SYMBOLS = frozenset("$+<=>^`|~")
PROPERTIES = {
    "Lower": LOWER,
    "Upper": UPPER,
    "ASCII": ASCII,
    "Alpha": ALPHA,
    "Digit": DIGIT,
    "Alnum": ALPHA | DIGIT,
    "Punct": PUNCT,
    "Graph": GRAPH,
    "Print": GRAPH | {" "},
    "Blank": BLANK,
    "Cntrl": CNTRL,
    "XDigit": frozenset(string.hexdigits),
    "Space": SPACE,
    "javaLowerCase": LOWER,
    "javaUpperCase": UPPER,
    "L": ALPHA,
    "Ll": LOWER,
    "Lu": UPPER,
    "N": DIGIT,
    "Nd": DIGIT,
    "P": PUNCT - SYMBOLS,
    "Pd": frozenset("-"),
    "Pc": frozenset("_"),
    "S": SYMBOLS,
    "IsAlphabetic": ALPHA,
    "IsDigit": DIGIT,
    "IsLetter": ALPHA,
    "IsLowercase": LOWER,
    "IsUppercase": UPPER,
    "IsLatin": ALPHA,
    "InBasicLatin": ASCII,
}


def java_pattern(text: str) -> re.Pattern[str]:
    """For `search` in names of topics. Raises `ValueError` for what is no expression of Java's,
    or none that is understood here."""
    translator = _Translator(text)
    try:
        return re.compile(translator.whole(), re.ASCII)
    except (re.error, OverflowError) as error:
        raise ValueError(str(error)) from error


class _Translator:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._groups = 0
        self._ignores_case = False

    def whole(self) -> str:
        """The expression in Python's words."""
        found = self._alternatives()
        if self._at < len(self._text):
            raise self._refusal("a ')' that closes nothing")
        return found

    # --- the text ---------------------------------------------------------------------------------

    def _refusal(self, what: str) -> ValueError:
        return ValueError(f"{what}, at position {self._at}")

    def _looks_at(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _takes(self, text: str) -> bool:
        found = self._looks_at(text)
        if found:
            self._at += len(text)
        return found

    def _next(self) -> str:
        if self._at >= len(self._text):
            raise self._refusal("it ends too early")
        self._at += 1
        return self._text[self._at - 1]

    def _until(self, end: str) -> str:
        stop = self._text.find(end, self._at)
        if stop < 0:
            raise self._refusal(f"{end} is missing")
        found = self._text[self._at : stop]
        self._at = stop + len(end)
        return found

    # --- what stands outside of classes -----------------------------------------------------------

    def _alternatives(self) -> str:
        """Up to the end of a group; flags that are set in it end with it."""
        ignored_case = self._ignores_case
        parts: list[str] = []
        while self._at < len(self._text) and not self._looks_at(")"):
            if self._takes("|"):
                parts.append("|")
                continue
            atom = self._atom()
            if atom or self._looks_at("{"):
                parts.append((atom or "(?:)") + self._quantifier())
        self._ignores_case = ignored_case
        return "".join(parts)

    def _atom(self) -> str:
        """One that a quantifier may follow; empty for a flag, which stands for nothing."""
        char = self._next()
        if char == "(":
            return self._group()
        if char == "[":
            return _one_of(self._members())
        if char == "\\":
            return self._escaped()
        if char in "*+?{":
            raise self._refusal(f"nothing stands before the '{char}'")
        if char in "^$":
            return f"(?:{char})"
        return _one_of(ASCII - {"\n", "\r"}) if char == "." else self._literal(char)

    def _literal(self, char: str) -> str:
        return _one_of(self._cases(frozenset(char)))

    def _cases(self, chars: frozenset[str]) -> frozenset[str]:
        if not self._ignores_case:
            return chars
        return chars | {each.lower() for each in chars} | {each.upper() for each in chars}

    def _quantifier(self) -> str:
        found = re.compile(r"(?:[*+?]|\{\d+(?:,\d*)?\})[?+]?").match(self._text, self._at)
        if found is None:
            return ""
        self._at = found.end()
        return found[0]

    def _group(self) -> str:
        if not self._takes("?"):
            self._groups += 1
            return self._closed("(")
        for opening in (":", "=", "!", ">", "<=", "<!"):
            if self._takes(opening):
                return self._closed(f"(?{opening}")
        if self._takes("<"):
            self._groups += 1
            return self._closed(f"(?P<{self._name()}>")
        return self._flags()

    def _closed(self, opening: str) -> str:
        found = opening + self._alternatives()
        if not self._takes(")"):
            raise self._refusal("a group is not closed")
        return found + ")"

    def _name(self) -> str:
        name = self._until(">")
        if not re.fullmatch("[A-Za-z][A-Za-z0-9]*", name):
            raise self._refusal(f"'{name}' is no name of a group")
        return name

    def _flags(self) -> str:
        is_on = True
        ignores_case = self._ignores_case
        while (char := self._next()) not in ":)":
            if char == "-" and is_on:
                is_on = False
            elif char not in FLAGS:
                raise self._refusal(f"'(?{char}' is not understood here")
            elif char == "i":
                ignores_case = is_on
        ignored_case, self._ignores_case = self._ignores_case, ignores_case
        if char == ")":
            return ""
        found = self._closed("(?:")
        self._ignores_case = ignored_case
        return found

    def _escaped(self) -> str:
        char = self._next()
        if char == "Q":
            return self._quoted()
        if char in "bBA":
            return f"(?:\\{char})"
        if char in "zZ":
            return r"(?:\Z)"
        if char == "k":
            if not self._takes("<"):
                raise self._refusal("\\k wants the name of a group")
            return self._reference(f"(?P={self._name()})")
        if char in "123456789":
            number = int(char)
            while self._at < len(self._text) and self._text[self._at] in string.digits:
                longer = number * 10 + int(self._text[self._at])
                if longer > self._groups:
                    break
                number = longer
                self._at += 1
            if number > self._groups:
                raise self._refusal(f"there is no group {number} before it")
            return self._reference(f"\\{number}")
        self._at -= 1
        return _one_of(self._escaped_members())

    def _reference(self, text: str) -> str:
        return f"(?i:{text})" if self._ignores_case else f"(?:{text})"

    def _quoted(self) -> str:
        r"""What stands between \Q and \E; a quantifier belongs to the last character."""
        stop = self._text.find("\\E", self._at)
        quoted = self._text[self._at :] if stop < 0 else self._text[self._at : stop]
        self._at = len(self._text) if stop < 0 else stop + 2
        return "".join(map(self._literal, quoted))

    # --- sets of characters -----------------------------------------------------------------------

    def _members(self) -> frozenset[str]:
        """Reads the members of a class, behind its bracket."""
        is_negated = self._takes("^")
        members = self._items()
        self._at += 1
        return ASCII - members if is_negated else members

    def _items(self) -> frozenset[str]:
        """Up to a class's closing bracket, which is none where it stands first: characters, ranges,
        classes, and what `&&` leaves of all before it."""
        members: frozenset[str] | None = None
        start = self._at
        while not self._looks_at("]") or self._at == start:
            if self._takes("&&"):
                right = self._right()
                if right is not None:
                    members = right if members is None else members & right
                continue
            found = self._members() if self._takes("[") else self._range()
            members = found if members is None else members | found
        if members is None:
            raise self._refusal("a class that holds nothing")
        return members

    def _right(self) -> frozenset[str] | None:
        """Reads the right side of `&&`: classes, and all the rest of the class."""
        members: frozenset[str] | None = None
        while not self._looks_at("]") and not self._looks_at("&"):
            found = self._members() if self._takes("[") else self._items()
            members = found if members is None else members | found
        return members

    def _range(self) -> frozenset[str]:
        first = self._member()
        if not self._looks_at("-") or self._looks_at("-]") or self._looks_at("-["):
            return self._cases(first) if len(first) == 1 else first
        self._at += 1
        last = self._member()
        if len(first) != 1 or len(last) != 1 or min(last) < min(first):
            raise self._refusal("a range that is none")
        return self._cases(frozenset(map(chr, range(ord(min(first)), ord(min(last)) + 1))))

    def _member(self) -> frozenset[str]:
        char = self._next()
        return self._escaped_members() if char == "\\" else frozenset(char)

    def _escaped_members(self) -> frozenset[str]:
        """Reads the members of an escape, behind its backslash, within a class or outside."""
        char = self._next()
        if char.lower() in SHORT:
            members = SHORT[char.lower()]
            return members if char.islower() else ASCII - members
        if char in "pP":
            name = self._until("}") if self._takes("{") else self._next()
            members = PROPERTIES.get(name, PROPERTIES.get(name.removeprefix("Is"), frozenset()))
            if not members:
                raise self._refusal(f"\\p{{{name}}} is not understood here")
            if self._ignores_case and members in (LOWER, UPPER):
                members = ALPHA
            return members if char == "p" else ASCII - members
        if char in CONTROL:
            return frozenset(CONTROL[char])
        if char == "c":
            return frozenset(chr(ord(self._next()) ^ 64))
        if char == "x" and self._takes("{"):
            return self._number(self._until("}"), 16)
        if char in "xu":
            digits = 2 if char == "x" else 4
            text = self._text[self._at : self._at + digits]
            self._at += digits
            return self._number(text if len(text) == digits else "", 16)
        if char == "0":
            found = re.compile("[0-3]?[0-7]{1,2}").match(self._text, self._at)
            self._at = self._at if found is None else found.end()
            return self._number("" if found is None else found[0], 8)
        if char.isascii() and char.isalnum():
            raise self._refusal(f"\\{char} is not understood here")
        return frozenset(char)

    def _number(self, text: str, base: int) -> frozenset[str]:
        try:
            return self._cases(frozenset(chr(int(text, base))))
        except (ValueError, OverflowError):
            raise self._refusal(f"'{text}' is no number of a character") from None


def _one_of(chars: frozenset[str]) -> str:
    """A class of these. Topics have ASCII names, so others are nobody's."""
    if len(chars) == 1:
        return re.escape(min(chars))
    known = sorted(chars & ASCII)
    return "[" + "".join(map(re.escape, known)) + "]" if known else NOTHING
