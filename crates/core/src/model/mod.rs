//! What the rest talks about: plain values that check themselves when they are made and never change by themselves.

pub mod cpuset;
pub mod machine;
