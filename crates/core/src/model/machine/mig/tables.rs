//! What each card can be split into: facts per exact card, taken over by hand into our own form. No code but a constructor.
//!
//! Sources: NVIDIA's MIG user guide (names, fractions, counts), public captures of `nvidia-smi mig -lgip` and `-lgipp` for A100,
//! A30, H100 and GH200 96 GB (memory, SMs, starts), NVIDIA's mig-parted, `deployments/systemd/config-default.yaml`
//! (Apache-2.0: names of B200, B300, GB200, GB300 and GH200 144 GB). Where no capture of the starts is public they are those
//! of the same geometry, and `starts_certain` is false: what a live node reports goes before this table.
//!
//! Two editions of the guide contradict each other about the RTX PRO 5000; the newer one is taken. The mocks in go-nvml are
//! wrong about H100, H200 and B200 and were not used.
use super::Extra::{AllMedia, Graphics, Media, NoMedia, Plain};
use super::{Extra, Profile, Sku};

const EACH_OF_7: &[u8] = &[0, 1, 2, 3, 4, 5, 6];
const EVEN_TO_6: &[u8] = &[0, 2, 4, 6];
const EVEN_TO_4: &[u8] = &[0, 2, 4];
const HALVES_OF_8: &[u8] = &[0, 4];
const EACH_OF_4: &[u8] = &[0, 1, 2, 3];
const HALVES_OF_4: &[u8] = &[0, 2];
const EACH_OF_2: &[u8] = &[0, 1];
const FIRST: &[u8] = &[0];

/// Compute slices, memory slots, extra, GB in the name, SMs (0: not known), hundredths of GiB (0: not known), how many at
/// most, where it may start.
#[allow(clippy::too_many_arguments, reason = "one line of a table")]
const fn row(
    compute: u8,
    memory: u8,
    extra: Extra,
    gb: u16,
    sms: u16,
    gib_hundredths: u32,
    most: u8,
    starts: &'static [u8],
) -> Profile {
    Profile { compute, memory, extra, gb, also_gb: 0, sms, gib_hundredths, most, starts }
}

impl Profile {
    /// Another driver or memory size shows the same profile with this number.
    const fn also(self, gb: u16) -> Profile {
        Profile { also_gb: gb, ..self }
    }
}

