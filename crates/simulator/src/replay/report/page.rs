//! The page around the plots.
use super::Report;
use std::fmt::Write;

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:15px/1.5 system-ui,sans-serif;max-width:900px;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.5rem;margin:0}h2{font-size:1.05rem;margin:2rem 0 .3rem}\
p{margin:.3rem 0 1rem;opacity:.8}\
.wide{overflow-x:auto}\
table{border-collapse:collapse;font-variant-numeric:tabular-nums;width:100%}\
th,td{padding:.3rem .7rem;text-align:right;border-bottom:1px solid #8884;white-space:nowrap}\
th:first-child,td:first-child{text-align:left}th{font-weight:600}\
svg{width:100%;height:auto;display:block}\
svg text{font:12px system-ui,sans-serif;fill:currentColor}\
svg .axis{opacity:.8}\
svg .grid{stroke:currentColor;stroke-opacity:.13}\
svg .line{fill:none;stroke-width:1.6;stroke-linejoin:round}";

pub fn render(report: &Report) -> String {
    let mut html = String::new();
    let (title, about) = (escape(&report.title), escape(&report.about));
    let _ = write!(
        html,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\
         <title>{title}</title><style>{STYLE}</style></head>\n<body><h1>{title}</h1><p>{about}</p>\n"
    );
    html += &table(&report.header, &report.rows);
    for plot in &report.plots {
        let _ = write!(html, "<h2>{}</h2>\n{}", escape(&plot.title), plot.svg());
    }
    html + "</body></html>\n"
}

fn table(header: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String], tag: &str| {
        let cells: String = cells.iter().map(|cell| format!("<{tag}>{}</{tag}>", escape(cell))).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let body: String = rows.iter().map(|row| line(row, "td")).collect();
    format!("<div class=\"wide\"><table><thead>{}</thead><tbody>{body}</tbody></table></div>\n", line(header, "th"))
}

pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
