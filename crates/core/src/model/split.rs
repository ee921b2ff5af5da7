//! Parts of a GPU: what a worker may ask for instead of whole GPUs, what it holds, and how a GPU is split.
//!
//! A GPU is whole, split into MIG instances, or shared by one kind of sharing; never two of these at once. How it was split
//! last outlives its holders: the next one of the same kind need not wait for it to be split again.
use super::amounts::HumanBytes;
use super::ids::{JobId, Rank};
use super::job::Place;
use super::machine::Machine;
use super::machine::mig::{Instance, ProfileName, SKUS, Sku};
use super::node::Node;
use super::time::{Span, Time};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Processes that one MPS server takes; newer drivers take more.
pub const MPS_CLIENTS: usize = 48;

/// A whole GPU in thousandths.
pub const WHOLE_MILLI: u32 = 1_000;

/// How processes share a GPU that is not split by hardware.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ShareMode {
    /// At once, each with its part of the SMs as an upper bound.
    #[default]
    Mps,
    /// In turns, whoever has work: no part is kept for anybody.
    TimeSlice,
}

impl ShareMode {
    pub fn parse(text: &str) -> Option<ShareMode> {
        [ShareMode::Mps, ShareMode::TimeSlice].into_iter().find(|mode| mode.to_string() == text)
    }
}

impl fmt::Display for ShareMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ShareMode::Mps => "mps",
            ShareMode::TimeSlice => "time-slice",
        })
    }
}

/// The part of one GPU that a worker asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartAsk {
    Mig {
        profile: ProfileName,
    },
    /// Its memory is the shape's `vram_bytes`.
    Share {
        milli: u32,
        mode: ShareMode,
    },
}

impl PartAsk {
    /// Thousandths of a GPU that it counts as, whichever card it gets: where several cards of the model call different parts
    /// by one name, the largest.
    pub fn milli(&self, gpu_model: Option<&str>) -> u32 {
        match self {
            PartAsk::Share { milli, .. } => *milli,
            PartAsk::Mig { profile } => {
                let parts = cards(gpu_model).filter_map(|sku| Some(sku.milli(sku.named(*profile)?)));
                parts.max().unwrap_or(WHOLE_MILLI)
            }
        }
    }

    /// The most memory that it can have on any card.
    pub fn vram_bytes(&self, gpu_model: Option<&str>, shared_bytes: u64) -> u64 {
        match self {
            PartAsk::Share { .. } => shared_bytes,
            PartAsk::Mig { profile } => {
                let sizes = cards(gpu_model).filter_map(|sku| Some(sku.named(*profile)?.memory_bytes()));
                sizes.max().unwrap_or(0)
            }
        }
    }
}

/// The cards of one family, or all.
pub fn cards(gpu_model: Option<&str>) -> impl Iterator<Item = &'static Sku> {
    SKUS.iter().filter(move |sku| {
        gpu_model.is_none_or(|model| sku.models.iter().any(|known| known.eq_ignore_ascii_case(model)))
    })
}

impl fmt::Display for PartAsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PartAsk::Mig { profile } => write!(f, "MIG {profile}"),
            PartAsk::Share { milli, mode } => write!(f, "{} of a GPU by {mode}", Thousandths(*milli)),
        }
    }
}

/// Thousandths as people write them: `0.5`, `1`, `0.125`.
#[derive(Debug, Clone, Copy)]
pub struct Thousandths(pub u32);

impl fmt::Display for Thousandths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, part) = (self.0 / 1_000, self.0 % 1_000);
        match part {
            0 => write!(f, "{whole}"),
            part => write!(f, "{whole}.{}", format!("{part:03}").trim_end_matches('0')),
        }
    }
}

/// The part of one GPU that a worker holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Slice {
    pub gpu: u8,
    pub part: Part,
    /// What it counts as: see [`PartAsk::milli`].
    pub milli: u32,
    /// GPU memory that it has.
    pub vram_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    Mig(Instance),
    Share(ShareMode),
}

