//! Regular expressions in the syntax of RE2, matched as a whole in linear time.
//!
//! ```text
//! RE2's pattern ──► parsed strictly, flags and classes spelt out ──► regex-automata's NFA
//! ```
//!
//! Kafka compiles with com.google.re2j 1.8, and what that refuses is refused here: the crate's own
//! syntax reads `[[]`, `[a&&b]`, `\Q`, `\d`, `{,5}`, `x**` otherwise. Patterns are bounded, since
//! they come from clients: in bytes, in nesting, and in the states that they become.

use std::fmt::Write as _;

use regex_automata::nfa::thompson::{self, WhichCaptures, pikevm};
use regex_automata::util::syntax;
use regex_automata::{Anchored, Input};

/// Longer patterns are refused.
const PATTERN_BYTES_MAX: usize = 1_000;
/// Groups within groups.
const NESTING_MAX: usize = 100;
/// Memory of the states that a pattern becomes: `a{1000}` takes a fifth of it.
const NFA_BYTES_MAX: usize = 256 * 1024;
const REPEAT_MAX: u32 = 1_000;
const CODE_POINT_MAX: u32 = 0x10_FFFF;
/// A class that nothing is in.
const NOTHING: &str = r"[^\x{0}-\x{10FFFF}]";

const CATEGORIES: &str = "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S \
    Sc Sk Sm So Z Zl Zp Zs";

const SCRIPTS: &str = "Arabic Armenian Avestan Balinese Bamum Batak Bengali Bopomofo Brahmi Braille \
    Buginese Buhid Canadian_Aboriginal Carian Cham Cherokee Common Coptic Cuneiform Cypriot Cyrillic \
    Deseret Devanagari Egyptian_Hieroglyphs Ethiopic Georgian Glagolitic Gothic Greek Gujarati \
    Gurmukhi Han Hangul Hanunoo Hebrew Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi \
    Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kayah_Li Kharoshthi Khmer Lao Latin \
    Lepcha Limbu Linear_B Lisu Lycian Lydian Malayalam Mandaic Meetei_Mayek Mongolian Myanmar \
    New_Tai_Lue Nko Ogham Ol_Chiki Old_Italic Old_Persian Old_South_Arabian Old_Turkic Oriya Osmanya \
    Phags_Pa Phoenician Rejang Runic Samaritan Saurashtra Shavian Sinhala Sundanese Syloti_Nagri \
    Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Tamil Telugu Thaana Thai Tibetan Tifinagh \
    Ugaritic Vai Yi";

const POSIX_CLASSES: [(&str, &str); 14] = [
    ("alnum", "0-9A-Za-z"),
    ("alpha", "A-Za-z"),
    ("ascii", r"\x{0}-\x{7F}"),
    ("blank", r"\x{9}\x{20}"),
    ("cntrl", r"\x{0}-\x{1F}\x{7F}"),
    ("digit", "0-9"),
    ("graph", r"\x{21}-\x{7E}"),
    ("lower", "a-z"),
    ("print", r"\x{20}-\x{7E}"),
    (
        "punct",
        r"\x{21}-\x{2F}\x{3A}-\x{40}\x{5B}-\x{60}\x{7B}-\x{7E}",
    ),
    ("space", r"\x{9}-\x{D}\x{20}"),
    ("upper", "A-Z"),
    ("word", "0-9A-Za-z_"),
    ("xdigit", "0-9A-Fa-f"),
];

/// A pattern, ready to be matched.
pub struct Re2 {
    vm: pikevm::PikeVM,
    cache: pikevm::Cache,
}

impl Re2 {
    /// `None`: RE2 refuses the pattern, or it is beyond the bounds.
    pub fn compile(pattern: &str) -> Option<Re2> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return None;
        }
        let spelt = Parser::new(pattern).parse()?;
        let states = thompson::Config::new()
            .nfa_size_limit(Some(NFA_BYTES_MAX))
            .which_captures(WhichCaptures::None);
        let vm = pikevm::PikeVM::builder()
            .syntax(syntax::Config::new().utf8(false))
            .thompson(states)
            .build(&format!(r"(?:{spelt})\z"))
            .ok()?;
        let cache = vm.create_cache();
        Some(Re2 { vm, cache })
    }

    /// Returns true if the whole text matches. Time grows with the product of text and pattern.
    pub fn matches(&mut self, text: &str) -> bool {
        let whole = Input::new(text).anchored(Anchored::Yes).earliest(true);
        self.vm.is_match(&mut self.cache, whole)
    }
}

