//! JSON as it comes from the API: a list is an array of objects, one thing is an object.
use crate::failure::Failure;
use serde::Serialize;

pub fn json<T: Serialize + ?Sized>(value: &T) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value);
    text.map(|text| text + "\n").map_err(|error| Failure::failed(format!("cannot print the answer as JSON: {error}")))
}
