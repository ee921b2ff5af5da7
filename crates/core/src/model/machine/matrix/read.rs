//! Rows, legend and consistency: from the lines of the text to a whole [`Matrix`].

use super::header::{self, Header};
use super::scan::{begins_with_link, strip_escapes, take_link, take_word};
use super::{Affinity, Link, Matrix, MatrixError, affinity, peers};

/// A row as read, with its line (from 1) for messages.
struct Row {
    line: usize,
    links: Vec<Link>,
    affinity: Affinity,
}

pub(super) fn read(text: &str) -> Result<Matrix, MatrixError> {
    let lines: Vec<String> = text.lines().map(strip_escapes).collect();
    let header = header::find(&lines)?;
    let mut rows: Vec<Option<Row>> = (0..header.devices()).map(|_| None).collect();
    let end = read_rows(&header, &lines, &mut rows)?;
    check(&header, &rows)?;
    let after = &lines[end..];
    Ok(Matrix {
        gpus: header.gpus,
        has_numa: header.numa,
        nics: header.nics.iter().map(|label| name_of(label, after)).collect(),
        affinity: rows[..header.gpus].iter().flatten().map(|row| row.affinity.clone()).collect(),
        rows: rows.into_iter().map(|row| row.map(|row| row.links)).collect(),
        peers: peers::read(header.gpus, after),
    })
}

/// Fills `rows` and returns the index of the first line behind the matrix.
fn read_rows(header: &Header, lines: &[String], rows: &mut [Option<Row>]) -> Result<usize, MatrixError> {
    for (at, line) in lines.iter().enumerate().skip(header.first_row) {
        let (label, rest) = take_word(line);
        let Some(device) = header.device(label) else { return Ok(at) };
        // Another header: a second matrix follows without a blank line.
        if header.device(take_word(rest).0).is_some() && !begins_with_link(rest.trim_start()) {
            return Ok(at);
        }
        if rows[device].is_some() {
            return Err(MatrixError::DuplicateRow { line: at + 1, row: label.into() });
        }
        rows[device] = Some(read_row(header, at + 1, label, rest, device < header.gpus)?);
    }
    Ok(lines.len())
}

fn read_row(header: &Header, line: usize, label: &str, rest: &str, is_gpu: bool) -> Result<Row, MatrixError> {
    let expected = header.devices();
    let mut links = Vec::with_capacity(expected);
    let mut rest = rest;
    while links.len() < expected {
        let cell = rest.trim_start();
        let Some((link, after)) = take_link(cell) else { return Err(no_link(header, line, label, links.len(), cell)) };
        links.push(link);
        rest = after;
    }
    if begins_with_link(rest.trim_start()) {
        return Err(MatrixError::LinkCount { line, row: label.into(), found: expected + 1, expected });
    }
    let affinity = if is_gpu { affinity::read(header, line, label, rest)? } else { Affinity::default() };
    Ok(Row { line, links, affinity })
}

fn no_link(header: &Header, line: usize, label: &str, found: usize, cell: &str) -> MatrixError {
    let text = take_word(cell).0;
    let row = label.to_owned();
    if text.is_empty() || text.starts_with(|c: char| c.is_ascii_digit()) {
        return MatrixError::LinkCount { line, row, found, expected: header.devices() };
    }
    MatrixError::BadLink { line, row, column: header.label(found), text: text.into() }
}

fn check(header: &Header, rows: &[Option<Row>]) -> Result<(), MatrixError> {
    if let Some(missing) = rows[..header.gpus].iter().position(Option::is_none) {
        return Err(MatrixError::MissingRow { row: header.label(missing) });
    }
    for (at, row) in rows.iter().enumerate() {
        let Some(row) = row else { continue };
        check_diagonal(header, at, row)?;
        check_nvlinks(header, at, row)?;
        for (column, back) in rows.iter().enumerate().take(at) {
            let Some(back) = back else { continue };
            if row.links[column] != back.links[at] {
                return Err(asymmetric(header, (at, row), (column, back)));
            }
        }
    }
    Ok(())
}

fn check_diagonal(header: &Header, at: usize, row: &Row) -> Result<(), MatrixError> {
    match row.links.iter().enumerate().find(|&(column, link)| (*link == Link::Own) != (column == at)) {
        None => Ok(()),
        Some((column, found)) => Err(MatrixError::Diagonal {
            line: row.line,
            row: header.label(at),
            column: header.label(column),
            found: found.to_string(),
        }),
    }
}

fn check_nvlinks(header: &Header, at: usize, row: &Row) -> Result<(), MatrixError> {
    let slipped = |(column, link): &(usize, &Link)| {
        matches!(link, Link::NvLink(_)) && (at >= header.gpus || *column >= header.gpus)
    };
    match row.links.iter().enumerate().find(slipped) {
        None => Ok(()),
        Some((column, link)) => Err(MatrixError::NvLinkToNic {
            line: row.line,
            row: header.label(at),
            column: header.label(column),
            link: link.to_string(),
        }),
    }
}

fn asymmetric(header: &Header, (at, row): (usize, &Row), (column, back): (usize, &Row)) -> MatrixError {
    MatrixError::Asymmetric {
        line: row.line,
        other_line: back.line,
        row: header.label(at),
        column: header.label(column),
        there: row.links[column].to_string(),
        back: back.links[at].to_string(),
    }
}

/// The device behind a column label: from the legend ("NIC0: mlx5_0") where it has one, else the label itself.
fn name_of(label: &str, after: &[String]) -> String {
    let named = after.iter().find_map(|line| line.trim().strip_prefix(label)?.strip_prefix(':'));
    named.map(str::trim).filter(|name| !name.is_empty()).unwrap_or(label).to_owned()
}
