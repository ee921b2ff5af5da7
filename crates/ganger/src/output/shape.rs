//! `ganger cluster show`: leaves, pools and settings. What is not as it would be without a word has a mark.
use super::Look;
use super::table::{node_list, render};
use ganger_core::model::Policy;
use ganger_core::model::wire::cluster::ClusterFile;
use ganger_core::model::wire::pool::{LendFile, LendRules, PoolFile};
use std::collections::BTreeMap;

pub fn page(file: &ClusterFile, look: &Look) -> String {
    let pools = match file.pools.is_empty() {
        true => "no pools\n".to_string(),
        false => render(look, &["POOL", "NODES", "FOR OTHERS"], file.pools.iter().map(pool).collect()),
    };
    let settings = settings(&file.settings, look);
    format!("{}\n{pools}\n{settings}", leaves(file, look))
}

fn leaves(file: &ClusterFile, look: &Look) -> String {
    let spine = |leaf: &String| {
        let above = file.spines.iter().find(|(_, leaves)| leaves.contains(leaf));
        above.map_or("spine0", |(spine, _)| spine.as_str())
    };
    let row = |(leaf, nodes): (&String, &Vec<String>)| {
        let uplink = file.uplink.get(leaf).cloned().unwrap_or_else(|| "-".to_string());
        vec![format!("{}/{leaf}", spine(leaf)), node_list(nodes), uplink]
    };
    match file.leaves.is_empty() {
        true => "no nodes\n".to_string(),
        false => render(look, &["LEAF", "NODES", "UPLINK"], file.leaves.iter().map(row).collect()),
    }
}

fn pool(pool: &PoolFile) -> Vec<String> {
    let lent = match &pool.lend {
        None => "open to all".to_string(),
        Some(LendFile::Word(word)) if word == "never" => "kept, never lent".to_string(),
        Some(LendFile::Word(_)) => "kept, lent at any time".to_string(),
        Some(LendFile::Rules(rules)) => format!("kept, lent {}", rule_words(rules)),
    };
    vec![pool.name.clone(), node_list(&pool.nodes), lent]
}

fn rule_words(LendRules { windows, to, classes }: &LendRules) -> String {
    let when = if windows.is_empty() { "at any time".to_string() } else { windows.join(" and ") };
    let to = if to.is_empty() { String::new() } else { format!(" to {}", to.join(", ")) };
    let classes = if classes.is_empty() { String::new() } else { format!(", only {}", classes.join(", ")) };
    format!("{when}{to}{classes}")
}

fn settings(settings: &BTreeMap<String, String>, look: &Look) -> String {
    let usual: BTreeMap<&str, String> = Policy::default().settings().collect();
    let row = |(name, value): (&String, &String)| {
        let usual = usual.get(name.as_str()).filter(|usual| *usual != value);
        vec![name.clone(), value.clone(), usual.map_or(String::new(), |usual| format!("({usual} unless set)"))]
    };
    render(look, &["SETTING", "VALUE", ""], settings.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn shape_and_settings_on_one_page() {
        let file =
            "{leaves: {leaf1: [n0, n1, n2, n3], leaf2: [n4]}, spines: {s1: [leaf1]}, uplink: {leaf1: 3.2Tbps}, pools: [
            {name: open, nodes: [n0]}, {name: kept, nodes: [n1], lend: never}, {name: free, nodes: [], lend: always},
            {name: night, nodes: [n2], lend: {windows: ['20:00-08:00'], to: [lab], classes: [P2, P3]}}],
            settings: {lease: 90s, aging.step: 6h, consolidate: 'off'}}";
        let text = crate::files::Text { name: "cluster.yaml".into(), text: file.into() };
        insta::assert_snapshot!("cluster", page(&crate::files::yaml(&text).unwrap(), &samples::look()));
        assert!(page(&ClusterFile::default(), &samples::look()).starts_with("no nodes\n\nno pools\n"));
    }
}
