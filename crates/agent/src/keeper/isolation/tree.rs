//! No cgroup: the tree is what descends from the keeper. The sweep walks and kills descendants in any case, so this
//! back end adds nothing; it stands for "nothing better here".

use std::io;
use std::path::Path;

use super::{Isolation, IsolationKind};

pub(super) struct ProcessTree;

impl Isolation for ProcessTree {
    fn kind(&self) -> IsolationKind {
        IsolationKind::ProcessTree
    }

    fn directory(&self) -> Option<&Path> {
        None
    }

    fn processes(&self) -> Vec<i32> {
        Vec::new()
    }

    fn kill(&self) -> io::Result<()> {
        Ok(())
    }
}
