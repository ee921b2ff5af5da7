//! GPU families: the name used in labels and requests, and the figures of the usual board of each.
//! The table serves planning, samples and virtual machines; a live node reports what it measured instead.

/// PCIe of 16 lanes after line coding (128b/130b), bits per second and direction.
pub const PCIE_GEN3_X16_BPS: u64 = 126_000_000_000;
pub const PCIE_GEN4_X16_BPS: u64 = 252_000_000_000;
pub const PCIE_GEN5_X16_BPS: u64 = 504_000_000_000;

const GIB: u64 = 1 << 30;

/// What the usual board of a family has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GpuFacts {
    pub family: &'static str,
    pub vram_bytes: u64,
    pub pcie_bandwidth_bps: u64,
}

const fn facts(family: &'static str, vram_gib: u64, pcie_bandwidth_bps: u64) -> GpuFacts {
    GpuFacts { family, vram_bytes: vram_gib * GIB, pcie_bandwidth_bps }
}

// Memory and host interface from NVIDIA's public product pages and data sheets, and from the system descriptions of the
// public MLPerf inference rounds 4.1 (H200-SXM-141GB), 6.0 (B200-SXM-180GB) and 6.1 (GB200-186GB). Vendors write GB for what
// is nearly GiB. Families sold in several sizes (V100, A100) are listed with the larger.
// GB200 hangs on its CPU by NVLink-C2C; PCIe gen 5 is what its network devices see.
const FACTS: [GpuFacts; 18] = [
    facts("A10", 24, PCIE_GEN4_X16_BPS),
    facts("A100", 80, PCIE_GEN4_X16_BPS),
    facts("A10G", 24, PCIE_GEN4_X16_BPS),
    facts("A30", 24, PCIE_GEN4_X16_BPS),
    facts("A40", 48, PCIE_GEN4_X16_BPS),
    facts("B200", 180, PCIE_GEN5_X16_BPS),
    facts("GB200", 186, PCIE_GEN5_X16_BPS),
    facts("H100", 80, PCIE_GEN5_X16_BPS),
    facts("H200", 141, PCIE_GEN5_X16_BPS),
    facts("L4", 24, PCIE_GEN4_X16_BPS),
    facts("L40", 48, PCIE_GEN4_X16_BPS),
    facts("L40S", 48, PCIE_GEN4_X16_BPS),
    facts("P100", 16, PCIE_GEN3_X16_BPS),
    facts("RTX3090", 24, PCIE_GEN4_X16_BPS),
    facts("RTX4090", 24, PCIE_GEN4_X16_BPS),
    facts("RTX5090", 32, PCIE_GEN5_X16_BPS),
    facts("T4", 16, PCIE_GEN3_X16_BPS),
    facts("V100", 32, PCIE_GEN3_X16_BPS),
];

/// Figures for a family, named as [`family`] names it; `None` for one that is not in the table.
pub fn facts_of(family: &str) -> Option<GpuFacts> {
    FACTS.into_iter().find(|facts| facts.family == family)
}

/// The families in the table.
pub fn known_families() -> Vec<&'static str> {
    FACTS.iter().map(|facts| facts.family).collect()
}

/// The family in a product name as drivers print it: "NVIDIA H100 80GB HBM3" → "H100", "Tesla V100-SXM2-32GB" → "V100",
/// "NVIDIA GeForce RTX 4090" → "RTX4090". Empty for a name without any word of its own.
pub fn family(product: &str) -> String {
    const VENDOR: [&str; 5] = ["NVIDIA", "TESLA", "GEFORCE", "QUADRO", "GRID"];
    const LINE: [&str; 5] = ["RTX", "GTX", "TITAN", "PRO", "GT"];
    let capitals = product.to_ascii_uppercase();
    let words = capitals.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let mut name = String::new();
    for word in words.skip_while(|word| VENDOR.contains(word)) {
        name.push_str(word);
        if !LINE.contains(&word) {
            break;
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn product_names_give_families() {
        let pairs = [
            ("NVIDIA H100 80GB HBM3", "H100"),
            ("NVIDIA A100-SXM4-40GB", "A100"),
            ("Tesla V100-SXM2-32GB", "V100"),
            ("Tesla T4", "T4"),
            ("NVIDIA GeForce RTX 4090", "RTX4090"),
            ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "RTXPRO6000"),
            ("NVIDIA GB200", "GB200"),
            ("l40s", "L40S"),
            ("NVIDIA", ""),
        ];
        for (product, expected) in pairs {
            assert_eq!(family(product), expected);
        }
    }

    #[test]
    fn the_table_is_keyed_by_family_names() {
        for name in known_families() {
            assert_eq!(family(name), name);
            assert!(facts_of(name).is_some());
        }
        assert_eq!(facts_of("H101"), None);
    }
}
