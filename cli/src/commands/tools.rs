//! `mainspring tools …`

mod openapi;
mod schema;

use std::path::Path;

use mainspring_tools::built_in;
use serde_json::{Value, json};

use crate::args::{Format, ImportToolsArgs};
use crate::failure::{Failure, usage_text};
use crate::output::{self, Column};

/// Bytes of a document; the largest public ones have a third of that.
const DOCUMENT_BYTES_MAX: u64 = 64 << 20;

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

/// Writes the tools that an OpenAPI document describes, as an agent declares them.
pub(crate) fn import(args: &ImportToolsArgs) -> Result<(), Failure> {
    let shown = args.document.display().to_string();
    let wrong = |why: String| usage_text(format!("{shown}: {why}"), "see docs/HTTP_TOOLS.md");
    let document = read(&args.document).map_err(wrong)?;
    let server = args.api_server.as_deref();
    let imported = openapi::import(&document, &args.operations, server).map_err(wrong)?;
    let text = serde_json::to_string_pretty(&json!({ "tools": imported.tools }));
    let text = text.map_err(|error| wrong(error.to_string()))?;
    for note in &imported.notes {
        output::note(note);
    }
    for (name, hosts) in &imported.secrets {
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        let hosts = hosts.join(" --host ");
        output::note(&format!(
            "needs the secret: mainspring secrets set {name} --host {hosts}"
        ));
    }
    match &args.out {
        Some(file) => std::fs::write(file, text + "\n")
            .map_err(|error| wrong(format!("{} cannot be written: {error}", file.display()))),
        None => output::line(&text),
    }
}

fn read(file: &Path) -> Result<Value, String> {
    let about = std::fs::metadata(file).map_err(|error| error.to_string())?;
    if about.len() > DOCUMENT_BYTES_MAX {
        return Err(format!("it has more than {DOCUMENT_BYTES_MAX} bytes"));
    }
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string())?;
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(&text).map_err(|error| error.to_string());
    }
    serde_saphyr::from_str(&text).map_err(|error| error.to_string())
}
