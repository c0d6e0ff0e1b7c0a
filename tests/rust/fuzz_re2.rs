//! A bounded, seeded run of the fuzz target of regular expressions, on changes of good ones.

use crate::fuzz_batch::run;

#[path = "../../rust/fuzz/re2.rs"]
mod re2;

const PATTERNS: [(&str, &str); 8] = [
    (r"(?i)orders-[0-9]{1,4}\.\pL+", "Orders-12.x"),
    (r"(?P<name>a|b*?)|^$|\Az", "ab"),
    (r"[^[:alpha:]\d\-\x{20AC}-\x{20AF}]+", "€"),
    (r"\Q[a-z]\E{2,}|\p{Greek}", "[a-z]]"),
    (r"(?m-s:^a.$)\b\B\W", "a\nb"),
    (r"((((a{2}){2}){2}){2})", "aaaaaaaaaaaaaaaa"),
    (r"x{,5}\101\x41[]a-c]", "x{,5}AAb"),
    (r"(?sU:.*)(?-i)\z", "any\nthing"),
];

#[test]
fn fuzz_regular_expressions() {
    let seeds: Vec<Vec<u8>> = PATTERNS
        .iter()
        .map(|(pattern, text)| [pattern.as_bytes(), &[re2::PART], text.as_bytes()].concat())
        .collect();
    for (pattern, _) in PATTERNS {
        assert!(kafkalite::re2::Re2::compile(pattern).is_some(), "{pattern}");
    }
    run(&seeds, false, re2::re2);
}
