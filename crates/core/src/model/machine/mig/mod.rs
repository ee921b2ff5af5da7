//! Splitting a GPU into MIG instances: which profiles an exact card has, where they may start, which sets are legal.
//!
//! A profile is known by its slices and extras, never by its name or number: drivers show the same silicon under several
//! names, and a number means another profile on the next card. Compute is counted in SMs, because three of seven slices are
//! not three sevenths of them.
mod choice;
mod tables;

pub use choice::Prospect;
use serde::{Deserialize, Serialize};
use std::fmt;
pub use tables::SKUS;

/// What an instance has or lacks beside the plain profile of its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Extra {
    Plain,
    /// `+me`: a media engine.
    Media,
    /// `+me.all`: every media engine of the card.
    AllMedia,
    /// `-me`: no media engine.
    NoMedia,
    /// `+gfx`: graphics.
    Graphics,
}

impl Extra {
    const ALL: [(Extra, &str); 5] = [
        (Extra::Plain, ""),
        (Extra::Media, "+me"),
        (Extra::AllMedia, "+me.all"),
        (Extra::NoMedia, "-me"),
        (Extra::Graphics, "+gfx"),
    ];

    fn suffix(self) -> &'static str {
        Extra::ALL.iter().find(|(extra, _)| *extra == self).map_or("", |(_, suffix)| suffix)
    }
}

/// A profile as people name it: `3g.40gb`, `1g.24gb+me`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ProfileName {
    pub compute: u8,
    pub gb: u16,
    pub extra: Extra,
}

impl ProfileName {
    pub fn parse(text: &str) -> Option<ProfileName> {
        let (compute, rest) = text.split_once("g.")?;
        let (gb, suffix) = rest.split_once("gb")?;
        let digits = |text: &str| !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
        let (extra, _) = Extra::ALL.into_iter().find(|(_, known)| *known == suffix)?;
        let read = digits(compute) && digits(gb);
        read.then_some(ProfileName { compute: compute.parse().ok()?, gb: gb.parse().ok()?, extra })
    }
}

impl fmt::Display for ProfileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}g.{}gb{}", self.compute, self.gb, self.extra.suffix())
    }
}

impl From<ProfileName> for String {
    fn from(name: ProfileName) -> String {
        name.to_string()
    }
}

impl TryFrom<String> for ProfileName {
    type Error = String;

    fn try_from(text: String) -> Result<ProfileName, String> {
        ProfileName::parse(&text).ok_or_else(|| format!("{text:?} is no MIG profile; write it like 3g.40gb"))
    }
}

/// One kind of instance of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    pub compute: u8,
    /// Memory slots that it covers from its start on.
    pub memory: u8,
    pub extra: Extra,
    /// The number in its name.
    pub gb: u16,
    /// Another number under which drivers show it; 0: none.
    pub also_gb: u16,
    /// 0: not known.
    pub sms: u16,
    /// As drivers show it; 0: not known.
    pub gib_hundredths: u32,
    /// At most so many on one card.
    pub most: u8,
    pub starts: &'static [u8],
}

/// A size known from the name only is taken to be a little less than it says, as every known one is.
const BYTES_PER_NAMED_GB: u64 = 950_000_000;

impl Profile {
    pub fn name(&self) -> ProfileName {
        ProfileName { compute: self.compute, gb: self.gb, extra: self.extra }
    }

    pub fn memory_bytes(&self) -> u64 {
        match self.gib_hundredths {
            0 => u64::from(self.gb) * BYTES_PER_NAMED_GB,
            hundredths => (u64::from(hundredths) << 30) / 100,
        }
    }

    /// Larger ones are those that more is kept for.
    fn size(&self) -> (u8, u8) {
        (self.compute, self.memory)
    }

    fn is(&self, instance: Instance) -> bool {
        (self.compute, self.memory, self.extra) == (instance.compute, instance.memory, instance.extra)
    }

    pub fn at(&self, start: u8) -> Instance {
        Instance { compute: self.compute, memory: self.memory, extra: self.extra, start }
    }
}

/// One instance on a card: its profile and the first of its memory slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Instance {
    pub compute: u8,
    pub memory: u8,
    pub extra: Extra,
    pub start: u8,
}

impl Instance {
    /// Its memory slots, bit i for slot i.
    pub fn slots(self) -> u16 {
        let wide = 1u16.checked_shl(self.memory.into()).unwrap_or(0).wrapping_sub(1);
        wide.checked_shl(self.start.into()).unwrap_or(0)
    }

    pub fn overlaps(self, other: Instance) -> bool {
        self.slots() & other.slots() != 0
    }
}

/// One exact card.
#[derive(Debug, PartialEq, Eq)]
pub struct Sku {
    pub key: &'static str,
    /// Families that it is sold as.
    pub models: &'static [&'static str],
    pub memory_gb: u32,
    pub compute: u8,
    /// Memory slots.
    pub slots: u8,
    /// Whether the starts come from a capture of this card.
    pub starts_certain: bool,
    pub profiles: &'static [Profile],
}

