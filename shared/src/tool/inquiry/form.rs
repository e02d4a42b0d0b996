//! The form of a question: a flat object of texts, numbers, yes or no, and choices.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::INQUIRY_BYTES_MAX;

/// Fields of a form, and options of a choice: more than a person wants to read.
const FIELDS_MAX: usize = 100;
const OPTIONS_MAX: usize = 1_000;

/// Faults that are reported.
const FAULTS_MAX: usize = 8;

/// What is wrong with a form or an answer, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {detail}")]
pub struct FormFault {
    /// A JSON pointer into the form or the answer.
    pub pointer: String,
    /// What is wrong.
    pub detail: String,
}

impl FormFault {
    pub(super) fn at(pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self {
            pointer: pointer.into(),
            detail: detail.into(),
        }
    }
}

/// A form, read from the schema of a question.
#[derive(Debug, Clone, PartialEq)]
pub struct Form {
    fields: BTreeMap<String, Field>,
    required: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
enum Field {
    Text {
        chars: (u64, u64),
        format: Option<Format>,
    },
    Number {
        whole: bool,
        min: Option<f64>,
        max: Option<f64>,
    },
    YesOrNo,
    OneOf(Vec<String>),
    SomeOf {
        options: Vec<String>,
        items: (u64, u64),
    },
}

/// The formats of texts that are checked; others are the tool's to check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    Email,
    Uri,
    Date,
    DateTime,
}

impl Form {
    /// The form that a schema describes. Fields that are objects, or lists of anything but choices, are refused, as the
    /// protocol does not know them; members that nobody knows are ignored.
    pub fn read(schema: &Value) -> Result<Self, FormFault> {
        if schema.to_string().len() > INQUIRY_BYTES_MAX {
            let detail = format!("has more than {INQUIRY_BYTES_MAX} bytes");
            return Err(FormFault::at("", detail));
        }
        let is_object = schema.get("type").is_none_or(|kind| kind == "object");
        let Some(properties) = schema.get("properties").filter(|_| is_object) else {
            return Err(FormFault::at("", "is not an object with properties"));
        };
        let properties = properties
            .as_object()
            .filter(|fields| fields.len() <= FIELDS_MAX)
            .ok_or_else(|| {
                let detail = format!("is not an object with at most {FIELDS_MAX} members");
                FormFault::at("/properties", detail)
            })?;
        let field = |(name, said): (&String, &Value)| {
            let at = || format!("/properties/{}", escaped(name));
            let field = Field::read(said).map_err(|detail| FormFault::at(at(), detail))?;
            Ok((name.clone(), field))
        };
        let fields = properties.iter().map(field).collect::<Result<_, _>>()?;
        let required = schema.get("required").and_then(Value::as_array);
        let required = required.into_iter().flatten().filter_map(Value::as_str);
        Ok(Self {
            fields,
            required: required
                .filter(|name| properties.contains_key(*name))
                .map(str::to_owned)
                .collect(),
        })
    }

    /// What is wrong with the content of an answer: the first few faults, with pointers into the answer.
    pub fn faults(&self, content: &Map<String, Value>) -> Vec<FormFault> {
        let at = |name: &str| format!("/content/{}", escaped(name));
        let missing = self
            .required
            .iter()
            .filter(|name| !content.contains_key(*name));
        let missing = missing.map(|name| FormFault::at(at(name), "is required"));
        let wrong = content.iter().filter_map(|(name, value)| {
            let detail = match self.fields.get(name) {
                Some(field) => field.fault(value)?,
                None => "is not asked for".to_owned(),
            };
            Some(FormFault::at(at(name), detail))
        });
        missing.chain(wrong).take(FAULTS_MAX).collect()
    }
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

impl Field {
    fn read(said: &Value) -> Result<Self, String> {
        let number = |name: &str| said.get(name).and_then(Value::as_f64);
        if let Some(options) = options(said)? {
            return Ok(Self::OneOf(options));
        }
        match said.get("type").and_then(Value::as_str) {
            Some("string") => Ok(Self::Text {
                chars: range(said, "minLength", "maxLength"),
                format: said
                    .get("format")
                    .and_then(Value::as_str)
                    .and_then(Format::parse),
            }),
            Some(kind @ ("number" | "integer")) => Ok(Self::Number {
                whole: kind == "integer",
                min: number("minimum"),
                max: number("maximum"),
            }),
            Some("boolean") => Ok(Self::YesOrNo),
            Some("array") => {
                let options = said.get("items").map(options).transpose()?.flatten();
                Ok(Self::SomeOf {
                    options: options.ok_or("is a list of something else than choices")?,
                    items: range(said, "minItems", "maxItems"),
                })
            }
            Some(_) | None => Err("is no text, number, boolean or choice".to_owned()),
        }
    }

