//! Makes a request of templates and the arguments of a call.

use std::collections::{BTreeMap, BTreeSet};

use percent_encoding::percent_decode_str;
use serde_json::value::RawValue;

use super::place::{self, Part, Template, encoded};
use super::{BodyForm, HeaderSource, HttpAuth, HttpRequest, KeyPlace};

/// The arguments of a call: each as JSON, as it was written.
pub type Arguments = BTreeMap<String, Box<RawValue>>;

/// A request without what lets it in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// Its whole URL.
    pub url: String,
    /// Its headers, without those whose values are secrets.
    pub headers: Vec<(String, String)>,
    /// The media type and the bytes of its body.
    pub body: Option<(&'static str, Vec<u8>)>,
}

/// Renders a request to the URL of this template. The error names the argument that does not fit; it never contains its
/// value.
pub fn render(request: &HttpRequest, url: &str, arguments: &Arguments) -> Result<Rendered, String> {
    let template = place::of_url(url).map_err(|fault| format!("its URL {fault}"))?;
    let mut used = BTreeSet::new();
    let mut whole = template.origin.to_owned();
    for segment in &template.segments {
        used.extend(segment.arguments());
        whole.push('/');
        whole.push_str(&in_path(segment, arguments)?);
    }
    let mut query: Vec<String> = template.query.map(str::to_owned).into_iter().collect();
    for (name, text) in &request.query {
        let template = Template::parse(text)?;
        used.extend(template.arguments());
        query.extend(in_query(name, &template, arguments)?);
    }
    let mut headers = Vec::new();
    for (name, source) in &request.headers {
        let HeaderSource::Text(text) = source else {
            continue;
        };
        let template = Template::parse(text)?;
        used.extend(template.arguments());
        if let Some(value) = in_header(&template, arguments)? {
            headers.push((name.clone(), value));
        }
    }
    let form = request.body();
    let whole_body = request.body_argument.as_deref();
    used.extend(whole_body);
    let rest = || {
        arguments
            .iter()
            .filter(|(name, _)| !used.contains(name.as_str()))
    };
    if form == BodyForm::None || whole_body.is_some() {
        for (name, value) in rest() {
            if is_set(request, template.query, name) {
                return Err(unfit(name, "is a parameter that the tool sets itself"));
            }
            query.extend(parameters(name, value));
        }
    }
    let body = match (form, whole_body) {
        (BodyForm::None, _) => None,
        (BodyForm::Json, Some(name)) => {
            let value = arguments
                .get(name)
                .map(|value| value.get().as_bytes().to_vec());
            value.map(|value| ("application/json", value))
        }
        (BodyForm::Json, None) => {
            let members: BTreeMap<&String, &RawValue> =
                rest().map(|(name, value)| (name, value.as_ref())).collect();
            let body = serde_json::to_vec(&members).map_err(|_| "its body cannot be written")?;
            Some(("application/json", body))
        }
        // The other arguments are in the query.
        (BodyForm::Form, Some(name)) if !arguments.contains_key(name) => None,
        (BodyForm::Form, whole) => {
            let members = match whole.and_then(|name| arguments.get(name)) {
                Some(value) => object(value).ok_or("its body must be an object")?,
                None => rest()
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect(),
            };
            let mut pairs = Vec::new();
            for (name, value) in &members {
                fields(&encoded(name), value, 0, &mut pairs)?;
            }
            Some((
                "application/x-www-form-urlencoded",
                pairs.join("&").into_bytes(),
            ))
        }
    };
    if !query.is_empty() {
        whole.push('?');
        whole.push_str(&query.join("&"));
    }
    Ok(Rendered {
        url: whole,
        headers,
        body,
    })
}

/// Whether a parameter of the query is the tool's own: one of its URL, of its query, or the key that lets it in.
fn is_set(request: &HttpRequest, fixed: Option<&str>, name: &str) -> bool {
    let fixed = fixed.unwrap_or_default().split('&');
    let mut fixed = fixed.map(|pair| pair.split('=').next().unwrap_or_default());
    let is_key = match &request.auth {
        Some(HttpAuth::ApiKey {
            name: key,
            place: KeyPlace::Query,
            ..
        }) => key == name,
        _ => false,
    };
    let mut is_fixed = || {
        fixed.any(|fixed| {
            let plain = fixed.replace('+', " ");
            percent_decode_str(&plain).decode_utf8_lossy() == name
        })
    };
    is_key || request.query.contains_key(name) || is_fixed()
}

