//! JSON into columns: what Spark 4.2's `from_json` answered to the same texts, and that damage of
//! one record stays in its row.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, BinaryArray, StructArray};
use arrow_schema::{DataType, Field, Fields, TimeUnit};
use kafkalite::arrow::decode::{Decoded, Decoder, Reader};

fn decode(fields: &Fields, texts: &[&str]) -> Decoded {
    let mut decoder = Decoder::new(Reader::Json, fields).expect("types that can be built");
    let values = BinaryArray::from_iter_values(texts);
    decoder.decode(&values).expect("columns")
}

fn field(name: &str, data_type: DataType) -> Field {
    Field::new(name, data_type, true)
}

fn list(item: DataType) -> DataType {
    DataType::List(Arc::new(field("element", item)))
}

fn map(value: DataType) -> DataType {
    let key = Field::new("key", DataType::Utf8, false);
    let pair = Fields::from(vec![key, field("value", value)]);
    let entries = Field::new("entries", DataType::Struct(pair), false);
    DataType::Map(Arc::new(entries), false)
}

/// A value in short; null is `-`.
fn show(column: &ArrayRef, row: usize) -> String {
    use arrow_array::types::*;
    if column.is_null(row) {
        return "-".to_owned();
    }
    let items = |items: ArrayRef| -> String {
        let items: Vec<String> = (0..items.len()).map(|item| show(&items, item)).collect();
        items.join(" ")
    };
    match column.data_type() {
        DataType::Boolean => column.as_boolean().value(row).to_string(),
        DataType::Int8 => column.as_primitive::<Int8Type>().value(row).to_string(),
        DataType::Int16 => column.as_primitive::<Int16Type>().value(row).to_string(),
        DataType::Int32 => column.as_primitive::<Int32Type>().value(row).to_string(),
        DataType::Int64 => column.as_primitive::<Int64Type>().value(row).to_string(),
        DataType::Float32 => column.as_primitive::<Float32Type>().value(row).to_string(),
        DataType::Float64 => column.as_primitive::<Float64Type>().value(row).to_string(),
        DataType::Date32 => column.as_primitive::<Date32Type>().value(row).to_string(),
        DataType::Timestamp(..) => {
            let column = column.as_primitive::<TimestampMicrosecondType>();
            column.value(row).to_string()
        }
        DataType::Decimal128(..) => {
            let column = column.as_primitive::<Decimal128Type>();
            column.value_as_string(row)
        }
        DataType::Utf8 => column.as_string::<i32>().value(row).to_owned(),
        DataType::Binary => String::from_utf8_lossy(column.as_binary::<i32>().value(row)).into(),
        DataType::List(_) => format!("[{}]", items(column.as_list::<i32>().value(row))),
        DataType::Map(..) => {
            let entries: ArrayRef = Arc::new(column.as_map().value(row));
            format!("<{}>", items(entries))
        }
        DataType::Struct(_) => {
            let columns = column.as_struct().columns().iter();
            let fields: Vec<String> = columns.map(|each| show(each, row)).collect();
            format!("({})", fields.join(" "))
        }
        other => panic!("no test for {other}"),
    }
}

/// Each text with its expected row; a row that is bad ends in `!`, one that is null is `null`.
fn check(fields: Vec<Field>, cases: &[(&str, &str)]) {
    let fields = Fields::from(fields);
    let texts: Vec<&str> = cases.iter().map(|(text, _)| *text).collect();
    let decoded = decode(&fields, &texts);
    let nulls = decoded.nulls.clone();
    let rows = StructArray::new(fields, decoded.fields, decoded.nulls);
    let rows: ArrayRef = Arc::new(rows);
    for (row, (text, expected)) in cases.iter().enumerate() {
        let mut found = show(&rows, row);
        if nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            found = "null".to_owned();
        } else if decoded.bad.contains(&(row as u32)) {
            found.push('!');
        }
        assert_eq!(found, *expected, "{text}");
    }
}

