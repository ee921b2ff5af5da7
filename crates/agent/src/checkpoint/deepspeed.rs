//! DeepSpeed: a tag folder (`global_stepN`) beside the file `latest`.
//!
//! Source: deepspeedai/DeepSpeed, deepspeed/runtime/engine.py (`save_checkpoint`, `_get_ckpt_name`, `_get_zero_ckpt_name`,
//! `_get_expert_ckpt_name`): every rank saves its files into the tag folder, then rank 0 writes the tag into `latest`. Names:
//! `mp_rank_MM_model_states.pt` (ZeRO 0 to 2), `zero_pp_rank_D_mp_rank_MM_model_states.pt` (ZeRO 3),
//! `[bf16_]zero_pp_rank_D_mp_rank_MM_optim_states.pt`, and per layer and expert for pipelines and mixtures of experts.
//! So a tag above the one in `latest` is unfinished, the ranks in the names form a grid without holes, and every file ends as
//! `torch.save` ends one. Not seen without unpickling: that the shards of the highest data-parallel rank are missing altogether (in
//! ZeRO 1 and 2); rank 0 does not wait for the other ranks before it writes `latest`, so announce such a save after a barrier.

use std::collections::BTreeSet;

use super::files::{self, Listing};
use super::torch_file;
use super::{Defect, Format, Verified};

const TRACKER: &str = "latest";

pub(super) fn matches(listing: &Listing) -> bool {
    listing.file(TRACKER).is_some() || listing.files().any(|(name, _)| is_shard(name))
}

fn is_shard(name: &str) -> bool {
    name.ends_with("_states.pt")
}

/// Checks a tag folder, or the one that `latest` names when `listing` is the root.
pub(super) fn verify(listing: &Listing) -> Result<Verified, Defect> {
    if listing.file(TRACKER).is_none() {
        check_tag_committed(listing)?;
        return verify_tag(listing);
    }
    let tag = tracked(listing)?;
    if !listing.has_directory(&tag) {
        return Err(Defect::MissingFile { file: listing.path(&tag), named_by: TRACKER.into() });
    }
    verify_tag(&Listing::read(&listing.path(&tag))?)
}

/// The tag folder that a root's `latest` names.
pub(super) fn tracked(root: &Listing) -> Result<String, Defect> {
    let tracker = root.path(TRACKER);
    let tag = files::read_line(&tracker)?;
    if tag.contains('/') || tag == ".." || tag == "." {
        return Err(Defect::malformed(&tracker, format!("`{tag}` is not the name of a folder beside it")));
    }
    Ok(tag)
}

/// The tag must be the one in `latest` or, where both are numbered, an older one.
fn check_tag_committed(tag: &Listing) -> Result<(), Defect> {
    let tracker = tag.dir.parent().unwrap_or(&tag.dir).join(TRACKER);
    let latest = match files::read_line(&tracker) {
        Ok(latest) => latest,
        Err(Defect::NotFound { .. }) => {
            let marker = "file `latest` beside it";
            return Err(Defect::MissingMarker { path: tag.dir.clone(), format: Format::DeepSpeed, marker });
        }
        Err(defect) => return Err(defect),
    };
    let older = tag.step().zip(files::step_of(&latest)).is_some_and(|(tag, latest)| tag <= latest);
    if latest == files::name(&tag.dir) || older {
        return Ok(());
    }
    Err(Defect::Uncommitted { path: tag.dir.clone(), tracker, says: latest })
}

fn verify_tag(tag: &Listing) -> Result<Verified, Defect> {
    let mut verified = Verified::new(Format::DeepSpeed, tag.step());
    let mut grid = Grid::default();
    for (name, _) in tag.files().filter(|(name, _)| is_shard(name)) {
        verified.add(torch_file::check(&tag.path(name))?);
        grid.note(name);
    }
    grid.check(tag)?;
    Ok(verified)
}

/// The (data-parallel rank, model-parallel rank) pairs that the names spell.
#[derive(Default)]
struct Grid {
    model: BTreeSet<u64>,
    partitioned_model: BTreeSet<(u64, u64)>,
    optimizer: BTreeSet<(u64, u64)>,
    /// `bf16_` or nothing: the prefix to name a missing file by.
    optimizer_prefix: String,
    layered: bool,
}

impl Grid {
    fn note(&mut self, name: &str) {
        let Some(stem) = name.strip_suffix("_states.pt") else { return };
        if let Some(rank) =
            stem.strip_prefix("mp_rank_").and_then(|rest| rest.strip_suffix("_model")).and_then(files::whole_number)
        {
            self.model.insert(rank);
        } else if let Some((prefix, rest)) = stem.split_once("zero_pp_rank_") {
            self.note_partition(prefix, rest);
        } else {
            // layer_00-model_00-model_states.pt and the files of experts: their counts are in pickles only.
            self.layered |= stem.starts_with("layer_");
        }
    }

    fn note_partition(&mut self, prefix: &str, rest: &str) {
        let parsed = rest.split_once("_mp_rank_").and_then(|(data, rest)| {
            let (model, kind) = rest.split_once('_')?;
            Some((files::whole_number(data)?, files::whole_number(model)?, kind))
        });
        match parsed {
            Some((data, model, "model")) => {
                self.partitioned_model.insert((data, model));
            }
            Some((data, model, "optim")) => {
                self.optimizer.insert((data, model));
                prefix.clone_into(&mut self.optimizer_prefix);
            }
            _ => {}
        }
    }

    fn check(&self, tag: &Listing) -> Result<(), Defect> {
        let missing = |name: String| {
            let named_by = "the ranks in the other files' names".to_owned();
            Err(Defect::MissingFile { file: tag.path(&name), named_by })
        };
        if self.model.is_empty() && self.partitioned_model.is_empty() && !self.layered {
            return missing("mp_rank_00_model_states.pt".into());
        }
        let pairs = self.partitioned_model.iter().chain(&self.optimizer);
        let data_ranks = pairs.clone().map(|(data, _)| data + 1).max().unwrap_or(0);
        let model_ranks = pairs.map(|(_, model)| model).chain(&self.model).map(|model| model + 1).max().unwrap_or(0);
        if data_ranks.saturating_mul(model_ranks) > tag.files().count() as u64 {
            return missing(format!("a shard of the {data_ranks} x {model_ranks} ranks"));
        }
        for model in 0..model_ranks {
            if !self.model.is_empty() && !self.model.contains(&model) {
                return missing(format!("mp_rank_{model:02}_model_states.pt"));
            }
            for data in 0..data_ranks {
                if !self.partitioned_model.is_empty() && !self.partitioned_model.contains(&(data, model)) {
                    return missing(format!("zero_pp_rank_{data}_mp_rank_{model:02}_model_states.pt"));
                }
                if !self.optimizer.is_empty() && !self.optimizer.contains(&(data, model)) {
                    return missing(format!(
                        "{}zero_pp_rank_{data}_mp_rank_{model:02}_optim_states.pt",
                        self.optimizer_prefix
                    ));
                }
            }
        }
        Ok(())
    }
}
