//! One plot as SVG: a grid with round numbers, lines in colours that the colour-blind can tell apart, a legend.
use super::page::escape;
use super::scale::Scale;
use std::fmt::Write;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 72.0;
const RIGHT: f64 = 150.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 46.0;
const COLOURS: [&str; 9] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#555555", "#8c564b", "#9467bd"];
/// More points than this are not to be seen on the width of a plot.
const POINTS_MAX: usize = 800;

/// Points from left to right.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Plot {
    pub title: String,
    x: String,
    y: String,
    pub lines: Vec<Line>,
    steps: bool,
    by_tens: bool,
}

impl Plot {
    /// Named axes and no line yet.
    pub fn new(title: &str, x: &str, y: &str) -> Plot {
        let (title, x, y) = (title.to_string(), x.to_string(), y.to_string());
        Plot { title, x, y, lines: Vec::new(), steps: false, by_tens: false }
    }

    pub fn with(self, lines: Vec<Line>) -> Plot {
        Plot { lines, ..self }
    }

    /// A value holds until the next point.
    pub fn steps(self) -> Plot {
        Plot { steps: true, ..self }
    }

    /// Each step to the right is ten times as much.
    pub fn by_tens(self) -> Plot {
        Plot { by_tens: true, ..self }
    }

    pub fn svg(&self) -> String {
        let values = |pick: fn(&(f64, f64)) -> f64| self.lines.iter().flat_map(|line| line.points.iter()).map(pick);
        let x = Scale::over(values(|point| point.0), self.by_tens);
        let y = Scale::over(values(|point| point.1), false);
        let mut svg = String::new();
        let title = escape(&self.title);
        let _ = write!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{title}\">"
        );
        self.grid(&mut svg, x, y);
        for (index, line) in self.lines.iter().enumerate() {
            self.line(&mut svg, index, line, x, y);
        }
        svg + "</svg>\n"
    }

    fn grid(&self, svg: &mut String, x: Scale, y: Scale) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for (value, words) in y.ticks() {
            let at = down(y, value);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{right}\" y2=\"{at:.1}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{words}</text>",
                LEFT - 8.0,
                at + 4.0
            );
        }
        for (value, words) in x.ticks() {
            let at = across(x, value);
            let _ = write!(
                svg,
                "<line class=\"grid\" x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{bottom}\"/>\
                 <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{words}</text>",
                bottom + 18.0
            );
        }
        let (middle, centre) = (LEFT + (right - LEFT) / 2.0, TOP + (bottom - TOP) / 2.0);
        let _ = write!(
            svg,
            "<text class=\"axis\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text class=\"axis\" transform=\"translate(16 {centre:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            HEIGHT - 8.0,
            escape(&self.x),
            escape(&self.y)
        );
    }

    fn line(&self, svg: &mut String, index: usize, line: &Line, x: Scale, y: Scale) {
        let colour = COLOURS[index % COLOURS.len()];
        let dash = if index >= COLOURS.len() { " stroke-dasharray=\"5 3\"" } else { "" };
        let mut path = String::new();
        for (place, (at, value)) in thinned(&line.points).into_iter().enumerate() {
            let (px, py) = (across(x, at), down(y, value));
            let _ = match (place, self.steps) {
                (0, _) => write!(path, "M{px:.1} {py:.1}"),
                (_, true) => write!(path, "H{px:.1}V{py:.1}"),
                (_, false) => write!(path, "L{px:.1} {py:.1}"),
            };
        }
        let (legend_x, legend_y) = (WIDTH - RIGHT + 12.0, TOP + 10.0 + 18.0 * index as f64);
        let _ = write!(
            svg,
            "<path class=\"line\" d=\"{path}\" stroke=\"{colour}\"{dash}/>\
             <path class=\"line\" d=\"M{legend_x:.1} {legend_y:.1}h18\" stroke=\"{colour}\"{dash}/>\
             <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            legend_x + 24.0,
            legend_y + 4.0,
            escape(&line.name)
        );
    }
}

fn across(scale: Scale, value: f64) -> f64 {
    LEFT + scale.part(value) * (WIDTH - RIGHT - LEFT)
}

fn down(scale: Scale, value: f64) -> f64 {
    HEIGHT - BOTTOM - scale.part(value) * (HEIGHT - BOTTOM - TOP)
}

/// Of each stretch of many points the lowest and the highest in their order: no peak is lost.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    if points.len() <= POINTS_MAX {
        return points.to_vec();
    }
    let each = points.len().div_ceil(POINTS_MAX / 2);
    let mut kept: Vec<(f64, f64)> = points.chunks(each).flat_map(low_and_high).collect();
    kept.extend(points.last());
    kept
}

fn low_and_high(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let by_value = |a: &usize, b: &usize| points[*a].1.total_cmp(&points[*b].1);
    let low = (0..points.len()).min_by(by_value);
    let high = (0..points.len()).max_by(by_value);
    let mut both: Vec<usize> = low.into_iter().chain(high).collect();
    both.sort_unstable();
    both.dedup();
    both.into_iter().map(|index| points[index]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_points_are_thinned_and_no_peak_is_lost() {
        let mut points: Vec<(f64, f64)> = (0..100_000).map(|at| (f64::from(at), 1.0)).collect();
        points[77_777].1 = 50.0;
        let kept = thinned(&points);
        assert!(kept.len() <= POINTS_MAX + 1 && kept.contains(&(77_777.0, 50.0)), "{}", kept.len());
        assert_eq!(kept.last(), points.last());
        assert!(kept.is_sorted_by_key(|point| point.0));
    }

    #[test]
    fn lines_are_inside_the_axes_and_named() {
        let lines = vec![Line { name: "a & b".to_string(), points: vec![(0.0, 0.0), (10.0, 100.0)] }];
        let svg = Plot::new("t", "x", "y").with(lines).svg();
        assert!(svg.contains("d=\"M72.0 274.0L710.0 14.0\"") && svg.contains("a &amp; b"), "{svg}");
    }

    #[test]
    fn a_plot_of_nothing_is_still_a_plot() {
        let svg =
            Plot::new("t", "x", "y").with(vec![Line { name: "none".to_string(), points: vec![] }]).by_tens().svg();
        assert!(svg.contains("none") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
