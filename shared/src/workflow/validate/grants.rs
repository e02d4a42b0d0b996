//! Checks the tools of a spec's leaves against those that its starter may pass on.

use super::reader::Reader;
use crate::agent::NotGranted;
use crate::tool::ToolEntry;
use crate::words::nearest;

impl Reader<'_> {
    /// Reports a tool that its leaf would not be granted, so that the leaf does not start without it.
    pub(crate) fn granted(&mut self, entry: &ToolEntry, pointer: &str) {
        let Some(granted) = self.granted else { return };
        let Err(fault) = granted.check(entry) else {
            return;
        };
        let (rule, hint) = match &fault {
            NotGranted::Unknown(name) => {
                let near = nearest(name, granted.names()).map(|near| format!("write {near:?}"));
                let known = || granted.names().collect::<Vec<_>>().join(", ");
                let hint = near.unwrap_or_else(|| format!("known are: {}", known()));
                ("unknown_tool", hint)
            }
            NotGranted::Other(name) => ("tool", format!("write {name:?} alone")),
        };
        self.problem(pointer, rule, fault.to_string(), hint);
    }
}
