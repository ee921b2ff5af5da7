//! Comma-separated tables with a header, as all public traces use them: no quotes, one record a line.
//!
//! Columns are found by name, so that their order and further columns do not matter. Every error names the place.
use super::error::ReadError;
use std::str::FromStr;

/// A table over the text of one file.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a> {
    name: &'a str,
    header: &'a str,
    text: &'a str,
}

/// A column of one table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column<'a> {
    name: &'a str,
    index: usize,
}

/// One record.
#[derive(Debug, Clone)]
pub struct Row<'a> {
    file: &'a str,
    line: usize,
    fields: Vec<&'a str>,
}

impl<'a> Table<'a> {
    pub fn new(name: &'a str, text: &'a str) -> Result<Table<'a>, ReadError> {
        let header = text.lines().next().map(str::trim).unwrap_or_default();
        if header.is_empty() {
            return Err(ReadError::file(name, "it is empty; expected a header line with the names of the columns"));
        }
        Ok(Table { name, header, text })
    }

    pub fn column(&self, name: &'a str) -> Result<Column<'a>, ReadError> {
        self.find(name).ok_or_else(|| {
            let message = format!("no column `{name}`; expected it among `{}`", self.header);
            ReadError { file: self.name.to_string(), line: 1, column: 1, message }
        })
    }

    /// A column that some variants of a trace lack.
    pub fn find(&self, name: &'a str) -> Option<Column<'a>> {
        let index = self.header.split(',').position(|found| found.trim() == name)?;
        Some(Column { name, index })
    }

    /// The records in order; blank lines are no records.
    pub fn rows(&self) -> impl Iterator<Item = Result<Row<'a>, ReadError>> + use<'a> {
        let (name, width) = (self.name, self.header.split(',').count());
        let lines = self.text.lines().enumerate().skip(1).filter(|(_, line)| !line.trim().is_empty());
        lines.map(move |(index, line)| row(name, index + 1, line, width))
    }
}

fn row<'a>(file: &'a str, line: usize, text: &'a str, width: usize) -> Result<Row<'a>, ReadError> {
    let fields: Vec<&str> = text.trim_end_matches('\r').split(',').collect();
    if fields.len() != width {
        let message = format!("{} fields; expected {width}, as in the header", fields.len());
        return Err(ReadError { file: file.to_string(), line, column: 0, message });
    }
    Ok(Row { file, line, fields })
}

impl<'a> Row<'a> {
    pub fn line(&self) -> usize {
        self.line
    }

    pub fn text(&self, column: Column) -> &'a str {
        self.fields.get(column.index).copied().unwrap_or_default().trim()
    }

    /// A value that `FromStr` reads; `expected` says what it should be.
    pub fn parse<T: FromStr>(&self, column: Column, expected: &str) -> Result<T, ReadError> {
        self.text(column).parse().map_err(|_| self.refuse(column, expected))
    }

    /// Seconds as milliseconds; digits beyond are dropped.
    pub fn seconds_ms(&self, column: Column) -> Result<u64, ReadError> {
        self.thousandths(column, "seconds, such as 66 or 66.5")
    }

    /// A number of at least 0 in thousandths; digits beyond are dropped.
    pub fn thousandths(&self, column: Column, expected: &str) -> Result<u64, ReadError> {
        millis(self.text(column)).ok_or_else(|| self.refuse(column, expected))
    }

    /// The error that `column` is not what was `expected`.
    pub fn refuse(&self, column: Column, expected: &str) -> ReadError {
        let before: usize = self.fields.iter().take(column.index).map(|field| field.chars().count() + 1).sum();
        let message = format!("{} is `{}`; expected {expected}", column.name, self.text(column));
        ReadError { file: self.file.to_string(), line: self.line, column: before + 1, message }
    }
}

/// Digits beyond a millisecond are dropped.
fn millis(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    if !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let part: u64 = format!("{part:0<3}").get(..3)?.parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(1_000)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name_and_blank_lines_are_skipped() {
        let table = Table::new("t.csv", "id,gpus\na,1\n\nb,2\n").unwrap();
        let (id, gpus) = (table.column("id").unwrap(), table.column("gpus").unwrap());
        let rows: Vec<Row> = table.rows().collect::<Result<_, _>>().unwrap();
        assert_eq!(rows.iter().map(|row| row.text(id)).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(rows[1].parse::<u32>(gpus, "a count").unwrap(), 2);
        assert_eq!(table.find("none"), None);
    }

    #[test]
    fn errors_name_file_line_column_and_what_was_expected() {
        let table = Table::new("t.csv", "id,gpus\na,1\n\nbé,two\n").unwrap();
        let gpus = table.column("gpus").unwrap();
        let row = table.rows().nth(1).unwrap().unwrap();
        let error = row.parse::<u32>(gpus, "a count of GPUs").unwrap_err();
        assert_eq!(error.to_string(), "t.csv:4:4: gpus is `two`; expected a count of GPUs");
        assert_eq!(
            table.column("cpu").unwrap_err().to_string(),
            "t.csv:1:1: no column `cpu`; expected it among `id,gpus`"
        );
        let short = Table::new("t.csv", "id,gpus\na\n").unwrap().rows().next().unwrap().unwrap_err();
        assert_eq!(short.to_string(), "t.csv:2: 1 fields; expected 2, as in the header");
        assert!(Table::new("t.csv", "").unwrap_err().to_string().contains("it is empty"));
    }

    #[test]
    fn seconds_become_milliseconds() {
        assert_eq!(millis("66"), Some(66_000));
        assert_eq!(millis("66.5"), Some(66_500));
        assert_eq!(millis("0.12349"), Some(123));
        assert_eq!((millis("-1"), millis("1.x"), millis("")), (None, None, None));
    }
}
