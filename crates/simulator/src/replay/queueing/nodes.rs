//! Free GPUs of equal nodes. A gang of at most one node sits on one; a larger one takes whole empty nodes.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Nodes {
    free: Vec<u32>,
    gpus_each: u32,
}

impl Nodes {
    pub fn new(count: usize, gpus_each: u32) -> Nodes {
        Nodes { free: vec![gpus_each; count], gpus_each }
    }

    pub fn free_gpus(&self) -> u32 {
        self.free.iter().sum()
    }

    /// Takes the first place that holds the gang; false, and nothing taken, where there is none.
    pub fn take(&mut self, gpus: u32) -> bool {
        if gpus > self.gpus_each {
            return self.take_empty(gpus.div_ceil(self.gpus_each) as usize);
        }
        let node = self.free.iter_mut().find(|free| **free >= gpus);
        node.map(|free| *free -= gpus).is_some()
    }

    fn take_empty(&mut self, count: usize) -> bool {
        let all = self.gpus_each;
        let fits = self.free.iter().filter(|&&free| free == all).count() >= count;
        if fits {
            self.free.iter_mut().filter(|free| **free == all).take(count).for_each(|free| *free = 0);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_gangs_share_a_node_and_large_ones_want_empty_nodes() {
        let mut nodes = Nodes::new(3, 8);
        assert!(nodes.take(4) && nodes.take(8));
        assert!(!nodes.take(16), "one empty node");
        assert!(nodes.take(4) && nodes.take(6), "the second of 4 goes beside the first");
        assert_eq!(nodes.free_gpus(), 2);
        assert!(!nodes.take(3) && Nodes::new(2, 8).take(16));
    }
}
