//! Numbers as JSON writes them: most have few digits, which are added up while they are passed over
//! and need no second look.

/// A number as it stands in the text.
pub struct Numeral<'a> {
    pub text: &'a [u8],
    pub kind: Number,
    pub is_negative: bool,
    /// Its digits without the point, and how many stand behind the point; none if there
    /// are many, or an exponent.
    pub short: Option<(u64, usize)>,
}

/// So many digits always fit 64 bits, also with a sign.
pub const DIGITS_SHORT_MAX: usize = 18;

/// Powers of ten up to the one of `DIGITS_SHORT_MAX`; f64 holds each of them exactly.
const POWERS: [f64; DIGITS_SHORT_MAX + 1] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18,
];

impl Numeral<'_> {
    /// `None` for a fraction, and for what does not fit in 64 bits.
    #[inline(always)]
    pub fn whole(&self) -> Option<i64> {
        match (self.kind, self.short) {
            (Number::Whole, Some((digits, _))) if self.is_negative => Some(-(digits as i64)),
            (Number::Whole, Some((digits, _))) => Some(digits as i64),
            (Number::Whole, None) => std::str::from_utf8(self.text).ok()?.parse().ok(),
            _ => None,
        }
    }

    /// Not of a named one. Of two numbers that f64 holds exactly the quotient is rounded once, as
    /// the parser of the standard library does.
    #[inline(always)]
    pub fn real(&self) -> Option<f64> {
        match self.short {
            Some((digits, fraction)) if digits < 1 << f64::MANTISSA_DIGITS => {
                let number = digits as f64 / POWERS.get(fraction)?;
                Some(if self.is_negative { -number } else { number })
            }
            _ => real(self.text),
        }
    }
}

/// The kinds of numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Number {
    Whole,
    Fraction,
    /// Not a number, or infinite.
    Named,
}

/// As the standard library reads it.
pub fn real<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The numbers that have names, in quotes or without.
pub fn named(text: &[u8]) -> Option<f32> {
    Some(match text {
        b"NaN" => f32::NAN,
        b"Infinity" | b"+Infinity" | b"+INF" => f32::INFINITY,
        b"-Infinity" | b"-INF" => f32::NEG_INFINITY,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_numbers_are_those_of_the_standard_library() {
        let mut state = 1_u64;
        for _ in 0..200_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let digits = state % 10_u64.pow((state >> 40) as u32 % 18 + 1);
            let fraction = (state >> 50) as usize % (DIGITS_SHORT_MAX + 1);
            let sign = ["", "-"][(state >> 63) as usize];
            let padded = format!("{digits:0width$}", width = fraction + 1);
            let (whole, behind) = padded.split_at(padded.len() - fraction);
            let text = match fraction {
                0 => format!("{sign}{whole}"),
                _ => format!("{sign}{whole}.{behind}"),
            };
            let numeral = Numeral {
                text: text.as_bytes(),
                kind: match fraction {
                    0 => Number::Whole,
                    _ => Number::Fraction,
                },
                is_negative: sign == "-",
                short: Some((digits, fraction)),
            };
            let expected: f64 = text.parse().expect("a number");
            assert_eq!(
                numeral.real().map(f64::to_bits),
                Some(expected.to_bits()),
                "{text}"
            );
            assert_eq!(numeral.whole(), text.parse().ok(), "{text}");
        }
    }
}
