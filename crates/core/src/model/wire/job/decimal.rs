//! A decimal number that may be written as a number or as text, kept as it is written: no float comes between.
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Decimal(pub String);

impl Decimal {
    /// In thousandths; `None`: it is no number, or has more than three decimals.
    pub fn thousandths(&self) -> Option<u32> {
        u32::try_from(self.large_thousandths()?).ok()
    }

    /// As [`Decimal::thousandths`], of larger numbers.
    pub fn large_thousandths(&self) -> Option<u64> {
        let (whole, part) = self.0.split_once('.').unwrap_or((&self.0, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || part.len() > 3 || !digits(whole) || !digits(part) {
            return None;
        }
        let whole: u64 = whole.parse().ok()?;
        let part: u64 = format!("{part:0<3}").parse().ok()?;
        whole.checked_mul(1_000)?.checked_add(part)
    }
}

impl<'de> Deserialize<'de> for Decimal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DecimalVisitor)
    }
}

struct DecimalVisitor;

impl Visitor<'_> for DecimalVisitor {
    type Value = Decimal;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a number such as 0.5")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Decimal, E> {
        Ok(Decimal(text.trim().to_string()))
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<Decimal, E> {
        Ok(Decimal(number.to_string()))
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<Decimal, E> {
        Ok(Decimal(number.to_string()))
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<Decimal, E> {
        Ok(Decimal(number.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_texts_read_exactly() {
        let read = |json: &str| serde_json::from_str::<Decimal>(json).unwrap().thousandths();
        for (json, milli) in [("0.5", 500), ("\"0.5\"", 500), ("1", 1_000), ("0.125", 125), ("0.07", 70)] {
            assert_eq!(read(json), Some(milli), "{json}");
        }
        for json in ["-0.5", "\"half\"", "0.0001", "\"\"", "\".5\"", "1e300"] {
            assert_eq!(read(json), None, "{json}");
        }
    }
}
