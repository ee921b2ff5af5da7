//! What may be asked of a part of a GPU, and whether what must fit into its memory does. With the numbers.
use super::{JobSpec, Launcher, Priority};
use crate::model::amounts::{HumanBytes, count};
use crate::model::machine::gpu_models::facts_of;
use crate::model::machine::mig::ProfileName;
use crate::model::split::{PartAsk, ShareMode, WHOLE_MILLI, cards};

type Refused = (&'static str, String);

/// MPS bounds a process in hundredths of the SMs.
const LEAST_MILLI: u32 = 10;

pub fn check(spec: &JobSpec) -> Result<(), Refused> {
    match spec.shape.part {
        Some(_) if spec.shape.gpus > 0 => {
            return Err(("resources", "a worker asks for whole GPUs or for a part of one, not for both".to_string()));
        }
        Some(_) if spec.topology.ranks_per_island.is_some() => {
            let why = "parts of GPUs are not joined by NVLink".to_string();
            return Err(("topology.ranks_per_island", why));
        }
        Some(PartAsk::Mig { profile }) => mig(spec, profile)?,
        Some(PartAsk::Share { milli, mode }) => share(spec, milli, mode)?,
        None if spec.shape.distinct_gpus => {
            return Err(("resources.distinct_gpus", "whole GPUs are never shared: leave it out".to_string()));
        }
        None => {}
    }
    fits(spec)
}

fn mig(spec: &JobSpec, profile: ProfileName) -> Result<(), Refused> {
    let model = spec.shape.gpu_model.as_deref();
    if !cards(model).any(|card| card.named(profile).is_some()) {
        let mut names: Vec<String> =
            cards(model).flat_map(|card| card.profiles).map(|p| p.name().to_string()).collect();
        names.sort_unstable();
        names.dedup();
        let which = model.map_or("no card".to_string(), |model| format!("no {model}"));
        let known = if names.is_empty() { "it cannot be split".to_string() } else { names.join(", ") };
        return Err(("resources.mig", format!("{which} has the profile {profile} (known: {known})")));
    }
    if spec.run.launcher != Launcher::Ranks {
        let why = "a process can use one MIG instance only, and this launcher starts one process for all ranks of a \
                   node; use `launcher: ranks`";
        return Err(("launcher", why.to_string()));
    }
    Ok(())
}

fn share(spec: &JobSpec, milli: u32, mode: ShareMode) -> Result<(), Refused> {
    if !(LEAST_MILLI..=WHOLE_MILLI).contains(&milli) {
        return Err(("resources.share", "a share is at least 0.01 and at most 1 of a GPU".to_string()));
    }
    if spec.shape.vram_bytes == 0 {
        let why = "a share of a GPU says how much of its memory it needs, such as `vram: 10GiB`".to_string();
        return Err(("resources.vram", why));
    }
    if mode == ShareMode::TimeSlice && (spec.priority < Priority::P2 || !spec.intermittent) {
        let why = "time-slices keep nothing for anybody: they are for P2 and P3 that say `intermittent: true`; ask for \
                   `sharing: mps`, a MIG profile or a whole GPU instead";
        return Err(("resources.sharing", why.to_string()));
    }
    Ok(())
}

/// Whether what must fit into GPU memory does, on the largest device that could be given.
fn fits(spec: &JobSpec) -> Result<(), Refused> {
    let shape = &spec.shape;
    let (needs, model) = (shape.needs_vram_bytes, shape.gpu_model.as_deref());
    if needs == 0 {
        return Ok(());
    }
    let (device, holds) = match shape.part {
        Some(part) => (part.to_string(), part.vram_bytes(model, shape.vram_bytes)),
        None if shape.gpus == 0 => return Err(("resources.needs_vram", "the worker asks for no GPU".to_string())),
        None => match model.and_then(facts_of) {
            Some(facts) => {
                (format!("{} {}", shape.gpus, facts.family), facts.vram_bytes.saturating_mul(shape.gpus.into()))
            }
            None => return Ok(()),
        },
    };
    if needs <= holds {
        return Ok(());
    }
    let (asked, there, short) = (HumanBytes(needs), HumanBytes(holds), HumanBytes(needs - holds));
    let why = format!("{asked} do not fit into {device}: {there}, {short} too little; {}", enough(needs));
    Err(("resources.needs_vram", why))
}

/// How many of the usual cards would hold it.
fn enough(needs: u64) -> String {
    let ways = ["A100", "H200"].into_iter().filter_map(facts_of).map(|facts| {
        let gpus = needs.div_ceil(facts.vram_bytes.max(1));
        format!("{} with {}", count(gpus, "GPU"), HumanBytes(facts.vram_bytes))
    });
    format!("it takes {}", ways.collect::<Vec<_>>().join(" or "))
}

#[cfg(test)]
mod tests {
    use super::super::Shape;
    use super::*;

    fn spec(change: impl FnOnce(&mut JobSpec)) -> Result<(), Refused> {
        let mut spec = JobSpec::new("x", 1, Shape { cpus: 1, ..Shape::default() });
        change(&mut spec);
        spec.check()
    }

    fn mig(name: &str) -> Option<PartAsk> {
        Some(PartAsk::Mig { profile: ProfileName::parse(name).unwrap() })
    }

    fn refused(change: impl FnOnce(&mut JobSpec)) -> String {
        let (field, why) = spec(change).unwrap_err();
        format!("{field}: {why}")
    }

    #[test]
    fn a_model_that_does_not_fit_is_refused_with_the_arithmetic() {
        let why = refused(|spec| {
            spec.shape.part = mig("1g.10gb");
            spec.shape.gpu_model = Some("H100".into());
            spec.shape.needs_vram_bytes = 140_000_000_000;
        });
        let expected = "resources.needs_vram: 130.3GiB do not fit into MIG 1g.10gb: 9.7GiB, 120.6GiB too little; it takes 2 \
                        GPUs with 80GiB or 1 GPU with 141GiB";
        assert_eq!(why, expected);
        let why = refused(|spec| {
            (spec.shape.gpus, spec.shape.needs_vram_bytes) = (1, 140 << 30);
            spec.shape.gpu_model = Some("H100".into());
        });
        assert!(why.contains("140GiB do not fit into 1 H100: 80GiB"), "{why}");
        assert_eq!(
            spec(|spec| {
                (spec.shape.gpus, spec.shape.needs_vram_bytes) = (2, 140 << 30);
                spec.shape.gpu_model = Some("H100".into());
            }),
            Ok(())
        );
    }

    #[test]
    fn profiles_that_a_card_has_not_are_named() {
        let why = refused(|spec| {
            spec.shape.part = mig("3g.41gb");
            spec.shape.gpu_model = Some("A30".into());
        });
        assert_eq!(
            why,
            "resources.mig: no A30 has the profile 3g.41gb (known: 1g.6gb, 1g.6gb+me, 2g.12gb, 2g.12gb+me, 4g.24gb)"
        );
        assert!(refused(|s| (s.shape.part, s.run.launcher) = (mig("3g.40gb"), Launcher::Torchrun)).contains("one MIG"));
        assert!(refused(|s| (s.shape.part, s.shape.gpus) = (mig("3g.40gb"), 1)).contains("not for both"));
    }

    #[test]
    fn time_slices_are_for_those_who_yield_and_pause_and_shares_count_their_memory() {
        let part = |mode| Some(PartAsk::Share { milli: 500, mode });
        let ask = |priority, intermittent, mode| {
            spec(|spec| {
                (spec.priority, spec.intermittent) = (priority, intermittent);
                (spec.shape.part, spec.shape.vram_bytes) = (part(mode), 10 << 30);
            })
        };
        assert!(ask(Priority::P2, true, ShareMode::TimeSlice).is_ok());
        assert!(ask(Priority::P1, true, ShareMode::TimeSlice).unwrap_err().1.contains("P2 and P3"));
        assert!(ask(Priority::P3, false, ShareMode::TimeSlice).unwrap_err().1.contains("intermittent"));
        assert!(ask(Priority::P0, false, ShareMode::Mps).is_ok());
        assert!(refused(|s| s.shape.part = part(ShareMode::Mps)).contains("resources.vram"));
    }
}
