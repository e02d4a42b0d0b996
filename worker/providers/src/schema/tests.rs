use mainspring_shared::tool::schema::Schema;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::check::faults;
use super::corpus::corpus;
use super::{Fitted, Unfit, Way, fit};
use crate::rules::SchemaDialect;

mod reports;

const DIALECTS: [SchemaDialect; 6] = [
    SchemaDialect::Plain,
    SchemaDialect::OpenAi,
    SchemaDialect::OpenAiResponses,
    SchemaDialect::Anthropic,
    SchemaDialect::Gemini,
    SchemaDialect::Kimi,
];

fn fitted(schema: &Value, dialect: SchemaDialect) -> Fitted {
    fit(schema, dialect).expect("it can be expressed")
}

fn written(schema: &Value, dialect: SchemaDialect) -> Value {
    fitted(schema, dialect).schema.expect("it has members")
}

/// The same in JSON Schema, which has no `nullable`.
fn standard(schema: &Value) -> Value {
    match schema {
        Value::Object(node) => {
            let mut plain: serde_json::Map<String, Value> = node
                .iter()
                .map(|(name, value)| (name.clone(), standard(value)))
                .collect();
            if plain.get("nullable") == Some(&json!(true)) {
                plain.remove("nullable");
                return json!({ "anyOf": [plain, { "type": "null" }] });
            }
            plain.into()
        }
        Value::Array(items) => items.iter().map(standard).collect(),
        other => other.clone(),
    }
}

/// Asserts that arguments which fit the original also fit what goes out, and come back as they were.
fn accepts(fitted: &Fitted, arguments: &Value, what: &str) {
    let outward = fitted.names.map(arguments, Way::Out);
    if let Some(schema) = &fitted.schema {
        let compiled = Schema::compile(&standard(schema));
        let compiled = compiled.unwrap_or_else(|fault| panic!("{what}: {fault}: {schema:#}"));
        let faults = compiled.faults(&outward);
        assert!(
            faults.is_empty(),
            "{what}: {faults:?} for {outward} in {schema:#}"
        );
    }
    assert_eq!(fitted.names.map(&outward, Way::In), *arguments, "{what}");
}

#[test]
fn every_schema_of_the_corpus_is_taken_by_every_dialect_and_is_no_stricter() {
    assert!(corpus().len() >= 20);
    for sample in corpus() {
        let original = Schema::compile(&sample.schema).expect(&sample.name);
        for dialect in DIALECTS {
            let fitted = fitted(&sample.schema, dialect);
            let what = format!("{} for {dialect:?}", sample.name);
            if let Some(schema) = &fitted.schema {
                let faults = faults(schema, dialect);
                assert!(faults.is_empty(), "{what}: {faults:?} in {schema:#}");
            }
            for arguments in &sample.accepts {
                let faults = original.faults(arguments);
                assert!(faults.is_empty(), "{what}: {faults:?}");
                accepts(&fitted, arguments, &what);
            }
        }
    }
}

#[test]
fn alternatives_at_the_root_are_folded_and_told_in_words() {
    let schema = json!({
        "type": "object",
        "properties": { "id": { "type": "string" }, "url": { "type": "string" }, "deep": { "type": "boolean" } },
        "required": ["deep"],
        "anyOf": [{ "required": ["id", "deep"] }, { "required": ["url"] }],
    });
    for dialect in &DIALECTS[1..] {
        let fitted = fitted(&schema, *dialect);
        let written = fitted.schema.expect("it has members");
        assert_eq!(written["required"], json!(["deep"]), "{dialect:?}");
        assert_eq!(
            written["properties"].as_object().map(serde_json::Map::len),
            Some(3)
        );
        assert_eq!(fitted.notes, ["At least one of these holds: id; url."]);
    }
}

