//! Reads and assembles the window of a session.

use mainspring_shared::id::SessionKey;
use mainspring_shared::message::Message;
use mainspring_shared::session::fold::{self, Fold};
use mainspring_shared::session::projection::Projected;
use mainspring_shared::session::window::Window;
use mainspring_shared::store::{self, ReadMessages, StartedSend, Store};

use crate::Kernel;

/// Page size when a window is read again.
const RELOADED: u32 = 512;

/// Reads the window of a session that this worker owns again; `None` if that fails.
pub(super) async fn reload(
    kernel: &Kernel,
    key: SessionKey,
    send: &StartedSend,
    next_seq: i64,
) -> Option<Window> {
    let store = kernel.parts.store.as_ref();
    let first = store.get_session(key).await.ok()??.first_seq;
    let from = send.window_from(next_seq).max(first);
    read_window(store, key, from, next_seq).await.ok()?
}

/// The folds of a session and the messages after them, from `from` on, or from the call that a
/// result there belongs to. `None` if they changed meanwhile.
pub(crate) async fn read_window(
    store: &dyn Store,
    key: SessionKey,
    from: i64,
    next_seq: i64,
) -> store::Result<Option<Window>> {
    let folds = store.read_folds(key).await?;
    let from = fold::begin(from, fold::end(&folds));
    let window = read_messages(store, key, from, next_seq).await?;
    Ok(window.map(|window| window.behind(folds)))
}

/// The messages of a session from `from` on, or from the call that a result there belongs to, up to
/// `next_seq`; `None` if some are missing.
pub(crate) async fn read_messages(
    store: &dyn Store,
    key: SessionKey,
    mut from: i64,
    next_seq: i64,
) -> store::Result<Option<Window>> {
    let mut messages: Vec<Message> = Vec::new();
    loop {
        let after = messages.last().map_or(from - 1, |last| last.seq);
        if after + 1 >= next_seq {
            break;
        }
        let query = ReadMessages {
            key,
            after,
            limit: RELOADED,
        };
        let mut page = store.read_messages(query).await?;
        page.retain(|message| message.seq < next_seq);
        let Some(first) = page.first() else {
            return Ok(None);
        };
        let asked = first.asked_at_seq;
        if let Some(asked) = asked.filter(|asked| messages.is_empty() && *asked < from) {
            // A call is never separated from its results.
            from = asked;
            continue;
        }
        messages.extend(page);
    }
    Ok(Window::new(messages, next_seq).ok())
}

/// Combines the cached window with what the claim returned; `None` if they do not fit together.
pub(super) fn assemble(
    cached: Option<Window>,
    mut folds: Vec<Fold>,
    (projected, brought): (Projected, Vec<Message>),
    next_seq: i64,
) -> Option<Window> {
    if let Some(mut window) = cached {
        let continues = brought.first().map_or(next_seq, |first| first.seq) == window.next_seq();
        // A response with projections contains a whole window.
        if continues && projected.shown.is_empty() && window.extend(brought.iter().cloned()).is_ok()
        {
            return (window.next_seq() == next_seq).then_some(window);
        }
        // The claim returns no folds if the cached ones are current.
        folds = window
            .folds()
            .iter()
            .map(|fold| Fold::clone(fold))
            .collect();
    }
    let window = Window::new(brought, next_seq).ok()?;
    Some(window.projected(projected).ok()?.behind(folds))
}
