//! From values to places on an axis, and the round numbers beside it.

/// An axis over a range of values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    low: f64,
    high: f64,
    by_tens: bool,
}

impl Scale {
    /// From 0 to the next round number; by tens from and to a power of ten.
    pub fn over(values: impl Iterator<Item = f64>, by_tens: bool) -> Scale {
        let finite = values.filter(|value| value.is_finite());
        let (low, high) =
            finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        if by_tens {
            let low = if low.is_finite() { low.max(1e-9).log10().floor() } else { 0.0 };
            let high = if high.is_finite() { high.max(1e-9).log10().ceil() } else { 1.0 };
            return Scale { low, high: high.max(low + 1.0), by_tens };
        }
        let high = if high.is_finite() && high > 0.0 { high } else { 1.0 };
        let step = step(high);
        Scale { low: 0.0, high: (high / step).ceil() * step, by_tens }
    }

    /// Between 0 and 1.
    pub fn part(self, value: f64) -> f64 {
        let value = if self.by_tens { value.max(1e-9).log10() } else { value };
        ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    /// Where lines of the grid are, with their words.
    pub fn ticks(self) -> Vec<(f64, String)> {
        if self.by_tens {
            let powers = self.low as i32..=self.high as i32;
            return powers.map(|power| 10f64.powi(power)).map(|value| (value, words(value))).collect();
        }
        let step = step(self.high);
        let count = (self.high / step).round() as usize;
        (0..=count).map(|index| index as f64 * step).map(|value| (value, words(value))).collect()
    }
}

/// 1, 2 or 5 times a power of ten, so that four to ten steps reach `high`.
fn step(high: f64) -> f64 {
    let power = 10f64.powf((high / 5.0).log10().floor());
    let times = high / 5.0 / power;
    power
        * if times < 1.5 {
            1.0
        } else if times < 3.5 {
            2.0
        } else if times < 7.5 {
            5.0
        } else {
            10.0
        }
}

fn words(value: f64) -> String {
    let digits = if value == 0.0 || value >= 1.0 { 0 } else { (-value.log10().floor()) as usize };
    let text = format!("{value:.digits$}");
    match text.parse::<i64>() {
        Ok(whole) if whole >= 10_000 => thousands(whole),
        _ => text,
    }
}

fn thousands(whole: i64) -> String {
    if whole < 1_000 {
        return whole.to_string();
    }
    format!("{},{:03}", thousands(whole / 1_000), whole % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_end_at_round_numbers() {
        let words = |scale: Scale| scale.ticks().into_iter().map(|(_, text)| text).collect::<Vec<_>>();
        assert_eq!(words(Scale::over([3.0, 87.0].into_iter(), false)), ["0", "20", "40", "60", "80", "100"]);
        assert_eq!(words(Scale::over([0.1, 250.0].into_iter(), true)), ["0.1", "1", "10", "100", "1000"]);
        assert_eq!(words(Scale::over([2_300_000.0].into_iter(), false))[1], "500,000");
        assert_eq!(words(Scale::over([].into_iter(), false)).len(), 6);
    }

    #[test]
    fn values_have_their_place() {
        let scale = Scale::over([100.0].into_iter(), false);
        assert_eq!((scale.part(0.0), scale.part(50.0), scale.part(500.0)), (0.0, 0.5, 1.0));
        let tens = Scale::over([1.0, 100.0].into_iter(), true);
        assert_eq!((tens.part(10.0), tens.part(0.0)), (0.5, 0.0));
    }
}
