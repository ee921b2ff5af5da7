//! The only writer: `apply(input, now)` turns what happened into a new state and its effects.
pub mod input;
