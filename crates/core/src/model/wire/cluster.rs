//! The files that administrators apply: queues (`ganger queues apply`) and the cluster's shape (`ganger cluster apply`).
//!
//! As with job files, everything is checked at once and features of later work are refused by name. `settings` holds scheduler settings by
//! the names of [`crate::model::policy`].
use super::job::{Decimal, FieldError, Findings};
use super::pool::PoolFile;
use crate::model::amounts::{AmountError, Limit, parse_bandwidth, parse_bytes};
use crate::model::budget::{Budget, Period};
use crate::model::cluster::NodePlacement;
use crate::model::policy::Policy;
use crate::model::pool::Lending;
use crate::model::queue::{QueuePolicy, QueueSpec};
use crate::model::time::Span;
use crate::model::whole::WholeNodes;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use utoipa::ToSchema;

/// Queues to create or change; those that are not named stay as they are.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QueuesFile {
    pub queues: Vec<QueueFile>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct QueueFile {
    /// Its path in the tenant tree, such as `research/nlp`.
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guarantee: Option<AmountsFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<AmountsFile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetFile>,
    /// Nodes that it can always have whole; `null` takes the promise back.
    #[serde(default, deserialize_with = "said", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<WholeNodesFile>)]
    pub whole_nodes: Option<Option<WholeNodesFile>>,
    /// In which order it serves its own jobs of one class: `seniority`, or `las` for least attained service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

/// `{nodes: 4, gpus: 8, gpu_model: H100}`: it can always start so many workers of so many GPUs, each on a node of its own.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WholeNodesFile {
    pub nodes: i64,
    pub gpus: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_model: Option<String>,
}

fn said<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<Option<T>>, D::Error> {
    Option::deserialize(from).map(Some)
}

/// `{gpu_hours: 1000, per: month}`
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetFile {
    #[schema(value_type = f64)]
    pub gpu_hours: Decimal,
    /// What each user may spend of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<f64>)]
    pub per_user: Option<Decimal>,
    /// `day`, `week` (from Monday on) or `month`, in UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per: Option<String>,
}

/// `{gpus: 16, cpus: 400, memory: 2TiB}`; what is not named has no bound.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AmountsFile {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Of the GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vram: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pcie_bandwidth: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_bandwidth: Option<String>,
}

/// Leaves, spines and pools by node names, which need not have registered yet.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// Leaf → its nodes.
    #[serde(default)]
    pub leaves: BTreeMap<String, Vec<String>>,
    /// Spine → its leaves. Leaves that no spine names are under `spine0`.
    #[serde(default)]
    pub spines: BTreeMap<String, Vec<String>>,
    /// Leaf → the bandwidth of its way up, such as `3.2Tbps`.
    #[serde(default)]
    pub uplink: BTreeMap<String, String>,
    #[serde(default)]
    pub pools: Vec<PoolFile>,
    /// Scheduler settings by name, such as `aging.step: 24h`.
    #[serde(default)]
    pub settings: BTreeMap<String, String>,
}

/// What a [`ClusterFile`] asks for, checked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClusterPlan {
    pub placements: BTreeMap<String, NodePlacement>,
    /// Leaf → bits per second of its way up.
    pub uplinks: BTreeMap<String, u64>,
    /// How each pool of the file is lent, or that it is open.
    pub pools: BTreeMap<String, Option<Lending>>,
    pub settings: BTreeMap<String, String>,
}

pub(super) const NAME_FIX: &str = "use letters, digits, dot, dash and underscore, at most 63 characters";

impl QueuesFile {
    /// # Errors
    /// All that is wrong, in the order of the file.
    pub fn into_specs(self) -> Result<Vec<QueueSpec>, Vec<FieldError>> {
        let mut found = Findings::default();
        let mut names = BTreeSet::new();
        if self.queues.is_empty() {
            found.add("queues", "it names no queue", "list at least one, such as {name: prod, weight: 3}");
        }
        let specs = self.queues.iter().enumerate().map(|(i, q)| queue(&mut found, &mut names, i, q)).collect();
        found.finish(specs)
    }
}

