//! Makes HTTP tools of an OpenAPI document, 3.0 or 3.1: a pure function of the document.

use std::collections::{BTreeMap, BTreeSet};

use mainspring_shared::tool::request::Method;
use mainspring_shared::tool::{TOOLS_MAX, ToolEntry, check};
use serde_json::{Map, Value, json};

use super::schema::{Cutter, shortened};

/// Every vendor takes names of so many letters, digits, `_` and `-`.
const NAME_CHARS_MAX: usize = 64;

/// Characters of a description.
const DESCRIPTION_CHARS_MAX: usize = 1_000;

/// How many references in a row are followed.
const REFERENCES_MAX: usize = 16;

/// Headers that documents may describe and that are no parameters.
const HEADERS_IGNORED: [&str; 3] = ["accept", "content-type", "authorization"];

/// What is made of a document.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Imported {
    /// The tools, as an agent declares them.
    pub(super) tools: Vec<Value>,
    /// The secrets that they name, with the hosts that each goes to.
    pub(super) secrets: BTreeMap<String, BTreeSet<String>>,
    /// What was left out, and why.
    pub(super) notes: Vec<String>,
}

/// An operation of the document.
struct Operation<'a> {
    method: Method,
    path: &'a str,
    item: &'a Value,
    own: &'a Value,
}

/// Makes tools of the operations with these ids, or `METHOD /path`; of all if there are none. `server` takes the place
/// of the servers that the document names.
pub(super) fn import(
    document: &Value,
    operations: &[String],
    server: Option<&str>,
) -> Result<Imported, String> {
    let version = document["openapi"].as_str().unwrap_or_default();
    if !version.starts_with("3.") {
        return Err("it is no OpenAPI document of version 3".to_owned());
    }
    let all = all(document);
    let mut chosen = Vec::new();
    for wanted in operations {
        let found = all.iter().find(|operation| operation.is_called(wanted));
        chosen.push(found.ok_or_else(|| format!("it has no operation {wanted:?}"))?);
    }
    if operations.is_empty() {
        chosen = all.iter().collect();
    }
    if chosen.len() > TOOLS_MAX {
        let count = chosen.len();
        return Err(format!(
            "it has {count} operations, and an agent at most {TOOLS_MAX} tools: choose with --operations"
        ));
    }
    let mut imported = Imported::default();
    let mut names = BTreeSet::new();
    for operation in chosen {
        let made = Maker { document, server }.tool(operation, &mut imported);
        let made = made.and_then(|mut tool| {
            tool["name"] = json!(unique(&operation.name(), &mut names));
            fit(tool)
        });
        match made {
            Ok(tool) => imported.tools.push(tool),
            Err(why) => {
                let (method, path) = (operation.method.as_str(), operation.path);
                imported
                    .notes
                    .push(format!("{method} {path} is left out: {why}"));
            }
        }
    }
    if imported.tools.is_empty() {
        let why = imported
            .notes
            .first()
            .map_or("it has no operations", String::as_str);
        return Err(format!("no tools can be made of it: {why}"));
    }
    Ok(imported)
}

/// The tool, if an agent may declare it.
fn fit(tool: Value) -> Result<Value, String> {
    let entry = serde_json::from_value::<ToolEntry>(tool.clone());
    let entry = entry.map_err(|error| format!("no tool can be made of it: {error}"))?;
    match check(&[entry]).first() {
        Some(fault) => Err(format!("{}: {}", fault.pointer, fault.detail)),
        None => Ok(tool),
    }
}

fn all(document: &Value) -> Vec<Operation<'_>> {
    let paths = document["paths"].as_object();
    let mut all = Vec::new();
    for (path, item) in paths.into_iter().flatten() {
        let item = resolved(document, item);
        for method in Method::ALL {
            if let Some(own) = item.get(method.as_str().to_ascii_lowercase()) {
                all.push(Operation {
                    method,
                    path,
                    item,
                    own,
                });
            }
        }
    }
    all
}

impl Operation<'_> {
    fn id(&self) -> Option<&str> {
        self.own["operationId"].as_str()
    }

    fn is_called(&self, wanted: &str) -> bool {
        let by_path = wanted.split_once(' ').is_some_and(|(method, path)| {
            method.eq_ignore_ascii_case(self.method.as_str()) && path.trim() == self.path
        });
        by_path || self.id() == Some(wanted)
    }

    fn name(&self) -> String {
        let method = self.method.as_str().to_ascii_lowercase();
        let by_path = || format!("{method}_{}", self.path);
        word(&self.id().map_or_else(by_path, str::to_owned))
    }
}

