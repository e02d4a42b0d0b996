//! Files that contain agents: TOML, YAML or JSON.

use std::io::Read;
use std::path::Path;

use mainspring_shared::agent::AgentName;
use serde_json::{Map, Value, json};

use crate::failure::{Failure, usage_text};

/// The extensions of such files.
pub(super) const KINDS: [&str; 4] = ["json", "toml", "yaml", "yml"];

const WANTED: &str = "an agent is written like {\"name\": \"reviewer\", \"system_prompt\": …}; \
                      several go into a list `agents`";

/// An agent read from a file.
#[derive(Debug)]
pub(super) struct AgentFile {
    pub(super) name: AgentName,
    spec: Map<String, Value>,
    /// `None` leaves the limits as they are.
    limits: Option<Value>,
}

impl AgentFile {
    /// The body of the publish request.
    pub(super) fn body(&self) -> Value {
        let mut body = json!({ "name": self.name, "spec": self.spec });
        if let Some(limits) = &self.limits {
            body["limits"] = limits.clone();
        }
        body
    }
}

/// The agents in a file, in order.
pub(super) fn agents(file: &Path) -> Result<Vec<AgentFile>, Failure> {
    let mut agents = Vec::new();
    for document in documents(file)? {
        let several = match document {
            Value::Object(mut members) if is_list(&members) => {
                members.remove("agents").unwrap_or_default()
            }
            Value::Array(list) => Value::Array(list),
            one => Value::Array(vec![one]),
        };
        for one in several.as_array().into_iter().flatten() {
            agents.push(agent(file, one)?);
        }
    }
    if agents.is_empty() {
        let message = format!("{} holds no agent", file.display());
        return Err(usage_text(message, WANTED));
    }
    Ok(agents)
}

/// Whether an object is a list of agents.
fn is_list(members: &Map<String, Value>) -> bool {
    members.len() == 1 && members.get("agents").is_some_and(Value::is_array)
}

/// Parses an agent object: its name, and either the members of its spec or a member `spec`.
fn agent(file: &Path, value: &Value) -> Result<AgentFile, Failure> {
    let shown = file.display();
    let Value::Object(members) = value else {
        return Err(usage_text(
            format!("{shown}: an agent must be an object"),
            WANTED,
        ));
    };
    let mut members = members.clone();
    let name = match members.remove("name") {
        Some(Value::String(name)) => name.parse().map_err(|fault| (name, fault)),
        _ => return Err(usage_text(format!("{shown}: an agent has no name"), WANTED)),
    };
    let name =
        name.map_err(|(name, fault)| usage_text(format!("{shown}: {name:?}: {fault}"), WANTED))?;
    let limits = members.remove("limits");
    let spec = match members.get("spec") {
        Some(Value::Object(spec)) if members.len() == 1 => spec.clone(),
        _ => members,
    };
    Ok(AgentFile { name, spec, limits })
}

/// The only object in a file.
pub(super) fn object(file: &Path) -> Result<Map<String, Value>, Failure> {
    let shown = file.display();
    let wanted = "name a file that holds an agent, like {\"tools\": [\"core\"]} as JSON, or a published \
                  agent as NAME, NAME@VERSION or NAME@ALIAS";
    let mut documents = documents(file)?;
    match (documents.pop(), documents.is_empty()) {
        (Some(Value::Object(members)), true) => Ok(members),
        _ => Err(usage_text(
            format!("{shown} does not contain exactly one object"),
            wanted,
        )),
    }
}

/// The documents in a file: one, or several for YAML. The extension tells the format; without one
/// it is JSON, which YAML can parse too.
fn documents(file: &Path) -> Result<Vec<Value>, Failure> {
    let shown = file.display();
    let text = read(file)
        .map_err(|error| usage_text(format!("{shown}: {error}"), "name a file that can be read"))?;
    let kind = file.extension().and_then(|end| end.to_str());
    let kind = kind.map(str::to_ascii_lowercase);
    let read = match kind.as_deref() {
        Some("toml") => toml::from_str(&text)
            .map(|document| vec![document])
            .map_err(|error| ("TOML", error.to_string())),
        Some("json") => serde_json::from_str(&text)
            .map(|document| vec![document])
            .map_err(|error| ("JSON", error.to_string())),
        _ => serde_saphyr::from_multiple(&text).map_err(|error| ("YAML", error.to_string())),
    };
    read.map_err(|(kind, error)| {
        let message = format!("{shown} is not {kind}: {}", error.trim_end());
        usage_text(message, WANTED)
    })
}

fn read(file: &Path) -> std::io::Result<String> {
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(name: &str, text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join(name);
        std::fs::write(&file, text).expect("writes");
        (folder, file)
    }

    fn bodies(name: &str, text: &str) -> Result<Vec<Value>, String> {
        let (_folder, file) = written(name, text);
        match agents(&file) {
            Ok(agents) => Ok(agents.iter().map(AgentFile::body).collect()),
            Err(failure) => Err(failure.message),
        }
    }

    #[test]
    fn limits_are_no_part_of_the_spec() {
        let expected = Ok(vec![
            json!({ "name": "a", "spec": { "tools": ["core"] }, "limits": { "sends_open": 3 } }),
        ]);
        let flat = r#"{"name": "a", "tools": ["core"], "limits": {"sends_open": 3}}"#;
        assert_eq!(bodies("a.json", flat), expected);
        let nested = r#"{"name": "a", "spec": {"tools": ["core"]}, "limits": {"sends_open": 3}}"#;
        assert_eq!(bodies("a.json", nested), expected);
    }

    #[test]
    fn the_three_kinds_say_the_same() {
        let expected = Ok(vec![
            json!({ "name": "a", "spec": { "system_prompt": "Be\nbrief.", "tools": ["core"] } }),
            json!({ "name": "b", "spec": { "temperature": 0.5 } }),
        ]);
        let toml = "[[agents]]\nname = \"a\"\nsystem_prompt = \"\"\"\nBe\nbrief.\"\"\"\n\
                    tools = [\"core\"]\n\n[[agents]]\nname = \"b\"\ntemperature = 0.5\n";
        assert_eq!(bodies("x.toml", toml), expected);
        let yaml = "name: a\nsystem_prompt: |-\n  Be\n  brief.\ntools: [core]\n---\nname: b\n\
                    temperature: 0.5\n";
        assert_eq!(bodies("x.yaml", yaml), expected);
        assert_eq!(bodies("x.yml", yaml), expected);
        let json = r#"{"agents": [{"name": "a", "system_prompt": "Be\nbrief.", "tools": ["core"]},
                       {"name": "b", "spec": {"temperature": 0.5}}]}"#;
        assert_eq!(bodies("x.json", json), expected);
        assert_eq!(bodies("x", json), expected);
    }

    #[test]
    fn what_is_no_agent_is_said() {
        for (name, text, said) in [
            ("x.json", "{", "is not JSON"),
            ("x.toml", "= 1", "is not TOML"),
            ("x.yaml", "a: [", "is not YAML"),
            ("x.yaml", "a: 1\na: 2", "is not YAML"),
            ("x.json", "7", "an agent must be an object"),
            ("x.json", "{\"model\": \"m\"}", "an agent has no name"),
            ("x.json", "{\"name\": \"a b\"}", "\"a b\""),
            ("x.json", "{\"agents\": []}", "holds no agent"),
        ] {
            let message = bodies(name, text).expect_err(text);
            assert!(message.contains(said), "{message}");
        }
    }
}
