//! Limits the request bodies that are being sent.
//!
//! A body is a copy of the whole window. Thousands of attempts may begin at once, and a provider
//! may read slowly; without a limit all their bodies would be in memory together.

use std::sync::Arc;

use bytes::Bytes;
use mainspring_shared::message::{ContentPart, Message};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use mainspring_worker::llm::Request;

/// How many KiB of bodies may be in flight to one provider.
const UNDER_WAY_KIB_MAX: u32 = 64 * 1024;

/// Overhead of a message, a call or a tool besides its text.
const FRAME_BYTES: usize = 128;

/// The limit on bodies in flight.
#[derive(Debug, Clone)]
pub(super) struct Uploads {
    kib: Arc<Semaphore>,
}

impl Uploads {
    pub(super) fn new() -> Self {
        Self {
            kib: Arc::new(Semaphore::new(UNDER_WAY_KIB_MAX as usize)),
        }
    }

    /// Waits until there is room for the request's body, which is only built afterwards. A body
    /// larger than the whole limit takes all of it.
    pub(super) async fn room(&self, request: &Request) -> Option<OwnedSemaphorePermit> {
        let kib = u32::try_from(size(request) / 1024 + 1).unwrap_or(UNDER_WAY_KIB_MAX);
        let room = Arc::clone(&self.kib).acquire_many_owned(kib.min(UNDER_WAY_KIB_MAX));
        // Nobody closes the semaphore.
        room.await.ok()
    }
}

/// The body, which returns its room once its last byte has been written.
pub(super) fn body(bytes: Vec<u8>, room: Option<OwnedSemaphorePermit>) -> Bytes {
    Bytes::from_owner(Upload { bytes, _room: room })
}

struct Upload {
    bytes: Vec<u8>,
    _room: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Upload {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The approximate size of the body. Nested arguments and schemas are not measured: large ones also
/// occur as text elsewhere in the transcript.
fn size(request: &Request) -> usize {
    let messages: usize = request
        .messages
        .iter()
        .map(|message| message_size(message))
        .sum();
    let tools = request
        .tools
        .iter()
        .map(|t| 4 * FRAME_BYTES + t.description.len());
    let around = [&request.system, &request.tail].into_iter().flatten();
    messages + tools.sum::<usize>() + around.map(String::len).sum::<usize>()
}

fn message_size(message: &Message) -> usize {
    let parts = message.content.iter().map(ContentPart::weight);
    FRAME_BYTES + parts.sum::<usize>() + message.tool_calls.len() * 4 * FRAME_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(bytes: usize) -> Request {
        Request {
            model: String::new(),
            system: Some("x".repeat(bytes)),
            messages: Vec::new(),
            max_tokens: 1,
            ..Request::default()
        }
    }

    #[test]
    fn bodies_wait_for_those_that_are_under_way() {
        futures::executor::block_on(async {
            let uploads = Uploads::new();
            let all = uploads.room(&request(1_000_000_000)).await;
            let first = body(vec![1, 2, 3], all);
            let small = request(10);
            let mut second = Box::pin(uploads.room(&small));
            assert!(futures::poll!(&mut second).is_pending());
            let rest = first.slice(2..);
            drop(first);
            assert!(
                futures::poll!(&mut second).is_pending(),
                "a byte is not written yet"
            );
            drop(rest);
            assert!(futures::poll!(&mut second).is_ready());
        });
    }
}
