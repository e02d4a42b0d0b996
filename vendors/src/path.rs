//! Where in a request a rule looks: `messages[role=assistant].tool_calls[].id`.

use serde::Deserialize;
use serde_json::Value;

/// A way down from the root of a request to one member.
///
/// Segments are separated by dots. `name` is a member of an object, `name[]` is each element of a list,
/// `name[key=word]` each of its elements whose member `key` is that word, `name[has key]` each that has the
/// member. A path that begins with `header.` looks at the headers of the request.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "String")]
pub struct Path {
    text: String,
    segments: Vec<Segment>,
}

#[derive(Debug, Clone)]
struct Segment {
    name: String,
    each: Option<Filter>,
}

#[derive(Debug, Clone)]
enum Filter {
    All,
    Equals(String, String),
    Has(String),
}

/// A place that a path led to: the object that would hold the member, and the member if it is there.
#[derive(Debug, Clone)]
pub struct Place<'a> {
    /// As the vendors write it: `messages.3.content`.
    pub at: String,
    /// The number of the last list element on the way, counted from nought.
    pub index: Option<usize>,
    /// The name of the member.
    pub name: String,
    /// The member itself, absent if its holder lacks it.
    pub value: Option<&'a Value>,
}

impl TryFrom<String> for Path {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let mut segments = Vec::new();
        for part in text.split('.') {
            segments.push(segment(part)?);
        }
        Ok(Self { text, segments })
    }
}

fn segment(part: &str) -> Result<Segment, String> {
    let Some((name, rest)) = part.split_once('[') else {
        return Ok(Segment {
            name: part.to_owned(),
            each: None,
        });
    };
    let inner = rest
        .strip_suffix(']')
        .ok_or_else(|| format!("`{part}` lacks its closing bracket"))?;
    let each = if inner.is_empty() {
        Filter::All
    } else if let Some(key) = inner.strip_prefix("has ") {
        Filter::Has(key.to_owned())
    } else if let Some((key, word)) = inner.split_once('=') {
        Filter::Equals(key.to_owned(), word.to_owned())
    } else {
        return Err(format!(
            "`{part}`: neither `[]`, `[key=word]` nor `[has key]`"
        ));
    };
    Ok(Segment {
        name: name.to_owned(),
        each: Some(each),
    })
}

impl Filter {
    fn takes(&self, element: &Value) -> bool {
        match self {
            Self::All => true,
            Self::Has(key) => element.get(key).is_some(),
            Self::Equals(key, word) => element.get(key).and_then(Value::as_str) == Some(word),
        }
    }
}

impl Path {
    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Each place that the path leads to. The last member may be absent there; the ones before it may not.
    pub fn places<'a>(&self, root: &'a Value) -> Vec<Place<'a>> {
        let mut places = vec![Place {
            at: String::new(),
            index: None,
            name: String::new(),
            value: Some(root),
        }];
        for segment in &self.segments {
            places = places
                .into_iter()
                .flat_map(|place| step(&place, segment))
                .collect();
        }
        places
    }

    /// Puts `value` where the path leads to first, and makes what is missing on the way. `None` removes.
    pub fn set(&self, root: &mut Value, value: Option<Value>) {
        let mut here = root;
        for (number, segment) in self.segments.iter().enumerate() {
            let last = number + 1 == self.segments.len();
            if !here.is_object() {
                *here = Value::Object(serde_json::Map::new());
            }
            let object = here.as_object_mut().expect("it was just made one");
            if last && segment.each.is_none() {
                match value {
                    Some(value) => drop(object.insert(segment.name.clone(), value)),
                    None => drop(object.remove(&segment.name)),
                }
                return;
            }
            let member = object
                .entry(segment.name.clone())
                .or_insert_with(|| Value::Null);
            here = match &segment.each {
                None => member,
                Some(filter) => element(member, filter),
            };
        }
        *here = value.unwrap_or(Value::Null);
    }
}

fn step<'a>(place: &Place<'a>, segment: &Segment) -> Vec<Place<'a>> {
    let Some(holder) = place.value.filter(|value| value.is_object()) else {
        return Vec::new();
    };
    let at = if place.at.is_empty() {
        segment.name.clone()
    } else {
        format!("{}.{}", place.at, segment.name)
    };
    let value = holder.get(&segment.name);
    let Some(filter) = &segment.each else {
        return vec![Place {
            at,
            index: place.index,
            name: segment.name.clone(),
            value,
        }];
    };
    let Some(list) = value.and_then(Value::as_array) else {
        return Vec::new();
    };
    list.iter()
        .enumerate()
        .filter(|(_, element)| filter.takes(element))
        .map(|(index, element)| Place {
            at: format!("{at}.{index}"),
            index: Some(index),
            name: segment.name.clone(),
            value: Some(element),
        })
        .collect()
}

/// The last element of a list that a filter takes, made if there is none.
fn element<'a>(member: &'a mut Value, filter: &Filter) -> &'a mut Value {
    if !member.is_array() {
        *member = Value::Array(Vec::new());
    }
    let list = member.as_array_mut().expect("it was just made one");
    let found = list.iter().rposition(|element| filter.takes(element));
    let index = found.unwrap_or_else(|| {
        list.push(match filter {
            Filter::All => serde_json::json!({}),
            Filter::Has(key) => serde_json::json!({key: {}}),
            Filter::Equals(key, word) => serde_json::json!({key: word}),
        });
        list.len() - 1
    });
    &mut list[index]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(text: &str) -> Path {
        Path::try_from(text.to_owned()).unwrap()
    }

    #[test]
    fn a_path_finds_each_element_that_its_filter_takes() {
        let root =
            json!({"messages": [{"role": "user"}, {"role": "tool", "id": 1}, {"role": "tool"}]});
        let places = path("messages[role=tool].id").places(&root);
        assert_eq!(places.len(), 2);
        assert_eq!(places[0].at, "messages.1.id");
        assert_eq!(places[0].value, Some(&json!(1)));
        assert!(places[1].value.is_none());
    }

    #[test]
    fn a_member_is_put_where_nothing_was() {
        let mut root = json!({"content": "text"});
        path("content[type=image].source.data").set(&mut root, Some(json!("x")));
        assert_eq!(
            root,
            json!({"content": [{"type": "image", "source": {"data": "x"}}]})
        );
    }
}
