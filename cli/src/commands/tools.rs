//! `mainspring tools`

use mainspring_tools::built_in;
use serde_json::json;

use crate::args::Format;
use crate::failure::Failure;
use crate::output::{self, Column};

const COLUMNS: [Column; 4] = [
    ("NAME", "name"),
    ("PRESETS", "in"),
    ("NEEDS", "needs"),
    ("DOES", "does"),
];

/// Lists the built-in tools.
pub(crate) fn run(format: Format) -> Result<(), Failure> {
    let rows: Vec<_> = built_in()
        .iter()
        .map(|tool| {
            let presets: Vec<&str> = tool.presets().collect();
            let (name, needs, does) = (tool.name, tool.needs, tool.does);
            match format {
                Format::Table => {
                    let presets = presets.join(" ");
                    json!({ "name": name, "in": presets, "needs": needs, "does": does })
                }
                Format::Json | Format::Jsonl => {
                    json!({ "name": name, "presets": presets, "needs": needs, "does": does })
                }
            }
        })
        .collect();
    output::list(format, &COLUMNS, &rows)
}
