//! The bytes of a trace file as text, whether it is plain or gzip: the first two bytes tell.
use super::error::ReadError;
use flate2::read::MultiGzDecoder;
use std::io::Read;

/// The largest public trace in this form is below 100 MB; a small archive must not fill the memory.
pub const TEXT_BYTES_MAX: u64 = 1 << 30;
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// The text of the file called `name` in messages.
pub fn text(bytes: Vec<u8>, name: &str) -> Result<String, ReadError> {
    let plain = if bytes.starts_with(&GZIP_MAGIC) { unpacked(&bytes, name)? } else { bytes };
    String::from_utf8(plain).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        ReadError::file(name, format!("byte {at} is neither gzip nor UTF-8 text; expected CSV, plain or gzip"))
    })
}

fn unpacked(bytes: &[u8], name: &str) -> Result<Vec<u8>, ReadError> {
    let mut plain = Vec::new();
    let read = MultiGzDecoder::new(bytes).take(TEXT_BYTES_MAX + 1).read_to_end(&mut plain);
    read.map_err(|error| ReadError::file(name, format!("its gzip data is damaged: {error}; fetch it again")))?;
    if plain.len() as u64 > TEXT_BYTES_MAX {
        return Err(ReadError::file(name, format!("unpacked it is larger than {} MiB", TEXT_BYTES_MAX >> 20)));
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    fn packed(text: &str) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn plain_and_packed_text_read_the_same() {
        assert_eq!(text(b"a,b\n1,2\n".to_vec(), "t.csv").unwrap(), "a,b\n1,2\n");
        assert_eq!(text(packed("a,b\n1,2\n"), "t.csv.gz").unwrap(), "a,b\n1,2\n");
    }

    #[test]
    fn damage_is_told_with_the_name_of_the_file() {
        let mut cut = packed("a,b\n1,2\n");
        cut.truncate(cut.len() - 6);
        assert!(
            text(cut, "t.csv.gz").unwrap_err().to_string().starts_with("cannot read trace t.csv.gz: its gzip data")
        );
        assert!(text(vec![b'a', 0xff], "t.csv").unwrap_err().to_string().contains("byte 1 is neither"));
    }
}