    fn fault(&self, given: &Value) -> Option<String> {
        match self {
            Self::Text { chars, format } => {
                let Some(text) = given.as_str() else {
                    return Some("must be a text".to_owned());
                };
                let count = text.chars().count() as u64;
                if !(chars.0..=chars.1).contains(&count) {
                    return Some(between("characters", *chars));
                }
                let format = format.filter(|format| !format.fits(text))?;
                Some(format!("must be {}", format.words()))
            }
            Self::Number { whole, min, max } => {
                let Some(number) = given.as_f64() else {
                    return Some("must be a number".to_owned());
                };
                if *whole && number.fract() != 0.0 {
                    return Some("must be a whole number".to_owned());
                }
                match (min, max) {
                    (Some(min), _) if number < *min => Some(format!("must be at least {min}")),
                    (_, Some(max)) if number > *max => Some(format!("must be at most {max}")),
                    (Some(_) | None, Some(_) | None) => None,
                }
            }
            Self::YesOrNo => (!given.is_boolean()).then(|| "must be true or false".to_owned()),
            Self::OneOf(options) => {
                let fits = given
                    .as_str()
                    .is_some_and(|given| options.iter().any(|one| one == given));
                (!fits).then(|| one_of(options))
            }
            Self::SomeOf { options, items } => {
                let Some(given) = given.as_array() else {
                    return Some("must be a list".to_owned());
                };
                if !(items.0..=items.1).contains(&(given.len() as u64)) {
                    return Some(between("choices", *items));
                }
                let is_one = |given: &Value| {
                    given
                        .as_str()
                        .is_some_and(|given| options.iter().any(|one| one == given))
                };
                (!given.iter().all(is_one)).then(|| one_of(options))
            }
        }
    }
}

fn range(said: &Value, least: &str, most: &str) -> (u64, u64) {
    let bound = |name: &str| said.get(name).and_then(Value::as_u64);
    (bound(least).unwrap_or(0), bound(most).unwrap_or(u64::MAX))
}

fn between(what: &str, (least, most): (u64, u64)) -> String {
    match most {
        u64::MAX => format!("must have at least {least} {what}"),
        most => format!("must have {least} to {most} {what}"),
    }
}

fn one_of(options: &[String]) -> String {
    const SHOWN_MAX: usize = 20;
    let shown: Vec<&str> = options.iter().take(SHOWN_MAX).map(String::as_str).collect();
    let more = if options.len() > SHOWN_MAX {
        ", …"
    } else {
        ""
    };
    format!("must be one of: {}{more}", shown.join(", "))
}

/// The options of a choice in any of its forms; none if it is no choice.
fn options(said: &Value) -> Result<Option<Vec<String>>, String> {
    let titled = said.get("oneOf").or_else(|| said.get("anyOf"));
    let (listed, value): (_, fn(&Value) -> Option<&str>) = match (said.get("enum"), titled) {
        (Some(plain), _) => (plain, Value::as_str),
        (None, Some(titled)) => (titled, |one| one.get("const")?.as_str()),
        (None, None) => return Ok(None),
    };
    let listed = listed
        .as_array()
        .filter(|listed| !listed.is_empty() && listed.len() <= OPTIONS_MAX);
    let options = listed.map(|listed| listed.iter().map(|one| value(one).map(str::to_owned)));
    let options = options.and_then(Iterator::collect::<Option<Vec<_>>>);
    options
        .map(Some)
        .ok_or_else(|| format!("is no choice of 1 to {OPTIONS_MAX} texts"))
}

impl Format {
    fn parse(name: &str) -> Option<Self> {
        match name {
            "email" => Some(Self::Email),
            "uri" => Some(Self::Uri),
            "date" => Some(Self::Date),
            "date-time" => Some(Self::DateTime),
            _ => None,
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Email => "an e-mail address",
            Self::Uri => "an address such as https://example.com",
            Self::Date => "a date such as 2025-11-25",
            Self::DateTime => "a time such as 2025-11-25T12:00:00Z",
        }
    }

