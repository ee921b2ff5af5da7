//! What is held, and when it comes free.
use super::Unit;
use crate::model::ids::{JobId, NodeId};
use crate::model::job::{Attempt, Place};
use crate::model::time::Time;

/// Devices with the moment at which they come free.
#[derive(Debug)]
pub struct Held<'a> {
    pub end: Time,
    /// The end is assumed: its holder states no limit.
    pub assumed: bool,
    /// Somebody told its holder to give it up; else it comes free when the holder is through.
    pub told: bool,
    /// It starts at this moment.
    pub fresh: bool,
    /// A claim keeps it.
    pub promise: bool,
    pub job: JobId,
    pub places: Hold<'a>,
    /// Who has reserved starts on these devices, and when they come free for one of those.
    pub guest: Option<(Vec<JobId>, Time)>,
}

impl Held<'_> {
    /// Whether it starts now and nobody knows when it ends.
    pub fn begins_without_end(&self) -> bool {
        self.fresh && self.assumed
    }

    /// Where its places are, some more than once.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> {
        self.places.iter().map(|place| place.node)
    }

    /// Whether the same devices come free at the same moment, with the same standing.
    pub fn is_as(&self, other: &Held<'_>) -> bool {
        let is = |held: &Held<'_>| (held.job, held.end, held.assumed, held.told, held.fresh, held.promise);
        is(self) == is(other) && self.guest == other.guest && self.places.are(&other.places)
    }

    /// When the devices come free for the unit: a guest makes way for those whose guest it is.
    pub fn end_for(&self, unit: &Unit<'_>) -> Time {
        match &self.guest {
            Some((owners, at)) if unit.iter().any(|job| owners.contains(&job.id)) => self.end.min(*at),
            _ => self.end,
        }
    }
}

/// The places of running work, which are many and stay where they are, or places that were chosen.
#[derive(Debug)]
pub enum Hold<'a> {
    Leaving(&'a Attempt),
    Staying(&'a Attempt),
    Chosen(Vec<Place>),
}

impl Hold<'_> {
    fn are(&self, other: &Hold<'_>) -> bool {
        match (self, other) {
            (Hold::Leaving(one), Hold::Leaving(other)) | (Hold::Staying(one), Hold::Staying(other)) => {
                std::ptr::eq(*one, *other)
            }
            (Hold::Chosen(one), Hold::Chosen(other)) => one == other,
            _ => false,
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = &Place> {
        let (leaving, staying, chosen) = match self {
            Hold::Leaving(attempt) => (Some(attempt.leaving()), None, [].iter()),
            Hold::Staying(attempt) => (None, Some(attempt.staying()), [].iter()),
            Hold::Chosen(places) => (None, None, places.iter()),
        };
        let running = leaving.into_iter().flatten().chain(staying.into_iter().flatten());
        running.map(|worker| &worker.place).chain(chosen)
    }
}
