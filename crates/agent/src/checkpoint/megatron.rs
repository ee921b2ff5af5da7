//! Megatron-LM: `iter_NNNNNNN` beside `latest_checkpointed_iteration.txt`, in the per-rank or a distributed format.
//!
//! Source: NVIDIA/Megatron-LM, megatron/training/checkpointing.py (`get_checkpoint_name`, `read_metadata`, `save_checkpoint`): ranks
//! write `mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt` (tensor, pipeline, expert rank), after a barrier rank 0 writes the iteration into
//! the tracker; and megatron/core/dist_checkpointing/serialization.py (`save`) with core.py: in the distributed formats rank 0 writes
//! `metadata.json` (`sharded_backend`) after all shards; `torch_dist` data is a DCP directory. `common.pt` (state that all ranks share)
//! is written first; newer versions keep that state among the shards, so its absence is no defect.
//! Per-rank format: a tracker below the iteration means an unfinished save, tensor and pipeline ranks form a full grid, expert ranks
//! have no hole (they need not pair with every tensor rank). A rank that is missing with all its peers shows in the tracker only.
//! The `zarr` backend is checked for its markers only.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;

use super::files::{self, Listing};
use super::{Defect, Format, Verified};
use super::{dcp, torch_file};

const TRACKER: &str = "latest_checkpointed_iteration.txt";
const DIST_MARKER: &str = "metadata.json";
const COMMON: &str = "common.pt";
const RANK_FILE: &str = "model_optim_rng.pt";
const OPTIMIZER_FILE: &str = "distrib_optim.pt";

#[derive(Deserialize)]
struct DistMetadata {
    sharded_backend: String,
}

pub(super) fn matches(listing: &Listing) -> bool {
    listing.file(TRACKER).is_some() || listing.directories().any(|name| Rank::parse(name).is_some())
}

pub(super) fn matches_dist(listing: &Listing) -> bool {
    let marked =
        listing.file(DIST_MARKER).is_some() && files::read_json::<DistMetadata>(&listing.path(DIST_MARKER)).is_ok();
    // Before the marker is there, the name and the shards tell it from a bare DCP directory.
    marked || (is_iteration(&listing.dir) && (listing.file(COMMON).is_some() || dcp::matches(listing)))
}

fn is_iteration(dir: &Path) -> bool {
    let name = files::name(dir);
    name == "release" || name.strip_prefix("iter_").and_then(files::whole_number).is_some()
}

/// Checks an iteration in the distributed format.
pub(super) fn verify_dist(listing: &Listing) -> Result<Verified, Defect> {
    if listing.file(DIST_MARKER).is_none() {
        return Err(Defect::MissingMarker {
            path: listing.dir.clone(),
            format: Format::MegatronDist,
            marker: DIST_MARKER,
        });
    }
    let metadata: DistMetadata = files::read_json(&listing.path(DIST_MARKER))?;
    let mut verified = Verified::new(Format::MegatronDist, listing.step());
    verified.add(listing.file(DIST_MARKER).unwrap_or(0));
    if listing.file(COMMON).is_some() {
        verified.add(torch_file::check(&listing.path(COMMON))?);
    }
    if metadata.sharded_backend != "zarr" {
        verified.add_all(&dcp::verify(listing)?);
    }
    Ok(verified)
}

/// Checks an iteration in the per-rank format, or the one that the tracker names when `listing` is the root.
pub(super) fn verify(listing: &Listing) -> Result<Verified, Defect> {
    if listing.file(TRACKER).is_none() {
        check_iteration_committed(listing)?;
        return verify_iteration(listing);
    }
    let name = tracked(listing)?;
    if !listing.has_directory(&name) {
        return Err(Defect::MissingFile { file: listing.path(&name), named_by: TRACKER.into() });
    }
    let iteration = Listing::read(&listing.path(&name))?;
    if matches_dist(&iteration) { verify_dist(&iteration) } else { verify_iteration(&iteration) }
}

/// The iteration's folder that a root's tracker names.
pub(super) fn tracked(root: &Listing) -> Result<String, Defect> {
    let tracker = root.path(TRACKER);
    let text = files::read_line(&tracker)?;
    match files::whole_number(&text) {
        Some(iteration) => Ok(format!("iter_{iteration:07}")),
        None if text == "release" => Ok(text),
        None => Err(Defect::malformed(&tracker, format!("`{text}` is neither an iteration nor `release`"))),
    }
}