    fn fits(self, text: &str) -> bool {
        let is_word = !text.chars().any(|c| c.is_whitespace() || c.is_control());
        match self {
            Self::Email => {
                let parts = text.rsplit_once('@');
                is_word && parts.is_some_and(|(name, host)| !name.is_empty() && !host.is_empty())
            }
            Self::Uri => {
                let scheme = text.split_once(':');
                is_word
                    && scheme.is_some_and(|(scheme, rest)| {
                        let mut letters = scheme.chars();
                        letters.next().is_some_and(|c| c.is_ascii_alphabetic())
                            && letters.all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
                            && !rest.is_empty()
                    })
            }
            Self::Date => text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok(),
            Self::DateTime => text.len() > 10 && text.parse::<jiff::Timestamp>().is_ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_field_takes_what_fits_and_nothing_else() {
        let cases = [
            (
                json!({"type": "string"}),
                vec![json!("x"), json!("")],
                vec![json!(1), json!(null)],
            ),
            (
                json!({"type": "string", "minLength": 2, "maxLength": 3}),
                vec![json!("äö"), json!("abc")],
                vec![json!("a"), json!("abcd")],
            ),
            (
                json!({"type": "string", "format": "email"}),
                vec![json!("a@b.c")],
                vec![json!("a"), json!("@b"), json!("a b@c")],
            ),
            (
                json!({"type": "string", "format": "uri"}),
                vec![json!("https://a/b"), json!("mailto:x")],
                vec![json!("a/b"), json!("1:x"), json!("x:")],
            ),
            (
                json!({"type": "string", "format": "date"}),
                vec![json!("2024-02-29")],
                vec![
                    json!("2023-02-29"),
                    json!("2024-02-29T00:00:00Z"),
                    json!("today"),
                ],
            ),
            (
                json!({"type": "string", "format": "date-time"}),
                vec![
                    json!("2024-02-29T01:02:03Z"),
                    json!("2024-02-29T01:02:03+02:00"),
                ],
                vec![json!("2024-02-29"), json!("01:02")],
            ),
            (
                json!({"type": "string", "format": "phone"}),
                vec![json!("any")],
                vec![json!(7)],
            ),
            (
                json!({"type": "integer", "minimum": 1, "maximum": 5}),
                vec![json!(1), json!(5.0)],
                vec![json!(0), json!(6), json!(1.5), json!("1")],
            ),
            (
                json!({"type": "number"}),
                vec![json!(1.5), json!(-2)],
                vec![json!(true)],
            ),
            (
                json!({"type": "boolean"}),
                vec![json!(true), json!(false)],
                vec![json!("true"), json!(0)],
            ),
            (
                json!({"type": "string", "enum": ["a", "b"], "enumNames": ["A", "B"]}),
                vec![json!("a")],
                vec![json!("A"), json!(["a"])],
            ),
            (
                json!({"type": "string", "oneOf": [{"const": "a", "title": "A"}]}),
                vec![json!("a")],
                vec![json!("A")],
            ),
            (
                json!({"type": "array", "maxItems": 2, "items": {"type": "string", "enum": ["a", "b", "c"]}}),
                vec![json!([]), json!(["a", "c"])],
                vec![json!(["a", "b", "c"]), json!(["d"]), json!("a")],
            ),
            (
                json!({"type": "array", "minItems": 1, "items": {"anyOf": [{"const": "a"}, {"const": "b"}]}}),
                vec![json!(["b"])],
                vec![json!([]), json!([1])],
            ),
        ];
        for (field, good, bad) in cases {
            let form = Form::read(&json!({"type": "object", "properties": {"f/1": field}}));
            let form = form.expect("a form");
            let faults =
                |given: &Value| form.faults(json!({"f/1": given}).as_object().expect("one"));
            for given in good {
                assert_eq!(faults(&given), [], "{field} {given}");
            }
            for given in bad {
                let found = faults(&given);
                assert_eq!(found.len(), 1, "{field} {given}");
                assert_eq!(found[0].pointer, "/content/f~11");
            }
        }
    }

    #[test]
    fn what_is_no_flat_form_is_refused_with_its_place() {
        let nested = json!({"type": "object", "properties": {"a": {"type": "string"}}});
        let many: Map<String, Value> = (0..=FIELDS_MAX)
            .map(|n| (n.to_string(), json!({"type": "string"})))
            .collect();
        for (schema, place) in [
            (json!(null), ""),
            (json!({"type": "array"}), ""),
            (json!({"type": "object"}), ""),
            (json!({"type": "object", "properties": 3}), "/properties"),
            (json!({"type": "object", "properties": many}), "/properties"),
            (
                json!({"type": "object", "properties": {"a": nested}}),
                "/properties/a",
            ),
            (
                json!({"type": "object", "properties": {"a": {"$ref": "#"}}}),
                "/properties/a",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": ["string", "null"]}}}),
                "/properties/a",
            ),
            (
                json!({"type": "object", "properties": {"a": {"enum": []}}}),
                "/properties/a",
            ),
            (
                json!({"type": "object", "properties": {"a": {"enum": [1]}}}),
                "/properties/a",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}}),
                "/properties/a",
            ),
            (
                json!({"type": "object", "properties": {}, "x": "y".repeat(INQUIRY_BYTES_MAX)}),
                "",
            ),
        ] {
            let fault = Form::read(&schema).expect_err("no form");
            assert_eq!(fault.pointer, place, "{fault}");
        }
    }

    #[test]
    fn an_empty_form_takes_an_empty_answer_and_what_is_required_but_no_field_is_not_missed() {
        let form = Form::read(&json!({"properties": {}, "required": ["ghost"]})).expect("a form");
        assert_eq!(form.faults(&Map::new()), []);
    }
}
