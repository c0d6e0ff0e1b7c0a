//! A bounded, seeded run of the fuzz target of typed values, on changes of good ones.

use crate::fuzz_batch::run;

#[path = "../../rust/fuzz/typed.rs"]
mod typed;

/// Two good records of each format, behind the byte that chooses it.
fn seeds() -> Vec<Vec<u8>> {
    let csv = "5,\"a,b\",1.5,2020-01-02,2020-01-02T03:04:05Z,1.25,true,bytes,7";
    let json = r#"{"a":5,"b":"a\u00e9","c":1.5,"d":"2020-01-02","e":"2020-01-02 03:04","f":1.25,
        "g":true,"h":"aGk=","i":7,"s":{"x":1,"y":"u"},"l":[[1,2],[]],"p":[{"x":3},null],
        "m":{"k":{"y":"v"}},"unwanted":[{"deep":[1e3,null,"x"]}]}"#;
    let avro: Vec<u8> = [
        &[2, 10, 4, b'h', b'i', 2][..],
        &1.5_f64.to_le_bytes(),
        // Unwanted: one null; then milliseconds, a decimal of two bytes, true, one byte.
        &[2, 0, 0, 0x80, 0x10, 4, 0x30, 0xd4, 1, 2, b'b'],
        // A point; two lists; two points, one null; one entry.
        &[
            2, 2, 0, 6, 4, 4, 2, 4, 0, 0, 0, 4, 0, 0, 0, 8, 2, 0, 2, 2, b'k', 2, 0, 10, 0,
        ],
    ]
    .concat();
    let with_header = [&[0, 0, 0, 0, 9][..], &avro].concat();
    let records: [(u8, &[u8]); 4] = [
        (0, csv.as_bytes()),
        (1, json.as_bytes()),
        (2, &avro),
        (128, &with_header),
    ];
    let seed =
        |(choice, record): (u8, &[u8])| [&[choice][..], record, &[typed::PART], record].concat();
    records.into_iter().map(seed).collect()
}

#[test]
fn fuzz_typed_values() {
    for seed in seeds() {
        typed::typed(&seed);
        let (fields, reader) = typed::reader(seed[0]);
        let mut decoder = kafkalite::arrow::decode::Decoder::new(reader, &fields).unwrap();
        let record = seed[1..].split(|byte| *byte == typed::PART).next().unwrap();
        let good = arrow_array::BinaryArray::from_iter_values([record]);
        let decoded = decoder.decode(&good).unwrap();
        assert!(decoded.bad.is_empty(), "{:?}", decoded.reason);
    }
    run(&seeds(), false, typed::typed);
}
