//! Why a part of a GPU cannot be had, with the places that are in the way.
use super::{NodeParts, Site, Wanted, held_on, instances};
use crate::model::amounts::HumanBytes;
use crate::model::cluster::Cluster;
use crate::model::job::{JobSpec, Shape};
use crate::model::machine::mig::{Because, Instance, Profile, Sku};
use crate::model::split::{Mode, Thousandths};
use std::collections::BTreeSet;

/// What the cards of the cluster can be split into, for a profile that none of them has.
pub fn offered(cluster: &Cluster, shape: &Shape) -> String {
    let asked = shape.gpu_words();
    let cards: BTreeSet<&str> = cluster
        .listed_nodes()
        .flat_map(|node| (0..node.machine.gpus.len() as u8).filter_map(|gpu| node.machine.mig_card(gpu)))
        .map(|card| card.key)
        .collect();
    if cards.is_empty() {
        return format!("no GPU of the cluster can give {asked}: none can be split into MIG instances");
    }
    let list = |card: &&Sku| {
        let names: Vec<String> = card.profiles.iter().map(|profile| profile.name().to_string()).collect();
        format!("{}: {}", card.key, names.join(", "))
    };
    let known = crate::model::machine::mig::SKUS.iter().filter(|card| cards.contains(card.key));
    let lists: Vec<String> = known.map(|card| list(&card)).collect();
    format!("no GPU of the cluster can give {asked} (offered by {})", lists.join("; by "))
}

/// What is short for a part, on the GPU where least is in the way.
pub fn shortage(spec: &JobSpec, sites: &[Site<'_>]) -> String {
    let shape = &spec.shape;
    let nearest = sites.iter().flat_map(|site| {
        let split = site.parts.map_or(0, NodeParts::open_mask);
        super::bits(split).filter_map(|gpu| in_the_way(site, gpu, shape))
    });
    match (nearest.min(), shape.part) {
        (Some((_, text)), _) => format!("{}{}: {text}", shape.gpu_words(), sms(sites, shape)),
        (None, Some(_)) => format!("{}: no GPU is free or in parts that it could be beside", shape.gpu_words()),
        (None, None) => "GPUs".to_string(),
    }
}

/// Compute in SMs, where every card that could give it has as many: slices of one number differ from card to card.
fn sms(sites: &[Site<'_>], shape: &Shape) -> String {
    let gpus = |site: &Site<'_>| super::bits(site.node.machine.gpu_mask()).collect::<Vec<_>>();
    let wanted = sites.iter().flat_map(|site| gpus(site).into_iter().map(|gpu| (site.node, gpu)));
    let known: BTreeSet<u16> = wanted
        .filter_map(|(node, gpu)| match Wanted::of(&node.machine, gpu, shape)? {
            Wanted::Instance(_, profile) => Some(profile.sms),
            Wanted::Share { .. } => None,
        })
        .collect();
    match known.iter().collect::<Vec<_>>()[..] {
        [sms] if *sms > 0 => format!(" ({sms} SMs)"),
        _ => String::new(),
    }
}

/// How much is in the way on one GPU, and what.
fn in_the_way(site: &Site<'_>, gpu: u8, shape: &Shape) -> Option<(usize, String)> {
    let held = held_on(site.parts, gpu);
    let wanted = Wanted::of(&site.node.machine, gpu, shape)?;
    let name = format!("GPU {gpu} of {}", site.node.name);
    if held.iter().any(|slice| slice.mode() != wanted.mode()) {
        let mode = held.first().map_or(Mode::Mig, |slice| slice.mode());
        return Some((64 + held.len(), format!("{name} is split by {mode}")));
    }
    match wanted {
        Wanted::Instance(card, profile) => {
            let mut set = instances(&held);
            set.sort_unstable_by_key(|one| one.start);
            let (fewest, starts) = blocked_starts(card, profile, &set);
            Some((fewest, format!("on {name} {}", starts.join(", "))))
        }
        Wanted::Share { .. } => {
            let (milli, bytes) = super::left_on(&site.node.machine, gpu, &held);
            let left = format!("{name} has {} and {} left", Thousandths(milli), HumanBytes(bytes));
            Some((held.len(), left))
        }
    }
}

/// For each start what blocks it, and how few instances would have to go for one of them.
fn blocked_starts(card: &Sku, profile: &Profile, set: &[Instance]) -> (usize, Vec<String>) {
    let mut fewest = usize::MAX;
    let mut texts = Vec::new();
    for start in profile.starts {
        let new = profile.at(*start);
        let by: Vec<String> = set.iter().filter(|one| one.overlaps(new)).map(|one| one.start.to_string()).collect();
        let text = match card.beside(set, new).map_err(|clash| clash.because) {
            Err(Because::Overlap { .. }) => {
                fewest = fewest.min(by.len());
                format!("start {start} is blocked by what starts at {}", by.join(" and "))
            }
            Err(Because::TooMany { most }) => format!("there are {most} of it already"),
            Err(Because::Media) => "an instance has all media engines".to_string(),
            Err(Because::Compute { sum, most }) => format!("start {start} would need {sum} of {most} compute slices"),
            _ => format!("start {start} is free"),
        };
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    (fewest, texts)
}
