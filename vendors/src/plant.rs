//! Requests that break a rule, made from the rule, and one that keeps them all.

mod samples;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use self::samples::{faulty, samples};

use crate::emulator::Emulator;
use crate::judge::holds;
use crate::ledger::Verdict;
use crate::path::Path;
use crate::rules::{
    Check, Condition, Dialect, Echo, Is, Members, Need, Pictures, Protocol, Role, Rule,
};

/// A client that does as the vendor says, and knows how not to.
#[derive(Debug)]
pub struct Planter<'a> {
    emulator: &'a Emulator,
    headers: BTreeMap<String, String>,
}

impl<'a> Planter<'a> {
    /// A client of one emulator.
    pub fn new(emulator: &'a Emulator) -> Self {
        let headers = [("anthropic-version", "2023-06-01"), ("x-api-key", "k")];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self {
            emulator,
            headers: headers.into(),
        }
    }

    /// The rules that a request breaks; empty if it is answered without a word.
    pub fn broken(&self, body: &Value) -> Vec<String> {
        self.broken_with(&self.headers, body)
    }

    fn broken_with(&self, headers: &BTreeMap<String, String>, body: &Value) -> Vec<String> {
        self.emulator.ask(headers, body.to_string().as_bytes());
        let judged = self.emulator.judgements().pop();
        judged
            .filter(|judged| judged.verdict != Verdict::Kept)
            .map(|judged| judged.rules)
            .unwrap_or_default()
    }

    /// A conversation that keeps all rules: with calls if the model takes tools at all.
    pub fn conversation(&self, model: &str) -> Option<Value> {
        let extras = [
            json!({}),
            json!({"stream": true}),
            json!({"reasoning_effort": "none"}),
            json!({"tools": null}),
        ];
        extras.iter().find_map(|extra| self.play(model, extra))
    }

