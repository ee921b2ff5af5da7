//! A two-layer network and its data, exact to the bit on every machine.
//!
//! Only + − × ÷ are used, which IEEE 754 fixes to the last bit: softsign instead of tanh, a polynomial teacher instead
//! of sines. exp and tanh of the C library differ between CPU generations, and a gang may resume on other nodes.
//! The data of a step are a function of (seed, step, rank) alone, so that a resume needs no state of a data loader.

const INPUTS: usize = 8;
const HIDDEN: usize = 16;
/// Samples that each rank contributes to a step.
const BATCH: usize = 32;
const LEARNING_RATE: f64 = 0.05;
const MOMENTUM: f64 = 0.9;

const HIDDEN_BIAS: usize = HIDDEN * INPUTS;
const OUTPUT: usize = HIDDEN_BIAS + HIDDEN;
const OUTPUT_BIAS: usize = OUTPUT + HIDDEN;
/// Number of trained values.
pub const PARAMETERS: usize = OUTPUT_BIAS + 1;

#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// `HIDDEN × INPUTS` weights, `HIDDEN` biases, `HIDDEN` output weights, one output bias.
    pub parameters: Vec<f64>,
    /// The optimizer's velocity, one for each parameter.
    pub momentum: Vec<f64>,
}

/// Sums over samples, which may be added up over ranks: a gradient for each parameter, then the loss.
pub type Gradient = Vec<f64>;

impl Model {
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(&[seed, u64::MAX]);
        let parameters = (0..PARAMETERS).map(|_| 0.5 * random.unit()).collect();
        Self { parameters, momentum: vec![0.0; PARAMETERS] }
    }

    /// The gradient of this rank's batch of this step.
    pub fn gradient(&self, seed: u64, step: u64, rank: usize) -> Gradient {
        let mut random = Random::new(&[seed, step, rank as u64]);
        let mut gradient = vec![0.0; PARAMETERS + 1];
        for _ in 0..BATCH {
            let inputs = std::array::from_fn(|_| random.unit());
            self.add_sample(&inputs, &mut gradient);
        }
        gradient
    }

    fn add_sample(&self, inputs: &[f64; INPUTS], gradient: &mut [f64]) {
        let p = &self.parameters;
        let mut scale = [0.0; HIDDEN];
        let mut active = [0.0; HIDDEN];
        let mut output = p[OUTPUT_BIAS];
        for h in 0..HIDDEN {
            let weights = &p[h * INPUTS..(h + 1) * INPUTS];
            let sum = weights.iter().zip(inputs).fold(p[HIDDEN_BIAS + h], |sum, (w, x)| sum + w * x);
            scale[h] = 1.0 / (1.0 + sum.abs());
            active[h] = sum * scale[h];
            output += p[OUTPUT + h] * active[h];
        }
        let miss = output - teacher(inputs);
        for h in 0..HIDDEN {
            gradient[OUTPUT + h] += miss * active[h];
            let back = miss * p[OUTPUT + h] * scale[h] * scale[h];
            gradient[HIDDEN_BIAS + h] += back;
            for (slot, x) in gradient[h * INPUTS..(h + 1) * INPUTS].iter_mut().zip(inputs) {
                *slot += back * x;
            }
        }
        gradient[OUTPUT_BIAS] += miss;
        gradient[PARAMETERS] += 0.5 * miss * miss;
    }

    /// Applies the gradient summed over `world` ranks; returns the mean loss before the update.
    pub fn update(&mut self, sum: &Gradient, world: usize) -> f64 {
        let samples = (BATCH * world) as f64;
        for ((parameter, momentum), gradient) in self.parameters.iter_mut().zip(&mut self.momentum).zip(sum) {
            *momentum = MOMENTUM * *momentum - LEARNING_RATE * (gradient / samples);
            *parameter += *momentum;
        }
        sum[PARAMETERS] / samples
    }
}

/// What the network is to learn.
fn teacher(x: &[f64; INPUTS]) -> f64 {
    x[0] * x[1] + x[2] * x[2] - 0.5 * x[3] + x[4] * x[5] * x[6] + 0.25 * x[7]
}

/// SplitMix64 (Steele, Lea, Flood 2014): small, and the same on every machine.
struct Random(u64);

impl Random {
    fn new(keys: &[u64]) -> Self {
        keys.iter().fold(Self(0), |mut random, key| Self(random.next() ^ key))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [-1, 1): 53 bits, exact in f64.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_is_the_slope_of_the_loss() {
        let model = Model::new(3);
        let gradient = model.gradient(3, 1, 0);
        for (i, expected) in gradient.iter().enumerate().take(PARAMETERS) {
            let loss_at = |shift: f64| {
                let mut moved = model.clone();
                moved.parameters[i] += shift;
                moved.gradient(3, 1, 0)[PARAMETERS]
            };
            let slope = (loss_at(1e-6) - loss_at(-1e-6)) / 2e-6;
            assert!((slope - expected).abs() < 1e-6, "parameter {i}: slope {slope}, gradient {expected}");
        }
    }

    #[test]
    fn training_learns_and_ranks_see_different_data() {
        let mut model = Model::new(1);
        assert_ne!(model.gradient(1, 1, 0), model.gradient(1, 1, 1));
        assert_ne!(model.gradient(1, 1, 0), model.gradient(1, 2, 0));
        let losses: Vec<f64> = (1..=400)
            .map(|step| {
                let g = model.gradient(1, step, 0);
                model.update(&g, 1)
            })
            .collect();
        let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
        assert!(mean(&losses[380..]) < 0.5 * mean(&losses[..20]), "no progress: {losses:?}");
    }
}
