//! The rows of a topic's keys (`python/kafkalite/config/topic.txt`) and the engine, which reads them, agree.

use std::fs;

use kafkalite::log::config::LogConfig;

const ROWS: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/python/kafkalite/config/topic.txt"
);

/// Name, default and support of each row.
fn rows(text: &str) -> Vec<[&str; 3]> {
    let rows = text.lines().filter(|line| !line.starts_with(['#', ' ']));
    let words = rows.map(|row| row.split_whitespace().collect::<Vec<_>>());
    words
        .filter(|words| !words.is_empty())
        .map(|words| [words[0], words[2], words[5]])
        .collect()
}

#[test]
fn a_key_that_is_obeyed_has_the_engines_default_and_no_other_is_known_to_it() {
    let text = fs::read_to_string(ROWS).unwrap();
    let rows = rows(&text);
    let defaults = LogConfig::default();
    let mut obeyed_count = 0;
    for [name, default, support] in &rows {
        let value = if *default == "-" { "1048576" } else { default };
        let read = defaults.with_properties([(*name, value)]);
        match (*support, *default) {
            ("obeyed", "-") => assert!(read.is_ok(), "{name}"),
            ("obeyed", _) => assert_eq!(read.unwrap(), defaults, "{name}"),
            _ => assert!(
                read.is_err(),
                "{name} is {support}, and the engine reads it"
            ),
        }
        obeyed_count += usize::from(*support == "obeyed");
    }
    assert!(rows.len() > obeyed_count && obeyed_count > 20);
}