/// A text as a name.
fn word(text: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let pieces = text.split(|c| !fits(c)).filter(|piece| !piece.is_empty());
    let whole = pieces.collect::<Vec<_>>().join("_");
    let whole = if whole.is_empty() {
        "call".to_owned()
    } else {
        whole
    };
    whole.chars().take(NAME_CHARS_MAX).collect()
}

fn unique(name: &str, names: &mut BTreeSet<String>) -> String {
    let numbered = |number: usize| {
        let suffix = format!("_{number}");
        let room = NAME_CHARS_MAX - suffix.len();
        format!("{}{suffix}", name.chars().take(room).collect::<String>())
    };
    let candidates = std::iter::once(name.to_owned()).chain((2..).map(numbered));
    let mut free = candidates.filter(|name| !names.contains(name));
    let free = free.next().unwrap_or_default();
    names.insert(free.clone());
    free
}

/// What a value or the reference in its place says.
pub(super) fn resolved<'a>(document: &'a Value, mut value: &'a Value) -> &'a Value {
    for _ in 0..REFERENCES_MAX {
        let reference = value.get("$ref").and_then(Value::as_str);
        let Some(pointer) = reference.and_then(|reference| reference.strip_prefix('#')) else {
            return value;
        };
        match document.pointer(pointer) {
            Some(target) => value = target,
            None => return &Value::Null,
        }
    }
    &Value::Null
}

struct Maker<'a> {
    document: &'a Value,
    server: Option<&'a str>,
}

/// The parts of a tool as they come together.
#[derive(Default)]
struct Parts {
    url: String,
    request: Map<String, Value>,
    query: Map<String, Value>,
    headers: Map<String, Value>,
    properties: Map<String, Value>,
    required: Vec<Value>,
    /// Whether the model may add members.
    is_open: bool,
}

