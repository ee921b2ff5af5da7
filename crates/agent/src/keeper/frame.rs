//! The framing of exec and attach streams: one byte kind, four bytes big-endian length, then that many bytes.

/// What a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Client → keeper: bytes for the process. Empty means end of input.
    Input = 0,
    /// Keeper → client: standard output, or everything of a terminal.
    Output = 1,
    /// Keeper → client: standard error.
    ErrorOutput = 2,
    /// Client → keeper: rows and columns, each two bytes big-endian.
    WindowSize = 3,
    /// Keeper → client, the last frame: an [`ExecExit`](super::protocol::ExecExit) as JSON.
    Exit = 4,
}

/// The longest payload; a longer one is an error of the sender.
pub(crate) const LONGEST_BYTES: usize = 1 << 20;
pub(crate) const HEADER_BYTES: usize = 5;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    pub kind: FrameKind,
    pub payload: Vec<u8>,
}

/// What a header says, or why it is none.
pub(crate) fn header(bytes: [u8; HEADER_BYTES]) -> Result<(FrameKind, usize), String> {
    let [kind, length @ ..] = bytes;
    let kind = match kind {
        0 => FrameKind::Input,
        1 => FrameKind::Output,
        2 => FrameKind::ErrorOutput,
        3 => FrameKind::WindowSize,
        4 => FrameKind::Exit,
        other => return Err(format!("frame of unknown kind {other}")),
    };
    let length = u32::from_be_bytes(length) as usize;
    if length > LONGEST_BYTES {
        return Err(format!("frame of {length} bytes; at most {LONGEST_BYTES} are allowed"));
    }
    Ok((kind, length))
}

/// Appends one frame; `payload` must not be longer than [`LONGEST_BYTES`].
pub(crate) fn push(out: &mut Vec<u8>, kind: FrameKind, payload: &[u8]) {
    out.push(kind as u8);
    out.extend(u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes());
    out.extend(payload);
}

/// Takes the first whole frame from the front of `buffer`, if one is there.
pub(crate) fn take(buffer: &mut Vec<u8>) -> Result<Option<Frame>, String> {
    let Some(first) = buffer.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let (kind, length) = header(*first)?;
    if buffer.len() < HEADER_BYTES + length {
        return Ok(None);
    }
    let payload = buffer[HEADER_BYTES..HEADER_BYTES + length].to_vec();
    buffer.drain(..HEADER_BYTES + length);
    Ok(Some(Frame { kind, payload }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_whole_however_they_are_cut() {
        let mut sent = Vec::new();
        push(&mut sent, FrameKind::Output, b"hello");
        push(&mut sent, FrameKind::Input, b"");
        let mut buffer = Vec::new();
        let mut got = Vec::new();
        for byte in sent {
            buffer.push(byte);
            got.extend(take(&mut buffer).unwrap());
        }
        assert_eq!(got[0], Frame { kind: FrameKind::Output, payload: b"hello".to_vec() });
        assert_eq!(got[1], Frame { kind: FrameKind::Input, payload: vec![] });
        assert!(buffer.is_empty());
    }

    #[test]
    fn refuses_unknown_kinds_and_giants() {
        assert!(take(&mut vec![9, 0, 0, 0, 0]).is_err());
        assert!(take(&mut vec![0, 0xff, 0, 0, 0]).is_err());
    }
}
