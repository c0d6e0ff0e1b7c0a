//! What must hold for any pattern and text: neither brings the broker down nor takes it long, and a
//! pattern that quotes a text matches that. A broken promise is a panic.

use kafkalite::re2::Re2;

/// A byte that parts the pattern from the text.
pub const PART: u8 = 0x1e;

/// The pattern, and behind the first `PART` the text.
pub fn re2(data: &[u8]) {
    let mut parts = data.splitn(2, |byte| *byte == PART);
    let pattern = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let text = String::from_utf8_lossy(parts.next().unwrap_or_default());
    if let Some(mut compiled) = Re2::compile(&pattern) {
        let matches = compiled.matches(&text);
        assert_eq!(compiled.matches(&text), matches);
        // A quotation that is not ended would take the parenthesis, too.
        if !pattern.contains(r"\Q")
            && let Some(mut grouped) = Re2::compile(&format!("(?:{pattern})"))
        {
            assert_eq!(grouped.matches(&text), matches);
        }
    }
    if !text.contains(r"\E")
        && let Some(mut quoted) = Re2::compile(&format!(r"\Q{text}\E"))
    {
        assert!(quoted.matches(&text));
    }
}
