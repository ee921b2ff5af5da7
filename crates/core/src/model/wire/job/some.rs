//! A list that may be written as its only entry: `after: prep` for `after: [prep]`.
use serde::de::{self, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use std::fmt;

/// For `deserialize_with`, of lists of words.
pub fn one_or_more<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    struct Forms;
    impl<'de> Visitor<'de> for Forms {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list such as [a, b], or one entry of it")
        }

        fn visit_str<E>(self, text: &str) -> Result<Vec<String>, E> {
            Ok(vec![text.to_string()])
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<Vec<String>, E> {
            Ok(vec![number.to_string()])
        }

        fn visit_i64<E: de::Error>(self, number: i64) -> Result<Vec<String>, E> {
            Ok(vec![number.to_string()])
        }

        fn visit_unit<E>(self) -> Result<Vec<String>, E> {
            Ok(Vec::new())
        }

        fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Vec<String>, A::Error> {
            Vec::deserialize(de::value::SeqAccessDeserializer::new(list))
        }
    }
    from.deserialize_any(Forms)
}

#[cfg(test)]
mod tests {
    use super::super::JobFile;

    #[test]
    fn one_entry_needs_no_list() {
        let after = |json: &str| {
            let file = format!(r#"{{"name": "j", "command": ["x"], "after": {json}}}"#);
            serde_json::from_str::<JobFile>(&file).map(|job| job.after).map_err(|error| error.to_string())
        };
        assert_eq!(after(r#""afterok:prep""#).unwrap(), ["afterok:prep"]);
        assert_eq!(after("12").unwrap(), ["12"]);
        assert_eq!(after(r#"["12", "prep"]"#).unwrap(), ["12", "prep"]);
        assert_eq!(after("null").unwrap(), [""; 0]);
        assert!(after("{}").unwrap_err().contains("a list such as [a, b], or one entry of it"));
    }
}