impl Maker<'_> {
    fn tool(&self, of: &Operation<'_>, imported: &mut Imported) -> Result<Value, String> {
        let base = self.base(of)?;
        // How deep schemas are shown is cut until all of them together have a bearable size.
        let parts = (1..=8).rev().map(|depth| {
            let cutter = Cutter::new(self.document, depth);
            self.parts(of, &base, &cutter)
        });
        let mut parts = parts
            .filter(|parts| parts.as_ref().is_err() || parts.as_ref().is_ok_and(Parts::is_small));
        let mut parts = parts.next().ok_or("its schemas are too large")??;
        let (secrets, notes) = self.security(of, &base, &mut parts);
        for (secret, host) in secrets {
            imported.secrets.entry(secret).or_default().insert(host);
        }
        imported.notes.extend(notes);
        let mut request = parts.request;
        request.insert("method".to_owned(), json!(of.method));
        for (name, members) in [("query", parts.query), ("headers", parts.headers)] {
            if !members.is_empty() {
                request.insert(name.to_owned(), Value::Object(members));
            }
        }
        let mut parameters = json!({ "type": "object", "properties": parts.properties });
        if !parts.required.is_empty() {
            parameters["required"] = Value::Array(parts.required);
        }
        if !parts.is_open {
            parameters["additionalProperties"] = json!(false);
        }
        let said =
            ["summary", "description"].map(|name| of.own[name].as_str().unwrap_or_default().trim());
        let mut said: Vec<&str> = said.into_iter().filter(|text| !text.is_empty()).collect();
        said.dedup();
        let description: String = said
            .join("\n")
            .chars()
            .take(DESCRIPTION_CHARS_MAX)
            .collect();
        Ok(json!({
            "type": "http",
            "name": "",
            "description": description,
            "url": parts.url,
            "request": request,
            "repeat": of.method.repeat(),
            "parameters": parameters,
        }))
    }

    /// The URL that the paths of an operation are below.
    fn base(&self, of: &Operation<'_>) -> Result<String, String> {
        let lists = [of.own, of.item, self.document].map(|place| &place["servers"][0]);
        let named = lists.into_iter().find(|server| server.is_object());
        let mut url = named
            .and_then(|named| named["url"].as_str())
            .unwrap_or("/")
            .to_owned();
        for (name, variable) in named
            .and_then(|named| named["variables"].as_object())
            .into_iter()
            .flatten()
        {
            let value = variable["default"].as_str().unwrap_or_default();
            url = url.replace(&format!("{{{name}}}"), value);
        }
        let base = match self.server {
            // A path alone is below the server that was given.
            Some(server) if url.starts_with('/') => {
                format!("{}{url}", server.trim_end_matches('/'))
            }
            Some(server) => server.to_owned(),
            None => url,
        };
        let is_whole = base.starts_with("https://") || base.starts_with("http://");
        if !is_whole || base.contains(['{', '}']) {
            return Err("it names no server: give --api-server".to_owned());
        }
        Ok(base.trim_end_matches('/').to_owned())
    }

    fn parts(&self, of: &Operation<'_>, base: &str, cutter: &Cutter<'_>) -> Result<Parts, String> {
        let mut parts = Parts::default();
        let mut path = of.path.to_owned();
        for parameter in self.parameters(of) {
            let (name, place) = (text(parameter, "name"), text(parameter, "in"));
            let is_required = parameter["required"] == true;
            if place == "cookie" && is_required {
                return Err("it needs a cookie".to_owned());
            }
            if place == "cookie"
                || place == "header" && HEADERS_IGNORED.contains(&name.to_lowercase().as_str())
            {
                continue;
            }
            let argument = parts.argument(name, place);
            let template = json!(format!("{{{argument}}}"));
            match place {
                "path" => path = path.replace(&format!("{{{name}}}"), &format!("{{{argument}}}")),
                "query" => drop(parts.query.insert(name.to_owned(), template)),
                "header" => drop(parts.headers.insert(name.to_owned(), template)),
                _ => return Err(format!("its parameter {name:?} is nowhere")),
            }
            let schema = parameter.get("schema");
            let content = || {
                parameter["content"]
                    .as_object()?
                    .values()
                    .next()?
                    .get("schema")
            };
            let mut schema = cutter.cut(schema.or_else(content).unwrap_or(&Value::Null));
            if let (Some(said), Some(schema)) =
                (parameter["description"].as_str(), schema.as_object_mut())
            {
                schema.insert("description".to_owned(), json!(shortened(said)));
            }
            parts.properties.insert(argument.clone(), schema);
            if is_required || place == "path" {
                parts.required.push(json!(argument));
            }
        }
        let mut names = path
            .split('{')
            .skip(1)
            .filter_map(|rest| rest.split('}').next());
        if let Some(missing) = names.find(|name| !parts.properties.contains_key(*name)) {
            return Err(format!("{missing:?} in its path is no parameter"));
        }
        parts.url = format!("{base}{path}");
        self.body(of, cutter, &mut parts)?;
        Ok(parts)
    }

    /// The parameters of an operation; its own take the place of those of its path.
    fn parameters<'v>(&'v self, of: &'v Operation<'_>) -> Vec<&'v Value> {
        let mut all: Vec<&Value> = Vec::new();
        for place in [of.item, of.own] {
            for parameter in place["parameters"].as_array().into_iter().flatten() {
                let parameter = resolved(self.document, parameter);
                let is_same = |other: &&Value| {
                    other["name"] == parameter["name"] && other["in"] == parameter["in"]
                };
                all.retain(|other| !is_same(other));
                all.push(parameter);
            }
        }
        all
    }

    fn body(
        &self,
        of: &Operation<'_>,
        cutter: &Cutter<'_>,
        parts: &mut Parts,
    ) -> Result<(), String> {
        let own = resolved(self.document, &of.own["requestBody"]);
        let Some(content) = own["content"].as_object() else {
            if matches!(of.method, Method::Post | Method::Put | Method::Patch) {
                parts.request.insert("body".to_owned(), json!("none"));
            }
            return Ok(());
        };
        let kind = |name: &String| {
            name.split(';')
                .next()
                .unwrap_or_default()
                .trim()
                .to_lowercase()
        };
        let is_json =
            |kind: &str| kind == "application/json" || kind.ends_with("+json") || kind == "*/*";
        let json_form = content.iter().find(|(name, _)| is_json(&kind(name)));
        let form = content
            .iter()
            .find(|(name, _)| kind(name) == "application/x-www-form-urlencoded");
        let (form, (media, told)) = match (json_form, form) {
            (Some(found), _) => ("json", found),
            (None, Some(found)) => ("form", found),
            (None, None) => return Err("its body is neither JSON nor a form".to_owned()),
        };
        parts.request.insert("body".to_owned(), json!(form));
        if form == "json" && kind(media) != "application/json" && kind(media) != "*/*" {
            parts.headers.insert(
                "Content-Type".to_owned(),
                json!(media.replace('{', "{{").replace('}', "}}")),
            );
        }
        let schema = cutter.cut(&told["schema"]);
        let properties = schema["properties"].as_object();
        let is_plain = schema["type"] == "object"
            && ["allOf", "anyOf", "oneOf"]
                .iter()
                .all(|name| schema.get(*name).is_none());
        let clashes = |properties: &Map<String, Value>| {
            properties
                .keys()
                .any(|name| parts.properties.contains_key(name))
        };
        if let Some(properties) = properties.filter(|properties| is_plain && !clashes(properties)) {
            parts.properties.extend(properties.clone());
            if own["required"] == true {
                let required = schema["required"].as_array();
                parts
                    .required
                    .extend(required.into_iter().flatten().cloned());
            }
            parts.is_open = schema["additionalProperties"] != false;
        } else {
            let argument = parts.argument("body", "request");
            parts
                .request
                .insert("body_argument".to_owned(), json!(argument));
            parts.properties.insert(argument.clone(), schema);
            if own["required"] == true {
                parts.required.push(json!(argument));
            }
        }
        Ok(())
    }

    /// What lets a tool in: the first of the alternatives, each part of which is a secret with the name of its scheme.
    fn security(
        &self,
        of: &Operation<'_>,
        base: &str,
        parts: &mut Parts,
    ) -> (Vec<(String, String)>, Vec<String>) {
        let (mut secrets, mut notes) = (Vec::new(), Vec::new());
        let alternatives = of.own.get("security").unwrap_or(&self.document["security"]);
        let alternatives = alternatives.as_array().into_iter().flatten();
        let first = alternatives
            .filter_map(Value::as_object)
            .find(|parts| !parts.is_empty());
        for (name, scopes) in first.into_iter().flatten() {
            let scheme = &self.document["components"]["securitySchemes"][name];
            let scheme = resolved(self.document, scheme);
            let secret = word(name);
            let flow = &scheme["flows"]["clientCredentials"];
            let (kind, place) = (text(scheme, "type"), text(scheme, "in"));
            let auth = match (kind, text(scheme, "scheme").to_lowercase().as_str()) {
                ("http", "basic") => json!({ "type": "basic", "secret": secret }),
                ("apiKey", _) if place == "header" => {
                    let header = json!({ "secret": secret });
                    parts
                        .headers
                        .insert(text(scheme, "name").to_owned(), header);
                    secrets.push((secret, host(base)));
                    continue;
                }
                ("apiKey", _) if place == "query" => {
                    json!({ "type": "api_key", "in": "query", "name": scheme["name"], "secret": secret })
                }
                ("oauth2", _) if flow.is_object() => {
                    let token_url = text(flow, "tokenUrl");
                    let token_url = if token_url.starts_with('/') {
                        format!("{}{token_url}", host(base))
                    } else {
                        token_url.to_owned()
                    };
                    secrets.push((secret.clone(), host(&token_url)));
                    json!({ "type": "oauth", "token_url": token_url, "secret": secret, "scopes": scopes })
                }
                ("http" | "oauth2" | "openIdConnect", _) => {
                    json!({ "type": "bearer", "secret": secret })
                }
                _ => {
                    notes.push(format!(
                        "{} does without {name}, which is of another kind",
                        of.path
                    ));
                    continue;
                }
            };
            if parts.request.contains_key("auth") {
                notes.push(format!(
                    "{} does without {name}: a tool has one `auth`",
                    of.path
                ));
                continue;
            }
            parts.request.insert("auth".to_owned(), auth);
            secrets.push((secret, host(base)));
        }
        (secrets, notes)
    }
}

impl Parts {
    /// The name of an argument for a parameter: its own, if it can stand in a template and is free.
    fn argument(&self, name: &str, place: &str) -> String {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        let is_plain = !name.is_empty() && name.len() <= NAME_CHARS_MAX && name.chars().all(fits);
        let own = if is_plain {
            name.to_owned()
        } else {
            word(name)
        };
        if !self.properties.contains_key(&own) {
            return own;
        }
        let mut names = self.properties.keys().cloned().collect();
        unique(&format!("{place}_{own}"), &mut names)
    }

    fn is_small(&self) -> bool {
        const BYTES_MAX: usize = 16 * 1024;
        Value::Object(self.properties.clone()).to_string().len() <= BYTES_MAX
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// The origin of a URL.
fn host(url: &str) -> String {
    url.split('/').take(3).collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests;