    fn play(&self, model: &str, extra: &Value) -> Option<Value> {
        let tools = extra.get("tools").is_none();
        let script = if tools {
            "!call look {\"q\":\"x\"}\n!call look {\"q\":\"y\"}"
        } else {
            "!say hello"
        };
        let mut body = self.opening(model, script, tools);
        for (name, value) in extra
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(_, value)| !value.is_null())
        {
            body[name] = value.clone();
        }
        for _ in 0..3 {
            let message = self.message(&body)?;
            if !self.go_on(&mut body, &message) {
                break;
            }
        }
        self.broken(&body).is_empty().then_some(body)
    }

    /// What is wrong with the conversation that an honest client would have.
    pub fn complaint(&self, model: &str) -> String {
        self.conversation(model);
        let judged = self.emulator.judgements();
        let last: Vec<String> = judged
            .iter()
            .rev()
            .take(4)
            .map(|judged| format!("{:?} {} {}", judged.rules, judged.at, judged.answer))
            .collect();
        last.join("; ")
    }

    /// Each refusal and error of the file as it is sent, with what it is for.
    pub fn refusals(&self) -> Vec<(String, u16, String)> {
        let rules = self.emulator.rules();
        let names = [
            "at", "index", "name", "value", "call", "model", "tokens", "window", "limit", "sum",
        ];
        let words: BTreeMap<&'static str, String> = names.map(|name| (name, "1".to_owned())).into();
        let members = rules.members.iter().flat_map(|table| {
            let wrong = (table.id.clone(), &table.wrong);
            table
                .unknown
                .as_ref()
                .map(|refusal| (table.id.clone(), refusal))
                .into_iter()
                .chain([wrong])
        });
        let others = rules
            .rule
            .iter()
            .map(|rule| (rule.id.clone(), &rule.answer));
        let errors = rules
            .errors
            .iter()
            .map(|(name, refusal)| (name.clone(), refusal));
        let overflow = rules
            .overflow
            .iter()
            .map(|overflow| ("overflow".to_owned(), &overflow.answer));
        let all = members.chain(others).chain(errors).chain(overflow);
        all.map(|(what, refusal)| {
            let (status, body) = crate::refusal::render(&rules.form, refusal, &words);
            (what, status, body)
        })
        .collect()
    }

    fn message(&self, body: &Value) -> Option<Value> {
        self.emulator
            .ask(&self.headers, body.to_string().as_bytes())
            .message
    }

    fn opening(&self, model: &str, script: &str, tools: bool) -> Value {
        let text = format!("look it up for {model}\n{script}");
        let schema = json!({"type": "object", "properties": {"q": {"type": "string", "description": "what"}}, "required": ["q"]});
        let (mut body, tool) = match self.emulator.rules().protocol {
            Protocol::Chat => (
                json!({"model": model, "messages": [{"role": "system", "content": "You look things up."},
                    {"role": "user", "content": text}]}),
                json!({"type": "function", "function": {"name": "look", "description": "Looks.", "parameters": schema}}),
            ),
            Protocol::Messages => (
                json!({"model": model, "max_tokens": 4096, "system": "You look things up.",
                    "messages": [{"role": "user", "content": text}]}),
                json!({"name": "look", "description": "Looks.", "input_schema": schema}),
            ),
            Protocol::Responses => (
                json!({"model": model, "store": false, "instructions": "You look things up.",
                    "input": [{"role": "user", "content": text}]}),
                json!({"type": "function", "name": "look", "description": "Looks.", "parameters": schema, "strict": false}),
            ),
        };
        if tools {
            body["tools"] = json!([tool]);
        }
        body
    }

    /// Appends an answer and what comes behind it. False when the conversation is over.
    fn go_on(&self, body: &mut Value, message: &Value) -> bool {
        let (ids, _, _) = crate::judge::read_message(message);
        let more: Vec<Value> = match self.emulator.rules().protocol {
            Protocol::Chat => {
                let results = ids
                    .iter()
                    .map(|id| json!({"role": "tool", "tool_call_id": id, "content": "found"}));
                let mut more = vec![message.clone()];
                more.extend(results);
                more
            }
            Protocol::Messages => {
                let results: Vec<Value> = ids
                    .iter()
                    .map(|id| json!({"type": "tool_result", "tool_use_id": id, "content": "found"}))
                    .collect();
                if results.is_empty() {
                    vec![message.clone()]
                } else {
                    vec![message.clone(), json!({"role": "user", "content": results})]
                }
            }
            Protocol::Responses => {
                let results = ids.iter().map(
                    |id| json!({"type": "function_call_output", "call_id": id, "output": "found"}),
                );
                let mut more = message["items"].as_array().cloned().unwrap_or_default();
                more.extend(results);
                more
            }
        };
        let list = self.list(body);
        list.extend(more);
        if ids.is_empty() {
            list.push(json!({"role": "user", "content": "and what else?"}));
        }
        !ids.is_empty()
    }

    fn list<'b>(&self, body: &'b mut Value) -> &'b mut Vec<Value> {
        let name = match self.emulator.rules().protocol {
            Protocol::Responses => "input",
            Protocol::Chat | Protocol::Messages => "messages",
        };
        body[name].as_array_mut().expect("the opening has a list")
    }

    /// Requests that break a table of members: an unknown one, and each allowed one with a value of another kind.
    pub fn against_members(&self, table: &Members, base: &Value) -> Vec<(String, Value)> {
        let mut requests = Vec::new();
        let put = |name: &str, value: Value| {
            let path = match &table.at {
                Some(at) => format!("{}.{name}", at.as_str()),
                None => name.to_owned(),
            };
            let mut body = base.clone();
            Path::try_from(path)
                .expect("it is made of one")
                .set(&mut body, Some(value));
            body
        };
        if table.unknown.is_some() {
            requests.push(("an unknown member".to_owned(), put("x_unknown", json!(1))));
        }
        for (name, kind) in &table.allow {
            // Without these a request is none, or is read as another one.
            if matches!(name.as_str(), "model" | "role" | "type" | "stream")
                || self.decided_before(table, name)
            {
                continue;
            }
            if let Some(sample) = samples().into_iter().find(|sample| !kind.takes(sample)) {
                requests.push((format!("{name}: {sample}"), put(name, sample)));
            }
        }
        requests
    }

    /// Whether an earlier table for the same place names a member, and so decides about it.
    fn decided_before(&self, table: &Members, name: &str) -> bool {
        let place = |table: &Members| table.at.as_ref().map(|at| at.as_str().to_owned());
        let tables = &self.emulator.rules().members;
        tables
            .iter()
            .take_while(|other| other.id != table.id)
            .any(|other| place(other) == place(table) && other.allow.contains_key(name))
    }

    /// Requests that break a rule.
    pub fn against(&self, rule: &Rule, base: &Value) -> Vec<(String, Value)> {
        let mut base = base.clone();
        for when in &rule.when {
            meet(when, &mut base, &self.headers);
        }
        for unless in &rule.unless {
            let places = unless.at.places(&base);
            if places.iter().any(|place| holds(unless, place.value)) {
                unless.at.set(&mut base, None);
            }
        }
        if !rule.breaks.is_empty() {
            for (path, value) in &rule.breaks {
                let path = Path::try_from(path.clone()).expect("a path of the file");
                path.set(&mut base, Some(value.clone()));
            }
            return vec![("as the file says".to_owned(), base)];
        }
        match &rule.refuse {
            Check::Value(condition) => self.with_value(rule, condition, &base),
            Check::Schema(dialect) => self.with_schemas(dialect, &base),
            Check::Echo(echo) => vec![(
                "an echo that is lost".to_owned(),
                self.without_echo(echo, base),
            )],
            Check::Pictures(bounds) => self.with_pictures(*bounds, &base),
            other => vec![("another order".to_owned(), self.disordered(other, base))],
        }
    }

    /// Whether one of the headers breaks a rule by being absent.
    pub fn without_header(&self, rule: &Rule, base: &Value) -> bool {
        let Check::Value(condition) = &rule.refuse else {
            return false;
        };
        let Some(name) = condition.at.as_str().strip_prefix("header.") else {
            return false;
        };
        let mut headers = self.headers.clone();
        headers.remove(name);
        self.broken_with(&headers, base).contains(&rule.id)
    }

    fn with_value(&self, rule: &Rule, condition: &Condition, base: &Value) -> Vec<(String, Value)> {
        if condition.is == Some(Is::Absent) {
            let mut body = base.clone();
            condition.at.set(&mut body, None);
            return vec![("without it".to_owned(), body)];
        }
        let given = condition
            .equals
            .iter()
            .chain(condition.any_of.iter().flatten())
            .cloned();
        let fitting = given
            .chain(samples())
            .filter(|sample| holds(condition, Some(sample)));
        let mut requests = fitting.map(|sample| {
            let mut body = base.clone();
            condition.at.set(&mut body, Some(sample.clone()));
            (sample.to_string().chars().take(60).collect(), body)
        });
        let found = requests.find(|(_, body)| self.broken(body).contains(&rule.id));
        found.into_iter().collect()
    }

    fn with_schemas(&self, dialect: &Dialect, base: &Value) -> Vec<(String, Value)> {
        faulty(dialect)
            .into_iter()
            .map(|schema| {
                let mut body = base.clone();
                let (path, name) = match self.emulator.rules().protocol {
                    Protocol::Chat => ("tools[].function.parameters", "function"),
                    Protocol::Messages => ("tools[].input_schema", ""),
                    Protocol::Responses => ("tools[].parameters", ""),
                };
                let path = Path::try_from(path.to_owned()).expect("it is one");
                path.set(&mut body, Some(schema.clone()));
                (format!("{name} {schema}"), body)
            })
            .collect()
    }

    fn without_echo(&self, echo: &Echo, mut body: Value) -> Value {
        if echo.need == Need::Bound {
            body["system"] = json!("You look other things up.");
            return body;
        }
        let responses = self.emulator.rules().protocol == Protocol::Responses;
        let list = self.list(&mut body);
        if responses {
            let mut whole = json!({"items": std::mem::take(list)});
            spoil(echo, &mut whole);
            *list = whole["items"].as_array().cloned().unwrap_or_default();
            return body;
        }
        for message in list
            .iter_mut()
            .filter(|message| message["role"] == "assistant")
        {
            spoil(echo, message);
        }
        body
    }

    fn with_pictures(&self, bounds: Pictures, base: &Value) -> Vec<(String, Value)> {
        let mut requests = Vec::new();
        let picture = |place: &str| match self.emulator.rules().protocol {
            Protocol::Chat => json!({"type": "image_url", "image_url": {"url": place}}),
            Protocol::Responses => json!({"type": "input_image", "image_url": place}),
            Protocol::Messages => {
                let data = place.split_once("base64,").map_or(place, |(_, data)| data);
                json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}})
            }
        };
        let mut with = |what: &str, parts: Vec<Value>| {
            let mut body = base.clone();
            self.list(&mut body)
                .push(json!({"role": "user", "content": parts}));
            requests.push((what.to_owned(), body));
        };
        if let Some(most) = bounds.encoded_max {
            with(
                "a large one",
                vec![picture(&format!(
                    "data:image/png;base64,{}",
                    "A".repeat(most + 4)
                ))],
            );
        }
        if let Some(most) = bounds.count_max {
            with(
                "many",
                vec![picture("data:image/png;base64,AAAA"); most + 1],
            );
        }
        if bounds.no_links {
            with("a link", vec![picture("https://example.com/a.png")]);
        }
        requests
    }

    fn disordered(&self, check: &Check, mut body: Value) -> Value {
        let said = |role: Role| {
            let name = match role {
                Role::System => "system",
                Role::User => "user",
                Role::Assistant => "assistant",
                Role::Tool => "tool",
            };
            json!({"role": name, "content": "more"})
        };
        match check {
            Check::Sequence([first, second]) => {
                let name = said(*first)["role"].clone();
                let list = self.list(&mut body);
                let place = list.iter().rposition(|message| message["role"] == name);
                let place = place.unwrap_or(list.len() - 1) + 1;
                list.insert(place, said(*second));
            }
            Check::Last(roles) => {
                let role = roles.first().copied().unwrap_or(Role::Assistant);
                self.list(&mut body).push(said(role));
            }
            Check::LaterSystem(_) => self.list(&mut body).push(said(Role::System)),
            Check::NoUser(_) => self
                .list(&mut body)
                .retain(|message| message["role"] != "user"),
            Check::Results(_) => self.lose_a_result(&mut body),
            Check::UndeclaredCalls(_) => {
                let tool = &mut body["tools"][0];
                if tool.get("function").is_some() {
                    tool["function"]["name"] = json!("other");
                } else {
                    tool["name"] = json!("other");
                }
            }
            Check::RepeatedIds(_) => self.repeat_an_id(&mut body),
            Check::Value(_)
            | Check::Schema(_)
            | Check::Echo(_)
            | Check::Pictures(_)
            | Check::Marks(_) => {}
        }
        body
    }

    fn lose_a_result(&self, body: &mut Value) {
        let list = self.list(body);
        let result = |message: &Value| {
            message["role"] == "tool" || message["type"] == "function_call_output"
        };
        if let Some(place) = list.iter().position(result) {
            list.remove(place);
            return;
        }
        for message in list {
            if let Some(blocks) = message["content"].as_array_mut()
                && let Some(place) = blocks
                    .iter()
                    .position(|block| block["type"] == "tool_result")
            {
                blocks.remove(place);
                return;
            }
        }
    }

    fn repeat_an_id(&self, body: &mut Value) {
        for message in self.list(body) {
            for name in ["tool_calls", "content"] {
                let Some(list) = message.get_mut(name).and_then(Value::as_array_mut) else {
                    continue;
                };
                let mut first: Option<Value> = None;
                for call in list.iter_mut().filter(|call| call.get("id").is_some()) {
                    let id = first.get_or_insert_with(|| call["id"].clone());
                    call["id"] = id.clone();
                }
            }
        }
    }
}

