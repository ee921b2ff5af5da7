//! Amounts of what a cluster has, as integers in base units: GPUs, logical CPUs, bytes, bits per second.
//!
//! CPUs are counted whole: a worker is pinned to logical CPUs that nobody else may use, so a thousandth of one would be
//! a unit that nothing can hand out.
use serde::{Deserialize, Serialize};
use std::fmt;
use thiserror::Error;

/// What a worker, a gang or a queue holds or asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(default)]
pub struct Resources {
    /// Whole ones.
    pub gpus: u64,
    pub cpus: u64,
    pub memory_bytes: u64,
    /// Memory of the GPUs: of those that are held all, of those that are asked for at least so much.
    pub vram_bytes: u64,
    pub pcie_bandwidth_bps: u64,
    pub network_bandwidth_bps: u64,
    /// Parts of GPUs beside the whole ones, in thousandths of a GPU. No dimension of its own: it counts as GPUs.
    #[serde(skip_serializing_if = "is_zero")]
    pub gpu_milli: u64,
}

fn is_zero(amount: &u64) -> bool {
    *amount == 0
}

/// The names of the dimensions in the order of [`Resources::amounts`], as records and messages use them.
pub const DIMENSIONS: [&str; 6] =
    ["gpus", "cpus", "memory_bytes", "vram_bytes", "pcie_bandwidth_bps", "network_bandwidth_bps"];

impl Resources {
    pub const ZERO: Resources = Resources::of([0; 6]);

    /// From amounts in the order of [`DIMENSIONS`].
    pub const fn of(amounts: [u64; 6]) -> Resources {
        let [gpus, cpus, memory_bytes, vram_bytes, pcie_bandwidth_bps, network_bandwidth_bps] = amounts;
        Resources { gpus, cpus, memory_bytes, vram_bytes, pcie_bandwidth_bps, network_bandwidth_bps, gpu_milli: 0 }
    }

    /// In the order of [`DIMENSIONS`]; of GPUs with their parts, rounded up.
    pub const fn amounts(self) -> [u64; 6] {
        let Resources { cpus, memory_bytes, vram_bytes, pcie_bandwidth_bps, network_bandwidth_bps, .. } = self;
        [self.all_gpus(), cpus, memory_bytes, vram_bytes, pcie_bandwidth_bps, network_bandwidth_bps]
    }

    /// The amount of the dimension of this name; 0 for a name that is none.
    pub fn named(self, name: &str) -> u64 {
        let amounts = DIMENSIONS.into_iter().zip(self.amounts());
        amounts.into_iter().find(|(known, _)| *known == name).map_or(0, |(_, amount)| amount)
    }

    fn with(self, other: Resources, join: impl Fn(u64, u64) -> u64) -> Resources {
        Resources {
            gpus: join(self.gpus, other.gpus),
            cpus: join(self.cpus, other.cpus),
            memory_bytes: join(self.memory_bytes, other.memory_bytes),
            vram_bytes: join(self.vram_bytes, other.vram_bytes),
            pcie_bandwidth_bps: join(self.pcie_bandwidth_bps, other.pcie_bandwidth_bps),
            network_bandwidth_bps: join(self.network_bandwidth_bps, other.network_bandwidth_bps),
            gpu_milli: join(self.gpu_milli, other.gpu_milli),
        }
    }

    pub fn plus(self, other: Resources) -> Resources {
        self.with(other, u64::saturating_add)
    }

    /// What is left after `other` is taken away, or `None` if that would be below zero anywhere.
    pub fn minus(self, other: Resources) -> Option<Resources> {
        // What is taken comes to itself again only where nothing was cut off.
        let rest = self.less(other);
        (rest.plus(other) == self).then_some(rest)
    }

    /// As [`Resources::minus`], where nothing falls below zero.
    pub fn less(self, other: Resources) -> Resources {
        self.with(other, u64::saturating_sub)
    }

    /// The largest part of anything that there is: what of, and how much in millionths.
    pub fn dominant_part(self, capacity: Resources) -> (Option<&'static str>, u64) {
        let parts = DIMENSIONS.into_iter().zip(self.amounts()).zip(capacity.amounts());
        let there = parts.filter(|(_, capacity)| *capacity > 0);
        let part = |held: u64, of: u64| (u128::from(held) * 1_000_000 / u128::from(of)) as u64;
        let largest = there.map(|((name, held), of)| (part(held, of), name)).max_by_key(|(part, _)| *part);
        largest.filter(|(part, _)| *part > 0).map_or((None, 0), |(part, name)| (Some(name), part))
    }

    pub fn times(self, n: u64) -> Resources {
        self.with(Resources::ZERO, |amount, _| amount.saturating_mul(n))
    }

