//! The rows of configuration keys (`python/kafkalite/config/topic.txt`, `broker.txt`) and the
//! engine, which reads some of them, agree: DescribeConfigs tells the rows' defaults, and a log
//! without a configuration has these.

use std::fs;

use kafkalite::log::config::LogConfig;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/python/kafkalite/config");
const BROKER_KEYS: [&str; 3] = [
    "kafkalite.acks.fsync",
    "kafkalite.produce.validation",
    "producer.id.expiration.ms",
];

/// Name, default and support of each row of a file.
fn rows(file: &str) -> Vec<[String; 3]> {
    let text = fs::read_to_string(format!("{FOLDER}/{file}")).unwrap();
    let rows = text.lines().filter(|line| !line.starts_with(['#', ' ']));
    let words = rows.map(|row| row.split_whitespace().collect::<Vec<_>>());
    words
        .filter(|words| !words.is_empty())
        .map(|words| [words[0], words[2].trim_matches('"'), words[5]].map(String::from))
        .collect()
}

#[test]
fn a_key_that_is_obeyed_has_the_engines_default_and_no_other_is_known_to_it() {
    let rows = rows("topic.txt");
    let defaults = LogConfig::default();
    let mut obeyed_count = 0;
    for [name, default, support] in &rows {
        let value = if default == "-" { "1048576" } else { default };
        let read = defaults.with_properties([(name.as_str(), value)]);
        match (support.as_str(), default.as_str()) {
            ("obeyed", "-") => assert!(read.is_ok(), "{name}"),
            ("obeyed", _) => assert_eq!(read.unwrap(), defaults, "{name}"),
            _ => assert!(
                read.is_err(),
                "{name} is {support}, and the engine reads it"
            ),
        }
        obeyed_count += usize::from(support == "obeyed");
    }
    assert!(rows.len() > obeyed_count && obeyed_count > 20);
}

#[test]
fn a_brokers_key_that_logs_obey_has_the_engines_default() {
    let defaults = LogConfig::default();
    let rows = rows("broker.txt");
    let of_logs = rows
        .iter()
        .filter(|[name, ..]| BROKER_KEYS.contains(&name.as_str()));
    for [name, default, _] in of_logs.clone() {
        let read = defaults.with_properties([(name.as_str(), default.as_str())]);
        assert_eq!(read.unwrap(), defaults, "{name}");
    }
    assert_eq!(of_logs.count(), BROKER_KEYS.len());
}
