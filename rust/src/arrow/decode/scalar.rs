//! Texts to decimals, dates and times, as Spark takes them in JSON and CSV. That is where no
//! format of its own is given (`DateTimeUtils.stringToDate` and `stringToTimestamp`,
//! `Decimal`). A time without a zone is UTC. Names of regions (`CET`, `Europe/Paris`) and times
//! without a day are not taken.

const DAY_SECONDS: i64 = 86_400;

/// Unscaled, rounded half up, commas passed over; `None`: no number, or it does not fit.
pub fn decimal(text: &[u8], precision: u8, scale: i8) -> Option<i128> {
    if text.contains(&b',') {
        let digits: Vec<u8> = text.iter().copied().filter(|byte| *byte != b',').collect();
        return decimal(&digits, precision, scale);
    }
    let (negative, text) = sign(text);
    let exponent_at = text.iter().position(|byte| matches!(byte, b'e' | b'E'));
    let (mantissa, exponent) = match exponent_at {
        Some(at) => (text.get(..at)?, exponent(text.get(at + 1..)?)?),
        None => (text, 0),
    };
    let point = mantissa.iter().position(|byte| *byte == b'.');
    let whole = point.unwrap_or(mantissa.len());
    let digits = || mantissa.iter().filter(|byte| **byte != b'.');
    let count = mantissa.len() - usize::from(point.is_some());
    if count == 0 || digits().count() != count || !digits().all(u8::is_ascii_digit) {
        return None;
    }
    let zeros = digits().take_while(|digit| **digit == b'0').count();
    if zeros == count {
        return Some(0);
    }
    // Digits that stand before the unscaled number's last place.
    let kept = whole as i64 - zeros as i64 + exponent + i64::from(scale);
    if kept > 38 {
        return None;
    }
    let mut unscaled: i128 = 0;
    let mut significant = digits().skip(zeros).map(|digit| i128::from(digit - b'0'));
    for _ in 0..kept.max(0) {
        unscaled = unscaled * 10 + significant.next().unwrap_or(0);
    }
    if kept >= 0 && significant.next().is_some_and(|digit| digit >= 5) {
        unscaled += 1;
    }
    let fits = unscaled < 10_i128.checked_pow(u32::from(precision))?;
    fits.then_some(if negative { -unscaled } else { unscaled })
}

fn exponent(text: &[u8]) -> Option<i64> {
    let (negative, digits) = sign(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let add = |sum: i64, digit: &u8| (sum * 10 + i64::from(digit - b'0')).min(1 << 40);
    let exponent = digits.iter().fold(0, add);
    Some(if negative { -exponent } else { exponent })
}

fn sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    }
}

/// Days since 1970 of `[+-]yyyy[-[m]m[-[d]d]]`; what follows a day and a space
/// or `T` is not looked at.
pub fn date(text: &[u8]) -> Option<i32> {
    let mut text = Text(text.trim_ascii());
    let (days, has_day) = text.date()?;
    match text.0.first() {
        None => i32::try_from(days).ok(),
        Some(b' ' | b'T') if has_day => i32::try_from(days).ok(),
        Some(_) => None,
    }
}

/// Microseconds since 1970 of `[+-]yyyy[-[m]m[-[d]d[(T| )[h]h[:[m]m[:[s]s[.fraction][zone]]]]]]`;
/// digits of the fraction behind the sixth are not looked at. With `zoned` false a zone is refused.
pub fn timestamp(text: &[u8], zoned: bool) -> Option<i64> {
    let mut text = Text(text.trim_ascii());
    let (days, has_day) = text.date()?;
    let mut seconds = days.checked_mul(DAY_SECONDS)?;
    let (mut micros, mut has_seconds) = (0, false);
    match text.0.first() {
        None => return seconds.checked_mul(1_000_000),
        Some(b' ' | b'T') if has_day => text.skip(1),
        Some(_) => return None,
    }
    for (place, unit) in [(24, 3600), (60, 60), (60, 1)] {
        let number = text.number(1, 2)?;
        if number >= place {
            return None;
        }
        seconds = seconds.checked_add(number * unit)?;
        if unit > 1 && !text.take(b':') {
            break;
        }
        has_seconds = unit == 1;
        if has_seconds && text.take(b'.') {
            micros = text.fraction();
        }
    }
    let zone = text.0.trim_ascii();
    if !zone.is_empty() {
        let offset = offset_seconds(zone).filter(|_| zoned && has_seconds);
        seconds = seconds.checked_sub(offset?)?;
    }
    // The first second of all has its microseconds only.
    i64::try_from(i128::from(seconds) * 1_000_000 + i128::from(micros)).ok()
}

