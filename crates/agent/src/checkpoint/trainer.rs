//! The Hugging Face Trainer: `checkpoint-N`.
//!
//! Source: huggingface/transformers, src/transformers/trainer.py (`_save_checkpoint`), trainer_utils.py (`get_last_checkpoint`) and issue
//! 35782: the Trainer writes weights, then optimizer, scheduler and random states, and `trainer_state.json` (with `global_step`) last,
//! and resuming fails without that file. Some versions save under `tmp-checkpoint-N` and rename. Weights are safetensors or
//! `pytorch_model.bin`, sharded with an index file, an adapter's only, an FSDP folder in DCP form, or a DeepSpeed folder.
//! Checked: that file and its step, all weights, and every other torch file's end. Not seen: a random state that another rank writes
//! after rank 0's `trainer_state.json`; it is asked for only where a higher rank's is there. A model without `config.json` whose save
//! was cut off right after its weights looks like plain safetensors and is taken as such.

use serde::Deserialize;

use super::files::{self, Listing};
use super::{Defect, Format, Verified};
use super::{dcp, deepspeed, plain, torch_file};

const MARKER: &str = "trainer_state.json";
const SIGNS: [&str; 6] =
    ["config.json", "adapter_config.json", "training_args.bin", "optimizer.pt", "optimizer.bin", "scheduler.pt"];

#[derive(Deserialize)]
struct State {
    global_step: u64,
}

pub(super) fn matches(listing: &Listing) -> bool {
    let named = files::name(&listing.dir).strip_prefix("checkpoint-").and_then(files::whole_number).is_some();
    listing.file(MARKER).is_some() || (named && SIGNS.iter().any(|sign| listing.file(sign).is_some()))
}

pub(super) fn verify(listing: &Listing) -> Result<Verified, Defect> {
    if listing.file(MARKER).is_none() {
        return Err(Defect::MissingMarker { path: listing.dir.clone(), format: Format::HfTrainer, marker: MARKER });
    }
    let path = listing.path(MARKER);
    let state: State = files::read_json(&path)?;
    let named = files::name(&listing.dir).strip_prefix("checkpoint-").and_then(files::whole_number);
    if named.is_some_and(|named| named != state.global_step) {
        return Err(Defect::malformed(
            &path,
            format!("says step {}, which is not that of its directory", state.global_step),
        ));
    }
    let mut verified = Verified::new(Format::HfTrainer, Some(state.global_step));
    verified.add(listing.file(MARKER).unwrap_or(0));
    check_weights(listing, &mut verified)?;
    check_states(listing, &mut verified)?;
    Ok(verified)
}

fn check_weights(listing: &Listing, verified: &mut Verified) -> Result<(), Defect> {
    let mut found = plain::check_weights(listing, verified)?;
    if deepspeed::matches(listing) {
        verified.add_all(&deepspeed::verify(listing)?);
        found = true;
    }
    for name in
        listing.directories().filter(|name| name.starts_with("pytorch_model_fsdp") || name.starts_with("optimizer_"))
    {
        let folder = Listing::read(&listing.path(name))?;
        verified.add_all(&dcp::verify(&folder)?);
        found |= name.starts_with("pytorch_model_fsdp");
    }
    if found {
        return Ok(());
    }
    Err(Defect::MissingFile { file: listing.path("model.safetensors"), named_by: MARKER.into() })
}

/// Optimizer, scheduler, arguments and random states: whatever is there must be whole.
fn check_states(listing: &Listing, verified: &mut Verified) -> Result<(), Defect> {
    let own = |name: &str| {
        ["optimizer", "scheduler", "scaler", "rng_state", "training_args"].iter().any(|start| name.starts_with(start))
    };
    for (name, _) in listing.files().filter(|(name, _)| own(name) && plain::is_torch(name)) {
        verified.add(torch_file::check(&listing.path(name))?);
    }
    let rank = |name: &str| files::whole_number(name.strip_prefix("rng_state_")?.strip_suffix(".pth")?);
    let ranks = listing.files().filter(|(name, _)| rank(name).is_some()).count();
    for rank in 0..ranks {
        let name = format!("rng_state_{rank}.pth");
        if listing.file(&name).is_none() {
            return Err(Defect::MissingFile {
                file: listing.path(&name),
                named_by: "the random state of a higher rank".into(),
            });
        }
    }
    Ok(())
}
