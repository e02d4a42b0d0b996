//! Log lines that name the trace and the send they belong to.

use std::fmt::{self, Write as _};

use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::context;

/// JSON lines with the members `trace_id` and `span_id` while a span is active, and `send.id` and
/// `session.id` while a send is being worked on.
#[derive(Debug)]
pub(super) struct Traced<F>(pub(super) F);

/// The members to add at the start of a line. A send or session that the line itself names is not
/// repeated.
fn members(line: &str) -> Result<String, fmt::Error> {
    let mut members = String::new();
    if let Some((trace, span)) = context::active() {
        write!(members, "\"trace_id\":\"{trace}\",\"span_id\":\"{span}\",")?;
    }
    if let Some((session, send)) = context::worked_on() {
        if !line.contains("\"send.id\":") {
            write!(members, "\"send.id\":\"{send}\",")?;
        }
        if !line.contains("\"session.id\":") {
            write!(members, "\"session.id\":\"{session}\",")?;
        }
    }
    Ok(members)
}

impl<S, N, F> FormatEvent<S, N> for Traced<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.0.format_event(ctx, Writer::new(&mut line), event)?;
        match line.strip_prefix('{') {
            Some(rest) => {
                let members = members(rest)?;
                write!(writer, "{{{members}{rest}")
            }
            None => writer.write_str(&line),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use mainspring_shared::id::{SendId, SessionId};
    use serde_json::Value;
    use tracing_subscriber::layer::SubscriberExt as _;
    use uuid::Uuid;

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("nobody panics under it").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn what_is_said_within_a_send_names_it_once() {
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = tracing_subscriber::fmt::layer()
            .with_writer(move || writer.clone())
            .json()
            .flatten_event(true)
            .map_event_format(Traced);
        let subscriber = tracing_subscriber::registry().with(layer);
        let _guard = tracing::subscriber::set_default(subscriber);
        let (session, send) = (SessionId(Uuid::from_u128(2)), SendId(Uuid::from_u128(3)));
        tracing::info!("outside");
        let work = async {
            tracing::info!("within");
            tracing::info!(send.id = "snd_other", "of another");
        };
        context::about(session, send, work).await;
        let bytes = lines.0.lock().expect("nobody panics under it").clone();
        let text = String::from_utf8(bytes).expect("text");
        let said: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).expect("JSON"))
            .collect();
        assert!(said[0].get("send.id").is_none(), "{text}");
        assert_eq!(said[1]["send.id"], send.to_string());
        assert_eq!(said[1]["session.id"], session.to_string());
        assert_eq!(said[2]["send.id"], "snd_other");
        assert_eq!(said[2]["session.id"], session.to_string());
        assert_eq!(text.matches("\"send.id\":").count(), 2, "{text}");
    }
}