/// The offset that a text says: `Z`, `UTC`, `GMT+1`, `+01:00`, `+01:00:30`, `+0100`,
/// `+010030`, `+1`, `+1:2`.
fn offset_seconds(zone: &[u8]) -> Option<i64> {
    if zone == b"Z" {
        return Some(0);
    }
    let named = [b"UTC".as_slice(), b"GMT", b"UT"];
    let rest = named.iter().find_map(|name| zone.strip_prefix(*name));
    if rest.is_some_and(<[u8]>::is_empty) {
        return Some(0);
    }
    let (negative, digits) = match rest.unwrap_or(zone) {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        _ => return None,
    };
    let mut parts = [0; 3];
    if digits.contains(&b':') {
        let mut texts = digits.split(|byte| *byte == b':');
        let count = texts.clone().count();
        for (place, part) in parts.iter_mut().enumerate().take(count.min(3)) {
            // A single digit for the minutes only where they are the last.
            let digits_min = if place == 0 || count == 2 { 1 } else { 2 };
            *part = Text(texts.next()?).whole(digits_min)?;
        }
        if count > 3 {
            return None;
        }
    } else {
        let (hours, rest) = digits.split_at(digits.len().min(2));
        parts[0] = Text(hours).whole(1)?;
        for (part, text) in parts.iter_mut().skip(1).zip(rest.chunks(2)) {
            *part = Text(text).whole(2)?;
        }
        if digits.len() > 6 {
            return None;
        }
    }
    let [hours, minutes, single_seconds] = parts;
    let seconds = hours * 3600 + minutes * 60 + single_seconds;
    if minutes > 59 || single_seconds > 59 || seconds > 18 * 3600 {
        return None;
    }
    Some(if negative { -seconds } else { seconds })
}

/// The part of a text that is still to be read.
struct Text<'a>(&'a [u8]);

