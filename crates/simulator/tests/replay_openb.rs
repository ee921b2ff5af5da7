//! The openb placement experiment: a trace worked out by hand, and the published figures where the data is at hand.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]
mod shared_data;

use ganger_simulator::replay::placement::{Placement, Policy};
use ganger_simulator::replay::readers::openb;

const NODES: &str = "sn,cpu_milli,memory_mib,gpu,model\nn0,8000,100,2,T4\nn1,8000,100,2,G2\nlogin,8000,100,0,\n";
const PODS: &str = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n\
    a,1000,1,1,500,\nb,1000,1,1,500,\nc,1000,1,1,1000,\nd,1000,1,1,1000,T4\ne,1000,1,1,1000,\n";

fn by_hand() -> Placement {
    Placement::new(&openb::pods("pods", PODS).unwrap(), &openb::nodes("nodes", NODES).unwrap()).unwrap()
}

/// 4 GPUs are asked on 4 GPUs, and there is a way to hold all of it; half a GPU in the wrong place loses some.
#[test]
fn a_small_workload_fits_whole_under_ours_in_any_order() {
    for seed in 0..40 {
        let curves = by_hand().run(Policy::Ours, seed);
        assert_eq!((curves.placed, curves.allocated_pct[100]), (5, 100.0), "seed {seed}");
    }
}

#[test]
fn the_seed_decides_everything() {
    for policy in Policy::ALL {
        assert_eq!(by_hand().run(policy, 7), by_hand().run(policy, 7), "{policy:?}");
    }
}

#[test]
fn what_cannot_be_measured_is_refused() {
    let (pods, nodes) = (openb::pods("pods", PODS).unwrap(), openb::nodes("nodes", NODES).unwrap());
    assert!(Placement::new(&pods, &nodes[2..]).err().unwrap().contains("no node has a GPU"));
    let none = openb::pods("pods", "name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,0,0\n").unwrap();
    assert!(Placement::new(&none, &nodes).err().unwrap().contains("no pod asks for a GPU"));
}

fn workload(name: &str) -> Option<Placement> {
    let file = if name == "default" { "default.csv".to_string() } else { format!("{name}.csv.gz") };
    let pods = shared_data::text(&format!("traces/alibaba-openb-2023/openb_pod_list_{file}"))?;
    let nodes = shared_data::text("traces/alibaba-openb-2023/openb_node_list_gpu_node.csv")?;
    Some(Placement::new(&openb::pods(name, &pods).unwrap(), &openb::nodes("nodes", &nodes).unwrap()).unwrap())
}

fn mean(placement: &Placement, policy: Policy, seeds: u64) -> f64 {
    (42..42 + seeds).map(|seed| placement.run(policy, seed).allocated_pct[100]).sum::<f64>() / seeds as f64
}

/// Published means of ten seeds on the default workload, and how far three of ours may be off.
#[test]
fn baselines_give_the_published_figures() {
    let Some(placement) = workload("default") else { return };
    for (policy, published, within) in [
        (Policy::Random, 86.30, 0.6),
        (Policy::DotProduct, 90.62, 1.0),
        (Policy::Clustering, 91.65, 1.2),
        (Policy::Packing, 91.78, 1.0),
        (Policy::BestFit, 92.86, 1.0),
        (Policy::FgdRounded, 95.23, 0.5),
    ] {
        let found = mean(&placement, policy, 3);
        assert!((found - published).abs() <= within, "{policy:?}: {found:.2}, published {published}");
    }
}

#[test]
fn ours_packs_shares_at_least_as_well_as_the_gradient() {
    ours_against_the_gradient("default", 95.3);
}

#[test]
fn ours_spares_the_models_that_others_are_bound_to() {
    ours_against_the_gradient("gpuspec33", 93.0);
}

fn ours_against_the_gradient(name: &str, least: f64) {
    let Some(placement) = workload(name) else { return };
    let (ours, gradient) = (mean(&placement, Policy::Ours, 1), mean(&placement, Policy::FgdRounded, 1));
    assert!(ours >= least && ours >= gradient - 0.3, "{name}: ours {ours:.2}, rounded gradient {gradient:.2}");
}

/// Ten seeds of every policy on the five workloads: minutes. `cargo test --release -- --ignored --nocapture`.
#[test]
#[ignore = "minutes"]
fn ten_seeds_of_all_workloads() {
    for (name, least) in
        [("default", 95.3), ("gpuspec33", 89.0), ("gpushare40", 0.0), ("gpushare100", 0.0), ("multigpu50", 0.0)]
    {
        let Some(placement) = workload(name) else { return };
        let gradient = mean(&placement, Policy::FgdRounded, 10);
        for policy in [Policy::Ours, Policy::OursLearning] {
            let ours = mean(&placement, policy, 10);
            println!("{name}: {} {ours:.2}, fgd-rounded {gradient:.2}", policy.name());
            assert!(ours >= least && ours >= gradient - 0.3, "{name} {policy:?}: {ours:.2} against {gradient:.2}");
        }
    }
}