#[derive(Clone, Copy, Default)]
struct Flags {
    folds_case: bool,
    is_multi_line: bool,
    dot_takes_newline: bool,
}

/// Writes a pattern of RE2 in the words of `regex-syntax`, each flag where it holds.
struct Parser<'a> {
    rest: &'a str,
    out: String,
    flags: Flags,
    names: Vec<&'a str>,
}

impl<'a> Parser<'a> {
    fn new(pattern: &'a str) -> Parser<'a> {
        Parser {
            rest: pattern,
            out: String::with_capacity(2 * pattern.len()),
            flags: Flags::default(),
            names: Vec::new(),
        }
    }

    fn parse(mut self) -> Option<String> {
        self.alternatives(0)?;
        self.rest.is_empty().then_some(self.out)
    }

    fn take(&mut self) -> Option<char> {
        let next = self.rest.chars().next()?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }

    fn takes(&mut self, prefix: &str) -> bool {
        let rest = self.rest.strip_prefix(prefix);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Takes what stands before `end`, and `end`, and returns the one.
    fn take_up_to(&mut self, end: &str) -> Option<&'a str> {
        let (before, behind) = self.rest.split_once(end)?;
        self.rest = behind;
        Some(before)
    }

    /// Up to the end, or to a parenthesis that closes what was opened before.
    fn alternatives(&mut self, depth: usize) -> Option<()> {
        // Where the last thing begins that may be repeated, and whether it was.
        let (mut last, mut was_repeated) = (None, false);
        while let Some(next) = self.rest.chars().next() {
            if next == ')' {
                break;
            }
            let at = self.out.len();
            if let Some(operator) = self.repetition()? {
                let start: usize = last?;
                if was_repeated {
                    return None;
                }
                // One may stand before flags, which part the operators.
                self.out.insert_str(start, "(?:");
                self.out.push(')');
                self.out.push_str(&operator);
                was_repeated = true;
                continue;
            }
            // re2j takes a `{` that is text for a repetition here.
            was_repeated = next == '{';
            match next {
                '|' => {
                    self.take();
                    self.out.push('|');
                    last = None;
                }
                '(' => {
                    if self.group(depth)? {
                        last = Some(at);
                    }
                }
                _ => {
                    if let Some(start) = self.atom()? {
                        last = Some(start);
                    }
                }
            }
        }
        Some(())
    }

    /// `None` within: something else comes.
    fn repetition(&mut self) -> Option<Option<String>> {
        let operator = match self.rest.chars().next() {
            Some(simple @ ('*' | '+' | '?')) => {
                self.take();
                simple.to_string()
            }
            Some('{') => match self.counts()? {
                Some((min, None)) => format!("{{{min},}}"),
                Some((min, Some(max))) => format!("{{{min},{max}}}"),
                None => return Some(None),
            },
            _ => return Some(None),
        };
        // To take as little as possible changes nothing of a whole match.
        self.takes("?");
        Some(Some(operator))
    }

    /// `{2}`, `{2,}`, `{2,3}`; anything else is text. `None`: too large.
    #[expect(clippy::option_option, reason = "refused, text, or counts")]
    fn counts(&mut self) -> Option<Option<(u32, Option<u32>)>> {
        let Some((inside, behind)) = self.rest[1..].split_once('}') else {
            return Some(None);
        };
        let (min, max) = inside.split_once(',').unwrap_or((inside, inside));
        let is_count = |text: &str| {
            let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            is_number && (text.len() == 1 || !text.starts_with('0'))
        };
        let is_open = inside.contains(',') && max.is_empty();
        if !is_count(min) || !(is_open || is_count(max)) {
            return Some(None);
        }
        self.rest = behind;
        let bounded = |text: &str| text.parse().ok().filter(|count| *count <= REPEAT_MAX);
        let min = bounded(min)?;
        let max = if is_open { None } else { Some(bounded(max)?) };
        max.is_none_or(|max| min <= max).then_some(Some((min, max)))
    }

    /// A group, or flags for what follows. Returns whether it was a group.
    fn group(&mut self, depth: usize) -> Option<bool> {
        let outside = self.flags;
        self.take();
        if self.takes("?P<") || self.takes("?<") {
            let name = self.take_up_to(">")?;
            let is_word = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
            if name.is_empty() || !name.bytes().all(is_word) || self.names.contains(&name) {
                return None;
            }
            self.names.push(name);
        } else if self.takes("?") {
            let opens = self.flag_letters()?;
            if !opens {
                return Some(false);
            }
        }
        if depth == NESTING_MAX {
            return None;
        }
        self.out.push_str("(?:");
        self.alternatives(depth + 1)?;
        self.out.push(')');
        self.flags = outside;
        self.takes(")").then_some(true)
    }

    /// `i-s:` and `i)`: whether a group is opened by it.
    fn flag_letters(&mut self) -> Option<bool> {
        let (mut flags, mut sets, mut has_letter) = (self.flags, true, false);
        loop {
            match self.take()? {
                'i' => flags.folds_case = sets,
                'm' => flags.is_multi_line = sets,
                's' => flags.dot_takes_newline = sets,
                // Which of two matches is taken changes nothing of a whole one.
                'U' => {}
                '-' if sets => {
                    (sets, has_letter) = (false, false);
                    continue;
                }
                end @ (':' | ')') if sets || has_letter => {
                    self.flags = flags;
                    return Some(end == ':');
                }
                _ => return None,
            }
            has_letter = true;
        }
    }

    /// One thing that may be repeated; where it begins, or `None` within for `\Q\E`.
    fn atom(&mut self) -> Option<Option<usize>> {
        let mut start = self.out.len();
        match self.take()? {
            '.' if self.flags.dot_takes_newline => self.out.push_str("(?s:.)"),
            '.' => self.out.push_str(r"[^\n]"),
            '^' if self.flags.is_multi_line => self.out.push_str("(?m:^)"),
            '^' => self.out.push_str(r"\A"),
            '$' if self.flags.is_multi_line => self.out.push_str("(?m:$)"),
            '$' => self.out.push_str(r"\z"),
            '[' => self.class()?,
            '\\' if self.takes("A") => self.out.push_str(r"\A"),
            '\\' if self.takes("z") => self.out.push_str(r"\z"),
            '\\' if self.takes("b") => self.out.push_str(r"(?-u:\b)"),
            '\\' if self.takes("B") => self.out.push_str(r"(?-u:\B)"),
            '\\' if self.takes("Q") => {
                let text = self.rest.split_once(r"\E");
                let (text, behind) = text.unwrap_or((self.rest, ""));
                self.rest = behind;
                if text.is_empty() {
                    return Some(None);
                }
                for each in text.chars() {
                    start = self.out.len();
                    self.literal(u32::from(each));
                }
            }
            '\\' => match self.known_class()? {
                Some(items) => self.write_class(false, &items),
                None => {
                    let escaped = self.escape()?;
                    self.literal(escaped);
                }
            },
            literal => self.literal(u32::from(literal)),
        }
        Some(Some(start))
    }

    fn literal(&mut self, code_point: u32) {
        let fold = if self.flags.folds_case { "i" } else { "" };
        let _ = if char::from_u32(code_point).is_some() {
            write!(self.out, r"(?{fold}:\x{{{code_point:X}}})")
        } else {
            // Half a surrogate pair, which no text has.
            self.out.write_str(NOTHING)
        };
    }

    fn write_class(&mut self, is_negated: bool, items: &str) {
        let fold = if self.flags.folds_case { "i" } else { "" };
        let _ = match (is_negated, items.is_empty()) {
            (false, true) => self.out.write_str(NOTHING),
            (true, true) => self.out.write_str("(?s:.)"),
            (false, false) => write!(self.out, "(?{fold}:[{items}])"),
            (true, false) => write!(self.out, "(?{fold}:[^{items}])"),
        };
    }

    /// Behind `[`.
    fn class(&mut self) -> Option<()> {
        let is_negated = self.takes("^");
        let mut items = String::new();
        let mut is_first = true;
        while is_first || !self.rest.starts_with(']') {
            is_first = false;
            if self.rest.starts_with("[:")
                && let Some(end) = self.rest.find(":]")
            {
                let name = self.rest.get(2..end)?;
                self.rest = &self.rest[end + 2..];
                let (name, negates) = match name.strip_prefix('^') {
                    Some(name) => (name, "^"),
                    None => (name, ""),
                };
                let (_, ranges) = POSIX_CLASSES.iter().find(|(known, _)| *known == name)?;
                let _ = write!(items, "[{negates}{ranges}]");
                continue;
            }
            let before = self.rest;
            if self.takes("\\")
                && let Some(known) = self.known_class()?
            {
                items.push_str(&known);
                continue;
            }
            self.rest = before;
            let low = self.class_char()?;
            let mut high = low;
            if self.rest.starts_with('-') && !self.rest.starts_with("-]") {
                self.take();
                high = self.class_char()?;
            }
            if high < low {
                return None;
            }
            write_range(&mut items, low, high);
        }
        self.take();
        self.write_class(is_negated, &items);
        Some(())
    }

    fn class_char(&mut self) -> Option<u32> {
        match self.take()? {
            '\\' => self.escape(),
            plain => Some(u32::from(plain)),
        }
    }

    /// Behind a backslash: `d`, `pL` and their like, as items of a class. `None`
    /// within: something else comes.
    fn known_class(&mut self) -> Option<Option<String>> {
        let mut chars = self.rest.chars();
        let found = match chars.next() {
            Some('d') => "[0-9]",
            Some('D') => "[^0-9]",
            Some('s') => r"[\t\n\f\r\x20]",
            Some('S') => r"[^\t\n\f\r\x20]",
            Some('w') => "[0-9A-Za-z_]",
            Some('W') => "[^0-9A-Za-z_]",
            Some(letter @ ('p' | 'P')) => {
                self.rest = chars.as_str();
                return self.property(letter == 'P').map(Some);
            }
            _ => return Some(None),
        };
        self.rest = chars.as_str();
        Some(Some(found.to_owned()))
    }

    /// Behind `\p` or `\P`.
    fn property(&mut self, is_negated: bool) -> Option<String> {
        let name = if self.takes("{") {
            self.take_up_to("}")?
        } else {
            let before = self.rest;
            let letter = self.take()?;
            &before[..letter.len_utf8()]
        };
        let (name, is_negated) = match name.strip_prefix('^') {
            Some(name) => (name, !is_negated),
            None => (name, is_negated),
        };
        let items = match name {
            "Any" => r"\x{0}-\x{10FFFF}".to_owned(),
            "C" => r"\p{Cc}\p{Cf}\p{Co}".to_owned(),
            // Halves of surrogate pairs, which no text has.
            "Cs" => NOTHING.to_owned(),
            _ => {
                let mut known = CATEGORIES.split(' ').chain(SCRIPTS.split(' '));
                known.find(|each| *each == name)?;
                format!(r"\p{{{name}}}")
            }
        };
        let negates = if is_negated { "^" } else { "" };
        Some(format!("[{negates}{items}]"))
    }

    /// Behind a backslash: the character that is meant.
    fn escape(&mut self) -> Option<u32> {
        let digit = |text: &str| text.chars().next().and_then(|each| each.to_digit(8));
        match self.take()? {
            'a' => Some(7),
            'f' => Some(12),
            'n' => Some(10),
            'r' => Some(13),
            't' => Some(9),
            'v' => Some(11),
            'x' => self.hexadecimal(),
            first @ '0'..='7' => {
                // One digit that is not 0 would be what a group has matched.
                if first != '0' {
                    digit(self.rest)?;
                }
                let mut value = first.to_digit(8)?;
                for _ in 0..2 {
                    let Some(next) = digit(self.rest) else { break };
                    value = value * 8 + next;
                    self.take();
                }
                Some(value)
            }
            other if !other.is_ascii_alphanumeric() => Some(u32::from(other)),
            _ => None,
        }
    }

    fn hexadecimal(&mut self) -> Option<u32> {
        if !self.takes("{") {
            let high = self.take()?.to_digit(16)?;
            return Some(high * 16 + self.take()?.to_digit(16)?);
        }
        let mut value = self.take()?.to_digit(16)?;
        loop {
            match self.take()? {
                '}' => return Some(value),
                digit => value = value * 16 + digit.to_digit(16)?,
            }
            if value > CODE_POINT_MAX {
                return None;
            }
        }
    }
}

/// Halves of surrogate pairs are left out: no text has them.
fn write_range(items: &mut String, low: u32, high: u32) {
    let half = 0xD800..=0xDFFF_u32;
    let low = if half.contains(&low) { 0xE000 } else { low };
    let high = if half.contains(&high) { 0xD7FF } else { high };
    if low <= high {
        let _ = write!(items, r"\x{{{low:X}}}-\x{{{high:X}}}");
    }
}

#[cfg(test)]
mod tests {
    use super::Re2;

