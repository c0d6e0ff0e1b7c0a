//! A bounded, seeded run of the fuzz target of requests, on changes of good ones in every version.

use kafkalite::api::HOT_KEYS;
use kafkalite::uuid::Uuid;
use kafkalite::wire::Writer;

use crate::fuzz_batch::run;

#[path = "../../rust/fuzz/requests.rs"]
mod requests;

/// One topic, one partition of it, in every version of every key.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for key in HOT_KEYS {
        for version in key.min..=key.max {
            let flexible = version >= key.first_flexible;
            let mut writer = Writer::default();
            writer.i16(key.key);
            writer.i16(version);
            writer.i32(7);
            writer.nullable_string(Some("me"), false);
            writer.no_tags(flexible);
            match key.key {
                0 => produce(&mut writer, version, flexible),
                1 => fetch(&mut writer, version, flexible),
                2 => list_offsets(&mut writer, version, flexible),
                3 => metadata(&mut writer, version, flexible),
                _ if version >= 3 => {
                    writer.string("name", true);
                    writer.string("1.0", true);
                    writer.no_tags(true);
                }
                _ => {}
            }
            seeds.push(writer.bytes);
        }
    }
    seeds
}

fn topic(writer: &mut Writer, by_id: bool, flexible: bool) {
    writer.array_length(1, flexible);
    if by_id {
        writer.uuid(&Uuid([7; 16]));
    } else {
        writer.string("topic", flexible);
    }
    writer.array_length(1, flexible);
}

fn end(writer: &mut Writer, flexible: bool) {
    for _ in 0..2 {
        writer.no_tags(flexible);
    }
}

fn produce(writer: &mut Writer, version: i16, flexible: bool) {
    writer.nullable_string(None, flexible);
    writer.i16(-1);
    writer.i32(1000);
    topic(writer, version >= 13, flexible);
    writer.i32(0);
    writer.nullable_bytes(Some(&[2; 80]), flexible);
    end(writer, flexible);
    writer.no_tags(flexible);
}

fn fetch(writer: &mut Writer, version: i16, flexible: bool) {
    if version <= 14 {
        writer.i32(-1);
    }
    for number in [0, 1, 1 << 20] {
        writer.i32(number);
    }
    writer.i8(1);
    if version >= 7 {
        writer.i32(0);
        writer.i32(0);
    }
    topic(writer, version >= 13, flexible);
    writer.i32(0);
    if version >= 9 {
        writer.i32(-1);
    }
    writer.i64(0);
    if version >= 12 {
        writer.i32(-1);
    }
    if version >= 5 {
        writer.i64(-1);
    }
    writer.i32(1 << 20);
    end(writer, flexible);
    if version >= 7 {
        writer.array_length(0, flexible);
    }
    if version >= 11 {
        writer.string("rack", flexible);
    }
    writer.no_tags(flexible);
}

fn list_offsets(writer: &mut Writer, version: i16, flexible: bool) {
    writer.i32(-1);
    if version >= 2 {
        writer.i8(0);
    }
    topic(writer, false, flexible);
    writer.i32(0);
    if version >= 4 {
        writer.i32(-1);
    }
    writer.i64(-3);
    end(writer, flexible);
    if version >= 10 {
        writer.i32(1000);
    }
    writer.no_tags(flexible);
}

fn metadata(writer: &mut Writer, version: i16, flexible: bool) {
    writer.array_length(1, flexible);
    if version >= 10 {
        writer.uuid(&Uuid::ZERO);
    }
    writer.string("topic", flexible);
    writer.no_tags(flexible);
    for since in [4, 8, 8] {
        if version >= since && (since == 4 || version <= 10) {
            writer.bool(true);
        }
    }
    if version > 10 {
        writer.bool(true);
    }
    writer.no_tags(flexible);
}

#[test]
fn good_requests_of_every_version_are_answered() {
    for seed in seeds() {
        assert_eq!(requests::answers(&seed), 3, "{seed:02x?}");
    }
}

#[test]
fn no_bytes_break_a_handler() {
    run(&seeds(), false, requests::requests);
}
