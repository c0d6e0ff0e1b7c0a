//! The small text files of log directories and partitions.

use std::path::Path;

use kafkalite::log::directory::clean_shutdown;
use kafkalite::log::directory::meta_properties::MetaProperties;
use kafkalite::log::directory::offset_checkpoint::{OffsetCheckpoint, TopicPartition};
use kafkalite::log::partition_metadata;
use kafkalite::log::segment::transaction_index::AbortedIndex;
use kafkalite::log::state::epochs::LeaderEpochs;
use kafkalite::log::state::snapshots;
use kafkalite::log::storage::DiskStorage;
use kafkalite::uuid::Uuid;
use proptest::prelude::*;

fn partition(topic: &str, partition: i32) -> TopicPartition {
    TopicPartition {
        topic: topic.to_owned(),
        partition,
    }
}

#[test]
fn an_offset_checkpoint_prints_version_count_and_a_line_per_partition() {
    let checkpoint = OffsetCheckpoint {
        offsets: [(partition("b", 0), 7), (partition("a", 10), i64::MAX)].into(),
    };
    let text = "0\n2\na 10 9223372036854775807\nb 0 7\n";
    assert_eq!(checkpoint.print(), text);
    let path = Path::new("recovery-point-offset-checkpoint");
    assert_eq!(
        OffsetCheckpoint::parse(text.as_bytes(), path).unwrap(),
        checkpoint
    );
}

#[test]
fn an_offset_checkpoint_reads_what_java_would() {
    let path = Path::new("replication-offset-checkpoint");
    let parse = |text: &str| OffsetCheckpoint::parse(text.as_bytes(), path);
    assert!(parse("").unwrap().offsets.is_empty());
    assert!(parse("0\n").unwrap().offsets.is_empty());
    assert!(parse("0\n0\n").unwrap().offsets.is_empty());
    let odd = parse("0\r\n2\r\na  1\t5 \r\nb 2 6").unwrap();
    let expected = [(partition("a", 1), 5), (partition("b", 2), 6)];
    assert_eq!(odd.offsets, expected.into());
    assert_eq!(
        parse("0\n2\na 1 5\na 1 6\n").unwrap().offsets,
        [(partition("a", 1), 6)].into()
    );
}

#[test]
fn a_malformed_offset_checkpoint_is_refused_with_path_and_line() {
    let path = Path::new("/data/cleaner-offset-checkpoint");
    for (text, says) in [
        ("7\n0\n", "version 7"),
        ("zero\n", "line 1"),
        ("0\n-1\n", "line 2"),
        ("0\n1\n", "line 2 announces 1"),
        ("0\n1\na 1 5\nb 1 5\n", "line 2 announces 1"),
        ("0\n2\na 1 5\na 1\n", "line 4"),
        ("0\n1\na 1 5 6\n", "line 3"),
        ("0\n1\na 4294967296 5\n", "line 3"),
        ("0\n1\n a 1 5\n", "line 3"),
        ("0\n2\na 1 5\n\n", "line 4"),
    ] {
        let error = OffsetCheckpoint::parse(text.as_bytes(), path)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(says) && error.contains("/data/cleaner"),
            "{text:?}: {error}"
        );
    }
    let error = OffsetCheckpoint::parse(b"0\n1\n\xff 1 5\n", path)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("byte 4") && error.contains("UTF-8"),
        "{error}"
    );
}