fn queue(found: &mut Findings, names: &mut BTreeSet<String>, index: usize, file: &QueueFile) -> QueueSpec {
    let at = |field: &str| format!("queues[{index}].{field}");
    if !super::job::is_queue_path(&file.name) {
        found.add(at("name"), format!("{:?} is not a queue's path", file.name), "write it like prod or research/nlp");
    }
    if !names.insert(file.name.clone()) {
        found.add(at("name"), format!("{:?} is named twice", file.name), "remove one of them");
    }
    let weight = file.weight.map(|weight| found.count(&at("weight"), Some(weight), 1, 0, 1_000_000));
    let guarantee = file.guarantee.as_ref().map(|amounts| limit(found, &at("guarantee"), amounts));
    let limit = file.limit.as_ref().map(|amounts| limit(found, &at("limit"), amounts));
    if let (Some(guarantee), Some(limit)) = (&guarantee, &limit) {
        guarantee_within_limit(found, &at("guarantee"), guarantee, limit);
    }
    let budget = file.budget.as_ref().map(|file| budget(found, &at("budget"), file));
    let policy = file.policy.as_deref().map(|text| queue_policy(found, &at("policy"), text));
    let whole_nodes = file.whole_nodes.as_ref().map(|file| whole_nodes(found, &at("whole_nodes"), file.as_ref()));
    if let (Some(whole), Some(most)) = (&whole_nodes, limit.and_then(|limit| limit.gpus))
        && whole.all_gpus() > most
    {
        let problem = format!("{} are more GPUs than the queue's own limit of {most}", whole.words());
        found.add(at("whole_nodes"), problem, "raise the limit or promise less");
    }
    QueueSpec { path: file.name.clone(), weight, guarantee, limit, policy, budget, whole_nodes }
}

fn whole_nodes(found: &mut Findings, field: &str, file: Option<&WholeNodesFile>) -> WholeNodes {
    let Some(file) = file else { return WholeNodes { nodes: 0, gpus: 0, gpu_model: None } };
    let nodes = found.count(&format!("{field}.nodes"), Some(file.nodes), 1, 1, 100_000);
    let gpus = found.count(&format!("{field}.gpus"), Some(file.gpus), 1, 1, 64);
    let gpu_model = file.gpu_model.as_deref().map(str::to_ascii_uppercase);
    if gpu_model.as_deref().is_some_and(|model| model.trim().is_empty()) {
        found.add(format!("{field}.gpu_model"), "it names no model", "write one like H100, or leave it out");
    }
    WholeNodes { nodes, gpus, gpu_model }
}

fn queue_policy(found: &mut Findings, field: &str, text: &str) -> QueuePolicy {
    QueuePolicy::parse(text).unwrap_or_else(|| {
        found.add(field.to_string(), format!("there is no policy {text:?}"), "write seniority or las");
        QueuePolicy::default()
    })
}

fn budget(found: &mut Findings, field: &str, file: &BudgetFile) -> Budget {
    let gpu_ms = gpu_hours(found, &format!("{field}.gpu_hours"), &file.gpu_hours);
    let periods = "day, week, month";
    let per = found.word(&format!("{field}.per"), file.per.as_deref(), Period::parse, periods).unwrap_or_default();
    let part = format!("{field}.per_user");
    let user_gpu_ms = file.per_user.as_ref().map(|hours| gpu_hours(found, &part, hours));
    if user_gpu_ms.is_some_and(|user| user > gpu_ms) {
        found.add(part, "it is more than the budget of all", "give each user at most gpu_hours, or leave it out");
    }
    Budget { gpu_ms, per, user_gpu_ms }
}

/// Hours that run down to nothing at once would keep everybody out: for that there is `limit: {gpus: 0}`.
fn gpu_hours(found: &mut Findings, field: &str, hours: &Decimal) -> u64 {
    let most = MOST_GPU_HOURS * 1_000;
    let read = hours.large_thousandths().filter(|milli| (1..=most).contains(milli));
    if read.is_none() {
        let problem = format!("{:?} is no number of GPU-hours", hours.0);
        let fix = format!(
            "write it like 1000 or 0.5: above 0, at most {MOST_GPU_HOURS}, three decimals; limit: {{gpus: 0}} keeps all out"
        );
        found.add(field, problem, &fix);
    }
    read.unwrap_or(1) * (Span::hours(1).0 / 1_000)
}

