//! The lines that a server over stdio writes.

use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader, DuplexStream};

use super::envelope;

/// Bytes of one line; a longer one is dropped, so that a server that never ends one cannot fill the
/// memory.
const LINE_BYTES_MAX: usize = 16 << 20;

/// Bytes on their way to the reader.
const BUFFER_BYTES: usize = 64 << 10;

/// The lines with their results sealed. Ends with the source; the source is read no further once
/// the returned end is dropped.
pub(super) fn sealed(source: impl AsyncRead + Send + Unpin + 'static) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(BUFFER_BYTES);
    tokio::spawn(pass(BufReader::new(source), ours));
    theirs
}

async fn pass(mut source: BufReader<impl AsyncRead + Unpin>, mut target: DuplexStream) {
    let mut line = Vec::new();
    let mut is_too_long = false;
    loop {
        let (taken, is_whole) = match source.fill_buf().await {
            Ok([]) | Err(_) => return,
            Ok(piece) => {
                let end = piece.iter().position(|byte| *byte == b'\n');
                let taken = end.map_or(piece.len(), |end| end + 1);
                is_too_long |= line.len() + taken > LINE_BYTES_MAX;
                if !is_too_long {
                    line.extend_from_slice(&piece[..taken]);
                }
                (taken, end.is_some())
            }
        };
        source.consume(taken);
        if !is_whole {
            continue;
        }
        if is_too_long {
            tracing::warn!("an MCP server wrote a line that is too long; it is dropped");
        } else if let Ok(text) = std::str::from_utf8(&line) {
            let text = envelope::sealed(text.trim(), None);
            let written = async {
                target.write_all(text.as_bytes()).await?;
                target.write_all(b"\n").await
            };
            if written.await.is_err() {
                return;
            }
        }
        // Room for a large line is not kept for the small ones after it.
        line = Vec::new();
        is_too_long = false;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn lines_that_are_too_long_or_no_text_are_dropped_and_the_others_stay() {
        let mut source = b"one\n\xff\xfe\n".to_vec();
        source.resize(source.len() + LINE_BYTES_MAX, b'x');
        source.extend_from_slice(b"\ntwo\r\nhalf a line");
        let mut passed = String::new();
        let mut lines = sealed(std::io::Cursor::new(source));
        lines.read_to_string(&mut passed).await.expect("text");
        assert_eq!(passed, "one\ntwo\n");
    }
}