    /// As com.google.re2j 1.8 answers.
    #[test]
    fn what_re2_refuses_is_refused() {
        for pattern in [
            "a**",
            "{*",
            "a{{2}",
            "a*+",
            "a???",
            "a{2}{3}",
            "x{1001}",
            "x{2,1}",
            "*",
            "(*)",
            "(?i)*",
            r"\Q\E*",
            "(?i",
            "(?-)",
            "(?=a)",
            "(?<!a)",
            "(?#x)",
            "(?x)a",
            "(?P=n)",
            "(?<>a)",
            "(?<n",
            "(?<n>a)(?<n>b)",
            "(a",
            "a)",
            "[",
            "[]",
            "[z-a]",
            "[[:foo:]]",
            r"[a-\d]",
            r"[\b]",
            r"\C",
            r"\1",
            r"\Z",
            r"\E",
            r"\h",
            r"\u0041",
            r"\x",
            r"\x{}",
            r"\x{110000}",
            r"\",
            r"\p",
            r"\p{",
            r"\pX",
            r"\p{greek}",
            r"\p{Cn}",
            r"\p{Alphabetic}",
            r"\p{sc=Greek}",
        ] {
            assert!(Re2::compile(pattern).is_none(), "{pattern}");
        }
    }

    #[test]
    fn patterns_are_matched_as_a_whole_and_as_re2_does() {
        for (pattern, matching, other) in [
            ("", "", "a"),
            ("a|ab", "ab", "abc"),
            ("x{,5}", "x{,5}", "x"),
            ("x{01}", "x{01}", "x"),
            ("a{2,}", "aaa", "a"),
            ("a+(?i)?", "", "b"),
            ("[[]", "[", "a"),
            ("[a&&b]", "&", "c"),
            ("[]a]", "]", "b"),
            ("[--a]", "a", "b"),
            (r"\Qa.b\E+", "a.bb", "axb"),
            (r"\d", "7", "٧"),
            (r"\w+", "aZ_9", "ä"),
            (r"\pL", "ä", "1"),
            (r"[\PL]", "1", "ä"),
            (r"\p{^Greek}", "a", "α"),
            ("(?i)stra.e", "STRAßE", "STRA\nE"),
            ("(?i)k", "\u{212A}", "x"),
            ("((?i)a)b", "Ab", "AB"),
            ("(?s)a.b", "a\nb", "ab"),
            ("(?m)a$\n^b", "a\nb", "ab"),
            (r"a\b.*", "a-", "ab"),
            (r"\x{D800}|\12", "\n", "D"),
            (r"[^\x{D800}-\x{DFFF}]", "a", ""),
            ("(?<1>a)", "a", "1"),
        ] {
            let mut compiled = Re2::compile(pattern).expect(pattern);
            assert!(compiled.matches(matching), "{pattern}");
            assert!(!compiled.matches(other), "{pattern}");
        }
    }

    #[test]
    fn patterns_beyond_the_bounds_are_refused() {
        let nested = |depth| "(".repeat(depth) + "a" + &")".repeat(depth);
        assert!(Re2::compile(&nested(super::NESTING_MAX)).is_some());
        assert!(Re2::compile(&nested(super::NESTING_MAX + 1)).is_none());
        assert!(Re2::compile(&"a".repeat(super::PATTERN_BYTES_MAX)).is_some());
        assert!(Re2::compile(&"a".repeat(super::PATTERN_BYTES_MAX + 1)).is_none());
        assert!(Re2::compile("a{1000}").is_some());
        assert!(Re2::compile("(a{1000}){1000}").is_none());
    }
}