const MOST_GPU_HOURS: u64 = 1_000_000_000;

type ReadAmount = fn(&str) -> Result<u64, AmountError>;

fn limit(found: &mut Findings, field: &str, file: &AmountsFile) -> Limit {
    let mut count = |name: &str, value: Option<i64>| {
        value.map(|value| u64::from(found.count(&format!("{field}.{name}"), Some(value), 0, 0, u32::MAX)))
    };
    let (gpus, cpus) = (count("gpus", file.gpus), count("cpus", file.cpus));
    let mut amount = |name: &str, text: &Option<String>, read: ReadAmount| {
        text.as_deref().map(|text| found.amount(&format!("{field}.{name}"), Some(text), read))
    };
    Limit {
        gpus,
        cpus,
        memory_bytes: amount("memory", &file.memory, parse_bytes),
        vram_bytes: amount("vram", &file.vram, parse_bytes),
        pcie_bandwidth_bps: amount("pcie_bandwidth", &file.pcie_bandwidth, parse_bandwidth),
        network_bandwidth_bps: amount("network_bandwidth", &file.network_bandwidth, parse_bandwidth),
    }
}

fn guarantee_within_limit(found: &mut Findings, field: &str, guarantee: &Limit, limit: &Limit) {
    let names = ["gpus", "cpus", "memory", "vram", "pcie_bandwidth", "network_bandwidth"];
    for ((name, low), high) in names.into_iter().zip(guarantee.bounds()).zip(limit.bounds()) {
        if let (Some(low), Some(high)) = (low, high)
            && low > high
        {
            let problem = format!("{low} is more than the queue's own limit of {high}");
            found.add(format!("{field}.{name}"), problem, "raise the limit or lower the guarantee");
        }
    }
}

impl ClusterFile {
    /// # Errors
    /// All that is wrong, in the order of the file's fields.
    pub fn into_plan(self) -> Result<ClusterPlan, Vec<FieldError>> {
        let mut found = Findings::default();
        let mut placements: BTreeMap<String, NodePlacement> = BTreeMap::new();
        self.check_fabric(&mut found);
        let uplinks = self.uplinks(&mut found);
        let spine_of: BTreeMap<&str, &str> = self
            .spines
            .iter()
            .flat_map(|(spine, leaves)| leaves.iter().map(move |leaf| (leaf.as_str(), spine.as_str())))
            .collect();
        for (leaf, nodes) in &self.leaves {
            for node in nodes {
                let place = placements.entry(node.clone()).or_default();
                place.leaf = Some(leaf.clone());
                place.spine = spine_of.get(leaf.as_str()).map(|spine| spine.to_string());
            }
        }
        let mut pools = BTreeMap::new();
        for (index, pool) in self.pools.iter().enumerate() {
            pool.check(&mut found, index, &self.pools[..index], &placements);
            pools.insert(pool.name.clone(), pool.lending(&mut found, index));
            for node in &pool.nodes {
                placements.entry(node.clone()).or_default().pool = Some(pool.name.clone());
            }
        }
        self.check_settings(&mut found);
        found.finish(ClusterPlan { placements, uplinks, pools, settings: self.settings })
    }

    fn check_fabric(&self, found: &mut Findings) {
        once_each(found, "leaves", "node", &self.leaves);
        once_each(found, "spines", "leaf", &self.spines);
        for (spine, leaves) in &self.spines {
            for leaf in leaves.iter().filter(|leaf| !self.leaves.contains_key(*leaf)) {
                let problem = format!("leaf {leaf:?} is not one of `leaves`");
                found.add(format!("spines.{spine}"), problem, "name its nodes under `leaves`, or remove it");
            }
        }
    }

