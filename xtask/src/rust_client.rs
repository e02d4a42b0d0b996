//! Generates the types and operations of the Rust client from `docs/openapi.json`.

mod operations;
mod types;
mod words;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use serde_json::{Map, Value};

pub(crate) const PACKAGE: &str = "mainspring-client";

const CLIENT: &str = "clients/rust";

/// Paths of other APIs and protocols, which have clients of their own.
const FOREIGN: [&str; 4] = ["/.well-known", "/a2a", "/ag-ui", "/mcp"];

/// Event streams: handles read them, and resume.
const STREAMS: [&str; 3] = ["streamRun", "streamSend", "streamSession"];

/// Types that the layer by hand needs, whether or not an operation names them.
const NEEDED: [&str; 3] = ["NodeView", "Problem", "RunView"];

/// One operation of the description.
struct Operation<'a> {
    path: &'a str,
    method: &'a str,
    said: &'a Value,
}

impl Operation<'_> {
    fn id(&self) -> &str {
        self.said["operationId"].as_str().unwrap_or_default()
    }

    fn is_ours(&self) -> bool {
        let is_foreign = FOREIGN.iter().any(|start| self.path.starts_with(start));
        !is_foreign && !self.id().contains("OpenAi") && !STREAMS.contains(&self.id())
    }
}

/// What all parts of the generated text are made from.
struct Description<'a> {
    schemas: &'a Map<String, Value>,
    version: &'a str,
    operations: Vec<Operation<'a>>,
    /// Schemas that callers write.
    written: BTreeSet<String>,
    /// Schemas of which absent and `null` members mean different things.
    patched: BTreeSet<String>,
    /// All schemas that operations and events use.
    used: BTreeSet<String>,
}

impl<'a> Description<'a> {
    fn of(document: &'a Value) -> anyhow::Result<Self> {
        let schemas = document["components"]["schemas"].as_object();
        let schemas = schemas.context("the description has schemas")?;
        let mut operations = Vec::new();
        for (path, methods) in document["paths"].as_object().context("it has paths")? {
            for (method, said) in methods.as_object().context("a path has methods")? {
                operations.push(Operation { path, method, said });
            }
        }
        operations.retain(Operation::is_ours);
        let bodies = |of: &dyn Fn(&Operation<'_>) -> bool, member: &str| {
            let chosen = operations.iter().filter(|one| of(one));
            let names = chosen.flat_map(|one| references(&one.said[member]));
            reachable(schemas, names.collect())
        };
        let written = bodies(&|_| true, "requestBody");
        let patches = operations.iter().filter(|one| one.method == "patch");
        let patched = patches.flat_map(|one| references(&one.said["requestBody"]));
        let patched = patched.collect();
        let mut used = bodies(&|_| true, "responses");
        used.extend(written.iter().cloned());
        let mut further = references(&schemas["SendEvent"]);
        further.extend(NEEDED.map(str::to_owned));
        used.extend(reachable(schemas, further));
        Ok(Self {
            schemas,
            version: document["info"]["version"].as_str().unwrap_or_default(),
            operations,
            written,
            patched,
            used,
        })
    }
}

/// The schemas that a part of the description names.
fn references(part: &Value) -> Vec<String> {
    match part {
        Value::Object(members) => {
            let here = members.get("$ref").and_then(Value::as_str).map(target);
            let below = members.values().flat_map(references);
            here.into_iter().chain(below).collect()
        }
        Value::Array(items) => items.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

fn target(reference: &str) -> String {
    let name = reference.rsplit('/').next();
    name.unwrap_or_default().to_owned()
}

fn reachable(schemas: &Map<String, Value>, mut names: Vec<String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    while let Some(name) = names.pop() {
        if found.insert(name.clone()) {
            names.extend(references(&schemas[&name]));
        }
    }
    found
}

/// Writes the files, or with `check` fails if one of them is not what would be written.
pub(crate) fn generate(check: bool) -> anyhow::Result<()> {
    let text = std::fs::read_to_string("docs/openapi.json")?;
    let document: Value = serde_json::from_str(&text)?;
    let description = Description::of(&document)?;
    let codes = codes()?;
    let files = [
        ("types.rs", types::text(&description, &codes)?),
        ("api.rs", operations::text(&description)?),
    ];
    for (name, text) in files {
        let text = formatted(&text).with_context(|| name.to_owned())?;
        let path = Path::new(CLIENT).join("src").join(name);
        if check {
            let there = std::fs::read_to_string(&path).unwrap_or_default();
            let path = path.display();
            ensure!(
                there == text,
                "run `cargo xtask clients --generate`: {path} is old"
            );
        } else {
            std::fs::write(path, text)?;
        }
    }
    Ok(())
}

/// The codes of errors, each of which has a page.
fn codes() -> anyhow::Result<Vec<String>> {
    let mut codes = vec!["internal".to_owned()];
    for page in std::fs::read_dir("shared/src/error/codes")? {
        let path = page?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str());
        let code = stem.filter(|stem| stem.contains('.'));
        codes.extend(code.map(str::to_owned));
    }
    codes.sort();
    Ok(codes)
}

fn formatted(text: &str) -> anyhow::Result<String> {
    let mut rustfmt = Command::new("rustfmt")
        .args(["--edition", "2024", "--config-path", "rustfmt.toml"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("rustfmt")?;
    let mut input = rustfmt.stdin.take().context("its input")?;
    let text = text.to_owned();
    let writing = std::thread::spawn(move || input.write_all(text.as_bytes()));
    let output = rustfmt.wait_with_output()?;
    writing.join().map_err(|_| anyhow::anyhow!("a panic"))??;
    ensure!(output.status.success(), "rustfmt does not take it");
    Ok(String::from_utf8(output.stdout)?)
}