#[test]
fn a_member_that_tells_alternatives_apart_lists_all_of_its_values() {
    let sample = corpus().into_iter().find(|it| it.name == "parent by kind");
    let schema = sample.expect("it is there").schema;
    let fitted = fitted(&schema, SchemaDialect::Anthropic);
    let written = fitted.schema.expect("it has members");
    assert_eq!(
        written["properties"]["kind"],
        json!({ "type": "string", "enum": ["page", "database"] })
    );
    assert_eq!(written["required"], json!(["kind"]));
    assert_eq!(
        fitted.notes,
        [
            r#"Exactly one of these holds: kind is "page", with page_id; kind is "database", with database_id."#
        ]
    );
}

#[test]
fn a_schema_without_members_is_an_object_without_members_or_none_at_all() {
    for schema in [
        json!({}),
        json!({ "type": "object" }),
        json!(null),
        json!(true),
        json!([]),
    ] {
        for dialect in DIALECTS {
            let fitted = fitted(&schema, dialect);
            let wanted = json!({ "type": "object", "properties": {} });
            let wanted = (dialect != SchemaDialect::Gemini).then_some(wanted);
            assert_eq!(fitted.schema, wanted, "{schema} {dialect:?}");
        }
    }
}

#[test]
fn what_a_dialect_takes_as_it_is_stays_as_it_is() {
    let schema = json!({
        "type": "object",
        "properties": {
            "q": { "type": "string", "description": "What to look for", "minLength": 1 },
            "kind": { "type": "string", "enum": ["a", "b"], "default": "a" },
            "many": { "type": "array", "items": { "type": ["integer", "null"] }, "maxItems": 3 },
            "node": { "$ref": "#/$defs/node" },
            "more": { "type": "object", "properties": {}, "additionalProperties": { "type": "number" } },
        },
        "required": ["q"],
        "additionalProperties": false,
        "$defs": { "node": { "type": "object", "properties": { "next": { "$ref": "#/$defs/node" } } } },
    });
    for dialect in &DIALECTS[..4] {
        assert_eq!(written(&schema, *dialect), schema, "{dialect:?}");
    }
}

#[test]
fn what_was_fitted_once_stays_as_it_is() {
    for sample in corpus() {
        for dialect in DIALECTS {
            let Some(once) = fitted(&sample.schema, dialect).schema else {
                continue;
            };
            assert_eq!(
                written(&once, dialect),
                once,
                "{} for {dialect:?}",
                sample.name
            );
        }
    }
}

#[test]
fn names_go_out_in_the_alphabet_of_the_dialect_and_come_back_as_they_were() {
    let schema = json!({
        "type": "object",
        "properties": {
            "filter[name]": { "type": "string" },
            "$top": { "type": "integer" },
            "a b": { "type": "object", "properties": { "@type": { "type": "string" } } },
            "a_b": { "type": "string" },
            "free": { "type": "object", "additionalProperties": { "type": "string" } },
        },
        "required": ["filter[name]"],
    });
    let fitted = fitted(&schema, SchemaDialect::Anthropic);
    let arguments = json!({ "filter[name]": "x", "$top": 1, "a b": { "@type": "t" }, "free": { "$top": "1", "_top": "2" } });
    let outward = json!({ "filter_name": "x", "_top": 1, "a_b_2": { "_type": "t" }, "free": { "$top": "1", "_top": "2" } });
    assert_eq!(fitted.names.map(&arguments, Way::Out), outward);
    assert_eq!(fitted.names.map(&outward, Way::In), arguments);
    // What would be lost by renaming stays.
    let both = json!({ "filter[name]": "x", "filter_name": "y" });
    assert_eq!(fitted.names.map(&both, Way::In), both);
    let written = fitted.schema.expect("it has members");
    assert_eq!(written["required"], json!(["filter_name"]));
}

#[test]
fn what_is_not_for_objects_cannot_be_expressed() {
    for kind in [json!("string"), json!(["array", "null"])] {
        let found = fit(&json!({ "type": kind }), SchemaDialect::OpenAi);
        assert_eq!(found, Err(Unfit::NoObject));
    }
    assert!(
        fit(
            &json!({ "type": ["object", "null"] }),
            SchemaDialect::OpenAi
        )
        .is_ok()
    );
    assert!(fit(&json!({ "type": "OBJECT" }), SchemaDialect::OpenAi).is_ok());
}

