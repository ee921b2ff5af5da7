//! Lists as tables: no frames, so that they can be cut with `awk`; state words coloured on a terminal.
use super::Look;
use super::text::{count, state_colour};
use super::time::age;
use comfy_table::{Cell, ContentArrangement, Table, presets};
use ganger_core::model::amounts::{GpuMilli, HumanBandwidth, HumanBytes, Limit, Resources};
use ganger_core::model::wire::api::{EventView, JobView, NodeView, QueueView, TokenView};

/// Rows below a header. Cells in the column named by `state_column` are coloured as states.
pub fn render(look: &Look, header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().map(Cell::new));
    if look.colour {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    for row in rows {
        table.add_row(row.iter().zip(header).map(|(text, name)| cell(text, name)));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt().lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn cell(text: &str, column: &str) -> Cell {
    match state_colour(text).filter(|_| column == "STATE" || column == "HEALTH") {
        Some(colour) => Cell::new(text).fg(colour),
        None => Cell::new(text),
    }
}

pub fn jobs(jobs: &[JobView], look: &Look) -> String {
    let header = ["ID", "NAME", "USER", "QUEUE", "PRI", "STATE", "FOR", "GPUS", "WORKERS", "NODES", "WHY"];
    let row = |job: &JobView| {
        vec![
            job.number(),
            job.name.clone(),
            job.user.clone(),
            job.queue.clone(),
            job.priority.to_string(),
            job.state.to_string(),
            age(&job.state_since, look.now_ms),
            GpuMilli(job.gpu_milli).to_string(),
            job.workers.to_string(),
            node_list(&job.nodes),
            job_note(job, look.width / 2),
        ]
    };
    render(look, &header, jobs.iter().map(row).collect())
}

fn job_note(job: &JobView, width: usize) -> String {
    let note = match (job.reason, &job.note) {
        (Some(reason), Some(note)) => format!("{reason}: {note}"),
        (Some(reason), None) => reason.to_string(),
        (None, Some(note)) => note.clone(),
        (None, None) => String::new(),
    };
    shorten(&note, width)
}

fn shorten(text: &str, width: usize) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.chars().count() <= width {
        return text;
    }
    text.chars().take(width.saturating_sub(1)).collect::<String>() + "…"
}

/// `n0,n1` or, if they are many, `n0,n1,… (16)`.
pub fn node_list(nodes: &[String]) -> String {
    match nodes {
        [] => "-".to_string(),
        [first, second, .., _] if nodes.len() > 3 => format!("{first},{second},… ({})", nodes.len()),
        _ => nodes.join(","),
    }
}

/// A cordon or drain is a person's doing; the cause is that of the health. A node in order tells what is planned for it.
fn node_note(node: &NodeView, look: &Look) -> String {
    let of_health = [node.health.to_string().as_str(), "cooling down"].contains(&node.state.as_str());
    match node.maintenance.first() {
        Some(next) => match &next.until {
            Some(until) => format!("maintenance {} to {until}", next.from),
            None => format!("maintenance from {}", next.from),
        },
        None if node.state == "ready" || !of_health => String::new(),
        None => shorten(&node.health_cause, look.width / 2),
    }
}

pub fn nodes(nodes: &[NodeView], look: &Look) -> String {
    let header =
        ["NODE", "STATE", "FOR", "PROFILE", "LEAF", "POOL", "GPUS", "CPUS", "MEMORY", "JOBS", "HEARD", "CAUSE"];
    let row = |node: &NodeView| {
        vec![
            node.name.clone(),
            node.state.clone(),
            age(&node.health_since, look.now_ms),
            node.profile.clone(),
            format!("{}/{}", node.spine, node.leaf),
            node.pool.clone().unwrap_or_else(|| "-".to_string()),
            format!("{} {}/{}", node.devices, GpuMilli(node.used.all_gpus_milli()), node.capacity.gpus)
                .trim_start()
                .to_string(),
            format!("{}/{}", node.used.cpus, node.capacity.cpus),
            format!("{}/{}", HumanBytes(node.used.memory_bytes), HumanBytes(node.capacity.memory_bytes)),
            if node.jobs.is_empty() { "-".to_string() } else { ids(&node.jobs) },
            age(&node.last_heard, look.now_ms),
            node_note(node, look),
        ]
    };
    render(look, &header, nodes.iter().map(row).collect())
}

fn ids(ids: &[u64]) -> String {
    ids.iter().map(u64::to_string).collect::<Vec<_>>().join(",")
}

pub fn queues(queues: &[QueueView], look: &Look) -> String {
    let header = ["QUEUE", "WEIGHT", "GPUS", "SHARE", "GUARANTEE", "LIMIT", "GPU-HOURS", "RUNNING", "PENDING"];
    let row = |queue: &QueueView| {
        vec![
            queue.name.clone(),
            queue.weight.to_string(),
            GpuMilli(queue.used.all_gpus_milli()).to_string(),
            share(queue),
            guarantee(queue),
            limit(&queue.limit),
            budget(queue),
            queue.running_jobs.to_string(),
            queue.pending_jobs.to_string(),
        ]
    };
    render(look, &header, queues.iter().map(row).collect())
}

/// `gpus:16,nodes:2x8 H100 (1 in use, 1 open)`
fn guarantee(queue: &QueueView) -> String {
    let Some(whole) = &queue.whole_nodes else { return limit(&queue.guarantee) };
    let model = whole.gpu_model.as_ref().map_or(String::new(), |model| format!(" {model}"));
    let lack = match whole.coverable < whole.nodes {
        true => format!(", at most {} now", whole.coverable),
        false => String::new(),
    };
    let (taken, open) = (whole.taken, whole.open);
    let nodes = format!("nodes:{}x{}{model} ({taken} in use, {open} open{lack})", whole.nodes, whole.gpus);
    match queue.guarantee == Limit::default() {
        true => nodes,
        false => format!("{},{nodes}", limit(&queue.guarantee)),
    }
}

/// `12.5% cpus`
fn share(queue: &QueueView) -> String {
    let tenths = queue.share_millionths / 1_000;
    match &queue.dominant {
        Some(of) => {
            format!("{}.{}% {}", tenths / 10, tenths % 10, of.trim_end_matches("_bytes").trim_end_matches("_bps"))
        }
        None => "-".to_string(),
    }
}

/// `412.5 of 1000 a month`
fn budget(queue: &QueueView) -> String {
    let hours = |gpu_ms: u64| match gpu_ms / 360_000 {
        tenths if tenths % 10 == 0 => (tenths / 10).to_string(),
        tenths => format!("{}.{}", tenths / 10, tenths % 10),
    };
    queue.budget.as_ref().map_or("-".to_string(), |budget| {
        format!("{} of {} a {}", hours(budget.spent_gpu_ms), hours(budget.gpu_ms), budget.per)
    })
}

fn limit(limit: &Limit) -> String {
    let parts = [
        limit.gpus.map(|n| format!("gpus:{n}")),
        limit.cpus.map(|n| format!("cpus:{n}")),
        limit.memory_bytes.map(|n| format!("memory:{}", HumanBytes(n))),
        limit.vram_bytes.map(|n| format!("vram:{}", HumanBytes(n))),
        limit.pcie_bandwidth_bps.map(|n| format!("pcie:{}", HumanBandwidth(n))),
        limit.network_bandwidth_bps.map(|n| format!("network:{}", HumanBandwidth(n))),
    ];
    let said: Vec<String> = parts.into_iter().flatten().collect();
    if said.is_empty() { "-".to_string() } else { said.join(",") }
}

/// `8 GPUs, 96 CPUs, 1TiB`.
pub fn resources(amount: &Resources) -> String {
    let mut said = vec![GpuMilli(amount.all_gpus_milli()).words(), count(amount.cpus, "CPU")];
    if amount.memory_bytes > 0 {
        said.push(HumanBytes(amount.memory_bytes).to_string());
    }
    said.join(", ")
}

pub fn events(events: &[EventView], look: &Look) -> String {
    events.iter().map(|event| event_line(event, look)).collect()
}

/// One line, the same for lists and for `-f`: columns of fixed width, so that a stream stays straight.
pub fn event_line(event: &EventView, look: &Look) -> String {
    let job = event.job.map(|job| format!("job {job}")).unwrap_or_default();
    let node = event.node.clone().unwrap_or_default();
    let at =
        super::text::paint(event.at.get(..19).unwrap_or(&event.at), Some(comfy_table::Color::DarkGrey), look.colour);
    let line = format!("{:>5}  {at}  {:<12} {job:<8} {node:<10} {}", event.number, event.kind, event.text);
    format!("{}\n", line.trim_end())
}

pub fn tokens(tokens: &[TokenView], look: &Look) -> String {
    let role = |token: &TokenView| format!("{:?}", token.role).to_lowercase();
    let row = |token: &TokenView| {
        vec![token.name.clone(), role(token), token.user.clone(), age(&token.created_at, look.now_ms)]
    };
    render(look, &["TOKEN", "ROLE", "USER", "AGE"], tokens.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    #[test]
    fn jobs_nodes_queues_and_events() {
        let look = samples::look();
        insta::assert_snapshot!("jobs", jobs(&samples::jobs(), &look));
        insta::assert_snapshot!("arrays", jobs(&samples::arrays(), &look));
        insta::assert_snapshot!("nodes", nodes(&samples::nodes(), &look));
        insta::assert_snapshot!("queues", queues(&samples::queues(), &look));
        insta::assert_snapshot!("events", events(&samples::events(), &look));
    }

    #[test]
    fn states_are_coloured_on_a_terminal_only() {
        let plain = jobs(&samples::jobs(), &samples::look());
        assert!(!plain.contains('\x1b'));
        let coloured = jobs(&samples::jobs(), &Look { colour: true, ..samples::look() });
        assert!(coloured.contains('\x1b') && coloured.contains("running"));
    }

    #[test]
    fn long_lists_of_nodes_are_cut() {
        let names: Vec<String> = (0..5).map(|i| format!("n{i}")).collect();
        assert_eq!(node_list(&names), "n0,n1,… (5)");
        assert_eq!(node_list(&names[..3]), "n0,n1,n2");
        assert_eq!(node_list(&[]), "-");
    }
}