impl Text<'_> {
    fn skip(&mut self, count: usize) {
        self.0 = self.0.get(count..).unwrap_or_default();
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.0.first() == Some(&byte);
        if found {
            self.skip(1);
        }
        found
    }

    /// All digits that follow, if they are as many.
    fn number(&mut self, digits_min: usize, digits_max: usize) -> Option<i64> {
        let count = self
            .0
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if !(digits_min..=digits_max).contains(&count) {
            return None;
        }
        let digits = self.0.get(..count)?.iter();
        let number = digits.fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0'));
        self.skip(count);
        Some(number)
    }

    /// All that is left, digits, two at most.
    fn whole(&mut self, digits_min: usize) -> Option<i64> {
        self.number(digits_min, 2).filter(|_| self.0.is_empty())
    }

    /// Microseconds.
    fn fraction(&mut self) -> i64 {
        let count = self
            .0
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let digit = |at: usize| match self.0.get(at).filter(|_| at < count) {
            Some(digit) => i64::from(digit - b'0'),
            None => 0,
        };
        let micros = (0..6).fold(0, |sum, at| sum * 10 + digit(at));
        self.skip(count);
        micros
    }

    /// Days since 1970, and whether a day is named.
    fn date(&mut self) -> Option<(i64, bool)> {
        let negative = self.take(b'-');
        if !negative {
            self.take(b'+');
        }
        let year = self.number(4, 7)?;
        let year = if negative { -year } else { year };
        let (mut parts, mut count) = ([1, 1], 0);
        for part in &mut parts {
            if !self.take(b'-') {
                break;
            }
            *part = self.number(1, 2)?;
            count += 1;
        }
        let [month, day] = parts;
        let is_valid = (1..=12).contains(&month) && (1..=days_in(year, month)).contains(&day);
        is_valid.then(|| (days_since_1970(year, month, day), count == 2))
    }
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// In the Gregorian calendar, also before there was one. The year is taken to begin in March.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_round_half_up_and_overflow_is_none() {
        for (text, expected) in [
            ("1.005", Some(101)),
            ("-1.005", Some(-101)),
            ("1e2", Some(10_000)),
            ("999.99", Some(99_999)),
            ("999.999", None),
            ("1234", None),
            ("1e-30", Some(0)),
            ("0.005", Some(1)),
            ("0.004999", Some(0)),
            ("0e99999999999999999999", Some(0)),
            ("1e99999999999999999999", None),
            ("", None),
            ("-", None),
            ("1.2.3", None),
            ("NaN", None),
            ("1,23.4,5", Some(12_345)),
            (",", None),
        ] {
            assert_eq!(decimal(text.as_bytes(), 5, 2), expected, "{text}");
        }
        let text = b"12345678901234567890.123456789012345678";
        let unscaled = 12_345_678_901_234_567_890_123_456_789_012_345_678;
        assert_eq!(decimal(text, 38, 18), Some(unscaled));
    }

    #[test]
    fn dates_are_those_of_spark() {
        for (text, expected) in [
            ("1970-01-01", Some(0)),
            (" 2020-1-2 ", Some(18_263)),
            ("2020-01-02T10:00:00Z", Some(18_263)),
            ("2020", Some(18_262)),
            ("0001-01-01", Some(-719_162)),
            ("2020-02-30", None),
            ("2020-01-", None),
            ("2020T10:00:00", None),
            ("2020-01T10", None),
            ("9999999", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(date(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn times_are_those_of_spark() {
        const NOON: i64 = 1_577_934_245_000_000;
        for (text, expected) in [
            ("2020-01-02T03:04:05Z", Some(NOON)),
            ("2020-01-02 03:04:05", Some(NOON)),
            ("2020-1-2 3:4:5", Some(NOON)),
            ("2020-01-02T03:04:05.678Z", Some(NOON + 678_000)),
            ("2020-01-02T03:04:05.123456789Z", Some(NOON + 123_456)),
            ("2020-01-02T05:04:05+02:00", Some(NOON)),
            ("2020-01-02T05:04:05+0200", Some(NOON)),
            ("2020-01-02T05:04:05+2", Some(NOON)),
            ("2020-01-02T01:34:05-01:30", Some(NOON)),
            ("2020-01-02T04:04:05GMT+1", Some(NOON)),
            ("2020-01-02T03:04:05 UTC", Some(NOON)),
            ("2020-01-02T03:04", Some(NOON - 5_000_000)),
            ("2020-01-02T03", Some(NOON - 245_000_000)),
            ("2020-01-02", Some(NOON - 11_045_000_000)),
            ("2020-01-02T05:05:05+2:1", Some(NOON)),
            ("2020-01-02T05:05:05+02:1", Some(NOON)),
            ("2020-01-02T04:04:35UTC+01:00:30", Some(NOON)),
            ("2020-01-02T02:03:35-010030", Some(NOON)),
            ("2020-01-01T09:04:05-18:00", Some(NOON)),
            ("2020-01-01T09:03:05-18:01", None),
            ("2020-01-02T04:04:05+103", None),
            ("2020-01-02T04:04:05+01:0:00", None),
            ("2020-01-02T04:04:05+01:00:00:00", None),
            ("2020-01-02T04:04:05+01:", None),
            ("2020-01-02T04:04:05+01000000", None),
            // A zone stands behind seconds, and a time behind a day.
            ("2020-01-02T03:04Z", None),
            ("2020-01-02T03+01:00", None),
            ("2020T03:04:05", None),
            ("2020-01 03:04:05", None),
            ("-290308-12-21T19:59:05.224192Z", Some(i64::MIN)),
            ("-290308-12-21T19:59:05.224191Z", None),
            ("2020-01-02T24:00:00", None),
            ("2020-01-02T03:04:60Z", None),
            ("2020-01-02T03:04:05 CET", None),
            ("1577934245", None),
            ("03:04:05", None),
            ("", None),
        ] {
            assert_eq!(timestamp(text.as_bytes(), true), expected, "{text}");
        }
        assert_eq!(timestamp(b"2020-01-02T03:04:05Z", false), None);
        assert_eq!(timestamp(b"2020-01-02T03:04:05", false), Some(NOON));
    }
}
