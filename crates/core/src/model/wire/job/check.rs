//! Collects what is wrong in a file while it is read, so that a user sees all of it at once.
use super::FieldError;
use crate::model::time::Span;
use serde_json::Value;

/// The findings so far. Its readers answer a harmless value where they find something: the result is dropped anyway.
#[derive(Debug, Default)]
pub struct Findings(Vec<FieldError>);

impl Findings {
    pub fn add(&mut self, field: impl Into<String>, problem: impl Into<String>, fix: impl Into<String>) {
        self.0.push(FieldError { field: field.into(), problem: problem.into(), fix: fix.into() });
    }

    /// `value` if nothing was found.
    pub fn finish<T>(self, value: T) -> Result<T, Vec<FieldError>> {
        if self.0.is_empty() { Ok(value) } else { Err(self.0) }
    }

    /// Refuses a feature that does not exist yet.
    pub fn later(&mut self, field: &str, value: &Option<Value>) {
        if value.is_some() {
            self.add(field, format!("not supported yet: {field}"), "remove it");
        }
    }

    /// A whole number within bounds, or `default` where nothing is said.
    pub fn count(&mut self, field: &str, value: Option<i64>, default: u32, min: u32, max: u32) -> u32 {
        let Some(value) = value else { return default };
        match u32::try_from(value) {
            Ok(count) if (min..=max).contains(&count) => count,
            _ => {
                self.add(field, format!("{value} is out of range"), format!("give a whole number from {min} to {max}"));
                default.max(min)
            }
        }
    }

    /// A length of time that is more than nothing.
    pub fn span(&mut self, field: &str, value: Option<&str>) -> Option<Span> {
        let text = value?;
        match Span::parse(text) {
            Ok(Span(0)) => self.add(field, "it is zero", "give a time such as 90s, 10m or 12h, or leave it out"),
            Ok(span) if span > Span::hours(24 * 365 * 10) => {
                self.add(field, format!("{text:?} is more than ten years"), "give a shorter time or leave it out");
            }
            Ok(span) => return Some(span),
            Err(error) => {
                self.add(field, format!("cannot read {text:?}: {}", error.why), "write it like 90s, 10m or 12h")
            }
        }
        None
    }

    /// An amount read by `read`, or 0.
    pub fn amount(
        &mut self,
        field: &str,
        value: Option<&str>,
        read: impl Fn(&str) -> Result<u64, crate::model::amounts::AmountError>,
    ) -> u64 {
        value.map_or(0, |text| {
            read(text).unwrap_or_else(|error| {
                self.add(
                    field,
                    format!("cannot read {text:?}: {}", error.why),
                    format!("write it like {}", error.example),
                );
                0
            })
        })
    }

    /// One of a fixed set of words.
    pub fn word<T>(
        &mut self,
        field: &str,
        value: Option<&str>,
        read: impl Fn(&str) -> Option<T>,
        known: &str,
    ) -> Option<T> {
        let text = value?;
        let found = read(text);
        if found.is_none() {
            self.add(field, format!("{text:?} is unknown"), format!("give one of {known}"));
        }
        found
    }
}
