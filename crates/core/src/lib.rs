//! The deciding half of Ganger: pure functions over plain data. What happens outside comes in as arguments, what should
//! happen goes out as values. Nothing here reads a clock, a file, the environment or a hash map's order.

pub mod model;