fn in_path(segment: &Template<'_>, arguments: &Arguments) -> Result<String, String> {
    let mut whole = String::new();
    let mut is_given = false;
    for part in segment.parts() {
        match part {
            Part::Text(text) => whole.push_str(text),
            Part::Argument(name) => {
                let text = arguments.get(*name).and_then(|value| scalar(value));
                let text =
                    text.ok_or_else(|| unfit(name, "is missing, or not a text or number"))?;
                if let Some(why) = place::path_fault(&text) {
                    return Err(unfit(name, why));
                }
                whole.push_str(&encoded(&text));
                is_given = true;
            }
        }
    }
    if is_given && place::is_dots(&whole) {
        return Err("the arguments make a segment of dots of a part of its path".to_owned());
    }
    Ok(whole)
}

fn in_query(
    name: &str,
    template: &Template<'_>,
    arguments: &Arguments,
) -> Result<Vec<String>, String> {
    if let Some(argument) = template.alone() {
        let Some(value) = arguments.get(argument) else {
            return Ok(Vec::new());
        };
        return Ok(parameters(name, value));
    }
    let text = filled(template, arguments)?;
    Ok(text.map(|text| pair(name, &text)).into_iter().collect())
}

/// A value as parameters: an array is one for each item, an object its JSON.
fn parameters(name: &str, value: &RawValue) -> Vec<String> {
    if is_null(value) {
        return Vec::new();
    }
    let items = match array(value) {
        Some(items) => items,
        None => vec![value.to_owned()],
    };
    let text = |item: &RawValue| scalar(item).unwrap_or_else(|| item.get().to_owned());
    items.iter().map(|item| pair(name, &text(item))).collect()
}

fn in_header(template: &Template<'_>, arguments: &Arguments) -> Result<Option<String>, String> {
    for name in template.arguments() {
        let text = arguments.get(name).and_then(|value| scalar(value));
        if text.is_some_and(|text| !place::is_header_text(&text)) {
            return Err(unfit(
                name,
                "cannot stand in a header: it is not visible ASCII",
            ));
        }
    }
    let text = filled(template, arguments)?;
    Ok(text.map(|text| text.trim().to_owned()))
}

/// The text of a template; none if one of its arguments is missing or null.
fn filled(template: &Template<'_>, arguments: &Arguments) -> Result<Option<String>, String> {
    let mut whole = String::new();
    for part in template.parts() {
        match part {
            Part::Text(text) => whole.push_str(text),
            Part::Argument(name) => match arguments.get(*name) {
                None => return Ok(None),
                Some(value) if is_null(value) => return Ok(None),
                Some(value) => {
                    let text = scalar(value);
                    let text = text.ok_or_else(|| unfit(name, "is not a text or number"))?;
                    whole.push_str(&text);
                }
            },
        }
    }
    Ok(Some(whole))
}

/// How deep a value of a form may be nested.
const DEPTH_MAX: usize = 8;

/// A value as fields of a form: an array is a field for each item, an object `name[member]`.
fn fields(
    name: &str,
    value: &RawValue,
    depth: usize,
    pairs: &mut Vec<String>,
) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err("its arguments are nested too deep for a form".to_owned());
    }
    if is_null(value) {
        return Ok(());
    }
    if let Some(text) = scalar(value) {
        pairs.push(format!("{name}={}", encoded(&text)));
    } else if let Some(items) = array(value) {
        for item in &items {
            fields(name, item, depth + 1, pairs)?;
        }
    } else {
        for (member, value) in &object(value).unwrap_or_default() {
            let name = format!("{name}%5B{}%5D", encoded(member));
            fields(&name, value, depth + 1, pairs)?;
        }
    }
    Ok(())
}

fn pair(name: &str, text: &str) -> String {
    format!("{}={}", encoded(name), encoded(text))
}

fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}

/// The text of a value that is one: a number as it was written.
fn scalar(value: &RawValue) -> Option<String> {
    match value.get().as_bytes().first()? {
        b'"' => serde_json::from_str(value.get()).ok(),
        b'{' | b'[' | b'n' => None,
        _ => Some(value.get().to_owned()),
    }
}

fn array(value: &RawValue) -> Option<Vec<Box<RawValue>>> {
    serde_json::from_str(value.get()).ok()
}

fn object(value: &RawValue) -> Option<Arguments> {
    serde_json::from_str(value.get()).ok()
}

fn unfit(name: &str, why: &str) -> String {
    format!("its argument {name:?} {why}")
}