fn check_iteration_committed(iteration: &Listing) -> Result<(), Defect> {
    let tracker = iteration.dir.parent().unwrap_or(&iteration.dir).join(TRACKER);
    let says = match files::read_line(&tracker) {
        Ok(says) => says,
        Err(Defect::NotFound { .. }) => {
            let marker = "latest_checkpointed_iteration.txt beside it";
            return Err(Defect::MissingMarker { path: iteration.dir.clone(), format: Format::Megatron, marker });
        }
        Err(defect) => return Err(defect),
    };
    let reached = iteration.step().zip(files::whole_number(&says)).is_some_and(|(own, newest)| own <= newest);
    if reached || says == files::name(&iteration.dir) {
        return Ok(());
    }
    Err(Defect::Uncommitted { path: iteration.dir.clone(), tracker, says })
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    tensor: u64,
    /// Pipeline or expert rank: with only two numbers the name does not say which.
    second: Option<u64>,
    expert: Option<u64>,
}

impl Rank {
    fn parse(name: &str) -> Option<Self> {
        let mut numbers = name.strip_prefix("mp_rank_")?.split('_').map(files::whole_number);
        let tensor = numbers.next()??;
        let second = numbers.next();
        let expert = numbers.next();
        if second == Some(None) || expert == Some(None) || numbers.next().is_some() {
            return None;
        }
        Some(Self { tensor, second: second.flatten(), expert: expert.flatten() })
    }
}

fn verify_iteration(iteration: &Listing) -> Result<Verified, Defect> {
    let mut verified = Verified::new(Format::Megatron, iteration.step());
    let ranks: Vec<(&str, Rank)> =
        iteration.directories().filter_map(|name| Some((name, Rank::parse(name)?))).collect();
    let with_optimizer = ranks.iter().any(|(name, _)| iteration.path(name).join(OPTIMIZER_FILE).is_file());
    for (name, rank) in &ranks {
        check_rank(&Listing::read(&iteration.path(name))?, with_optimizer && rank.expert.is_none(), &mut verified)?;
    }
    check_grid(iteration, &ranks)?;
    Ok(verified)
}

/// One rank's folder. With experts only some ranks hold a `distrib_optim.pt` of their own, so it is asked of all only without.
fn check_rank(folder: &Listing, needs_optimizer: bool, verified: &mut Verified) -> Result<(), Defect> {
    let model = [RANK_FILE, "model_rng.pt"].into_iter().find(|name| folder.file(name).is_some()).unwrap_or(RANK_FILE);
    let needed = [Some(model), needs_optimizer.then_some(OPTIMIZER_FILE)];
    for name in needed.into_iter().flatten() {
        if folder.file(name).is_none() {
            return Err(Defect::MissingFile { file: folder.path(name), named_by: "the Megatron-LM layout".into() });
        }
    }
    for (name, _) in folder.files().filter(|(name, _)| name.ends_with(".pt")) {
        verified.add(torch_file::check(&folder.path(name))?);
    }
    Ok(())
}

fn check_grid(iteration: &Listing, ranks: &[(&str, Rank)]) -> Result<(), Defect> {
    let missing = |name: String| {
        let named_by = "the ranks in the other folders' names".to_owned();
        Err(Defect::MissingFile { file: iteration.path(&name), named_by })
    };
    let pairs: BTreeSet<(u64, Option<u64>)> = ranks.iter().map(|(_, rank)| (rank.tensor, rank.second)).collect();
    let tensors = ranks.iter().map(|(_, rank)| rank.tensor + 1).max().unwrap_or(0);
    let seconds = ranks.iter().filter_map(|(_, rank)| rank.second).map(|second| second + 1).max();
    if tensors == 0 || tensors.saturating_mul(seconds.unwrap_or(1)) > ranks.len() as u64 {
        return missing(format!("mp_rank_NN of {} ranks", tensors.saturating_mul(seconds.unwrap_or(1)).max(1)));
    }
    for tensor in 0..tensors {
        for second in seconds.map_or_else(|| vec![None], |count| (0..count).map(Some).collect()) {
            if !pairs.contains(&(tensor, second)) {
                return missing(format!(
                    "mp_rank_{tensor:02}{}",
                    second.map(|second| format!("_{second:03}")).unwrap_or_default()
                ));
            }
        }
    }
    let experts: BTreeSet<u64> = ranks.iter().filter_map(|(_, rank)| rank.expert).collect();
    match (0..experts.len() as u64).find(|expert| !experts.contains(expert)) {
        Some(expert) => missing(format!("mp_rank_NN_NNN_{expert:03}")),
        None => Ok(()),
    }
}
