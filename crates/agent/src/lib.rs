//! placeholder

pub mod checkpoint;