#[test]
fn references_that_multiply_are_bounded() {
    let mut definitions = serde_json::Map::new();
    for level in 0..30 {
        let next = json!({ "$ref": format!("#/$defs/d{}", level + 1) });
        let node = json!({ "type": "object", "properties": { "a": next, "b": next, "c": next } });
        definitions.insert(format!("d{level}"), node);
    }
    definitions.insert("d30".to_owned(), json!({ "type": "string" }));
    let schema = json!({ "type": "object", "properties": { "x": { "$ref": "#/$defs/d0" } }, "$defs": definitions });
    for dialect in [SchemaDialect::Gemini, SchemaDialect::Kimi] {
        let written = written(&schema, dialect);
        assert!(faults(&written, dialect).is_empty(), "{dialect:?}");
        assert!(written.to_string().len() <= super::BYTES_MAX);
    }
}

#[test]
fn a_deep_schema_is_cut() {
    let mut schema = json!({ "type": "string" });
    for _ in 0..100 {
        schema = json!({ "type": "object", "properties": { "a": schema } });
    }
    for dialect in &DIALECTS[1..] {
        let written = written(&schema, *dialect);
        assert!(faults(&written, *dialect).is_empty());
        assert!(written.to_string().len() < 4_000, "{dialect:?}");
    }
}

/// A schema, and a value that fits it.
fn pair() -> impl Strategy<Value = (Value, Value)> {
    let leaf = prop_oneof![
        Just((json!({}), json!({ "free": [1] }))),
        Just((json!(true), json!("any"))),
        Just((json!({ "description": "says nothing" }), json!(1))),
        ("[a-z ]{0,6}", any::<bool>()).prop_map(|(text, typed)| {
            let schema = if typed {
                json!({ "type": "string", "maxLength": 9 })
            } else {
                json!({ "type": ["string", "null"], "title": "T" })
            };
            (schema, json!(text))
        }),
        any::<i32>().prop_map(|number| (json!({ "type": "integer", "default": 1 }), json!(number))),
        (0..100_i32).prop_map(|number| (
            json!({ "type": "number", "exclusiveMinimum": -1, "multipleOf": 1 }),
            json!(number)
        )),
        Just((json!({ "type": "null" }), json!(null))),
        Just((
            json!({ "type": ["boolean", "integer", "null"], "minimum": 2 }),
            json!(3)
        )),
        Just((json!({ "enum": ["", "a"] }), json!(""))),
        Just((json!({ "enum": ["b", null] }), json!(null))),
        Just((json!({ "enum": [1, 2, "x"] }), json!(2))),
        Just((json!({ "const": 5 }), json!(5))),
        Just((json!({ "type": "string", "const": "k" }), json!("k"))),
        Just((
            json!({ "type": "string", "anyOf": [{ "pattern": "^a" }, { "maxLength": 2 }] }),
            json!("ab")
        )),
        Just((json!({ "type": "array" }), json!([1, "a"]))),
        Just((json!({ "type": "object" }), json!({ "x": 1 }))),
        Just((json!({ "$ref": "#/$defs/shared" }), json!({ "s": "t" }))),
        Just((
            json!({ "type": "array", "prefixItems": [{ "type": "string" }, { "type": "integer" }] }),
            json!(["a", 1, true])
        )),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let name = prop_oneof!["[a-c]{1,2}", "[$@][a-c]", "[a-c]\\[[a-c]\\]", Just("x".repeat(70))];
        let members = proptest::collection::btree_map(name, (inner.clone(), any::<bool>()), 0..4);
        let object = (members, 0..4_u8).prop_map(|(members, closed)| {
            let required: Vec<_> = members.iter().filter(|(_, (_, is))| *is).map(|(name, _)| name.clone()).collect();
            let properties: serde_json::Map<_, _> = members.iter().map(|(name, ((schema, _), _))| (name.clone(), schema.clone())).collect();
            let value: serde_json::Map<_, _> = members.into_iter().map(|(name, ((_, value), _))| (name, value)).collect();
            let mut schema = json!({ "type": "object", "properties": properties, "required": required });
            match closed {
                0 => schema["additionalProperties"] = json!(false),
                1 => schema["additionalProperties"] = json!({ "type": "string" }),
                2 => schema["propertyNames"] = json!({ "minLength": 1 }),
                _ => {}
            }
            (schema, Value::from(value))
        });
        let branches = |inner: BoxedStrategy<(Value, Value)>| proptest::collection::vec(inner, 1..4);
        prop_oneof![
            3 => object,
            1 => proptest::collection::vec(inner.clone(), 1..3).prop_map(|pairs| {
                let (schema, value) = pairs[0].clone();
                (json!({ "type": "array", "items": schema }), json!([value]))
            }),
            1 => branches(inner.clone().boxed()).prop_map(|pairs| {
                let schemas: Vec<_> = pairs.iter().map(|(schema, _)| schema.clone()).collect();
                (json!({ "anyOf": schemas, "description": "one of" }), pairs[0].1.clone())
            }),
            1 => branches(inner.clone().boxed()).prop_map(|pairs| {
                let schemas: Vec<_> = pairs.iter().map(|(schema, _)| schema.clone()).collect();
                (json!({ "oneOf": schemas }), pairs[0].1.clone())
            }),
            1 => inner.prop_map(|(schema, value)| (json!({ "allOf": [schema, {}], "not": { "enum": ["never"] } }), value)),
        ]
    })
}

