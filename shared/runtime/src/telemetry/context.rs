//! Trace propagation: the W3C header `traceparent`, incoming and outgoing.

use mainspring_shared::id::{SendId, SessionId};
use opentelemetry::Context;
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState,
};

/// The name of the header, and of the member of a send's options that stores it.
pub const TRACEPARENT: &str = "traceparent";

/// Length of a header of version `00`; later versions begin with the same fields.
const LENGTH: usize = 55;

tokio::task_local! {
    /// The `traceparent` that a task continues while it has no span of its own.
    static CARRIED: Option<String>;
}

/// Runs a future that continues another's trace, even if this process exports none.
pub fn carrying<F: Future>(
    traceparent: Option<String>,
    future: F,
) -> impl Future<Output = F::Output> {
    CARRIED.scope(traceparent, future)
}

tokio::task_local! {
    /// The send that a task is working on.
    static ABOUT: (SessionId, SendId);
}

/// Runs a future whose log lines name this send. Nothing is formatted until a line is logged.
pub fn about<F: Future>(
    session: SessionId,
    send: SendId,
    future: F,
) -> impl Future<Output = F::Output> {
    ABOUT.scope((session, send), future)
}

/// The send that the task is working on, for log lines.
pub(super) fn worked_on() -> Option<(SessionId, SendId)> {
    ABOUT.try_with(|about| *about).ok()
}

/// The header for an outgoing request: the active span's, else the one that the task carries.
pub fn traceparent() -> Option<String> {
    let active = Context::map_current(|context| shown(context.span().span_context()));
    active.or_else(|| CARRIED.try_with(Clone::clone).ok().flatten())
}

/// A caller's header in normalized form; none if it is invalid.
pub fn accepted(header: &str) -> Option<String> {
    parse(header).as_ref().and_then(shown)
}

/// The ids of the active span, for log lines.
pub(super) fn active() -> Option<(TraceId, SpanId)> {
    Context::map_current(|context| {
        let span = context.span();
        let span = span.span_context();
        span.is_valid().then(|| (span.trace_id(), span.span_id()))
    })
}

fn shown(span: &SpanContext) -> Option<String> {
    span.is_valid().then(|| {
        format!(
            "00-{}-{}-{:02x}",
            span.trace_id(),
            span.span_id(),
            span.trace_flags().to_u8() & 1
        )
    })
}

/// The span that a header names; none if it is invalid.
pub(super) fn parse(header: &str) -> Option<SpanContext> {
    let is_plain = header
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-'));
    let (version, rest) = header.split_once('-')?;
    let is_later = version != "00" && header.as_bytes().get(LENGTH) == Some(&b'-');
    if !is_plain || version.len() != 2 || version == "ff" {
        return None;
    }
    if header.len() != LENGTH && !is_later {
        return None;
    }
    let mut parts = rest.split('-');
    let (trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?);
    if (trace.len(), span.len(), flags.len()) != (32, 16, 2) {
        return None;
    }
    let context = SpanContext::new(
        TraceId::from_hex(trace).ok()?,
        SpanId::from_hex(span).ok()?,
        TraceFlags::new(u8::from_str_radix(flags, 16).ok()? & 1),
        true,
        TraceState::default(),
    );
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_header_is_read_and_written_as_it_was() {
        assert_eq!(accepted(HEADER).as_deref(), Some(HEADER));
        // Flags that this release does not know are not passed on.
        let flagged = HEADER.replace("-01", "-03");
        assert_eq!(accepted(&flagged).as_deref(), Some(HEADER));
        let later = format!("{}-what", HEADER.replace("00-4", "01-4"));
        assert_eq!(accepted(&later), None, "not in hex");
        let later = format!("{}-beef", HEADER.replace("00-4", "01-4"));
        assert_eq!(accepted(&later).as_deref(), Some(HEADER));
    }

    #[test]
    fn what_is_no_header_is_ignored() {
        let zero = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let ends = format!("{HEADER}-beef");
        let upper = HEADER.to_uppercase();
        let reserved = HEADER.replace("00-4", "ff-4");
        for wrong in [
            "",
            "00",
            "00--",
            zero,
            &ends,
            &upper,
            &reserved,
            &HEADER[..54],
        ] {
            assert_eq!(accepted(wrong), None, "{wrong}");
        }
    }

    #[tokio::test]
    async fn a_task_goes_on_with_what_it_carries() {
        assert_eq!(traceparent(), None);
        let carried = carrying(Some(HEADER.to_owned()), async { traceparent() });
        assert_eq!(carried.await.as_deref(), Some(HEADER));
        let nothing = carrying(None, async { traceparent() });
        assert_eq!(nothing.await, None);
    }
}
