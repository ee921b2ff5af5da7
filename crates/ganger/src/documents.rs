//! The pages and examples that users copy from: each block of a job, queues or cluster file in them is accepted, and the
//! reference names every key and setting that there is.
use crate::files::{self, Text};
use ganger_core::model::policy::Policy;
use ganger_core::model::wire::cluster::{ClusterFile, QueuesFile};
use ganger_core::model::wire::job::JobFile;
use serde::de::DeserializeOwned;
use std::path::Path;

const CLUSTER: &str = include_str!("../../../docs/reference/cluster.md");
const JOB: &str = include_str!("../../../docs/reference/job.md");
const CHECKPOINTS: &str = include_str!("../../../docs/guides/checkpoints.md");

/// The blocks fenced with this word.
fn blocks(page: &str, word: &str) -> Vec<String> {
    let open = format!("```{word}\n");
    page.split(&open).skip(1).filter_map(|rest| Some(rest.split_once("\n```")?.0.to_string())).collect()
}

fn read<T: DeserializeOwned>(text: &str) -> T {
    files::yaml(&Text { name: "page".into(), text: text.into() }).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn accepted(text: &str) {
    let mut job: JobFile = read(text);
    // As the command line does with relative paths.
    for path in [job.workdir.as_mut(), job.checkpoint.as_mut().and_then(|c| c.dir.as_mut())].into_iter().flatten() {
        *path = files::absolute(path, None, Path::new("/home/ada")).display().to_string();
    }
    job.into_spec(&|_| None).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
}

#[test]
fn job_files_in_pages_and_examples_are_accepted() {
    for (name, page) in [("job.md", JOB), ("checkpoints.md", CHECKPOINTS)] {
        let found = blocks(page, "job");
        assert!(!found.is_empty(), "{name} has lost its example");
        found.iter().for_each(|block| accepted(block));
    }
    accepted(include_str!("../../../examples/train.yaml"));
    accepted(include_str!("../../../examples/jax-dp/job.yaml"));
    let example = include_str!("../../../examples/plain-python/train.yaml");
    accepted(example);
    let own = example.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    assert_eq!(blocks(CHECKPOINTS, "job")[0], own, "the guide shows another job than the one that its test runs");
}

#[test]
fn queues_and_cluster_files_in_the_reference_are_accepted() {
    let (queues, clusters) = (blocks(CLUSTER, "queues"), blocks(CLUSTER, "cluster"));
    assert!(!queues.is_empty() && clusters.len() > 1, "the reference has lost its examples");
    queues.iter().for_each(|block| drop(read::<QueuesFile>(block).into_specs().unwrap()));
    clusters.iter().for_each(|block| drop(read::<ClusterFile>(block).into_plan().unwrap()));
}

#[test]
fn the_references_name_every_key_and_setting() {
    let unknown = |error: String| error.rsplit_once("expected one of ").map(|(_, keys)| keys.to_string()).unwrap();
    let refusal = |error: serde_json::Error| unknown(error.to_string());
    let wrong = r#"{"frobnicate": 1}"#;
    let cluster = refusal(serde_json::from_str::<ClusterFile>(wrong).unwrap_err());
    let queues = refusal(serde_json::from_str::<QueuesFile>(r#"{"queues": [{"frobnicate": 1}]}"#).unwrap_err());
    let job = refusal(serde_json::from_str::<JobFile>(wrong).unwrap_err());
    for (page, keys) in [(CLUSTER, cluster), (CLUSTER, queues), (JOB, job)] {
        for key in keys.split('`').skip(1).step_by(2) {
            let named = page.contains(&format!("`{key}`")) || page.contains(&format!("`{key}."));
            assert!(named, "the reference does not name `{key}`");
        }
    }
    let error = Policy::default().set("frobnicate", "1").unwrap_err().to_string();
    let (_, settings) = error.rsplit_once("known settings: ").unwrap();
    settings.split(", ").for_each(|name| assert!(CLUSTER.contains(&format!("`{name}`")), "{name}"));
}