    /// GPUs with their parts, in thousandths: exact.
    pub fn all_gpus_milli(&self) -> u64 {
        self.gpus.saturating_mul(1_000).saturating_add(self.gpu_milli)
    }

    /// GPUs with their parts, rounded up: over a limit in whole GPUs exactly if the exact amount is.
    pub const fn all_gpus(&self) -> u64 {
        self.gpus.saturating_add(self.gpu_milli.div_ceil(1_000))
    }
}

/// An upper bound per resource; `None` means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vram_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_bandwidth_bps: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_bandwidth_bps: Option<u64>,
}

impl Limit {
    /// In the order of [`DIMENSIONS`].
    pub const fn bounds(&self) -> [Option<u64>; 6] {
        let Limit { gpus, cpus, memory_bytes, vram_bytes, pcie_bandwidth_bps, network_bandwidth_bps } = *self;
        [gpus, cpus, memory_bytes, vram_bytes, pcie_bandwidth_bps, network_bandwidth_bps]
    }

    /// The first resource of `total` that is over this limit and of which something is `asked`: its name, the amount and
    /// the limit. Who asks for none of it makes it no worse, and does not wait for it.
    pub fn exceeded_by(&self, total: Resources, asked: Resources) -> Option<(&'static str, u64, u64)> {
        let all = DIMENSIONS.into_iter().zip(total.amounts()).zip(asked.amounts()).zip(self.bounds());
        all.into_iter().find_map(|(((name, total), asked), limit)| {
            limit.filter(|limit| asked > 0 && total > *limit).map(|limit| (name, total, limit))
        })
    }
}

/// An amount that could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("cannot read {text:?} as {what}: {why}; write it like {example}")]
pub struct AmountError {
    pub text: String,
    pub what: &'static str,
    pub why: &'static str,
    pub example: &'static str,
}

/// Reads `120GiB`, `512MiB`, `80GB`, `1TiB`, or a bare number of bytes.
pub fn parse_bytes(text: &str) -> Result<u64, AmountError> {
    let units = [
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("PiB", 1 << 50),
        ("kB", 1_000),
        ("KB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("PB", 1_000_000_000_000_000),
        ("B", 1),
        ("", 1),
    ];
    parse_scaled(text, "an amount of memory", "120GiB", &units)
}

/// Reads a bandwidth into bits per second: `50Gbps`, `3.2Tbps`, `20GB/s`.
pub fn parse_bandwidth(text: &str) -> Result<u64, AmountError> {
    let units = [
        ("Tbps", 1_000_000_000_000),
        ("Gbps", 1_000_000_000),
        ("Mbps", 1_000_000),
        ("TB/s", 8_000_000_000_000),
        ("GB/s", 8_000_000_000),
        ("MB/s", 8_000_000),
        ("bps", 1),
    ];
    parse_scaled(text, "a bandwidth", "50Gbps or 20GB/s", &units)
}

/// Reads a decimal number with one of `units` behind it, exactly, without floats.
fn parse_scaled(
    text: &str,
    what: &'static str,
    example: &'static str,
    units: &[(&str, u64)],
) -> Result<u64, AmountError> {
    let fail = |why| AmountError { text: text.to_string(), what, why, example };
    let trimmed = text.trim();
    let split = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
    let (number, unit) = (&trimmed[..split], trimmed[split..].trim());
    let scale = units.iter().find(|(name, _)| *name == unit).ok_or_else(|| fail("the unit is unknown"))?.1;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() || fraction.len() > 6 {
        return Err(fail("a number with at most six decimals is expected before the unit"));
    }
    let whole: u64 = whole.parse().map_err(|_| fail("the number is not one that fits"))?;
    let mut total = whole.checked_mul(scale).ok_or_else(|| fail("it is too large"))?;
    if !fraction.is_empty() {
        let digits: u64 = fraction.parse().map_err(|_| fail("the decimals are not digits"))?;
        let part = u128::from(digits) * u128::from(scale) / 10u128.pow(fraction.len() as u32);
        total = total.checked_add(part as u64).ok_or_else(|| fail("it is too large"))?;
    }
    Ok(total)
}

/// Reads `gpu:16,cpu:400,memory:2TiB`, the form of limits and guarantees in scenario files.
pub fn parse_limit(text: &str) -> Result<Limit, AmountError> {
    let example = "gpu:16,cpu:400,memory:2TiB";
    let fail = |why| AmountError { text: text.to_string(), what: "a list of amounts", why, example };
    let mut limit = Limit::default();
    for part in text.split(',') {
        let (name, value) = part.split_once(':').ok_or_else(|| fail("a part has no colon"))?;
        let count = || value.trim().parse::<u64>().map_err(|_| fail("a count is not a whole number"));
        match name.trim() {
            "gpu" | "gpus" => limit.gpus = Some(count()?),
            "cpu" | "cpus" => limit.cpus = Some(count()?),
            "memory" => limit.memory_bytes = Some(parse_bytes(value)?),
            "vram" => limit.vram_bytes = Some(parse_bytes(value)?),
            "pcie_bandwidth" => limit.pcie_bandwidth_bps = Some(parse_bandwidth(value)?),
            "network_bandwidth" => limit.network_bandwidth_bps = Some(parse_bandwidth(value)?),
            _ => {
                return Err(fail("a resource is not one of gpu, cpu, memory, vram, pcie_bandwidth, network_bandwidth"));
            }
        }
    }
    Ok(limit)
}

/// Bytes as people write them, in binary units: `120GiB`, `1.5TiB`.
#[derive(Debug, Clone, Copy)]
pub struct HumanBytes(pub u64);

impl fmt::Display for HumanBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("PiB", 50), ("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
        for (unit, shift) in units {
            let size = 1u64 << shift;
            if self.0 >= size {
                let tenths = (u128::from(self.0) * 10 / u128::from(size)) as u64;
                return match tenths % 10 {
                    0 => write!(f, "{}{unit}", tenths / 10),
                    d => write!(f, "{}.{d}{unit}", tenths / 10),
                };
            }
        }
        write!(f, "{}B", self.0)
    }
}

