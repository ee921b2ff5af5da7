//! Results of replays as tables and as JSON. Figures are rounded here and nowhere before.
use super::Look;
use super::table::render;
use ganger_simulator::replay::placement::{Curves, PERCENT_MAX, Policy};
use ganger_simulator::replay::queueing;
use ganger_simulator::replay::report::{self, Report};
use serde_json::{Value, json};
use std::ops::Range;

/// All seeds of one policy.
pub struct PlacementRuns {
    pub policy: Policy,
    pub seeds: Range<u64>,
    pub curves: Vec<Curves>,
}

impl PlacementRuns {
    fn allocated(&self) -> (f64, f64) {
        spread(self.curves.iter().map(|curves| curves.allocated_pct[PERCENT_MAX]))
    }

    fn fragmented(&self, percent: usize) -> f64 {
        spread(self.curves.iter().map(|curves| curves.fragmented_pct[percent])).0
    }

    fn frag_ratio_at(&self) -> Value {
        json!({"60": rounded(self.fragmented(60)), "90": rounded(self.fragmented(90))})
    }
}

/// Mean and standard deviation of a sample; 0 for a sample of one.
fn spread(values: impl Iterator<Item = f64> + Clone) -> (f64, f64) {
    let count = values.clone().count().max(1) as f64;
    let mean = values.clone().sum::<f64>() / count;
    let squares: f64 = values.map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

fn rounded(value: f64) -> f64 {
    (value * 10_000.0).round() / 10_000.0
}

/// One policy and one seed is an object, more are a list.
pub fn placement_json(runs: &[PlacementRuns]) -> Value {
    match runs {
        [only] if only.curves.len() == 1 => {
            json!({"allocated_pct": rounded(only.allocated().0), "frag_ratio_at": only.frag_ratio_at()})
        }
        all => all.iter().map(placement_row).collect(),
    }
}

fn placement_row(runs: &PlacementRuns) -> Value {
    let (mean, deviation) = runs.allocated();
    json!({
        "policy": runs.policy.name(),
        "first_seed": runs.seeds.start,
        "seeds": runs.curves.len(),
        "allocated_pct": rounded(mean),
        "allocated_pct_sd": rounded(deviation),
        "frag_ratio_at": runs.frag_ratio_at(),
    })
}

pub fn placement_table(runs: &[PlacementRuns], look: &Look) -> String {
    let (header, rows) = placement_cells(runs);
    render(look, &words(&header), rows)
}

/// Names of columns, and rows.
type Cells = (Vec<String>, Vec<Vec<String>>);

fn words(header: &[String]) -> Vec<&str> {
    header.iter().map(String::as_str).collect()
}

fn placement_cells(runs: &[PlacementRuns]) -> Cells {
    let header = ["POLICY", "SEEDS", "ALLOCATED %", "SD", "FRAG % AT 60", "FRAG % AT 90", "PLACED", "DROPPED"];
    let mean = |runs: &PlacementRuns, count: fn(&Curves) -> usize| {
        format!("{:.0}", spread(runs.curves.iter().map(|curves| count(curves) as f64)).0)
    };
    let row = |runs: &PlacementRuns| {
        let (allocated, deviation) = runs.allocated();
        vec![
            runs.policy.name().to_string(),
            runs.curves.len().to_string(),
            format!("{allocated:.2}"),
            format!("{deviation:.2}"),
            format!("{:.1}", runs.fragmented(60)),
            format!("{:.1}", runs.fragmented(90)),
            mean(runs, |curves| curves.placed),
            mean(runs, |curves| curves.dropped),
        ]
    };
    (header.map(str::to_string).to_vec(), runs.iter().map(row).collect())
}

type Queued = (queueing::Policy, queueing::Outcome);

/// One policy is an object, more are a list.
pub fn queueing_json(outcomes: &[Queued]) -> Value {
    match outcomes {
        [(_, only)] => json!(only),
        all => all.iter().map(queueing_row).collect(),
    }
}

fn queueing_row((policy, outcome): &Queued) -> Value {
    let mut row = json!(outcome);
    row["policy"] = json!(policy.name());
    row
}

pub fn queueing_table(outcomes: &[Queued], look: &Look) -> String {
    let (header, rows) = queueing_cells(outcomes);
    render(look, &words(&header), rows)
}

fn queueing_cells(outcomes: &[Queued]) -> Cells {
    let header =
        ["POLICY", "MEAN JCT S", "P99 JCT S", "MAKESPAN S", "PREEMPTIONS", "A JOB", "LOST GPU HOURS", "MAX WAIT S"];
    let row = |(policy, outcome): &Queued| {
        vec![
            policy.name().to_string(),
            format!("{:.0}", outcome.mean_jct_s),
            format!("{:.0}", outcome.p99_jct_s),
            format!("{:.0}", outcome.makespan_s),
            outcome.preemptions.to_string(),
            format!("{:.2}", outcome.preemptions_per_job),
            format!("{:.1}", outcome.lost_gpu_hours),
            format!("{:.0}", outcome.max_wait_s),
        ]
    };
    (header.map(str::to_string).to_vec(), outcomes.iter().map(row).collect())
}

pub fn placement_report(runs: &[PlacementRuns], about: String) -> Report {
    let (header, rows) = placement_cells(runs);
    let named: Vec<(&str, &[Curves])> = runs.iter().map(|run| (run.policy.name(), run.curves.as_slice())).collect();
    Report { title: "Placement replay".to_string(), about, header, rows, plots: report::placement_plots(&named) }
}

pub fn queueing_report(
    replays: &[(queueing::Policy, queueing::Replayed)],
    name: &str,
    about: String,
    gpus: u64,
) -> Report {
    let outcomes: Vec<Queued> = replays.iter().map(|(policy, replayed)| (*policy, replayed.outcome)).collect();
    let (header, rows) = queueing_cells(&outcomes);
    let named: Vec<(&str, &queueing::Replayed)> = replays.iter().map(|(policy, one)| (policy.name(), one)).collect();
    Report { title: format!("Replay of {name}"), about, header, rows, plots: report::queueing_plots(&named, gpus) }
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    fn runs(allocated: &[f64]) -> PlacementRuns {
        let one = |&allocated: &f64| Curves {
            allocated_pct: vec![allocated; PERCENT_MAX + 1],
            fragmented_pct: vec![20.123_456; PERCENT_MAX + 1],
            placed: 90,
            dropped: 10,
        };
        let curves = allocated.iter().map(one).collect();
        PlacementRuns { policy: Policy::Ours, seeds: 42..42 + allocated.len() as u64, curves }
    }

    #[test]
    fn one_run_is_an_object_and_more_are_a_list() {
        let one = placement_json(&[runs(&[95.0])]);
        assert_eq!(one, json!({"allocated_pct": 95.0, "frag_ratio_at": {"60": 20.1235, "90": 20.1235}}));
        let more = placement_json(&[runs(&[95.0, 96.0, 97.0])]);
        assert_eq!((&more[0]["allocated_pct"], &more[0]["allocated_pct_sd"]), (&json!(96.0), &json!(1.0)));
        assert_eq!((&more[0]["first_seed"], &more[0]["seeds"]), (&json!(42), &json!(3)));
    }

    #[test]
    fn the_table_of_policies() {
        let table = placement_table(&[runs(&[95.0, 96.0])], &samples::look());
        let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row, ["ours", "2", "95.50", "0.71", "20.1", "20.1", "90", "10"]);
    }

    #[test]
    fn queueing_has_the_promised_fields() {
        let outcome = queueing::Outcome {
            mean_jct_s: 10.0,
            p99_jct_s: 20.0,
            makespan_s: 30.0,
            preemptions: 4,
            preemptions_per_job: 0.25,
            lost_gpu_hours: 0.5,
            max_wait_s: 6.0,
        };
        let one = [(queueing::Policy::Tiresias, outcome)];
        let object = queueing_json(&one);
        for field in ["mean_jct_s", "p99_jct_s", "makespan_s", "preemptions", "lost_gpu_hours", "max_wait_s"] {
            assert!(object[field].is_number(), "{field}: {object}");
        }
        assert_eq!(queueing_json(&[one[0], one[0]])[1]["policy"], "tiresias");
        let table = queueing_table(&one, &samples::look());
        let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(row, ["tiresias", "10", "20", "30", "4", "0.25", "0.5", "6"]);
    }
}
