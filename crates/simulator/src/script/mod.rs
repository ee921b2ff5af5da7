//! Scenario files: a scheduler test that reads like prose.
//!
//! [`parse`] takes the whole grammar into a [`ast::Script`], with the line in every error: unknown statements and keys,
//! doubled keys, bad values, statements out of place, names that nothing declares. Nothing runs here. What the grammar
//! has but the cluster cannot do yet is listed in [`later`] alone.
pub mod ast;
mod error;
mod expect;
mod header;
mod keys;
pub mod later;
mod lexer;
mod names;
mod parse;
mod pools;
mod steps;
mod submit;

pub use error::{Problem, ScriptError};
pub use lexer::Op;
pub use parse::parse;