/// Bits per second as people write them: `50Gbps`, `1.6Tbps`.
#[derive(Debug, Clone, Copy)]
pub struct HumanBandwidth(pub u64);

impl fmt::Display for HumanBandwidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [("Tbps", 1_000_000_000_000), ("Gbps", 1_000_000_000), ("Mbps", 1_000_000)];
        match units.into_iter().find(|(_, size)| self.0 >= *size) {
            Some((unit, size)) if self.0 % size >= size / 10 => {
                write!(f, "{}.{}{unit}", self.0 / size, self.0 % size * 10 / size)
            }
            Some((unit, size)) => write!(f, "{}{unit}", self.0 / size),
            None => write!(f, "{}bps", self.0),
        }
    }
}

/// A bandwidth as [`parse_bandwidth`] reads it, with nothing rounded.
pub fn exact_bandwidth(bps: u64) -> String {
    let shown = HumanBandwidth(bps).to_string();
    if parse_bandwidth(&shown) == Ok(bps) { shown } else { format!("{bps}bps") }
}

/// Thousandths of GPUs as people write them: `8`, `0.5`, `2.125`.
#[derive(Debug, Clone, Copy)]
pub struct GpuMilli(pub u64);

impl fmt::Display for GpuMilli {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 / 1_000, self.0 % 1_000) {
            (whole, 0) => write!(f, "{whole}"),
            (whole, part) => write!(f, "{whole}.{}", format!("{part:03}").trim_end_matches('0')),
        }
    }
}

impl GpuMilli {
    /// `1 GPU`, `0.5 GPUs`
    pub fn words(self) -> String {
        if self.0 == 1_000 { "1 GPU".to_string() } else { format!("{self} GPUs") }
    }
}

