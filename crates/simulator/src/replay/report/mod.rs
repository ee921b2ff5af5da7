//! Replays as one page that needs nothing else: a table, and plots drawn as SVG. It opens from a disk and prints.
mod page;
mod plot;
mod scale;

pub use plot::{Line, Plot};

use super::placement::Curves;
use super::queueing::{Point, Replayed};

const US_PER_DAY: f64 = 86_400_000_000.0;
const US_PER_MINUTE: f64 = 60_000_000.0;

/// A page: what was replayed, figures, plots.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    pub title: String,
    /// What was replayed on what, in a sentence.
    pub about: String,
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
    pub plots: Vec<Plot>,
}

impl Report {
    /// The whole page.
    pub fn html(&self) -> String {
        page::render(self)
    }
}

/// Queue length, use and waits of replays on so many GPUs, by policy.
pub fn queueing_plots(replays: &[(&str, &Replayed)], gpus: u64) -> Vec<Plot> {
    let line = |of: &dyn Fn(&Replayed) -> Vec<(f64, f64)>| {
        replays.iter().map(|(name, replayed)| Line { name: (*name).to_string(), points: of(replayed) }).collect()
    };
    let over_time = |value: &dyn Fn(&Point) -> f64| {
        line(&|replayed: &Replayed| {
            replayed.curve.points.iter().map(|point| (point.at_us as f64 / US_PER_DAY, value(point))).collect()
        })
    };
    let held = |point: &Point| point.gpus_held as f64 * 100.0 / gpus.max(1) as f64;
    vec![
        Plot::new("Jobs that wait", "days", "jobs").with(over_time(&|point| point.waiting as f64)).steps(),
        Plot::new("GPUs that are held", "days", "percent").with(over_time(&held)).steps(),
        Plot::new("Who waited at most so long", "minutes", "percent of jobs").with(line(&wait_cdf)).by_tens(),
    ]
}

/// From a tenth of a minute: what waited less is the first value.
fn wait_cdf(replayed: &Replayed) -> Vec<(f64, f64)> {
    let count = replayed.waits_us.len().max(1) as f64;
    let at = |(index, wait_us): (usize, &u64)| {
        ((*wait_us as f64 / US_PER_MINUTE).max(0.1), (index + 1) as f64 * 100.0 / count)
    };
    replayed.waits_us.iter().enumerate().map(at).collect()
}

/// What was placed and what is of no use, over the demand that arrived, by policy: means over the seeds.
pub fn placement_plots(runs: &[(&str, &[Curves])]) -> Vec<Plot> {
    let line = |of: fn(&Curves) -> &Vec<f64>| {
        runs.iter().map(|(name, curves)| Line { name: (*name).to_string(), points: mean(curves, of) }).collect()
    };
    vec![
        Plot::new("GPU allocated", "demand arrived, percent of all GPUs", "percent")
            .with(line(|curves| &curves.allocated_pct)),
        Plot::new("Of what is free, what the workload cannot use", "demand arrived, percent of all GPUs", "percent")
            .with(line(|curves| &curves.fragmented_pct)),
    ]
}

fn mean(curves: &[Curves], of: fn(&Curves) -> &Vec<f64>) -> Vec<(f64, f64)> {
    let longest = curves.iter().map(|one| of(one).len()).max().unwrap_or(0);
    let at = |percent: usize| {
        let values: Vec<f64> = curves.iter().filter_map(|one| of(one).get(percent).copied()).collect();
        (percent as f64, values.iter().sum::<f64>() / values.len().max(1) as f64)
    };
    (0..longest).map(at).filter(|(_, value)| value.is_finite()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::queueing::{Curve, Fate};
    use super::*;

    fn report() -> Report {
        let fate = |wait_s: u64| Fate {
            submit_us: 0,
            ended_us: 60_000_000 + wait_s * 1_000_000,
            waited_us: wait_s * 1_000_000,
            lost_gpu_us: 0,
            preemptions: 0,
        };
        let mut curve = Curve::default();
        [(0, 2, 0), (0, 1, 8), (86_400_000_000, 0, 4)]
            .iter()
            .for_each(|(at, wait, held)| curve.note(*at, *wait, *held));
        let replayed = Replayed::of(&[fate(0), fate(60), fate(6_000)], curve);
        Report {
            title: "a <trace>".to_string(),
            about: "by hand".to_string(),
            header: vec!["policy".to_string()],
            rows: vec![vec!["ours".to_string()]],
            plots: queueing_plots(&[("ours", &replayed)], 8),
        }
    }

    #[test]
    fn the_page_stands_alone_and_escapes_names() {
        let html = report().html();
        assert!(html.starts_with("<!doctype html>") && html.contains("a &lt;trace&gt;"), "{html}");
        assert_eq!(html.matches("<svg").count(), 3);
        for outside in ["<script", "http://", "https://", "@import", "url("] {
            assert!(!html.replace("http://www.w3.org/2000/svg", "").contains(outside), "{outside}");
        }
    }

    #[test]
    fn the_plots_say_what_happened() {
        let plots = report().plots;
        assert_eq!(plots[0].lines[0].points, [(0.0, 1.0), (1.0, 0.0)]);
        assert_eq!(plots[1].lines[0].points, [(0.0, 100.0), (1.0, 50.0)]);
        let cdf = &plots[2].lines[0].points;
        assert_eq!(cdf.iter().map(|(minutes, _)| *minutes).collect::<Vec<_>>(), [0.1, 1.0, 100.0]);
        assert_eq!(cdf[2].1, 100.0);
    }
}
