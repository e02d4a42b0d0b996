use super::*;

#[test]
fn what_is_refined_is_there() {
    let document = super::super::document();
    let schemas = &document["components"]["schemas"];
    for (schema, member, _) in members() {
        // Only the schema of a batch item has a member for the idempotency key.
        let item = ITEMS.iter().find(|(_, _, alone, _)| *alone == schema);
        let schema = match item {
            Some((_, _, _, item)) if member == "idempotency_key" => item,
            _ => schema,
        };
        let found = &schemas[schema]["properties"][member];
        assert!(found.is_object(), "{schema}.{member}");
        assert!(
            found["description"].is_string(),
            "{schema}.{member}: {found}"
        );
    }
    for (schema, _) in objects() {
        assert!(schemas[schema]["properties"].is_object(), "{schema}");
    }
    for (_, variants) in VARIANTS {
        for (tag, name) in *variants {
            assert_eq!(schemas[name]["properties"]["type"]["const"], *tag, "{name}");
        }
    }
}

#[test]
fn an_object_says_whether_it_may_have_other_members() {
    fn bare(schema: &Value, at: &str, found: &mut Vec<String>) {
        match schema {
            Value::Object(members) => {
                if members.get("type") == Some(&json!("object")) && members.len() == 1 {
                    found.push(at.to_owned());
                }
                for (name, value) in members {
                    bare(value, &format!("{at}/{name}"), found);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| bare(item, at, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    bare(&super::super::document()["components"], "", &mut found);
    assert_eq!(found, Vec::<String>::new());
}
