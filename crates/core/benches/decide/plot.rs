//! How cost and memory grow with the cluster, drawn: one picture of two panels, both axes logarithmic.
use std::fmt::Write as _;

/// Figures of one row over the sizes of the cluster.
pub struct Line {
    pub name: &'static str,
    /// Nodes, and the figure.
    pub points: Vec<(u32, f64)>,
    /// What the figure must not exceed at 4,000 nodes.
    pub bar: Option<f64>,
}

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 300.0;
const MARGIN: f64 = 56.0;
const NODES: (f64, f64) = (800.0, 12_500.0);
const COLOURS: [&str; 4] = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd"];

/// The whole file.
pub fn svg(times_ms: &[Line], memory_mib: &[Line]) -> String {
    let (width, height) = (2.0 * (WIDTH + 2.0 * MARGIN), HEIGHT + 2.0 * MARGIN + 20.0 * times_ms.len() as f64);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    text += &panel(0.0, "one decision, p99 in ms of CPU", (1.0, 1_000.0), times_ms);
    text += &panel(WIDTH + 2.0 * MARGIN, "the cluster in memory, MiB", (1.0, 100.0), memory_mib);
    text + "</svg>\n"
}

fn panel(left: f64, title: &str, range: (f64, f64), lines: &[Line]) -> String {
    let x = |nodes: f64| left + MARGIN + WIDTH * (nodes / NODES.0).ln() / (NODES.1 / NODES.0).ln();
    let y = |value: f64| MARGIN + HEIGHT * (1.0 - (value.max(range.0) / range.0).ln() / (range.1 / range.0).ln());
    let (bottom, right) = (MARGIN + HEIGHT, left + MARGIN + WIDTH);
    let mut text =
        format!("<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{title}</text>\n", left + MARGIN, MARGIN - 14.0);
    let mut tick = range.0;
    while tick <= range.1 * 1.01 {
        let _ = writeln!(
            text,
            "<path d=\"M{} {:.1}H{right}\" stroke=\"#ddd\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{tick}</text>",
            left + MARGIN,
            y(tick),
            left + MARGIN - 6.0,
            y(tick) + 4.0
        );
        tick *= 10.0;
    }
    for nodes in [1_000.0, 4_000.0, 10_000.0] {
        let at = x(nodes);
        let _ = writeln!(
            text,
            "<path d=\"M{at:.1} {MARGIN}V{bottom}\" stroke=\"#ddd\"/>\
             <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{nodes} nodes</text>",
            bottom + 18.0
        );
    }
    for (index, line) in lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let points: Vec<String> =
            line.points.iter().map(|(nodes, value)| format!("{:.1},{:.1}", x(f64::from(*nodes)), y(*value))).collect();
        let legend = bottom + 40.0 + 20.0 * index as f64;
        let _ = writeln!(
            text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <path d=\"M{} {}h24\" stroke=\"{colour}\" stroke-width=\"2\"/><text x=\"{}\" y=\"{}\">{}</text>",
            points.join(" "),
            left + MARGIN,
            legend - 4.0,
            left + MARGIN + 32.0,
            legend,
            line.name
        );
        for point in &points {
            let (px, py) = point.split_once(',').unwrap_or_default();
            let _ = writeln!(text, "<circle cx=\"{px}\" cy=\"{py}\" r=\"3\" fill=\"{colour}\"/>");
        }
        if let Some(bar) = line.bar {
            let (at, high) = (x(4_000.0), y(bar));
            let _ = writeln!(
                text,
                "<path d=\"M{:.1} {high:.1}h24\" stroke=\"{colour}\" stroke-width=\"3\" stroke-dasharray=\"4 2\"/>",
                at - 12.0
            );
        }
    }
    text
}