/// A number and its noun: `1 node`, `2 nodes`.
pub fn count(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// An amount of one of the [`DIMENSIONS`] as people write it: `8 GPUs`, `2TiB of memory`.
pub fn amount_words(dimension: &str, amount: u64) -> String {
    match dimension {
        "gpus" => count(amount, "GPU"),
        "cpus" => count(amount, "CPU"),
        "memory_bytes" => format!("{} of memory", HumanBytes(amount)),
        "vram_bytes" => format!("{} of GPU memory", HumanBytes(amount)),
        "pcie_bandwidth_bps" => format!("{} of PCIe bandwidth", HumanBandwidth(amount)),
        "network_bandwidth_bps" => format!("{} of network bandwidth", HumanBandwidth(amount)),
        other => format!("{amount} {other}"),
    }
}

/// As [`amount_words`], where it is clear of what: `8`, `2TiB`.
pub fn amount_figure(dimension: &str, amount: u64) -> String {
    match dimension {
        "memory_bytes" | "vram_bytes" => HumanBytes(amount).to_string(),
        "pcie_bandwidth_bps" | "network_bandwidth_bps" => HumanBandwidth(amount).to_string(),
        _ => amount.to_string(),
    }
}

/// As [`count`], with the verb: `1 node is`, `2 nodes are`.
pub fn count_are(n: u64, noun: &str) -> String {
    format!("{} {}", count(n, noun), if n == 1 { "is" } else { "are" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_told_in_the_units_of_people() {
        assert_eq!(amount_words("gpus", 1), "1 GPU");
        assert_eq!(amount_words("memory_bytes", 4 << 30), "4GiB of memory");
        assert_eq!(amount_figure("gpus", 1), "1");
        assert_eq!(amount_figure("vram_bytes", 4 << 30), "4GiB");
        assert_eq!(amount_figure("network_bandwidth_bps", 20_000_000_000), HumanBandwidth(20_000_000_000).to_string());
    }

    #[test]
    fn bytes_and_bandwidths_read_exactly() {
        assert_eq!(parse_bytes("120GiB").unwrap(), 120 << 30);
        assert_eq!(parse_bytes("1.5TiB").unwrap(), 3 << 39);
        assert_eq!(parse_bytes("80GB").unwrap(), 80_000_000_000);
        assert_eq!(parse_bytes("0").unwrap(), 0);
        assert_eq!(parse_bandwidth("3.2Tbps").unwrap(), 3_200_000_000_000);
        assert_eq!(parse_bandwidth("20GB/s").unwrap(), 160_000_000_000);
    }

    #[test]
    fn nonsense_amounts_are_refused_with_an_example() {
        for text in ["", "GiB", "-5GiB", "1.2.3GiB", "5 apples", "99999999999999PiB", "1e9"] {
            let error = parse_bytes(text).unwrap_err().to_string();
            assert!(error.contains("write it like 120GiB"), "{text}: {error}");
        }
        assert!(parse_limit("gpu:-1").is_err());
        assert!(parse_limit("tpu:1").unwrap_err().to_string().contains("not one of gpu, cpu, memory"));
    }

    #[test]
    fn limits_name_the_first_resource_over() {
        let limit = parse_limit("gpu:16,memory:2TiB").unwrap();
        let asks = Resources { gpus: 17, cpus: 9_999, ..Resources::ZERO };
        assert_eq!(limit.exceeded_by(asks, asks), Some(("gpus", 17, 16)));
        assert_eq!(limit.exceeded_by(asks, Resources { gpus: 0, ..asks }), None, "it asks for no GPU");
        assert_eq!(limit.exceeded_by(Resources { gpus: 16, ..asks }, asks), None);
        let with_a_part = Resources { gpus: 15, gpu_milli: 1_000, ..Resources::ZERO };
        assert_eq!(limit.exceeded_by(with_a_part, asks), None);
        assert_eq!(limit.exceeded_by(Resources { gpu_milli: 1_001, ..with_a_part }, asks), Some(("gpus", 17, 16)));
    }

    #[test]
    fn bytes_print_in_binary_units() {
        assert_eq!(HumanBytes(120 << 30).to_string(), "120GiB");
        assert_eq!(HumanBytes(3 << 39).to_string(), "1.5TiB");
        assert_eq!(HumanBytes(512).to_string(), "512B");
    }

    #[test]
    fn bandwidths_print_in_decimal_units() {
        assert_eq!(HumanBandwidth(50_000_000_000).to_string(), "50Gbps");
        assert_eq!(HumanBandwidth(1_650_000_000_000).to_string(), "1.6Tbps");
        assert_eq!(HumanBandwidth(999).to_string(), "999bps");
        assert_eq!(exact_bandwidth(3_200_000_000_000), "3.2Tbps");
        assert_eq!(exact_bandwidth(3_210_000_000_000), "3210000000000bps");
    }

    #[test]
    fn amounts_are_told_in_their_own_units() {
        let some = Resources::of([1, 16, 2 << 40, 80 << 30, 20_000_000_000, 50_000_000_000]);
        let words: Vec<String> = DIMENSIONS.into_iter().map(|name| amount_words(name, some.named(name))).collect();
        let expected = "1 GPU, 16 CPUs, 2TiB of memory, 80GiB of GPU memory, 20Gbps of PCIe bandwidth, 50Gbps of network bandwidth";
        assert_eq!(words.join(", "), expected);
    }

    #[test]
    fn parts_of_gpus_are_told_exactly() {
        let words: Vec<String> = [0, 500, 1_000, 2_125, 3_010].map(|milli| GpuMilli(milli).words()).into();
        assert_eq!(words, ["0 GPUs", "0.5 GPUs", "1 GPU", "2.125 GPUs", "3.01 GPUs"]);
    }

    #[test]
    fn amounts_keep_their_order_and_never_fall_below_zero() {
        let some = Resources::of([1, 2, 3, 4, 5, 6]);
        assert_eq!(Resources::of(some.amounts()), some);
        assert_eq!(DIMENSIONS.map(|name| some.named(name)), [1, 2, 3, 4, 5, 6]);
        assert_eq!(some.minus(Resources::of([0, 0, 0, 0, 0, 7])), None);
        assert_eq!(some.less(Resources::of([0, 0, 0, 0, 0, 7])), Resources::of([1, 2, 3, 4, 5, 0]));
        assert_eq!(some.times(u64::MAX).gpus, u64::MAX);
        assert_eq!(some.dominant_part(Resources::of([4, 4, 0, 16, 20, 60])), (Some("cpus"), 500_000));
        assert_eq!(Resources::ZERO.dominant_part(some), (None, 0));
    }
}
