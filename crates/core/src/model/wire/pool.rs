//! Pools in the cluster file: named nodes, and how they are lent if they are kept for their own jobs.
use super::cluster::NAME_FIX;
use super::job::{Findings, is_label, is_queue_path, one_or_more};
use crate::model::cluster::NodePlacement;
use crate::model::job::Priority;
use crate::model::pool::{LendTime, Lending};
use crate::model::time::Time;
use crate::model::window::Window;
use serde::de::{MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PoolFile {
    pub name: String,
    pub nodes: Vec<String>,
    /// Keeps the pool for jobs that name it, and says how it is lent. Without it the pool is open to all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lend: Option<LendFile>,
}

/// `never`, `always`, or the rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(untagged)]
pub enum LendFile {
    Word(String),
    Rules(LendRules),
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LendRules {
    /// Weekly windows, such as `20:00-08:00` or `Mon-Fri 20:00-08:00 Europe/Berlin`; none: at any time.
    #[serde(default, deserialize_with = "one_or_more", skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<String>,
    /// Only to jobs of these queues and of those below them; none: to all.
    #[serde(default, deserialize_with = "one_or_more", skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// Only to jobs of these classes, `P0` to `P3`; none: to all.
    #[serde(default, deserialize_with = "one_or_more", skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<String>,
}

/// By hand, because what is derived for two forms says of a wrong key only that neither fits.
impl<'de> Deserialize<'de> for LendFile {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<LendFile, D::Error> {
        struct Forms;
        impl<'de> Visitor<'de> for Forms {
            type Value = LendFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("never, always, or a mapping with windows, to and classes")
            }

            fn visit_str<E>(self, text: &str) -> Result<LendFile, E> {
                Ok(LendFile::Word(text.to_string()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<LendFile, A::Error> {
                LendRules::deserialize(MapAccessDeserializer::new(map)).map(LendFile::Rules)
            }
        }
        from.deserialize_any(Forms)
    }
}

impl PoolFile {
    /// Refuses what is wrong with the pool at `index` of the file, beside those before it.
    pub(super) fn check(&self, found: &mut Findings, index: usize, earlier: &[PoolFile], placed: &Placed) {
        let at = |field: &str| format!("pools[{index}].{field}");
        if !is_label(&self.name) {
            found.add(at("name"), format!("{:?} is not a name", self.name), NAME_FIX);
        }
        if earlier.iter().any(|pool| pool.name == self.name) {
            found.add(at("name"), format!("{:?} is named twice", self.name), "join the two");
        }
        for node in &self.nodes {
            if !is_label(node) {
                found.add(at("nodes"), format!("{node:?} is not a node's name"), NAME_FIX);
            }
            if let Some(other) = placed.get(node).and_then(|place| place.pool.as_ref()) {
                let problem = format!("node {node:?} is already in pool {other:?}");
                found.add(at("nodes"), problem, "a node is in one pool: remove one");
            }
        }
    }

    /// How it is lent, if it is kept.
    pub(super) fn lending(&self, found: &mut Findings, index: usize) -> Option<Lending> {
        let field = format!("pools[{index}].lend");
        let rules = match self.lend.as_ref()? {
            LendFile::Word(word) => {
                let when = word_time(word).unwrap_or_else(|| {
                    found.add(
                        field,
                        format!("{word:?} is unknown"),
                        "write never, always, or {windows: [20:00-08:00]}",
                    );
                    LendTime::Never
                });
                return Some(lending(when));
            }
            LendFile::Rules(rules) => rules,
        };
        let windows = windows(found, &field, &rules.windows);
        let when = if windows.is_empty() { LendTime::Always } else { LendTime::in_windows(windows) };
        for (index, path) in rules.to.iter().enumerate().filter(|(_, path)| !is_queue_path(path)) {
            found.add(
                format!("{field}.to[{index}]"),
                format!("{path:?} is not a queue's path"),
                "write it like research/nlp",
            );
        }
        let classes = rules.classes.iter().enumerate().filter_map(|(index, text)| {
            let class = |text: &str| Priority::ALL.into_iter().find(|class| class.to_string() == text);
            found.word(&format!("{field}.classes[{index}]"), Some(text), class, "P0, P1, P2, P3")
        });
        let classes = classes.collect();
        Some(Lending { to: rules.to.clone(), classes, ..lending(when) })
    }
}

/// What is said of nodes, by name.
type Placed = BTreeMap<String, NodePlacement>;

fn lending(when: LendTime) -> Lending {
    Lending { when, to: Vec::new(), classes: Vec::new(), since: Time(0) }
}

fn word_time(word: &str) -> Option<LendTime> {
    match word {
        "never" => Some(LendTime::Never),
        "always" => Some(LendTime::Always),
        _ => None,
    }
}

fn windows(found: &mut Findings, field: &str, texts: &[String]) -> Vec<Window> {
    let mut windows = Vec::new();
    for (index, text) in texts.iter().enumerate() {
        match Window::parse(text) {
            Ok(window) => windows.push(window),
            Err(why) => {
                found.add(format!("{field}.windows[{index}]"), why, "write it like Mon-Fri 20:00-08:00 Europe/Berlin");
            }
        }
    }
    windows
}

#[cfg(test)]
mod tests {
    use super::super::cluster::ClusterFile;
    use super::*;
    use serde_json::{Value, json};

    fn pools(lend: Value) -> Result<BTreeMap<String, Option<Lending>>, String> {
        let file =
            json!({"pools": [{"name": "open", "nodes": ["n1"]}, {"name": "inference", "nodes": ["n0"], "lend": lend}]});
        let file = serde_json::from_value::<ClusterFile>(file).map_err(|error| error.to_string())?;
        let plan = file.into_plan().map_err(|errors| errors[0].field.clone())?;
        Ok(plan.pools)
    }

    #[test]
    fn a_pool_says_how_it_is_lent_or_is_open() {
        let all = pools(json!({"windows": ["20:00-08:00"], "to": ["research"], "classes": ["P2", "P3"]})).unwrap();
        let lending = all["inference"].clone().unwrap();
        assert_eq!(lending.when, LendTime::in_windows(vec![Window::parse("20:00-08:00").unwrap()]));
        assert_eq!((lending.to, lending.classes), (vec!["research".to_string()], vec![Priority::P2, Priority::P3]));
        assert_eq!(all["open"], None);
        assert_eq!(pools(json!("never")).unwrap()["inference"].clone().unwrap().when, LendTime::Never);
        assert_eq!(pools(json!("always")).unwrap()["inference"].clone().unwrap().when, LendTime::Always);
        assert_eq!(pools(json!({})).unwrap()["inference"].clone().unwrap().when, LendTime::Always);
        assert_eq!(pools(Value::Null).unwrap()["inference"], None);
    }

    #[test]
    fn each_fault_of_lending_is_refused_by_field() {
        for (field, lend) in [
            ("pools[1].lend", json!("sometimes")),
            ("pools[1].lend.windows[1]", json!({"windows": ["20:00-08:00", "8pm-8am"]})),
            ("pools[1].lend.to[0]", json!({"to": ["a//b"]})),
            ("pools[1].lend.classes[0]", json!({"classes": ["P4"]})),
        ] {
            assert_eq!(pools(lend.clone()).unwrap_err(), field, "{lend}");
        }
        let unknown = pools(json!({"window": ["20:00-08:00"]})).unwrap_err();
        assert!(unknown.contains("unknown field `window`"), "{unknown}");
        assert!(pools(json!(["20:00-08:00"])).unwrap_err().contains("never, always, or a mapping"));
    }
}