impl Slice {
    pub fn mask(&self) -> u64 {
        1u64.checked_shl(self.gpu.into()).unwrap_or(0)
    }

    pub fn mode(&self) -> Mode {
        match self.part {
            Part::Mig(_) => Mode::Mig,
            Part::Share(ShareMode::Mps) => Mode::Mps,
            Part::Share(ShareMode::TimeSlice) => Mode::TimeSlice,
        }
    }

    pub fn instance(&self) -> Option<Instance> {
        match self.part {
            Part::Mig(instance) => Some(instance),
            Part::Share(_) => None,
        }
    }

    /// Whether both cannot be at once whatever else there is: two ways of splitting one GPU, or one place twice.
    pub fn excludes(&self, other: &Slice) -> bool {
        let overlap = |one: Instance, two: Instance| one.overlaps(two);
        let places = self.instance().zip(other.instance());
        self.gpu == other.gpu && (self.mode() != other.mode() || places.is_some_and(|(a, b)| overlap(a, b)))
    }

    /// `3g.40gb@4` or `0.5`, with the card's own name for the profile.
    pub fn name_on(&self, machine: &Machine) -> String {
        let named = |instance: Instance| {
            let profile = machine.mig_card(self.gpu)?.profile_of(instance)?;
            Some(format!("{}@{}", profile.name(), instance.start))
        };
        match self.part {
            Part::Mig(one) => named(one).unwrap_or_else(|| format!("{}g@{}", one.compute, one.start)),
            Part::Share(ShareMode::Mps) => Thousandths(self.milli).to_string(),
            Part::Share(ShareMode::TimeSlice) => format!("{} in turns", Thousandths(self.milli)),
        }
    }

    /// As [`Slice::name_on`], with compute in SMs and memory.
    pub fn words_on(&self, machine: &Machine) -> String {
        let memory = HumanBytes(self.vram_bytes);
        let profile = self.instance().and_then(|one| machine.mig_card(self.gpu)?.profile_of(one));
        let sms = match profile {
            Some(profile) if profile.sms > 0 => format!("{} SMs, ", profile.sms),
            _ => String::new(),
        };
        format!("{} ({sms}{memory})", self.name_on(machine))
    }
}

/// How a GPU is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    Mig,
    Mps,
    TimeSlice,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Mig => "MIG",
            Mode::Mps => "MPS",
            Mode::TimeSlice => "time-slices",
        })
    }
}

/// What is made of a GPU by a step: the whole layout, not a difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    Whole,
    Mig(Vec<Instance>),
    Mps,
    TimeSlice,
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layout::Whole => f.write_str("whole"),
            Layout::Mps => f.write_str("MPS"),
            Layout::TimeSlice => f.write_str("time-slices"),
            Layout::Mig(instances) => {
                let parts: Vec<String> =
                    instances.iter().map(|one| format!("{}g@{}", one.compute, one.start)).collect();
                write!(f, "MIG {}", parts.join(" "))
            }
        }
    }
}

/// A GPU that is split, or was when its last part was given back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    pub mode: Mode,
    /// When it is in this mode: splitting takes time.
    pub ready_at: Time,
    /// The MIG instances that there are, held or idle.
    pub instances: Vec<Made>,
    pub held: Vec<HeldSlice>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    pub instance: Instance,
    pub ready_at: Time,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldSlice {
    pub job: JobId,
    pub rank: Rank,
    pub slice: Slice,
    /// Its holder is being stopped.
    pub leaving: bool,
}

impl Split {
    /// When a slice can be used without splitting anew; `None`: it is not there.
    pub fn has(&self, slice: &Slice) -> Option<Time> {
        match slice.instance() {
            _ if self.mode != slice.mode() => None,
            None => Some(self.ready_at),
            Some(instance) => self.instances.iter().find(|made| made.instance == instance).map(|made| made.ready_at),
        }
    }

