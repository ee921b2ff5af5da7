//! Seeded randomness without a dependency: splitmix64, one child generator per purpose, so that a new kind of question
//! does not change the answers to the old ones.

/// A generator whose whole course follows from its seed.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// A generator of its own for one purpose.
    pub fn child(&self, purpose: &str) -> Dice {
        let name = purpose
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Dice(mix(self.0 ^ name))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.next() % end }
    }

    pub fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        of.get(self.below(of.len() as u64) as usize)
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_course_and_purposes_differ() {
        let draw = |mut dice: Dice| (0..8).map(|_| dice.next()).collect::<Vec<_>>();
        assert_eq!(draw(Dice::new(7).child("jobs")), draw(Dice::new(7).child("jobs")));
        assert_ne!(draw(Dice::new(7).child("jobs")), draw(Dice::new(7).child("faults")));
        assert_ne!(draw(Dice::new(7).child("jobs")), draw(Dice::new(8).child("jobs")));
    }
}