#[test]
fn texts_that_are_json_or_not_are_taken_as_spark_takes_them() {
    let fields = vec![field("a", DataType::Int32), field("b", DataType::Utf8)];
    check(
        fields,
        &[
            (r#"{"a":1,"b":"x"}"#, "(1 x)"),
            (r#"{"a":"1","b":"x"}"#, "(- x)!"),
            (r#"{"a":1.0,"b":2}"#, "(- 2)!"),
            (r#"{"a":3000000000,"b":"x"}"#, "(- x)!"),
            (r#"{"a":true,"b":true}"#, "(- true)!"),
            (r#"{"a":null,"b":null}"#, "(- -)"),
            (r#"{"b":{"x": [1, "q w"]}}"#, r#"(- {"x":[1,"q w"]})"#),
            (r#"{"b":[1, 2]}"#, "(- [1,2])"),
            ("{}", "(- -)"),
            ("", "null"),
            ("  ", "null"),
            ("null", "(- -)!"),
            ("1", "(- -)!"),
            (r#""x""#, "(- -)!"),
            (r#"[{"a":1,"b":"x"}]"#, "(- -)!"),
            (r#"{"a":1"#, "(- -)!"),
            (r#"{"a":1}x"#, "(1 -)"),
            (r#"{"a":1} {"a":2}"#, "(1 -)"),
            (r#"{"a":1,}"#, "(- -)!"),
            (r#"{"a":1,"a":2}"#, "(2 -)"),
            (r#"{"A":1}"#, "(- -)"),
            (r#"{"a":01}"#, "(- -)!"),
            (r#"{"a":-0}"#, "(0 -)"),
            (r#"{"a":+1}"#, "(- -)!"),
            ("{'a':1}", "(1 -)"),
            ("{a:1}", "(- -)!"),
            ("// c\n{\"a\":1}", "(- -)!"),
            ("{\"a\":1,\"b\":\"x\ty\"}", "(- -)!"),
            (r#"{"a":1,"b":"\x"}"#, "(- -)!"),
            (r#"{"a":1,"b":"\ud800"}"#, "(1 ?)"),
            (r#"{"b":"\ud83d\ude00 \u00e9\n"}"#, "(- 😀 é\n)"),
            (r#"{"\u0061":7}"#, "(7 -)"),
            (r#"{"a":1e2}"#, "(- -)!"),
            (r#"{"a":[1],"b":"k"}"#, "(- k)!"),
            (r#"{"c":{"d":[}}, "a":1}"#, "(- -)!"),
            (r#"{"c":tru,"a":1}"#, "(- -)!"),
            (r#"{"c":NaN,"a":1}"#, "(1 -)"),
            ("\u{feff}{\"a\":1}", "(- -)!"),
            ("{\"a\":1}\n", "(1 -)"),
            (r#"{"a":2147483648,"b":"z"}"#, "(- z)!"),
            (r#"{"a":-2147483648}"#, "(-2147483648 -)"),
            ("nul", "(- -)!"),
            (r#"{"b":"x","a":tru}"#, "(- -)!"),
            (r#"{"b":"y","a":}"#, "(- -)!"),
        ],
    );
}

#[test]
fn numbers_are_taken_as_spark_takes_them() {
    let fields = vec![
        field("l", DataType::Int64),
        field("s", DataType::Int16),
        field("y", DataType::Int8),
        field("d", DataType::Float64),
        field("f", DataType::Float32),
        field("m", DataType::Decimal128(5, 2)),
    ];
    check(
        fields,
        &[
            (
                r#"{"l":9223372036854775807}"#,
                "(9223372036854775807 - - - - -)",
            ),
            (r#"{"l":9223372036854775808}"#, "(- - - - - -)!"),
            (r#"{"l":"5"}"#, "(- - - - - -)!"),
            (r#"{"s":32768,"y":-128}"#, "(- - -128 - - -)!"),
            (r#"{"d":1,"f":1}"#, "(- - - 1 1 -)"),
            (r#"{"d":"1.5"}"#, "(- - - - - -)!"),
            (r#"{"d":"NaN","f":"Infinity"}"#, "(- - - NaN inf -)"),
            (r#"{"d":NaN,"f":-Infinity}"#, "(- - - NaN -inf -)"),
            (r#"{"d":"-INF","f":"INF"}"#, "(- - - -inf - -)!"),
            (r#"{"d":Infinity,"f":+INF}"#, "(- - - inf inf -)"),
            (r#"{"d":1e400,"f":16777217}"#, "(- - - inf 16777216 -)"),
            (r#"{"m":1.005}"#, "(- - - - - 1.01)"),
            (r#"{"m":"1e2"}"#, "(- - - - - 100.00)"),
            (r#"{"m":1234}"#, "(- - - - - -)!"),
            (r#"{"m":"1,2.5"}"#, "(- - - - - 12.50)"),
            (r#"{"d":-0,"f":-0}"#, "(- - - 0 0 -)"),
            (r#"{"d":-0.0,"f":-0.0}"#, "(- - - -0 -0 -)"),
            (r#"{"m":" 1.5 "}"#, "(- - - - - -)!"),
            (r#"{"m":NaN}"#, "(- - - - - -)!"),
        ],
    );
}

#[test]
fn times_bytes_and_flags_are_taken_as_spark_takes_them() {
    let fields = vec![
        field("d", DataType::Date32),
        field(
            "t",
            DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        ),
        field("n", DataType::Timestamp(TimeUnit::Microsecond, None)),
        field("b", DataType::Binary),
        field("o", DataType::Boolean),
    ];
    check(
        fields,
        &[
            (
                r#"{"d":"2020-1-2","t":"1970-01-01T00:00:01Z"}"#,
                "(18263 1000000 - - -)",
            ),
            (r#"{"d":18000}"#, "(- - - - -)!"),
            (r#"{"t":-5}"#, "(- -5000000 - - -)"),
            (r#"{"t":1.5}"#, "(- - - - -)!"),
            (r#"{"n":"1970-01-01 00:00:01"}"#, "(- - 1000000 - -)"),
            (r#"{"n":"1970-01-01T00:00:01Z"}"#, "(- - - - -)!"),
            (r#"{"n":1}"#, "(- - - - -)!"),
            (r#"{"b":"aGk="}"#, "(- - - hi -)"),
            (r#"{"b":"h!"}"#, "(- - - - -)!"),
            (r#"{"b":" aGlo\n aGk= "}"#, "(- - - hihhi -)"),
            (r#"{"b":"aGl="}"#, "(- - - hi -)"),
            (r#"{"b":"aG k="}"#, "(- - - - -)!"),
            (r#"{"o":true}"#, "(- - - - true)"),
            (r#"{"o":"true"}"#, "(- - - - -)!"),
        ],
    );
}

#[test]
fn a_mismatch_within_a_struct_stays_there_and_one_within_a_list_or_map_takes_all_of_it() {
    let x = DataType::Struct(Fields::from(vec![
        field("x", DataType::Int32),
        field("y", DataType::Utf8),
    ]));
    let fields = vec![
        field("s", x.clone()),
        field("l", list(DataType::Int32)),
        field("ls", list(x.clone())),
        field("m", map(DataType::Int32)),
        field("ms", map(x)),
        field("z", DataType::Int32),
    ];
    check(
        fields,
        &[
            (r#"{"s":{"x":1,"y":"a"},"z":1}"#, "((1 a) - - - - 1)"),
            (r#"{"s":{"x":"q","y":"a"},"z":1}"#, "((- a) - - - - 1)!"),
            (r#"{"s":5,"z":1}"#, "(- - - - - 1)!"),
            (r#"{"s":[1],"z":1}"#, "(- - - - - 1)!"),
            (r#"{"s":{},"z":2}"#, "((- -) - - - - 2)"),
            (r#"{"l":[1,2,null],"z":1}"#, "(- [1 2 -] - - - 1)"),
            (r#"{"l":[1,"x",3],"z":1}"#, "(- - - - - 1)!"),
            (r#"{"l":[],"z":1}"#, "(- [] - - - 1)"),
            (r#"{"l":[[1]],"z":3}"#, "(- - - - - 3)!"),
            (
                r#"{"ls":[{"x":1},{"x":"q"}],"z":1}"#,
                "(- - [(1 -) (- -)] - - 1)!",
            ),
            (r#"{"ls":[1],"z":1}"#, "(- - - - - 1)!"),
            (
                r#"{"m":{"a":1,"b":null},"z":1}"#,
                "(- - - <(a 1) (b -)> - 1)",
            ),
            (r#"{"m":{"a":"x","b":2},"z":1}"#, "(- - - - - 1)!"),
            (r#"{"m":{"a":1,"a":2},"z":1}"#, "(- - - <(a 1) (a 2)> - 1)"),
            (
                r#"{"ms":{"a":{"x":"q"},"b":{"x":2}}}"#,
                "(- - - - <(a (- -)) (b (2 -))> -)!",
            ),
            (r#"{"ls":[{"x":1},{"x":2"#, "(- - - - - -)!"),
            (r#"{"m":{"a":1,"b":"#, "(- - - - - -)!"),
            (
                r#"{"s":{"x":1,"y":"a"},"l":[1,2],"z":1}"#,
                "((1 a) [1 2] - - - 1)",
            ),
        ],
    );
}

/// Keys are looked for first where the record before had them.
#[test]
fn keys_are_found_in_every_order() {
    let long = format!("{{\"{}\":1,\"b\":2,\"a\":3}}", "k".repeat(30));
    let longer = format!("{{\"{}\":1,\"b\":4,\"a\":5}}", "k".repeat(31));
    let inner = [field("x", DataType::Int64), field("y", DataType::Int64)];
    let fields = vec![
        field("a", DataType::Int64),
        field("b", DataType::Int64),
        field("s", DataType::Struct(inner.into_iter().collect())),
    ];
    let cases = [
        (r#"{"a":1,"c":[1],"b":2}"#, "(1 2 -)"),
        (r#"{"a":3,"c":{"a":9},"b":4}"#, "(3 4 -)"),
        (r#"{"b":5,"c":0,"a":6}"#, "(6 5 -)"),
        (r#"{"b":7}"#, "(- 7 -)"),
        (r#"{"b" : 7, "a"  :8}"#, "(8 7 -)"),
        (r#"{"b" :  9, "a"  : 10}"#, "(10 9 -)"),
        (r#"{"ab":1,"ba":2,"a":3}"#, "(3 - -)"),
        (r#"{"\u0061":1,"a":2,"a":3}"#, "(3 - -)"),
        (r#"{"\u0061":4,"b":5}"#, "(4 5 -)"),
        (r#"{'a':6,'b':7}"#, "(6 7 -)"),
        (r#"{"a":8,"b":9}"#, "(8 9 -)"),
        (long.as_str(), "(3 2 -)"),
        (longer.as_str(), "(5 4 -)"),
        (long.as_str(), "(3 2 -)"),
        (r#"{"s":{"x":1,"y":2},"a":1}"#, "(1 - (1 2))"),
        (r#"{"s":{"y":1,"x":2},"a":1}"#, "(1 - (2 1))"),
        (r#"{"s":{"y":1,"z":2},"b":1}"#, "(- 1 (- 1))"),
        (r#"{}"#, "(- - -)"),
        (r#"{"a"}"#, "(- - -)!"),
        (r#"{"a":1,"b"}"#, "(- - -)!"),
        (r#"{"a":1,"b":2}"#, "(1 2 -)"),
    ];
    check(fields, &cases);
}

#[test]
fn a_text_nested_without_end_is_bad_and_does_not_grow_the_stack() {
    let fields = Fields::from(vec![
        field("a", list(list(DataType::Utf8))),
        field("z", DataType::Int32),
    ]);
    let deep = |open: &str, close: &str, depth: usize| {
        format!(
            r#"{{"{}":{}1{},"z":1}}"#,
            "b",
            open.repeat(depth),
            close.repeat(depth)
        )
    };
    let texts = [
        deep("[", "]", 1000),
        deep("[", "]", 1001),
        deep("{\"k\":", "}", 200_000),
        format!(r#"{{"a":{}"#, "[".repeat(1_000_000)),
        r#"{"z":1}"#.to_owned(),
    ];
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let decoded = decode(&fields, &texts);
    assert_eq!(decoded.bad, [1, 2, 3]);
    let first = decoded.reason.expect("a reason").to_string();
    assert!(
        first.starts_with("it is nested too deeply (byte "),
        "{first}"
    );
    let z = decoded.fields.last().expect("two fields");
    let z: Vec<String> = (0..5).map(|row| show(z, row)).collect();
    assert_eq!(z, ["1", "-", "-", "-", "1"]);
}

#[test]
fn bytes_that_are_no_utf8_get_the_replacement_character() {
    let fields = Fields::from(vec![field("a", DataType::Utf8)]);
    let mut decoder = Decoder::new(Reader::Json, &fields).expect("a decoder");
    let values =
        BinaryArray::from_iter_values([b"{\"a\":\"x\xffy\"}".as_slice(), b"{\"a\":\"z\"}"]);
    let decoded = decoder.decode(&values).expect("columns");
    assert!(decoded.bad.is_empty());
    assert_eq!(show(&decoded.fields[0], 0), "x\u{fffd}y");
    assert_eq!(show(&decoded.fields[0], 1), "z");
}
