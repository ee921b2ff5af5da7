//! One reader for each public trace, all into the one form of [`super::trace`].
pub mod muri;
pub mod openb;
