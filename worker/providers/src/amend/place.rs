//! Finds the places of a request that a refusal names, in whatever form: `tools[3].function`,
//! `messages.5.content.1.thinking.signature`, `'temperature'`.

use super::tree::Node;
use crate::status::Refusal;

/// How many places of a refusal are looked at.
const PLACES_MAX: usize = 16;

/// Words that name a member even where nothing marks them as a name.
const PLAIN: [&str; 6] = [
    "temperature",
    "top_p",
    "stop",
    "thinking",
    "store",
    "include",
];

/// A place in a request.
#[derive(Debug)]
pub(super) struct Place<'r, 'b> {
    /// The names and numbers on the way to it. The last may be what is not there.
    pub(super) steps: Vec<String>,
    /// The values on the way.
    pub(super) nodes: Vec<&'r Node<'b>>,
}

/// The places that a refusal names, and that are in the body.
pub(super) fn places<'r, 'b>(body: &'r Node<'b>, refusal: &Refusal) -> Vec<Place<'r, 'b>> {
    let mut said: Vec<String> = vec![refusal.param().to_owned()];
    said.extend(refusal.places().iter().cloned());
    said.extend(tokens(refusal.words()));
    let mut found: Vec<Place<'r, 'b>> = Vec::new();
    for text in said.iter().take(4 * PLACES_MAX) {
        let steps = steps(text);
        let Some(place) = resolve(body, &steps) else {
            continue;
        };
        if found.len() < PLACES_MAX && found.iter().all(|own| own.steps != place.steps) {
            found.push(place);
        }
    }
    found
}

/// Names in quotes.
pub(super) fn quoted(words: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for quote in ['\'', '"', '`'] {
        for (place, piece) in words.split(quote).enumerate() {
            let is_name = !piece.is_empty()
                && piece.len() <= 128
                && piece
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "_-.$".contains(c));
            if place % 2 == 1
                && is_name
                && found.len() < PLACES_MAX
                && !found.iter().any(|f| f == piece)
            {
                found.push(piece.to_owned());
            }
        }
    }
    found
}

/// Pieces of a text that may be places.
fn tokens(words: &str) -> Vec<String> {
    let is_part =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '[' | ']' | '-' | '$');
    let mut found = Vec::new();
    let mut rest = words;
    while let Some(start) = rest.find(is_part) {
        let before = rest[..start].chars().next_back();
        let token = &rest[start..];
        let end = token.find(|c: char| !is_part(c)).unwrap_or(token.len());
        let behind = token[end..].chars().next();
        let token = token[..end].trim_matches(['.', '-']);
        rest = &rest[start + end..];
        let has_steps = token.contains('[') || token.contains('.');
        let is_marked = matches!(before, Some('\'' | '"' | '`')) || behind == Some(':');
        if has_steps || is_marked || token.contains('_') || PLAIN.contains(&token) {
            found.push(token.to_owned());
        }
    }
    found
}

fn steps(text: &str) -> Vec<String> {
    let text = text.replace("][", ".").replace('[', ".").replace(']', "");
    let text = text.strip_prefix('$').unwrap_or(&text);
    let steps = text.split(['.', '/']).filter(|step| !step.is_empty());
    let mut steps: Vec<String> = steps.map(str::to_owned).take(32).collect();
    if steps.first().is_some_and(|first| first == "body") {
        steps.remove(0);
    }
    // Gemini names tools as its own protocol has them: all in the first.
    if let [first, _, second, ..] = steps.as_slice()
        && first.ends_with("tools")
        && matches!(
            second.as_str(),
            "function_declarations" | "functionDeclarations"
        )
    {
        steps.drain(1..3);
        "tools".clone_into(&mut steps[0]);
    } else if steps
        .first()
        .is_some_and(|first| first == "GenerateContentRequest")
    {
        steps.remove(0);
        return self::steps(&steps.join("."));
    }
    steps
}

/// Follows steps as far as they lead. Steps that only say of which kind a value is are skipped.
fn resolve<'r, 'b>(body: &'r Node<'b>, steps: &[String]) -> Option<Place<'r, 'b>> {
    let (first, rest) = steps.split_first()?;
    let top = body.get(first)?;
    let mut place = Place {
        steps: vec![first.clone()],
        nodes: vec![top],
    };
    let mut node = top;
    for (at, step) in rest.iter().enumerate() {
        let next = match node {
            Node::Array(items) => step.parse().ok().and_then(|index: usize| items.get(index)),
            Node::Object(_) => node.get(step).filter(|next| {
                // `thinking` is the kind of a block and its text, too.
                at + 1 == rest.len() || !matches!(next, Node::Leaf(_)) || !node.is("type", step)
            }),
            Node::Leaf(_) => None,
        };
        if let Some(next) = next {
            place.steps.push(step.clone());
            place.nodes.push(next);
            node = next;
        } else if at + 1 == rest.len() && step.parse::<usize>().is_err() {
            place.steps.push(step.clone());
        }
    }
    Some(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_in_any_form() {
        let body = r#"{"temperature":0,"tools":[{"name":"a"},{"name":"b","input_schema":{}}],"messages":[{"role":"user","content":"x"},{"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"}]}]}"#;
        let body = Node::parse(body).expect("an object");
        for (words, wanted) in [
            ("tools.1.custom.input_schema: bad", "tools.1.input_schema"),
            (
                "Invalid 'tools[1].input_schema.x'",
                "tools.1.input_schema.x",
            ),
            (
                "at 'tools[0].function_declarations[1].parameters'",
                "tools.1.parameters",
            ),
            (
                "messages.1.content.0.thinking.signature: Field",
                "messages.1.content.0.signature",
            ),
            ("body.messages.0.user.name: Extra inputs", "messages.0.name"),
            ("Unsupported value: 'temperature' does not", "temperature"),
            ("temperature is deprecated for this model", "temperature"),
        ] {
            let found = places(&body, &Refusal::said(words));
            let found: Vec<String> = found.iter().map(|place| place.steps.join(".")).collect();
            assert_eq!(found.first().map(String::as_str), Some(wanted), "{words}");
        }
        assert!(
            places(
                &body,
                &Refusal::said("the model and its tools and messages")
            )
            .is_empty()
        );
    }
}
