//! The front matter of `SKILL.md`.

use std::collections::BTreeMap;

use serde_json::Value;

/// Maximum size of the front matter in bytes: it has a name, a description and a few more lines.
const BYTES_MAX: usize = 64 << 10;

/// The members of the format.
const KNOWN: [&str; 6] = [
    "name",
    "description",
    "license",
    "compatibility",
    "metadata",
    "allowed-tools",
];

/// Parsed front matter.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct FrontMatter {
    pub(super) name: Option<String>,
    pub(super) description: Option<String>,
    pub(super) license: Option<String>,
    pub(super) compatibility: Option<String>,
    pub(super) metadata: Option<Value>,
    pub(super) allowed_tools: Option<Value>,
    pub(super) warnings: Vec<String>,
}

/// The text between the `---` lines, and the text after them.
fn split(text: &str) -> Result<(&str, &str), &'static str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.split_inclusive('\n');
    if lines.next().map(str::trim_end) != Some("---") {
        return Err(
            "must begin with front matter: a line ---, name and description as YAML, a line ---",
        );
    }
    let begin = text.find('\n').map_or(text.len(), |at| at + 1);
    let mut end = begin;
    for line in lines {
        if line.trim_end() == "---" {
            return Ok((&text[begin..end], &text[end + line.len()..]));
        }
        end += line.len();
    }
    Err("the front matter is not closed: a line --- is missing after it")
}

/// The instructions: the text after the front matter.
pub fn body(text: &str) -> &str {
    let body = split(text).map_or(text, |(_, body)| body);
    body.trim_start_matches(['\r', '\n'])
}

/// Reads the front matter of a text.
pub(super) fn read(text: &str) -> Result<FrontMatter, String> {
    let (yaml, _) = split(text)?;
    if yaml.len() > BYTES_MAX {
        return Err(format!("the front matter may have {BYTES_MAX} bytes"));
    }
    let (members, repaired) = match parse(yaml) {
        Ok(members) => (members, false),
        // Descriptions with an unquoted colon are common, and other readers of skills accept them.
        Err(error) => match parse(&quoted(yaml)) {
            Ok(members) => (members, true),
            Err(_) => return Err(format!("the front matter is not YAML: {error}")),
        },
    };
    let mut front = FrontMatter::default();
    if repaired {
        front.warnings.push(
            "the front matter is not YAML: values were read as if they were quoted".to_owned(),
        );
    }
    for (name, value) in members {
        if value.is_null() {
            continue;
        }
        match name.as_str() {
            "name" => front.name = Some(scalar(&name, value)?),
            "description" => front.description = Some(scalar(&name, value)?),
            "license" => front.license = Some(scalar(&name, value)?),
            "compatibility" => front.compatibility = Some(scalar(&name, value)?),
            "metadata" => front.metadata = Some(value),
            "allowed-tools" => front.allowed_tools = Some(value),
            _ => front.warnings.push(format!(
                "the member {name:?} of the front matter is unknown"
            )),
        }
    }
    Ok(front)
}

fn parse(yaml: &str) -> Result<BTreeMap<String, Value>, String> {
    if yaml.trim().is_empty() {
        return Ok(BTreeMap::new());
    }
    serde_saphyr::from_str(yaml).map_err(|error| {
        let text = error.to_string();
        text.lines().next().unwrap_or_default().to_owned()
    })
}

/// A value as text. Numbers and booleans are texts that their author did not quote.
fn scalar(name: &str, value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.trim().to_owned()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => Err(format!("{name} must be a text")),
    }
}

/// The YAML with quotes around the values of known members that are on the same line as their name.
fn quoted(yaml: &str) -> String {
    let lines = yaml.lines().map(|line| {
        let value = line.split_once(':').filter(|(name, value)| {
            let plain = value.trim_start().chars().next();
            KNOWN.contains(name) && plain.is_some_and(|first| !"\"'|>[{&*!#".contains(first))
        });
        match value {
            Some((name, value)) => format!("{name}: {}", Value::from(value.trim())),
            None => line.to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_matter_is_yaml_between_two_lines() {
        let text = "\u{feff}---\r\nname: pdf\r\ndescription: >-\r\n  Reads\r\n  files.\r\nmetadata:\r\n  version: \"1.0\"\r\nallowed-tools: Read Write\r\n---\r\n\r\n# Body\r\n---\r\n";
        let front = read(text).expect("front matter");
        assert_eq!(front.name.as_deref(), Some("pdf"));
        assert_eq!(front.description.as_deref(), Some("Reads files."));
        assert_eq!(front.metadata, Some(serde_json::json!({"version": "1.0"})));
        assert_eq!(front.allowed_tools, Some("Read Write".into()));
        assert!(front.warnings.is_empty());
        assert_eq!(body(text), "# Body\r\n---\r\n");
    }

    #[test]
    fn an_unquoted_colon_is_read_with_a_warning() {
        let front = read(
            "---\nname: a\ndescription: Use it: \"always\" (so: now)\nmetadata:\n  x: 1\n---\n",
        );
        let front = front.expect("front matter");
        assert_eq!(
            front.description.as_deref(),
            Some("Use it: \"always\" (so: now)")
        );
        assert_eq!(front.metadata, Some(serde_json::json!({"x": 1})));
        assert_eq!(front.warnings.len(), 1);
    }

    #[test]
    #[expect(clippy::format_push_string, reason = "a test")]
    fn what_is_no_front_matter_is_refused() {
        for text in [
            "",
            "# Body\n",
            "---\nname: a\n",
            "---\nname: [a\n---\n",
            "---\n- a\n---\n",
            "---\nname: {a: b}\n---\n",
            "---\nname: a\nname: b\n---\n",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
        // An alias bomb of nine levels is more than any front matter needs.
        let mut bomb = "---\na0: &a0 [x,x,x,x,x,x,x,x,x]\n".to_owned();
        for level in 1..9 {
            let before = format!("*a{}", level - 1);
            let nine = vec![before; 9].join(",");
            bomb += &format!("a{level}: &a{level} [{nine}]\n");
        }
        bomb.push_str("---\n");
        assert!(read(&bomb).is_err());
    }

    #[test]
    fn numbers_and_unknown_members_are_taken() {
        let front =
            read("---\nname: 7\ndescription: true\nversion: 2\nlicense:\n---\n").expect("reads");
        assert_eq!(front.name.as_deref(), Some("7"));
        assert_eq!(front.description.as_deref(), Some("true"));
        assert_eq!(front.license, None);
        assert_eq!(front.warnings.len(), 1);
    }
}
