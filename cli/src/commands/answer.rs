//! Shows an answer as it arrives.

use std::collections::BTreeSet;

use serde_json::Value;

use super::wrap::Wrap;
use crate::client::Event;
use crate::failure::Failure;
use crate::output;

/// The part of the current answer that is on the screen. Without a screen, only complete messages
/// are printed.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Whether pieces are shown as they arrive.
    live: bool,
    round: i64,
    attempt: i64,
    /// What has been shown of this attempt.
    shown: String,
    /// Pieces were missed, so the rest is shown with the complete message.
    gap: bool,
    wrap: Wrap,
    /// The calls that have been shown.
    calls: BTreeSet<String>,
}

impl Answer {
    pub(crate) fn new(live: bool) -> Self {
        Self {
            live,
            round: -1,
            attempt: -1,
            shown: String::new(),
            gap: false,
            wrap: Wrap::new(if live { output::width() } else { None }),
            calls: BTreeSet::new(),
        }
    }

    /// Whether part of an answer is on the screen.
    pub(crate) fn is_begun(&self) -> bool {
        !self.shown.is_empty()
    }

    /// Shows the content of an event.
    pub(crate) fn event(&mut self, event: &Event) -> Result<(), Failure> {
        let data = &event.data;
        match event.name.as_str() {
            "message.delta" if self.live => self.delta(data),
            "message.reset" if self.live => self.reset(data),
            "message.completed" if data["role"] == "assistant" => self.message(data),
            // A call that ends at once has no event of its start.
            "tool_call.started" | "tool_call.completed" | "tool_call.failed" => {
                self.call(data);
                Ok(())
            }
            "send.waiting" => {
                let what = data["waiting_on"].as_str().unwrap_or("something outside");
                output::note(&format!("[waits for: {}]", output::harmless(what)));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Shows a call once.
    fn call(&mut self, data: &Value) {
        let text = |member: &str| data[member].as_str().unwrap_or_default();
        if self.calls.insert(text("call_id").to_owned()) {
            output::note(&format!("[calls {}]", output::harmless(text("name"))));
        }
    }

    fn delta(&mut self, data: &Value) -> Result<(), Failure> {
        let number = |name: &str| data[name].as_i64().unwrap_or_default();
        let place = (number("round"), number("attempt"));
        if place < (self.round, self.attempt) {
            return Ok(());
        }
        if place > (self.round, self.attempt) {
            self.begin(place)?;
        }
        let text = data["text"].as_str().unwrap_or_default();
        let seen = self.shown.chars().count();
        let offset = usize::try_from(number("offset")).unwrap_or_default();
        if offset > seen {
            self.gap = true;
        }
        if self.gap {
            return Ok(());
        }
        let fresh: String = text.chars().skip(seen - offset).collect();
        self.shown.push_str(&fresh);
        output::raw(&self.wrap.push(&output::harmless(&fresh)))
    }

    fn reset(&mut self, data: &Value) -> Result<(), Failure> {
        let number = |name: &str| data[name].as_i64().unwrap_or_default();
        if !self.shown.is_empty() {
            let reason = data["reason"].as_str().unwrap_or("interrupted");
            self.begin((number("round"), number("attempt")))?;
            output::note(&format!("[begins anew: {}]", output::harmless(reason)));
        }
        Ok(())
    }

    fn begin(&mut self, (round, attempt): (i64, i64)) -> Result<(), Failure> {
        (self.round, self.attempt, self.gap) = (round, attempt, false);
        if std::mem::take(&mut self.shown).is_empty() {
            Ok(())
        } else {
            output::line(&self.wrap.finish())
        }
    }

    /// Shows the part of the stored message that is not on the screen yet.
    fn message(&mut self, data: &Value) -> Result<(), Failure> {
        let text = text_of(data);
        let shown = std::mem::take(&mut self.shown);
        self.gap = false;
        match text.strip_prefix(&shown) {
            _ if text.is_empty() && shown.is_empty() => Ok(()),
            Some(rest) => output::line(&self.last(rest)),
            None => {
                let begun = self.wrap.finish();
                output::line(&format!("{begun}\n{}", self.last(&text)))
            }
        }
    }

    /// The last part of a message, formatted for the screen.
    fn last(&mut self, text: &str) -> String {
        if !self.live {
            return text.to_owned();
        }
        let shown = self.wrap.push(&output::harmless(text));
        shown + &self.wrap.finish()
    }
}

/// A message's text parts.
pub(crate) fn text_of(message: &Value) -> String {
    let parts = message["content"].as_array().into_iter().flatten();
    let texts = parts
        .filter(|part| part["type"] == "text")
        .filter_map(|part| part["text"].as_str());
    texts.collect::<Vec<_>>().join("\n\n")
}
