//! The wire primitives: what is written is read back, and no bytes make a reader panic.

use kafkalite::codec::schema::{Kind, Message, Struct};
use kafkalite::codec::{MessageKind, Value, decode, encode};
use kafkalite::uuid::Uuid;
use kafkalite::wire::{Reader, RequestHeader, Writer, frame};
use proptest::prelude::*;

proptest! {
    #[test]
    fn what_is_written_is_read_back(
        text in proptest::option::of(".{0,40}"),
        bytes in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..40)),
        number in any::<u32>(),
        long in any::<i64>(),
        flexible in any::<bool>(),
    ) {
        let mut writer = Writer::default();
        writer.uvarint(number);
        writer.nullable_string(text.as_deref(), flexible);
        writer.nullable_bytes(bytes.as_deref(), flexible);
        writer.i64(long);
        writer.no_tags(flexible);
        let mut reader = Reader::new(&writer.bytes);
        prop_assert_eq!(reader.uvarint().unwrap(), number);
        prop_assert_eq!(reader.nullable_string(flexible).unwrap(), text.as_deref());
        prop_assert_eq!(reader.nullable_bytes(flexible).unwrap(), bytes.as_deref());
        prop_assert_eq!(reader.i64().unwrap(), long);
        reader.skip_tags(flexible).unwrap();
        prop_assert_eq!(reader.remaining(), 0);
    }

    #[test]
    fn no_bytes_make_a_reader_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
        for flexible in [false, true] {
            let mut reader = Reader::new(&bytes);
            while reader.nullable_string(flexible).is_ok() && reader.remaining() > 0 {}
            let mut reader = Reader::new(&bytes);
            while reader.nullable_bytes(flexible).is_ok() && reader.remaining() > 0 {}
            let _ = Reader::new(&bytes).skip_tags(flexible);
            let _ = Reader::new(&bytes).array_length(flexible);
            let _ = RequestHeader::read(&mut Reader::new(&bytes), |_| flexible.then_some(0));
        }
        let _ = frame::frame_size(&bytes, 1000);
    }

    #[test]
    fn no_bytes_make_the_codec_panic(
        bytes in proptest::collection::vec(any::<u8>(), 0..120),
        pick in any::<usize>(),
    ) {
        let mut names: Vec<_> = Message::names().collect();
        names.sort_unstable();
        let message = Message::find(names[pick % names.len()]).unwrap();
        for version in message.versions.first..=message.versions.last.min(20) {
            let _ = decode(&message, version, &mut Reader::new(&bytes));
        }
    }
}

#[test]
fn a_length_beyond_the_rest_is_refused_before_anything_is_made() {
    for (flexible, bytes) in [
        (false, &b"\x7f\xff\xff\xff\0"[..]),
        (true, b"\xff\xff\xff\xff\x0f\0"),
    ] {
        assert!(Reader::new(bytes).nullable_length(flexible).is_err());
        assert!(Reader::new(bytes).nullable_bytes(flexible).is_err());
    }
}

/// Kafka's messages refuse one (`had invalid length`), and write none.
#[test]
fn a_compact_string_is_no_longer_than_a_plain_one() {
    let written = |length: usize| {
        let mut writer = Writer::default();
        writer.string(&"x".repeat(length), true);
        writer.bytes
    };
    let (fits, too_long) = (written(32_767), written(32_768));
    assert_eq!(Reader::new(&fits).string(true).unwrap().len(), 32_767);
    assert!(Reader::new(&too_long).string(true).is_err());
    assert!(Reader::new(&too_long).nullable_string(true).is_err());

    let message = Message::find("FindCoordinatorRequest").unwrap();
    let body = |name: &[u8]| [&[0, 2], name, &[0]].concat();
    assert!(decode(&message, 4, &mut Reader::new(&body(&fits))).is_ok());
    assert!(decode(&message, 4, &mut Reader::new(&body(&too_long))).is_err());
    let keys = |length| Value::Array(vec![Value::String("x".repeat(length))]);
    let encoded = |length| {
        let fields = vec![Value::String(String::new()), Value::Int(0), keys(length)];
        encode(&message, 4, &Value::Struct(fields), &mut Writer::default())
    };
    assert!(encoded(32_767).is_ok());
    assert!(encoded(32_768).is_err());
}

#[test]
fn a_varint_of_more_than_32_bits_is_refused() {
    assert!(Reader::new(b"\xff\xff\xff\xff\x1f").uvarint().is_err());
    assert!(Reader::new(b"\x80\x80\x80\x80\x80\x01").uvarint().is_err());
    assert_eq!(
        Reader::new(b"\xff\xff\xff\xff\x0f").uvarint().unwrap(),
        u32::MAX
    );
}

#[test]
fn sizes_of_frames_have_a_bound() {
    assert_eq!(frame::frame_size(b"\0\0\0", 10).unwrap(), None);
    assert_eq!(frame::frame_size(b"\0\0\0\x0a", 10).unwrap(), Some(14));
    assert!(frame::frame_size(b"\0\0\0\x0b", 10).is_err());
    assert!(frame::frame_size(b"\xff\xff\xff\xff", 10).is_err());
}

/// A value of every field that is not its default, so that a field left out would show.
fn filled(kind: &Kind, salt: i64) -> Value {
    match kind {
        Kind::Bool => Value::Bool(true),
        Kind::Int8 => Value::Int(salt % 100 + 1),
        Kind::Int16 | Kind::Uint16 | Kind::Int32 | Kind::Uint32 | Kind::Int64 => {
            Value::Int(salt + 7)
        }
        Kind::Float64 => Value::Float(1.5),
        Kind::String => Value::String(format!("text {salt}")),
        Kind::Uuid => Value::Uuid(Uuid([9; 16])),
        Kind::Bytes | Kind::Records => Value::Bytes(vec![1, 2, 3]),
        Kind::Array(element) => {
            Value::Array(vec![filled(element, salt + 1), filled(element, salt)])
        }
        Kind::Struct(inner) => filled_struct(inner, salt),
    }
}

fn filled_struct(of: &Struct, salt: i64) -> Value {
    let fields = of.fields.iter().enumerate();
    Value::Struct(
        fields
            .map(|(at, field)| filled(&field.kind, salt + at as i64))
            .collect(),
    )
}

#[test]
fn every_message_in_every_version_reads_back_what_was_written() {
    for name in Message::names() {
        let message = Message::find(name).unwrap();
        let value = filled_struct(&message.root, 3);
        for version in message.versions.first..=message.versions.last {
            let mut writer = Writer::default();
            encode(&message, version, &value, &mut writer).unwrap_or_else(|error| {
                panic!("{name} v{version}: {error}");
            });
            let mut reader = Reader::new(&writer.bytes);
            let read = decode(&message, version, &mut reader).unwrap();
            assert_eq!(reader.remaining(), 0, "{name} v{version}");
            // What the version lacks came back as its default; writing it
            // again gives the same bytes.
            let mut again = Writer::default();
            encode(&message, version, &read, &mut again).unwrap();
            assert_eq!(again.bytes, writer.bytes, "{name} v{version}");
            if message.kind == MessageKind::Request && version == message.versions.last {
                assert_ne!(read, value_of_defaults(&message), "{name}");
            }
        }
    }
}

fn value_of_defaults(message: &Message) -> Value {
    if message.root.fields.is_empty() {
        // A request without fields has nothing to lose.
        Value::Null
    } else {
        kafkalite::codec::schema::default_struct(&message.root)
    }
}