/// Cards in the order in which a name is looked up.
pub const SKUS: &[Sku] = &[
    Sku {
        key: "a100-40gb",
        models: &["A100", "A800"],
        memory_gb: 40,
        compute: 7,
        slots: 8,
        starts_certain: true,
        profiles: &[
            row(1, 1, Plain, 5, 14, 475, 7, EACH_OF_7),
            row(1, 1, Media, 5, 14, 475, 1, EACH_OF_7),
            row(1, 2, Plain, 10, 14, 975, 4, EVEN_TO_6),
            row(2, 2, Plain, 10, 28, 975, 3, EVEN_TO_4),
            row(3, 4, Plain, 20, 42, 1962, 2, HALVES_OF_8),
            row(4, 4, Plain, 20, 56, 1962, 1, FIRST),
            row(7, 8, Plain, 40, 98, 3950, 1, FIRST),
        ],
    },
    Sku {
        key: "a100-80gb",
        models: &["A100", "A800"],
        memory_gb: 80,
        compute: 7,
        slots: 8,
        starts_certain: true,
        profiles: &[
            row(1, 1, Plain, 10, 14, 950, 7, EACH_OF_7),
            row(1, 1, Media, 10, 14, 950, 1, EACH_OF_7),
            row(1, 2, Plain, 20, 14, 1950, 4, EVEN_TO_6),
            row(2, 2, Plain, 20, 28, 1950, 3, EVEN_TO_4),
            row(3, 4, Plain, 40, 42, 3925, 2, HALVES_OF_8),
            row(4, 4, Plain, 40, 56, 3925, 1, FIRST),
            row(7, 8, Plain, 80, 98, 7850, 1, FIRST),
        ],
    },
    Sku {
        key: "a30-24gb",
        models: &["A30"],
        memory_gb: 24,
        compute: 4,
        slots: 4,
        starts_certain: true,
        profiles: &[
            row(1, 1, Plain, 6, 14, 581, 4, EACH_OF_4),
            row(1, 1, Media, 6, 14, 581, 1, EACH_OF_4),
            row(2, 2, Plain, 12, 28, 1169, 2, HALVES_OF_4),
            row(2, 2, Media, 12, 28, 1169, 1, HALVES_OF_4),
            row(4, 4, Plain, 24, 56, 2344, 1, FIRST),
        ],
    },
    Sku {
        key: "h100-80gb",
        models: &["H100", "H800"],
        memory_gb: 80,
        compute: 7,
        slots: 8,
        starts_certain: true,
        profiles: &[
            row(1, 1, Plain, 10, 16, 975, 7, EACH_OF_7),
            row(1, 1, Media, 10, 16, 975, 1, EACH_OF_7),
            row(1, 2, Plain, 20, 26, 1962, 4, EVEN_TO_6),
            row(2, 2, Plain, 20, 32, 1962, 3, EVEN_TO_4),
            row(3, 4, Plain, 40, 60, 3950, 2, HALVES_OF_8),
            row(4, 4, Plain, 40, 64, 3950, 1, FIRST),
            row(7, 8, Plain, 80, 132, 7925, 1, FIRST),
        ],
    },
    Sku {
        key: "h100-94gb",
        models: &["H100", "H800"],
        memory_gb: 94,
        compute: 7,
        slots: 8,
        starts_certain: true,
        profiles: &[
            row(1, 1, Plain, 12, 16, 1075, 7, EACH_OF_7),
            row(1, 1, Media, 12, 16, 1075, 1, EACH_OF_7),
            row(1, 2, Plain, 24, 26, 2162, 4, EVEN_TO_6),
            row(2, 2, Plain, 24, 32, 2162, 3, EVEN_TO_4),
            row(3, 4, Plain, 47, 60, 4638, 2, HALVES_OF_8),
            row(4, 4, Plain, 47, 64, 4638, 1, FIRST),
            row(7, 8, Plain, 94, 132, 9312, 1, FIRST),
        ],
    },
    Sku {
        key: "h100-96gb-gh200",
        models: &["H100", "GH200", "H20"],
        memory_gb: 96,
        compute: 7,
        slots: 8,
        starts_certain: true,
        profiles: &[
            row(1, 1, Plain, 12, 16, 1100, 7, EACH_OF_7),
            row(1, 1, Media, 12, 16, 1100, 1, EACH_OF_7),
            row(1, 2, Plain, 24, 26, 2300, 4, EVEN_TO_6),
            row(2, 2, Plain, 24, 32, 2300, 3, EVEN_TO_4),
            row(3, 4, Plain, 48, 60, 4650, 2, HALVES_OF_8),
            row(4, 4, Plain, 48, 64, 4650, 1, FIRST),
            row(7, 8, Plain, 96, 132, 9300, 1, FIRST),
        ],
    },
    Sku {
        key: "gh200-144gb",
        models: &["GH200"],
        memory_gb: 144,
        compute: 7,
        slots: 8,
        starts_certain: false,
        profiles: &[
            row(1, 1, Plain, 18, 0, 0, 7, EACH_OF_7),
            row(1, 1, Media, 18, 0, 0, 1, EACH_OF_7),
            row(1, 2, Plain, 36, 0, 0, 4, EVEN_TO_6),
            row(2, 2, Plain, 36, 0, 0, 3, EVEN_TO_4),
            row(3, 4, Plain, 72, 0, 0, 2, HALVES_OF_8),
            row(4, 4, Plain, 72, 0, 0, 1, FIRST),
            row(7, 8, Plain, 144, 0, 0, 1, FIRST),
        ],
    },
    Sku {
        key: "h200-141gb",
        models: &["H200"],
        memory_gb: 141,
        compute: 7,
        slots: 8,
        starts_certain: true,
        profiles: &[
            row(1, 1, Plain, 18, 16, 1600, 7, EACH_OF_7),
            row(1, 1, Media, 18, 16, 1600, 1, EACH_OF_7),
            row(1, 2, Plain, 35, 26, 0, 4, EVEN_TO_6),
            row(2, 2, Plain, 35, 32, 0, 3, EVEN_TO_4),
            row(3, 4, Plain, 71, 60, 0, 2, HALVES_OF_8),
            row(4, 4, Plain, 71, 64, 0, 1, FIRST),
            row(7, 8, Plain, 141, 132, 0, 1, FIRST),
        ],
    },
    Sku {
        key: "b200-180gb",
        models: &["B200"],
        memory_gb: 180,
        compute: 7,
        slots: 8,
        starts_certain: false,
        profiles: &[
            row(1, 1, Plain, 23, 18, 0, 7, EACH_OF_7),
            row(1, 1, Media, 23, 18, 0, 1, EACH_OF_7),
            row(1, 2, Plain, 45, 0, 0, 4, EVEN_TO_6),
            row(2, 2, Plain, 45, 36, 0, 3, EVEN_TO_4),
            row(3, 4, Plain, 90, 0, 0, 2, HALVES_OF_8),
            row(4, 4, Plain, 90, 72, 0, 1, FIRST),
            row(7, 8, Plain, 180, 0, 0, 1, FIRST),
        ],
    },
    Sku {
        key: "b300",
        models: &["B300"],
        memory_gb: 269,
        compute: 7,
        slots: 8,
        starts_certain: false,
        profiles: &[
            row(1, 1, Plain, 34, 0, 0, 7, EACH_OF_7),
            row(1, 1, Media, 34, 0, 0, 1, EACH_OF_7),
            row(1, 2, Plain, 67, 0, 0, 4, EVEN_TO_6),
            row(2, 2, Plain, 67, 0, 0, 3, EVEN_TO_4),
            row(3, 4, Plain, 135, 0, 0, 2, HALVES_OF_8),
            row(4, 4, Plain, 135, 0, 0, 1, FIRST),
            row(7, 8, Plain, 269, 0, 0, 1, FIRST),
        ],
    },
    Sku {
        key: "gb200",
        models: &["GB200"],
        memory_gb: 186,
        compute: 7,
        slots: 8,
        starts_certain: false,
        profiles: &[
            row(1, 1, Plain, 23, 0, 0, 7, EACH_OF_7),
            row(1, 1, Media, 23, 0, 0, 1, EACH_OF_7),
            row(1, 2, Plain, 47, 0, 0, 4, EVEN_TO_6),
            row(2, 2, Plain, 47, 0, 0, 3, EVEN_TO_4),
            row(3, 4, Plain, 93, 0, 0, 2, HALVES_OF_8).also(95),
            row(4, 4, Plain, 93, 0, 0, 1, FIRST).also(95),
            row(7, 8, Plain, 186, 0, 0, 1, FIRST).also(189),
        ],
    },
    Sku {
        key: "gb300",
        models: &["GB300"],
        memory_gb: 278,
        compute: 7,
        slots: 8,
        starts_certain: false,
        profiles: &[
            row(1, 1, Plain, 35, 0, 0, 7, EACH_OF_7),
            row(1, 1, Media, 35, 0, 0, 1, EACH_OF_7),
            row(1, 2, Plain, 70, 0, 0, 4, EVEN_TO_6),
            row(2, 2, Plain, 70, 0, 0, 3, EVEN_TO_4),
            row(3, 4, Plain, 139, 0, 0, 2, HALVES_OF_8),
            row(4, 4, Plain, 139, 0, 0, 1, FIRST),
            row(7, 8, Plain, 278, 0, 0, 1, FIRST),
        ],
    },
    Sku {
        key: "rtx-pro-6000-blackwell-96gb",
        models: &["RTXPRO6000"],
        memory_gb: 96,
        compute: 4,
        slots: 4,
        starts_certain: false,
        profiles: &[
            row(1, 1, Plain, 24, 46, 2362, 4, EACH_OF_4),
            row(1, 1, Media, 24, 46, 2362, 1, EACH_OF_4),
            row(1, 1, Graphics, 24, 46, 2362, 4, EACH_OF_4),
            row(1, 1, AllMedia, 24, 46, 2362, 1, EACH_OF_4),
            row(1, 1, NoMedia, 24, 46, 2362, 4, EACH_OF_4),
            row(2, 2, Plain, 48, 94, 4738, 2, HALVES_OF_4),
            row(2, 2, Graphics, 48, 94, 4738, 2, HALVES_OF_4),
            row(2, 2, AllMedia, 48, 94, 4738, 1, HALVES_OF_4),
            row(2, 2, NoMedia, 48, 94, 4738, 2, HALVES_OF_4),
            row(4, 4, Plain, 96, 188, 9500, 1, FIRST),
            row(4, 4, Graphics, 96, 188, 9500, 1, FIRST),
        ],
    },
    Sku {
        key: "rtx-pro-5000-blackwell-48gb",
        models: &["RTXPRO5000"],
        memory_gb: 48,
        compute: 2,
        slots: 2,
        starts_certain: false,
        profiles: &[
            row(1, 1, Plain, 24, 0, 0, 2, EACH_OF_2),
            row(1, 1, Media, 24, 0, 0, 1, EACH_OF_2),
            row(1, 1, Graphics, 24, 0, 0, 2, EACH_OF_2),
            row(1, 1, AllMedia, 24, 0, 0, 1, EACH_OF_2),
            row(1, 1, NoMedia, 24, 0, 0, 2, EACH_OF_2),
            row(2, 2, Plain, 48, 0, 0, 1, FIRST),
            row(2, 2, Graphics, 48, 0, 0, 1, FIRST),
        ],
    },
    Sku {
        key: "rtx-pro-4500-blackwell-32gb",
        models: &["RTXPRO4500"],
        memory_gb: 32,
        compute: 2,
        slots: 2,
        starts_certain: false,
        profiles: &[
            row(1, 1, Plain, 16, 0, 0, 2, EACH_OF_2),
            row(1, 1, Graphics, 16, 0, 0, 2, EACH_OF_2),
            row(1, 1, AllMedia, 16, 0, 0, 1, EACH_OF_2),
            row(1, 1, NoMedia, 16, 0, 0, 2, EACH_OF_2),
            row(2, 2, Plain, 32, 0, 0, 1, FIRST),
            row(2, 2, Graphics, 32, 0, 0, 1, FIRST),
        ],
    },
];