/// Makes a condition hold, if some sample does.
fn meet(condition: &Condition, body: &mut Value, headers: &BTreeMap<String, String>) {
    let mut root = body.clone();
    root["header"] = json!(headers);
    let met = |root: &Value| {
        condition
            .at
            .places(root)
            .iter()
            .any(|place| holds(condition, place.value))
    };
    if met(&root) {
        return;
    }
    if matches!(condition.is, Some(Is::Absent | Is::Missing)) {
        condition.at.set(body, None);
        return;
    }
    let given = condition
        .equals
        .iter()
        .chain(condition.any_of.iter().flatten())
        .cloned();
    let sample = given
        .chain(samples())
        .find(|sample| holds(condition, Some(sample)));
    condition.at.set(body, sample);
}

/// Takes back what an answer gave, or changes it.
fn spoil(echo: &Echo, message: &mut Value) {
    match echo.need {
        Need::Present => echo.member.set(message, None),
        Need::Own => echo.member.set(message, Some(json!("of another vendor"))),
        Need::Equal | Need::Unchanged | Need::Bound => {
            let value = echo
                .member
                .places(message)
                .into_iter()
                .filter_map(|place| place.value.cloned())
                .next_back();
            match value {
                Some(Value::String(text)) => echo.member.set(message, Some(json!(text + "x"))),
                Some(_) => echo.member.set(message, Some(json!("x"))),
                None => {}
            }
        }
        Need::Order => {
            for name in ["items", "content"] {
                if let Some(list) = message.get_mut(name).and_then(Value::as_array_mut) {
                    let user = list
                        .iter()
                        .position(|item| item["role"] == "user")
                        .map_or(0, |place| place + 1);
                    let calls = list.iter().skip(user).take_while(|item| {
                        item["type"] != "function_call_output" && item["role"] != "user"
                    });
                    let end = user + calls.count();
                    list[user..end].reverse();
                }
            }
        }
    }
}
