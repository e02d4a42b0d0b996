//! Responses that are event streams.

use std::convert::Infallible;
use std::io;
use std::task::Poll;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures::{Stream, StreamExt};

use crate::gate::Admission;

const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// Maximum bytes per write, unless a single event is longer.
const PIECE: usize = 128 << 10;

/// What an event stream is read from.
pub(super) trait Source: Send + 'static {
    /// The next events. Empty if there was none for a while, and `None` at the end.
    fn next(&mut self) -> impl Future<Output = Option<Vec<Event>>> + Send;

    /// Whether the end was reached because nothing will follow, and not because this process stops.
    fn is_over(&self) -> bool;
}

/// The event stream of a source, which keeps its places until it ends.
///
/// If `is_rest`, the reader has the beginning of a stream that has ended. Unless something is left
/// for it, the answer is 204: after any other one, an `EventSource` reconnects for ever
/// (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).
pub(super) async fn read<S: Source>(mut source: S, is_rest: bool, places: Admission) -> Response {
    let mut first = None;
    if is_rest {
        first = source.next().await;
        if first.is_none() && source.is_over() {
            return StatusCode::NO_CONTENT.into_response();
        }
    }
    let next = |(first, mut source, places): (Option<_>, S, Admission)| async move {
        let events = match first {
            Some(events) => events,
            None => source.next().await?,
        };
        Some((events, (None, source, places)))
    };
    answer(futures::stream::unfold((first, source, places), next))
}

/// An event stream of these events. Each item contains the events of one read; an empty item sends
/// a keep-alive comment.
pub(super) fn answer<S>(reads: S) -> Response
where
    S: Stream<Item = Vec<Event>> + Send + 'static,
{
    let events = reads.flat_map(|events| {
        let beat = events.is_empty().then_some(Event::DEFAULT_KEEP_ALIVE);
        let events = events.into_iter().chain(beat);
        futures::stream::iter(events.map(Ok::<Event, Infallible>))
    });
    let mut response = Sse::new(events).into_response().map(in_pieces);
    let headers = response.headers_mut();
    // A buffering proxy would delay every event.
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// What keeps a connection alive, and is no event.
pub(super) const BEAT: &str = ": ping\n\n";

/// Cuts off a stream that has to end before what it tells of does: clients take one that ends
/// cleanly for whole.
pub(super) fn cut() -> io::Error {
    io::Error::other("the stream ended before what it tells of")
}

/// An event stream that other protocols write, in these pieces.
pub(super) fn written(pieces: impl Stream<Item = io::Result<String>> + Send + 'static) -> Response {
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// Merges all frames that are ready into one piece. The library produces a frame per event, and a
/// reader that is a thousand steps behind would cost thousands of small writes.
fn in_pieces(body: Body) -> Body {
    let mut frames = body.into_data_stream().fuse();
    Body::from_stream(futures::stream::poll_fn(move |context| {
        let mut piece = Piece::default();
        loop {
            match frames.poll_next_unpin(context) {
                Poll::Ready(Some(Ok(frame))) => piece.push(frame),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) if piece.is_empty() => return Poll::Ready(None),
                Poll::Pending if piece.is_empty() => return Poll::Pending,
                Poll::Ready(None) | Poll::Pending => break,
            }
            if piece.len() >= PIECE {
                break;
            }
        }
        Poll::Ready(Some(Ok(piece.into_bytes())))
    }))
}

/// The bytes of one write. A single frame is not copied.
#[derive(Debug, Default)]
struct Piece {
    first: Bytes,
    all: BytesMut,
}

impl Piece {
    fn push(&mut self, frame: Bytes) {
        if self.is_empty() {
            self.first = frame;
            return;
        }
        if self.all.is_empty() {
            self.all.extend_from_slice(&self.first);
        }
        self.all.extend_from_slice(&frame);
    }

    fn len(&self) -> usize {
        self.all.len().max(self.first.len())
    }

    fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    fn into_bytes(self) -> Bytes {
        if self.all.is_empty() {
            self.first
        } else {
            self.all.freeze()
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;

    use super::*;

    fn event(id: &str, data: &str) -> Event {
        Event::default().id(id).event("round.completed").data(data)
    }

    async fn pieces(response: Response) -> Vec<String> {
        let pieces = response.into_body().into_data_stream();
        let pieces = pieces.map(|piece| piece.expect("no reader fails"));
        let text = |piece: Bytes| String::from_utf8(piece.to_vec()).expect("utf-8");
        pieces.map(text).collect().await
    }

    #[tokio::test]
    async fn one_read_is_one_piece_and_nothing_is_a_comment() {
        let reads = [vec![event("3.0", "{\"a\":1}"), event("3.1", "2")], vec![]];
        // Yields between two reads.
        let reads = stream::iter(reads).then(|read| async {
            tokio::task::yield_now().await;
            read
        });
        let response = answer(reads);
        let header = |name| response.headers()[name].to_str().expect("ASCII").to_owned();
        assert_eq!(header(CONTENT_TYPE), "text/event-stream");
        assert_eq!(header(CACHE_CONTROL), "no-cache");
        assert_eq!(header(ACCEL_BUFFERING), "no");
        assert_eq!(
            pieces(response).await,
            [
                "id: 3.0\nevent: round.completed\ndata: {\"a\":1}\n\n\
                 id: 3.1\nevent: round.completed\ndata: 2\n\n",
                ":\n\n",
            ]
        );
    }

    #[tokio::test]
    async fn what_is_ready_at_once_is_cut_into_large_pieces() {
        let data = format!("\"{}\"", "x".repeat(PIECE / 4));
        let events: Vec<Event> = (0..10).map(|n| event(&format!("{n}.0"), &data)).collect();
        let pieces = pieces(answer(stream::iter([events]))).await;
        assert_eq!(pieces.len(), 3);
        assert_eq!(pieces.concat().matches("id: ").count(), 10);
        assert!(pieces.iter().all(|piece| piece.len() < PIECE * 5 / 4 + 100));
    }
}