    pub fn layout(&self) -> Layout {
        match self.mode {
            Mode::Mig => Layout::Mig(self.instances.iter().map(|made| made.instance).collect()),
            Mode::Mps => Layout::Mps,
            Mode::TimeSlice => Layout::TimeSlice,
        }
    }
}

/// When the GPUs of a place are split as it needs them, if that is begun at `now` and takes so long.
pub fn ready_at(node: &Node, place: &Place, now: Time, takes: Span) -> Time {
    let whole = (0..64u8).filter(|gpu| place.gpus >> gpu & 1 == 1 && node.splits.contains_key(gpu));
    let made_whole = whole.map(|_| now + takes).max();
    let made_part = place.slice.map(|slice| match node.splits.get(&slice.gpu) {
        Some(split) => split.has(&slice).unwrap_or(now + takes),
        None if slice.mode() == Mode::TimeSlice => now,
        None => now + takes,
    });
    made_whole.max(made_part).unwrap_or(now).max(now)
}

/// Whether `new` may be on its GPU beside `held`, the slices of that GPU.
///
/// # Errors
/// What speaks against it, in words.
pub fn beside(machine: &Machine, held: &[Slice], new: &Slice) -> Result<(), String> {
    if let Some(other) = held.iter().find(|other| other.mode() != new.mode()) {
        return Err(format!("GPU {} is split by {}, not {}", new.gpu, other.mode(), new.mode()));
    }
    match new.instance() {
        Some(instance) => {
            let card = machine.mig_card(new.gpu).ok_or_else(|| format!("GPU {} knows no MIG", new.gpu))?;
            let instances: Vec<Instance> = held.iter().filter_map(Slice::instance).collect();
            card.beside(&instances, instance).map(|_| ()).map_err(|clash| clash.to_string())
        }
        None => shares_beside(machine, held, new),
    }
}

fn shares_beside(machine: &Machine, held: &[Slice], new: &Slice) -> Result<(), String> {
    let milli = held.iter().fold(new.milli, |sum, other| sum.saturating_add(other.milli));
    let bytes = held.iter().fold(new.vram_bytes, |sum, other| sum.saturating_add(other.vram_bytes));
    let vram = machine.gpus.get(usize::from(new.gpu)).map_or(0, |gpu| gpu.vram_bytes);
    if milli > WHOLE_MILLI {
        return Err(format!("the shares of GPU {} add up to {}", new.gpu, Thousandths(milli)));
    }
    if bytes > vram {
        let (asked, there) = (HumanBytes(bytes), HumanBytes(vram));
        return Err(format!("the shares of GPU {} hold {asked} of its {there}", new.gpu));
    }
    if new.mode() == Mode::Mps && held.len() >= MPS_CLIENTS {
        return Err(format!("GPU {} has {MPS_CLIENTS} MPS clients already", new.gpu));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousandths_print_as_people_write_them() {
        for (milli, text) in [(500, "0.5"), (1_000, "1"), (125, "0.125"), (50, "0.05"), (2_250, "2.25")] {
            assert_eq!(Thousandths(milli).to_string(), text);
        }
    }

    #[test]
    fn a_name_counts_as_the_largest_part_that_it_stands_for_unless_the_model_is_given() {
        let mig = |name: &str| PartAsk::Mig { profile: ProfileName::parse(name).unwrap() };
        assert_eq!(mig("3g.40gb").milli(None), 500);
        assert_eq!(mig("1g.10gb").milli(Some("H100")), 125);
        assert_eq!(mig("1g.10gb").milli(Some("A100")), 250, "on the 40 GB card it is a quarter of the memory");
        assert_eq!((mig("1g.24gb").milli(None), mig("1g.24gb").milli(Some("H100"))), (500, 250));
        assert_eq!(PartAsk::Share { milli: 300, mode: ShareMode::Mps }.milli(None), 300);
    }
}
