//! The built-in tools: each folder lists its own, with a one-line description and a constructor.

use std::sync::Arc;

use mainspring_shared::tool::preset;
use mainspring_worker::tool::{Tool, Tools, ToolsError};

use crate::agents::{self, wakeups, workflow};
use crate::memory::{self, entries};
use crate::shell::{self, commands};
use crate::{current_time, files, pass_turn, skills, web};

/// The presets: each name stands for several tools.
pub const PRESETS: [&str; 3] = ["core", "explore", "full"];

pub(crate) const WORKSPACE: &str = "tools.workspace";
pub(crate) const SHELL: &str = "tools.workspace and tools.shell";
pub(crate) const MEMORY: &str = "the agent's memory";
pub(crate) const SEARCH: &str = "tools.search";
pub(crate) const NOTHING: &str = "-";

/// A built-in tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltIn {
    /// The name that agents use.
    pub name: &'static str,
    /// The worker settings that it requires; `-` if it is always available.
    pub needs: &'static str,
    /// What it does, in one line.
    pub does: &'static str,
}

impl BuiltIn {
    /// The presets that include it.
    pub fn presets(&self) -> impl Iterator<Item = &'static str> {
        let name = self.name;
        PRESETS.into_iter().filter(move |preset_name| {
            preset(preset_name).is_some_and(|names| names.contains(&name))
        })
    }
}

/// An entry of a folder's list: the description for people, and how to make the tool from the state
/// that the tools of the folder share.
pub(crate) struct Listed<S: ?Sized> {
    pub(crate) about: BuiltIn,
    pub(crate) make: fn(&S) -> Arc<dyn Tool>,
}

pub(crate) const fn tool<S: ?Sized>(
    name: &'static str,
    needs: &'static str,
    does: &'static str,
    make: fn(&S) -> Arc<dyn Tool>,
) -> Listed<S> {
    Listed {
        about: BuiltIn { name, needs, does },
        make,
    }
}

/// Makes the tools of a list.
pub(crate) fn make_all<S: ?Sized>(
    list: &'static [Listed<S>],
    shared: &S,
) -> impl Iterator<Item = Arc<dyn Tool>> {
    list.iter().map(move |entry| (entry.make)(shared))
}

/// Registers the tools of a list, which reach nothing but the system's own rows.
pub(crate) fn insert_all<S: ?Sized>(
    list: &'static [Listed<S>],
    shared: &S,
    tools: &mut Tools,
) -> Result<(), ToolsError> {
    make_all(list, shared).try_for_each(|tool| tools.insert_own(tool))
}

fn about<S: ?Sized>(list: &'static [Listed<S>]) -> impl Iterator<Item = BuiltIn> {
    list.iter().map(|entry| entry.about)
}

/// Every built-in tool.
pub fn built_in() -> Vec<BuiltIn> {
    let lists = about(&files::TOOLS)
        .chain(about(&shell::TOOLS))
        .chain(about(&commands::TOOLS))
        .chain(about(&current_time::TOOLS))
        .chain(about(&pass_turn::TOOLS))
        .chain(about(&web::FETCHES))
        .chain(about(&web::SEARCHES))
        .chain(about(&skills::TOOLS))
        .chain(about(&memory::TOOLS))
        .chain(about(&entries::TOOLS))
        .chain(about(&wakeups::TOOLS))
        .chain(agents::TOOLS.iter().map(|waits| waits.about))
        .chain(about(&workflow::TOOLS));
    lists.collect()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    #[test]
    fn every_name_of_a_preset_is_listed_once() {
        let all = built_in();
        for preset_name in PRESETS {
            for name in preset(preset_name).expect("a preset") {
                let listed = all.iter().filter(|tool| tool.name == *name);
                assert_eq!(listed.count(), 1, "{name} of {preset_name}");
            }
        }
    }

    #[test]
    fn the_page_about_tools_lists_all_of_them() {
        const HEAD: &str = "| name | presets | does |\n|---|---|---|\n";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/TOOLS.md");
        let page = std::fs::read_to_string(path).expect("docs/TOOLS.md can be read");
        let (before, rest) = page.split_once(HEAD).expect("the table of tools");
        let (_, after) = rest.split_once("\n\n").expect("the end of the table");
        let mut rows = String::new();
        for tool in built_in() {
            let presets: Vec<String> = tool.presets().map(|name| format!("`{name}`")).collect();
            let presets = presets.join(" ");
            let _ = writeln!(rows, "| `{}` | {presets} | {} |", tool.name, tool.does);
        }
        let written = format!("{before}{HEAD}{rows}\n{after}");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(path, &written).expect("docs/TOOLS.md can be written");
        }
        let committed = std::fs::read_to_string(path).expect("docs/TOOLS.md can be read");
        assert!(
            committed == written,
            "the table of docs/TOOLS.md is out of date; look at the difference after \
             UPDATE_DOCS=1 cargo test -p mainspring-tools --lib catalogue"
        );
    }
}