#[test]
fn a_checkpoint_is_written_as_a_whole_and_a_missing_one_holds_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("recovery-point-offset-checkpoint");
    assert!(
        OffsetCheckpoint::read(&DiskStorage, &path)
            .unwrap()
            .offsets
            .is_empty()
    );
    let checkpoint = OffsetCheckpoint {
        offsets: [(partition("a", 0), 7)].into(),
    };
    checkpoint.write(&DiskStorage, &path).unwrap();
    checkpoint.write(&DiskStorage, &path).unwrap();
    assert_eq!(
        OffsetCheckpoint::read(&DiskStorage, &path).unwrap(),
        checkpoint
    );
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_uuid_prints_as_22_characters_and_reads_with_or_without_padding() {
    let id = Uuid([0xfb, 0xff, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    let text = "-_8CAwQFBgcICQoLDA0ODw";
    assert_eq!(id.to_string(), text);
    assert_eq!(Uuid::parse(text), Some(id));
    assert_eq!(Uuid::parse(&format!("{text}==")), Some(id));
    assert_eq!(Uuid::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
    for wrong in [
        "",
        "AAAA",
        "AAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        "+/8CAwQFBgcICQoLDA0ODw",
    ] {
        assert_eq!(Uuid::parse(wrong), None, "{wrong:?}");
    }
}

#[test]
fn partition_metadata_is_two_lines_without_a_last_line_end() {
    let id = Uuid([1; 16]);
    let text = partition_metadata::print(id);
    assert_eq!(text, "version: 0\ntopic_id: AQEBAQEBAQEBAQEBAQEBAQ");
    let path = Path::new("partition.metadata");
    assert_eq!(
        partition_metadata::parse(text.as_bytes(), path).unwrap(),
        id
    );
    let ended = format!("{text}\n");
    assert_eq!(
        partition_metadata::parse(ended.as_bytes(), path).unwrap(),
        id
    );
    for (text, says) in [
        ("", "line 1"),
        ("version: -1\n", "line 1"),
        ("version:0\n", "line 1"),
        ("version: 0\n", "line 2"),
        (
            "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
            "no topic id",
        ),
        ("version: 0\ntopic_id: short", "no topic id"),
    ] {
        let error = partition_metadata::parse(text.as_bytes(), path)
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{text:?}: {error}");
    }
}

#[test]
fn the_clean_shutdown_file_carries_the_broker_epoch_if_it_carries_anything() {
    assert_eq!(
        clean_shutdown::print(42),
        r#"{"version":0,"brokerEpoch":42}"#
    );
    for (text, epoch) in [
        (r#"{"version":0,"brokerEpoch":42}"#, Some(42)),
        (
            "{ \"brokerEpoch\" : -1 ,\n \"more\": \"a \\\"} b\", \"x\": true }\n",
            Some(-1),
        ),
        (r#"{"version":0,"brokerEpoch":null}"#, None),
        (r#"{"version":0,"brokerEpoch":"42"}"#, None),
        (r#"{"version":0}"#, None),
        ("{}", None),
        ("", None),
        ("{", None),
        (r#"{"brokerEpoch":42"#, None),
        (r#"{"brokerEpoch":42} x"#, None),
    ] {
        assert_eq!(clean_shutdown::parse(text.as_bytes()), epoch, "{text:?}");
    }
    assert_eq!(clean_shutdown::parse(&[0xff]), None);
}

fn sample() -> MetaProperties {
    MetaProperties {
        version: 1,
        cluster_id: Some("MkU3OEVBNTcwNTJENDM2Qk".to_owned()),
        node_id: Some(1),
        directory_id: Some(Uuid([7; 16])),
    }
}

#[test]
fn meta_properties_print_as_javas_properties_do() {
    // The same values through `Properties.store` of JDK 17 gave this text.
    let text = "#\n#Sat Nov 21 02:52:37 UTC 2026\nnode.id=1\n\
        directory.id=BwcHBwcHBwcHBwcHBwcHBw\nversion=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qk\n";
    assert_eq!(sample().print(1_795_229_557_000), text);
    let path = Path::new("meta.properties");
    assert_eq!(
        MetaProperties::parse(text.as_bytes(), path).unwrap(),
        sample()
    );
    let odd = MetaProperties {
        cluster_id: Some("a b:=#!é-_\\x\t".to_owned()),
        directory_id: None,
        ..sample()
    };
    let printed = odd.print(951_782_400_000);
    assert_eq!(
        printed,
        "#\n#Tue Feb 29 00:00:00 UTC 2000\nnode.id=1\nversion=1\n\
         cluster.id=a b\\:\\=\\#\\!é-_\\\\x\\t\n"
    );
    assert_eq!(
        MetaProperties::parse(printed.as_bytes(), path).unwrap(),
        odd
    );
}

#[test]
fn meta_properties_read_any_spelling_of_javas_properties() {
    let text = "! comment\n  version : 1\ncluster.id   abc\\\n    def\nnode.id=3\nnode\\.id=4\n\
        ignored\\u0041=x\n\n";
    let parsed = MetaProperties::parse(text.as_bytes(), Path::new("meta.properties")).unwrap();
    assert_eq!(parsed.cluster_id.as_deref(), Some("abcdef"));
    assert_eq!(parsed.node_id, Some(4));
    let old = MetaProperties::parse(b"version=0\nbroker.id=5\n", Path::new("x")).unwrap();
    assert_eq!(
        (old.version, old.node_id, old.cluster_id),
        (0, Some(5), None)
    );
}

#[test]
fn meta_properties_that_cannot_be_used_are_refused_by_what_is_wrong() {
    for (text, says) in [
        (
            "version=2\nnode.id=1\ncluster.id=x\n",
            "version 2 is unknown",
        ),
        ("version=one\n", "version=\"one\" is no number"),
        ("version=1\ncluster.id=x\n", "node.id is missing"),
        ("version=1\nnode.id=1\n", "cluster.id is missing"),
        ("version=1\nnode.id=x\ncluster.id=x\n", "node.id=\"x\""),
        (
            "version=1\nnode.id=1\ncluster.id=x\ndirectory.id=x\n",
            "directory.id=\"x\"",
        ),
        (
            "version=1\nnode.id=1\ncluster.id=x\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA\n",
            "directory.id",
        ),
        ("version=1\nnode.id=\\u00zz\n", "line 2"),
    ] {
        let path = Path::new("/data/meta.properties");
        let error = MetaProperties::parse(text.as_bytes(), path)
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(says) && error.contains("/data"),
            "{text:?}: {error}"
        );
    }
}

/// Hands the bytes to every reader of a small file; what they say is not the point.
fn read_as_everything(bytes: &[u8]) {
    let path = Path::new("x");
    let _ = OffsetCheckpoint::parse(bytes, path);
    let _ = LeaderEpochs::parse(bytes, path);
    let _ = MetaProperties::parse(bytes, path);
    let _ = partition_metadata::parse(bytes, path);
    let _ = clean_shutdown::parse(bytes);
    let _ = AbortedIndex::parse(bytes, 0, path);
    let mut snapshot = vec![0, 1, 0, 0, 0, 0];
    snapshot.extend_from_slice(bytes);
    let crc = crc32c::crc32c(bytes);
    snapshot[2..6].copy_from_slice(&crc.to_be_bytes());
    let _ = snapshots::decode(&snapshot, path);
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read_as_everything(&bytes);
    }

    #[test]
    fn any_text_near_the_formats_is_read_or_refused_without_a_panic(
        text in "(0|1|version[=: ]|node\\.id=|[a-z]{1,3}|-?[0-9]{1,20}|[ \t\r\n\\\\:=#!{}\",]|\\\\u|brokerEpoch|é){0,30}",
    ) {
        read_as_everything(text.as_bytes());
    }

    #[test]
    fn a_properties_value_of_any_text_comes_back(value in "\\PC{0,20}", now_ms in any::<i64>()) {
        let properties = MetaProperties { cluster_id: Some(value), ..sample() };
        let text = properties.print(now_ms);
        let parsed = MetaProperties::parse(text.as_bytes(), Path::new("meta.properties"));
        prop_assert_eq!(parsed.unwrap(), properties);
    }
}
