//! A part of a GPU as the job file asks for it.
use super::{Findings, ResourcesFile};
use crate::model::machine::mig::ProfileName;
use crate::model::split::{PartAsk, ShareMode, WHOLE_MILLI};

pub(super) fn part(found: &mut Findings, file: &ResourcesFile) -> Option<PartAsk> {
    let mig = found.word("resources.mig", file.mig.as_deref(), ProfileName::parse, "the card's profiles, like 3g.40gb");
    let mode = found.word("resources.sharing", file.sharing.as_deref(), ShareMode::parse, "mps, time-slice");
    let share = file.share.as_ref().and_then(|share| {
        let milli = share.thousandths().filter(|milli| (1..=WHOLE_MILLI).contains(milli));
        if milli.is_none() {
            let problem = format!("{:?} is no part of one GPU", share.0);
            found.add("resources.share", problem, "write it like 0.5: above 0, at most 1, three decimals");
        }
        milli
    });
    let asked = [file.gpus.is_some_and(|gpus| gpus > 0), file.mig.is_some(), file.share.is_some()];
    if asked.into_iter().filter(|one| *one).count() > 1 {
        let problem = "a worker gets whole GPUs, or one MIG instance, or one share";
        found.add("resources", problem, "give one of resources.gpus, resources.mig and resources.share");
    }
    if file.sharing.is_some() && file.share.is_none() {
        found.add("resources.sharing", "nothing is shared", "give resources.share, or remove it");
    }
    match (mig, share) {
        (Some(profile), _) => Some(PartAsk::Mig { profile }),
        (None, Some(milli)) => Some(PartAsk::Share { milli, mode: mode.unwrap_or_default() }),
        (None, None) => None,
    }
}
