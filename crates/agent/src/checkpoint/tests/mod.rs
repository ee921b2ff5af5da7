//! Every format as small real files, whole and torn in each way that its module claims to see.

mod fencing;
mod fixtures;
mod formats;
mod manifests;
mod probing;
mod scanning;
