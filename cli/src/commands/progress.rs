//! Progress of a run on stderr: a live tree on a terminal, plain lines otherwise.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use serde_json::Value;

use crate::client::Event;
use crate::output;

/// Maximum number of nodes shown on lines of their own.
const SHOWN_MAX: usize = 16;

/// Interval between two frames of a spinner.
const TICK: std::time::Duration = std::time::Duration::from_millis(120);

/// The display.
pub(super) enum Progress {
    /// For a terminal.
    Tree(Box<Tree>),
    /// For a file or a pipe.
    Lines,
}

/// One line for each running node, and a bar for all leaves.
pub(super) struct Tree {
    all: MultiProgress,
    bar: ProgressBar,
    live: BTreeMap<String, ProgressBar>,
}

impl Progress {
    pub(super) fn new(run: &Value) -> Self {
        let id = run["id"].as_str().unwrap_or_default();
        let name = output::harmless(run["name"].as_str().unwrap_or_default());
        if !std::io::stderr().is_terminal() {
            output::note(&format!("{id} {name}"));
            return Self::Lines;
        }
        let all = MultiProgress::new();
        let bar = all.add(ProgressBar::new(0));
        bar.set_style(style(
            "{prefix} [{bar:24}] {pos}/{len} leaves {msg} {elapsed}",
        ));
        bar.set_prefix(name);
        bar.enable_steady_tick(TICK);
        // If stderr is closed there is nobody to report to.
        let _ = all.println(id);
        let live = BTreeMap::new();
        Self::Tree(Box::new(Tree { all, bar, live }))
    }

    pub(super) fn event(&mut self, event: &Event) {
        match self {
            Self::Lines => lines(event),
            Self::Tree(tree) => tree.event(event),
        }
    }

    /// Removes the display.
    pub(super) fn finish(self) {
        if let Self::Tree(tree) = self {
            for bar in tree.live.values() {
                bar.finish_and_clear();
            }
            tree.bar.finish_and_clear();
        }
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn lines(event: &Event) {
    let Some(state) = event.name.strip_prefix("node.") else {
        if event.name != "run.progress" {
            output::note(&event.name);
        }
        return;
    };
    let path = output::harmless(event.data["path"].as_str().unwrap_or_default());
    output::note(&format!("{state:<10} {path}{}", why(&event.data)));
}

fn why(data: &Value) -> String {
    let message = data["error"]["message"].as_str();
    message.map_or_else(String::new, |message| {
        format!(": {}", output::harmless(message))
    })
}

impl Tree {
    fn event(&mut self, event: &Event) {
        if let Some(counts) = event.data["counts"].as_object() {
            let count = |name: &str| counts.get(name).and_then(Value::as_u64).unwrap_or(0);
            let done = ["completed", "failed", "cancelled", "skipped"];
            self.bar.set_length(count("leaves"));
            self.bar
                .set_position(done.iter().map(|name| count(name)).sum());
            self.bar.set_message(format!("{} in flight", count("live")));
        }
        let Some(state) = event.name.strip_prefix("node.") else {
            return;
        };
        let path = event.data["path"].as_str().unwrap_or_default();
        let shown = line(path);
        match state {
            "completed" | "failed" | "cancelled" | "skipped" => {
                if let Some(bar) = self.live.remove(path) {
                    bar.finish_and_clear();
                }
                let mark = match state {
                    "completed" => '✔',
                    "skipped" => '-',
                    _ => '✘',
                };
                // If stderr is closed there is nobody to report to.
                let _ = self
                    .all
                    .println(format!("{mark} {shown}{}", why(&event.data)));
            }
            _ if self.live.len() < SHOWN_MAX || self.live.contains_key(path) => {
                let all = &self.all;
                let bar = self.live.entry(path.to_owned()).or_insert_with(|| {
                    let bar = all.add(ProgressBar::new_spinner());
                    bar.set_style(style("{spinner} {msg} {elapsed}"));
                    bar.enable_steady_tick(TICK);
                    bar
                });
                bar.set_message(format!("{shown} {state}"));
            }
            _ => {}
        }
    }
}

/// The last segment of a node's path, indented by its depth.
fn line(path: &str) -> String {
    let path = output::harmless(path);
    let depth = path.matches('/').count().saturating_sub(1);
    let last = path.rsplit('/').next().unwrap_or_default();
    let last = if last.is_empty() { "/" } else { last };
    format!("{}{last}", "  ".repeat(depth))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_stands_as_far_to_the_right_as_it_is_deep() {
        assert_eq!(line("/"), "/");
        assert_eq!(line("/0:plan"), "0:plan");
        assert_eq!(line("/1:research[2]/r"), "  r");
    }
}