    fn uplinks(&self, found: &mut Findings) -> BTreeMap<String, u64> {
        let mut uplinks = BTreeMap::new();
        for (leaf, bandwidth) in &self.uplink {
            let field = format!("uplink.{leaf}");
            if !self.leaves.contains_key(leaf) {
                found.add(
                    &field,
                    format!("leaf {leaf:?} is not one of `leaves`"),
                    "name its nodes under `leaves`, or remove it",
                );
            }
            uplinks.insert(leaf.clone(), found.amount(&field, Some(bandwidth), parse_bandwidth));
        }
        uplinks
    }

    fn check_settings(&self, found: &mut Findings) {
        let mut scratch = Policy::default();
        for (name, value) in &self.settings {
            if let Err(error) = scratch.set(name, value) {
                found.add(format!("settings.{name}"), error.to_string(), "put it right or remove it");
            }
        }
    }
}

/// Names are well formed and nothing is in two places.
fn once_each(found: &mut Findings, field: &str, kind: &str, map: &BTreeMap<String, Vec<String>>) {
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for (parent, children) in map {
        if !super::job::is_label(parent) {
            found.add(format!("{field}.{parent}"), format!("{parent:?} is not a name"), NAME_FIX);
        }
        for child in children {
            if !super::job::is_label(child) {
                found.add(format!("{field}.{parent}"), format!("{child:?} is not a {kind}'s name"), NAME_FIX);
            }
            if let Some(other) = seen.insert(child, parent) {
                let problem = format!("{kind} {child:?} is named twice: under {other:?} and {parent:?}");
                found.add(format!("{field}.{parent}"), problem, "remove one of them");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn cluster(value: Value) -> Result<ClusterPlan, Vec<FieldError>> {
        serde_json::from_value::<ClusterFile>(value).unwrap().into_plan()
    }

    fn queues(value: Value) -> Result<Vec<QueueSpec>, Vec<FieldError>> {
        serde_json::from_value::<QueuesFile>(value).unwrap().into_specs()
    }

    #[test]
    fn nodes_get_leaf_spine_and_pool() {
        let plan = cluster(json!({
            "leaves": {"leaf1": ["n0", "n1"], "leaf2": ["n2"]}, "spines": {"s1": ["leaf1", "leaf2"]},
            "uplink": {"leaf1": "3.2Tbps"}, "pools": [{"name": "inference", "nodes": ["n0", "n9"]}],
            "settings": {"aging.step": "24h"},
        }))
        .unwrap();
        let n0 = &plan.placements["n0"];
        assert_eq!(
            (n0.leaf.as_deref(), n0.spine.as_deref(), n0.pool.as_deref()),
            (Some("leaf1"), Some("s1"), Some("inference"))
        );
        assert_eq!(plan.placements["n9"].leaf, None);
        assert_eq!(plan.settings["aging.step"], "24h");
        assert_eq!(plan.uplinks["leaf1"], 3_200_000_000_000);
    }

    #[test]
    fn each_fault_of_a_cluster_file_is_refused_by_field() {
        for (field, value) in [
            ("leaves.b", json!({"leaves": {"a": ["n0"], "b": ["n0"]}})),
            ("leaves.a b", json!({"leaves": {"a b": []}})),
            ("leaves.a", json!({"leaves": {"a": ["n 0"]}})),
            ("spines.s", json!({"spines": {"s": ["a"]}})),
            ("spines.t", json!({"leaves": {"a": []}, "spines": {"s": ["a"], "t": ["a"]}})),
            ("uplink.a", json!({"leaves": {"a": []}, "uplink": {"a": "fast"}})),
            ("uplink.b", json!({"uplink": {"b": "1Tbps"}})),
            ("pools[0].name", json!({"pools": [{"name": "a/b", "nodes": []}]})),
            ("pools[1].name", json!({"pools": [{"name": "a", "nodes": []}, {"name": "a", "nodes": []}]})),
            ("pools[1].nodes", json!({"pools": [{"name": "a", "nodes": ["n"]}, {"name": "b", "nodes": ["n"]}]})),
            ("pools[0].nodes", json!({"pools": [{"name": "a", "nodes": ["n n"]}]})),
            ("settings.speed", json!({"settings": {"speed": "1"}})),
        ] {
            let errors = cluster(value.clone()).unwrap_err();
            assert!(errors.iter().any(|e| e.field == field), "{field}: {value}: {errors:?}");
        }
        assert!(serde_json::from_value::<ClusterFile>(json!({"racks": {}})).is_err());
    }

    #[test]
    fn queues_keep_what_is_not_said_open() {
        let specs = queues(json!({"queues": [
            {"name": "prod", "weight": 3, "guarantee": {"gpus": 16}}, {"name": "research/nlp", "limit": {"memory": "2TiB"}}]}))
        .unwrap();
        assert_eq!((specs[0].weight, specs[0].guarantee.unwrap().gpus, specs[0].limit), (Some(3), Some(16), None));
        assert_eq!((specs[1].weight, specs[1].limit.unwrap().memory_bytes), (None, Some(2 << 40)));
        let half = queues(json!({"queues": [{"name": "a", "budget": {"gpu_hours": 12.5, "per_user": "0.125"}}]}));
        let half = half.unwrap()[0].budget.unwrap();
        assert_eq!((half.gpu_ms, half.user_gpu_ms), (45_000_000, Some(450_000)));
        let specs = queues(json!({"queues": [
            {"name": "a", "whole_nodes": {"nodes": 4, "gpus": 8, "gpu_model": "h100"}},
            {"name": "b", "whole_nodes": null}, {"name": "c"}]}));
        let said: Vec<Option<String>> =
            specs.unwrap().into_iter().map(|spec| spec.whole_nodes.map(|whole| whole.words())).collect();
        assert_eq!(said, [Some("4 nodes of 8 H100".to_string()), Some("0 nodes of 0 GPUs".to_string()), None]);
    }

    #[test]
    fn each_fault_of_a_queues_file_is_refused_by_field() {
        for (field, value) in [
            ("queues", json!([])),
            ("queues[0].name", json!([{"name": "a//b"}])),
            ("queues[1].name", json!([{"name": "a"}, {"name": "a"}])),
            ("queues[0].weight", json!([{"name": "a", "weight": -1}])),
            ("queues[0].limit.gpus", json!([{"name": "a", "limit": {"gpus": -1}}])),
            ("queues[0].limit.memory", json!([{"name": "a", "limit": {"memory": "lots"}}])),
            ("queues[0].guarantee.gpus", json!([{"name": "a", "guarantee": {"gpus": 9}, "limit": {"gpus": 8}}])),
            ("queues[0].budget.gpu_hours", json!([{"name": "a", "budget": {"gpu_hours": -1}}])),
            ("queues[0].budget.gpu_hours", json!([{"name": "a", "budget": {"gpu_hours": 0}}])),
            ("queues[0].budget.gpu_hours", json!([{"name": "a", "budget": {"gpu_hours": 0.00001}}])),
            ("queues[0].budget.gpu_hours", json!([{"name": "a", "budget": {"gpu_hours": "many"}}])),
            ("queues[0].budget.per_user", json!([{"name": "a", "budget": {"gpu_hours": 1, "per_user": 0}}])),
            ("queues[0].budget.per_user", json!([{"name": "a", "budget": {"gpu_hours": 1, "per_user": 1.5}}])),
            ("queues[0].budget.per", json!([{"name": "a", "budget": {"gpu_hours": 1, "per": "year"}}])),
            ("queues[0].policy", json!([{"name": "a", "policy": "lottery"}])),
            ("queues[0].whole_nodes.nodes", json!([{"name": "a", "whole_nodes": {"nodes": 0, "gpus": 8}}])),
            ("queues[0].whole_nodes.gpus", json!([{"name": "a", "whole_nodes": {"nodes": 1, "gpus": 0}}])),
            (
                "queues[0].whole_nodes.gpu_model",
                json!([{"name": "a", "whole_nodes": {"nodes": 1, "gpus": 8, "gpu_model": " "}}]),
            ),
            (
                "queues[0].whole_nodes",
                json!([{"name": "a", "whole_nodes": {"nodes": 2, "gpus": 8}, "limit": {"gpus": 15}}]),
            ),
        ] {
            let errors = queues(json!({"queues": value.clone()})).unwrap_err();
            assert!(errors.iter().any(|e| e.field == field), "{field}: {value}: {errors:?}");
        }
    }
}