impl Sku {
    /// The card of a family with so much memory: the nearest in size, within an eighth, because drivers, ECC and data sheets
    /// differ about it by less.
    pub fn of(model: &str, vram_bytes: u64) -> Option<&'static Sku> {
        let gib = |sku: &Sku| u64::from(sku.memory_gb) << 30;
        let sold_as = |sku: &&Sku| sku.models.iter().any(|known| known.eq_ignore_ascii_case(model));
        let near = |sku: &&Sku| gib(sku).abs_diff(vram_bytes) <= gib(sku) / 8;
        SKUS.iter().filter(sold_as).filter(near).min_by_key(|sku| gib(sku).abs_diff(vram_bytes))
    }

    pub fn named(&self, name: ProfileName) -> Option<&'static Profile> {
        let same = |p: &&Profile| p.compute == name.compute && p.extra == name.extra;
        let shown = |p: &Profile, gb: u16| p.gb == gb || p.also_gb == gb;
        self.profiles.iter().filter(same).find(|p| shown(p, name.gb))
    }

    pub fn profile_of(&self, instance: Instance) -> Option<&'static Profile> {
        self.profiles.iter().find(|profile| profile.is(instance))
    }

    /// Thousandths of the card that a profile takes: its part of the memory slots, so that a full card never counts as more
    /// than one. SMs would not do: 4g and 3g of an A100 have all of them and leave a memory slot to nobody.
    pub fn milli(&self, profile: &Profile) -> u32 {
        u32::from(profile.memory) * 1_000 / u32::from(self.slots.max(1))
    }

    /// What speaks against having all of `set` at once.
    ///
    /// # Errors
    /// The first instance that cannot be beside those before it, and why.
    pub fn check(&self, set: &[Instance]) -> Result<(), Clash> {
        set.iter().enumerate().try_for_each(|(index, new)| self.beside(&set[..index], *new).map(|_| ()))
    }

    /// The profile of `new`, if it may be beside `held`, which is legal.
    ///
    /// # Errors
    /// Why it may not.
    pub fn beside(&self, held: &[Instance], new: Instance) -> Result<&'static Profile, Clash> {
        let clash = |because: Because| Clash { sku: self.key, new, because };
        let profile = self.profile_of(new).ok_or_else(|| clash(Because::NoProfile))?;
        if !profile.starts.contains(&new.start) {
            return Err(clash(Because::Start));
        }
        if let Some(other) = held.iter().find(|other| other.overlaps(new)) {
            return Err(clash(Because::Overlap { with: *other }));
        }
        if held.iter().filter(|other| profile.is(**other)).count() >= usize::from(profile.most) {
            return Err(clash(Because::TooMany { most: profile.most }));
        }
        let compute = held.iter().fold(u32::from(new.compute), |sum, other| sum + u32::from(other.compute));
        if compute > u32::from(self.compute) {
            return Err(clash(Because::Compute { sum: compute, most: self.compute }));
        }
        // One that has every media engine leaves none to others.
        let takes_all = |one: Instance| one.extra == Extra::AllMedia;
        let needs_one = |one: Instance| one.extra != Extra::NoMedia;
        let starve = |one: Instance, other: Instance| takes_all(one) && needs_one(other);
        match held.iter().any(|other| starve(*other, new) || starve(new, *other)) {
            true => Err(clash(Because::Media)),
            false => Ok(profile),
        }
    }

    /// The placements of one profile that are legal beside `held`.
    pub fn placements<'a>(&'a self, held: &'a [Instance], profile: &'a Profile) -> impl Iterator<Item = Instance> + 'a {
        profile.starts.iter().map(|start| profile.at(*start)).filter(|new| self.beside(held, *new).is_ok())
    }
}

/// Why an instance cannot be on a card beside others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clash {
    sku: &'static str,
    new: Instance,
    pub because: Because,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Because {
    NoProfile,
    Start,
    Overlap { with: Instance },
    TooMany { most: u8 },
    Compute { sum: u32, most: u8 },
    Media,
}

impl fmt::Display for Clash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Instance { compute, memory, start, .. } = self.new;
        write!(f, "an instance of {compute}g with {memory} memory slots at slot {start} of {}: ", self.sku)?;
        match self.because {
            Because::NoProfile => write!(f, "the card has no such profile"),
            Because::Start => write!(f, "it cannot start there"),
            Because::Overlap { with } => write!(f, "it overlaps the one at slot {}", with.start),
            Because::TooMany { most } => write!(f, "the card holds at most {most} of it"),
            Because::Compute { sum, most } => write!(f, "{sum} compute slices are more than {most}"),
            Because::Media => write!(f, "no media engine is left beside one that has all of them"),
        }
    }
}

#[cfg(test)]
mod tests;
