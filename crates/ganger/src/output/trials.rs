//! Results of the replays that try the scheduler out: mixed load, servers that fail, and crowds of workloads.
use super::Look;
use super::table::render;
use ganger_simulator::replay::{failures, kueue, mixed};
use serde_json::{Value, json};

type Mixed = (mixed::Policy, mixed::Outcome);

/// One policy is an object, more are a list.
pub fn mixed_json(outcomes: &[Mixed]) -> Value {
    let row = |(policy, outcome): &Mixed| {
        let mut row = json!(outcome);
        row["policy"] = json!(policy.name());
        row
    };
    match outcomes {
        [only] => row(only),
        all => all.iter().map(row).collect(),
    }
}

pub fn mixed_table(outcomes: &[Mixed], look: &Look) -> String {
    let header = [
        "POLICY",
        "P0 WAIT P50 S",
        "P99 S",
        "MAX S",
        "P3 GPU HOURS",
        "LOST GPU HOURS",
        "PREEMPTIONS",
        "CLAIMS",
        "KEPT",
        "SOONER",
    ];
    let row = |(policy, outcome): &Mixed| {
        vec![
            policy.name().to_string(),
            format!("{:.0}", outcome.p0_wait_p50_s),
            format!("{:.0}", outcome.p0_wait_p99_s),
            format!("{:.0}", outcome.p0_wait_max_s),
            format!("{:.0}", outcome.p3_goodput_gpu_hours),
            format!("{:.1}", outcome.lost_gpu_hours),
            outcome.preemptions.to_string(),
            outcome.claims.to_string(),
            outcome.claims_kept.to_string(),
            outcome.claims_sooner.to_string(),
        ]
    };
    render(look, &header, outcomes.iter().map(row).collect())
}

type Failing = (f64, failures::Policy, failures::Outcome);

/// One run is an object, more are a list.
pub fn failures_json(outcomes: &[Failing]) -> Value {
    let row = |(rate, policy, outcome): &Failing| {
        let mut row = json!(outcome);
        row["policy"] = json!(policy.name());
        row["faults_per_server_day"] = json!(rate);
        row
    };
    match outcomes {
        [only] => row(only),
        all => all.iter().map(row).collect(),
    }
}

pub fn failures_table(outcomes: &[Failing], look: &Look) -> String {
    let header =
        ["RATE", "POLICY", "EFFECTIVE", "LOST GPU HOURS", "FAULTS", "RESTARTS", "FAULT TO STEP P50 S", "MAX S"];
    let row = |(rate, policy, outcome): &Failing| {
        vec![
            format!("{rate}"),
            policy.name().to_string(),
            format!("{:.4}", outcome.effective_ratio),
            format!("{:.1}", outcome.lost_gpu_hours),
            outcome.faults.to_string(),
            outcome.restarts.to_string(),
            format!("{:.0}", outcome.step_p50_s),
            format!("{:.0}", outcome.step_max_s),
        ]
    };
    render(look, &header, outcomes.iter().map(row).collect())
}

type Crowd = (kueue::Mix, kueue::Outcome);

/// One mix is an object, more are a list.
pub fn kueue_json(outcomes: &[Crowd]) -> Value {
    let row = |(mix, outcome): &Crowd| {
        let mut row = json!(outcome);
        row["mix"] = json!(mix.name());
        row
    };
    match outcomes {
        [only] => row(only),
        all => all.iter().map(row).collect(),
    }
}

pub fn kueue_table(outcomes: &[Crowd], look: &Look) -> String {
    let header = [
        "MIX",
        "WORKLOADS",
        "MAKESPAN S",
        "BOUND S",
        "OVER BOUND",
        "PREEMPTIONS",
        "DECISIONS",
        "DECIDING CPU S",
        "MEAN WAIT S",
    ];
    let row = |(mix, outcome): &Crowd| {
        let waits = outcome.waits.iter().map(|(name, waits)| format!("{name} {:.1}", waits.mean_s));
        vec![
            mix.name().to_string(),
            outcome.workloads.to_string(),
            format!("{:.1}", outcome.makespan_s),
            format!("{:.1}", outcome.bound_s),
            format!("{:.2}", outcome.over_bound),
            outcome.preemptions.to_string(),
            outcome.decisions.to_string(),
            format!("{:.1}", outcome.deciding_cpu_s),
            waits.collect::<Vec<_>>().join(", "),
        ]
    };
    render(look, &header, outcomes.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn one_run_is_an_object_with_its_name_and_more_are_a_list() {
        let one = (3.8e-3, failures::Policy::NoChecks, failures::Outcome::default());
        let object = failures_json(std::slice::from_ref(&one));
        assert_eq!((&object["policy"], &object["faults_per_server_day"]), (&json!("no-checks"), &json!(3.8e-3)));
        assert_eq!(failures_json(&[one.clone(), one.clone()]).as_array().map(Vec::len), Some(2));
        assert!(failures_table(&[one], &samples::look()).contains("0.0038"));
        let crowd = (kueue::Mix::LargeScale, kueue::Outcome::default());
        assert_eq!(kueue_json(std::slice::from_ref(&crowd))["mix"], "large-scale");
        assert!(kueue_table(&[crowd], &samples::look()).contains("large-scale"));
        let mixed = (mixed::Policy::PriorityOnly, mixed::Outcome::default());
        assert_eq!(mixed_json(std::slice::from_ref(&mixed))["policy"], "priority-only");
        assert!(mixed_table(&[mixed], &samples::look()).contains("priority-only"));
    }
}
