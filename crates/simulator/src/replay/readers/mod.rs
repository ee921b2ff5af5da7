//! One reader for each public trace, all into the one form of [`super::trace`].
pub mod acme;
pub mod itp;
pub mod muri;
pub mod openb;
pub mod philly;

use super::csv::{Column, Row};
use super::error::ReadError;
use super::trace::WorkerShape;

/// The shape of a job that only says how many GPUs it wants.
fn whole_gpus(row: &Row, column: Column) -> Result<WorkerShape, ReadError> {
    const GPUS: &str = "a count of GPUs, 1 or more";
    match row.parse(column, GPUS)? {
        0 => Err(row.refuse(column, GPUS)),
        gpus => Ok(WorkerShape::whole(gpus)),
    }
}
