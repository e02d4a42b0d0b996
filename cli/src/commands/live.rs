//! What is shown again and again until the user has enough. The server may go away meanwhile.

mod screen;

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use mainspring_shared::time::{Clock, Span};
use serde_json::Value;

use self::screen::{Keys, Screen};
use crate::client::{Client, Request};
use crate::failure::{Exit, Failure};
use crate::output;
use crate::signals::Signals;

pub(super) use self::screen::is_possible;

/// How long a look may take before this is shown.
const SLOW: Duration = Duration::from_secs(5);

/// How many agents are asked for at once.
const AT_ONCE: usize = 8;

/// Looks until a signal or a key ends it, and shows what it saw, with what is wrong at the moment. What fails at once, or
/// will go on failing, ends it.
pub(super) async fn watch<V>(
    client: &Client,
    every: Duration,
    mut keys: Option<Keys>,
    mut look: impl AsyncFnMut() -> Result<V, Failure>,
    mut show: impl FnMut(&V, Option<&str>) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let mut seen = None;
    let mut trouble: Option<Trouble> = None;
    loop {
        let begun = client.clock.monotonic();
        let looked = {
            let mut looking = pin!(look());
            loop {
                tokio::select! {
                    looked = &mut looking => break looked,
                    () = over(&mut signals, &mut keys) => return Ok(()),
                    () = client.clock.sleep(every) => {}
                }
                let now = client.clock.monotonic();
                let said = match &trouble {
                    Some(trouble) => Some(trouble.said(now)),
                    None if now >= begun + SLOW => Some(Trouble::slow(begun).said(now)),
                    None => None,
                };
                if let (Some(seen), Some(said)) = (&seen, said) {
                    show(seen, Some(&said))?;
                }
            }
        };
        match looked {
            Ok(view) => (seen, trouble) = (Some(view), None),
            Err(failure) if seen.is_none() || !passes(&failure) => return Err(failure),
            Err(failure) => {
                let since = trouble.map_or(begun, |trouble| trouble.since);
                let what = failure.message;
                trouble = Some(Trouble { since, what });
            }
        }
        if let Some(seen) = &seen {
            let now = client.clock.monotonic();
            let said = trouble.as_ref().map(|trouble| trouble.said(now));
            show(seen, said.as_deref())?;
        }
        tokio::select! {
            () = over(&mut signals, &mut keys) => return Ok(()),
            () = client.clock.sleep(every) => {}
        }
    }
}

/// The same on a terminal, where the lines of each view replace those of the last one. `draw` gets the height, if it is known;
/// a terminal that only prints gets the views one below the other.
pub(super) async fn on_screen<V>(
    client: &Client,
    every: Duration,
    look: impl AsyncFnMut() -> Result<V, Failure>,
    mut draw: impl FnMut(&V, Option<usize>) -> Vec<String>,
) -> Result<(), Failure> {
    let is_screen = is_possible();
    let mut screen: Option<Screen> = None;
    let show = |view: &V, trouble: Option<&str>| {
        let height = output::height().filter(|_| is_screen);
        let said = trouble.map(|trouble| console::style(trouble).red().to_string());
        let rows = height.map(|height| height.saturating_sub(usize::from(said.is_some())));
        let lines: Vec<String> = said.into_iter().chain(draw(view, rows)).collect();
        if !is_screen {
            return output::line(&fitted(&lines, output::width()).join("\n"));
        }
        match &mut screen {
            Some(screen) => screen.paint(&lines),
            None => screen.insert(Screen::begin()?).paint(&lines),
        }
    };
    watch(client, every, Keys::begin(), look, show).await
}

/// Lines cut to this width.
pub(super) fn fitted(lines: &[String], width: Option<usize>) -> Vec<String> {
    let cut = |line: &String| match width {
        Some(width) => console::truncate_str(line, width, "…").into_owned(),
        None => line.clone(),
    };
    lines.iter().map(cut).collect()
}

/// Resolves when the user has enough.
async fn over(signals: &mut Signals, keys: &mut Option<Keys>) {
    let pressed = async {
        match keys {
            Some(keys) => keys.end().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = signals.next() => {}
        () = pressed => {}
    }
}

/// Whether a failure may be over at the next look.
fn passes(failure: &Failure) -> bool {
    !matches!(failure.exit, Exit::Usage | Exit::Unauthorised)
}

/// What is wrong, and since when on the monotonic clock.
#[derive(Debug)]
struct Trouble {
    since: Duration,
    what: String,
}

impl Trouble {
    fn slow(since: Duration) -> Self {
        let what = "no response yet".to_owned();
        Self { since, what }
    }

    fn said(&self, now: Duration) -> String {
        let lasted = Span(Duration::from_secs(
            now.saturating_sub(self.since).as_secs(),
        ));
        let what = output::harmless(&self.what).replace(['\n', '\t'], " ");
        format!("! {what} (for {lasted})")
    }
}

/// The names of sessions' agents, each asked for once.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: BTreeMap<String, Value>,
}

impl Names {
    /// Learns those of the sessions of these rows, and forgets others.
    pub(super) async fn learn<'r>(
        &mut self,
        client: &Client,
        rows: impl Iterator<Item = &'r Value>,
    ) -> Result<(), Failure> {
        let sessions = rows.filter_map(|row| row["session_id"].as_str());
        let mut wanted: BTreeSet<String> = sessions.map(str::to_owned).collect();
        self.known.retain(|session, _| wanted.remove(session));
        let asked = stream::iter(wanted).map(async |session| {
            let request = Request::get(format!("/v1/sessions/{session}"));
            let name = match client.ask(request).await {
                Ok(shown) => name_of(&shown),
                // It was deleted meanwhile.
                Err(failure) if failure.exit == Exit::NotFound => Value::Null,
                Err(failure) => return Err(failure),
            };
            Ok((session, name))
        });
        let mut asked = pin!(asked.buffer_unordered(AT_ONCE));
        while let Some(answer) = asked.next().await {
            let (session, name) = answer?;
            self.known.insert(session, name);
        }
        Ok(())
    }

    /// The agent of a row's session.
    pub(super) fn of(&self, row: &Value) -> Value {
        let session = row["session_id"].as_str().unwrap_or_default();
        self.known.get(session).cloned().unwrap_or_default()
    }
}

/// The name of a session's agent: its label, or the published one's.
fn name_of(session: &Value) -> Value {
    match &session["agent"]["name"] {
        Value::Null => session["agent_ref"]["name"].clone(),
        name => name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_one_line_with_how_long_it_has_lasted() {
        let trouble = Trouble {
            since: Duration::from_secs(10),
            what: "x\u{1b}[2J\ny".to_owned(),
        };
        let said = trouble.said(Duration::from_millis(85_400));
        assert_eq!(said, "! x[2J y (for 75s)");
    }

    #[test]
    fn lines_are_as_wide_as_the_terminal_at_most() {
        let lines = ["short".to_owned(), "a line that is too long".to_owned()];
        assert_eq!(fitted(&lines, Some(10)), ["short", "a line th…"]);
        assert_eq!(fitted(&lines, None), lines);
    }
}