/// Whether a value holds lists in lists, which Gemini's dialect can't say of anything at all.
fn has_lists_in_lists(value: &Value, inside: bool) -> bool {
    match value {
        Value::Array(items) => inside || items.iter().any(|item| has_lists_in_lists(item, true)),
        Value::Object(members) => members
            .values()
            .any(|member| has_lists_in_lists(member, inside)),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn whatever_schema_comes_in_is_taken_and_no_stricter((schema, value) in pair(), name in "[a-z$]{1,3}") {
        let schema = json!({
            "type": "object",
            "properties": { name.as_str(): schema },
            "$defs": { "shared": { "type": "object", "properties": { "s": { "type": "string" }, "again": { "$ref": "#/$defs/shared" } } } },
        });
        let arguments = json!({ name: value });
        // Alternatives may exclude one another, and references may not meet bounds.
        let fits = Schema::compile(&schema).is_ok_and(|schema| schema.faults(&arguments).is_empty());
        for dialect in DIALECTS {
            let fitted = fitted(&schema, dialect);
            prop_assert_eq!(&fit(&schema, dialect).expect("as before"), &fitted);
            if let Some(schema) = &fitted.schema {
                let faults = faults(schema, dialect);
                prop_assert!(faults.is_empty(), "{:?}: {:?} in {:#}", dialect, faults, schema);
            }
            if fits && !(dialect == SchemaDialect::Gemini && has_lists_in_lists(&arguments, false)) {
                accepts(&fitted, &arguments, &format!("{dialect:?} {schema}"));
            }
        }
    }

    #[test]
    fn no_json_makes_it_panic(text in r#"[\[\]{}":, a-z0-9$]{0,60}"#, keyword in 0..12_usize) {
        let keywords = ["type", "properties", "required", "items", "enum", "anyOf", "allOf", "$ref", "$defs", "const", "additionalProperties", "oneOf"];
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|_| json!([text]));
        let schema = json!({ keywords[keyword]: value, "properties": { "p": { keywords[keyword]: value } } });
        for dialect in DIALECTS {
            if let Ok(Fitted { schema: Some(schema), .. }) = fit(&schema, dialect) {
                let faults = faults(&schema, dialect);
                prop_assert!(faults.is_empty(), "{:?}: {:?} in {:#}", dialect, faults, schema);
            }
        }
    }
}
