use std::sync::Arc;

use serde_json::json;

use super::*;

struct Table(Vec<(&'static str, Named)>);

impl Names for Table {
    fn named(&self, name: &str) -> Result<Named, Failure> {
        let found = self.0.iter().find(|(known, _)| *known == name);
        Ok(found.map_or(Named::Value(Value::Null), |(_, named)| named.clone()))
    }
}

fn table() -> Table {
    let plan = NodeText::new(
        "the plan".to_owned(),
        Some(json!({"title": "Tea", "items": ["a", "b"], "n": 3, "deep": {"x": true}})),
    );
    let lost = NodeText::notice("[node \"lost\" failed: away]".to_owned());
    Table(vec![
        ("input", Named::Value(json!("tea ceremony"))),
        ("t", Named::Value(json!({"k": [1, null, true]}))),
        ("plan", Named::Node(Arc::new(plan))),
        ("lost", Named::Node(Arc::new(lost))),
    ])
}

#[test]
fn texts_render() {
    for (source, expected) in [
        ("plain } text", "plain } text"),
        ("{{input}}", "tea ceremony"),
        ("About {{ input }}!", "About tea ceremony!"),
        ("{{t}}", r#"{"k":[1,null,true]}"#),
        ("{{t.k[0]}} {{t.k[1]}} {{t.k[2]}}", "1 null true"),
        (
            "{{plan}} / {{plan.title}} / {{plan.deep}}",
            r#"the plan / Tea / {"x":true}"#,
        ),
        (
            "{% for i in plan.items %}{{loop.index}}{{i}} {% endfor %}",
            "1a 2b ",
        ),
        ("{{plan.items|join(', ')}} {{plan.items|length}}", "a, b 2"),
        ("{{plan.none|default('nothing')}}", "nothing"),
        ("{% if plan.none is defined %}a{% else %}b{% endif %}", "b"),
        (
            "{% if plan.n >= 3 and plan.title == 'Tea' %}yes{% endif %}",
            "yes",
        ),
        (
            "{{lost}} {{lost.key}}",
            "[node \"lost\" failed: away] [node \"lost\" failed: away]",
        ),
        ("{{ '{{' }}", "{{"),
        ("{% raw %}{{x}}{% endraw %}", "{{x}}"),
        (
            "<b>{{ input|upper }}</b> {{t|tojson}}",
            r#"<b>TEA CEREMONY</b> {"k":[1,null,true]}"#,
        ),
    ] {
        assert_eq!(
            render(source, &table()).as_deref(),
            Ok(expected),
            "{source}"
        );
    }
}

#[test]
fn a_text_of_one_expression_keeps_its_type() {
    let value =
        json!({"a": "{{plan.n}}", "b": ["{{ t.k }}", "x{{plan.n}}"], "c": 1, "d": "{{plan}}"});
    let plan = json!({"title": "Tea", "items": ["a", "b"], "n": 3, "deep": {"x": true}});
    assert_eq!(
        render_value(&value, &table()),
        Ok(json!({"a": 3, "b": [[1, null, true], "x3"], "c": 1, "d": plan})),
    );
}

#[test]
fn what_does_not_exist_is_an_unresolved_reference() {
    for source in [
        "{{plan.nope}}",
        "{{plan.deep.y}}",
        "{{t.k[9]}}",
        "{{ plan.nope|upper }}",
    ] {
        let error = render(source, &table()).expect_err(source);
        assert_eq!(
            error.code,
            Code::WorkflowRefUnresolved,
            "{source}: {error:?}"
        );
    }
    let error = render_value(&json!("{{plan.nope}}"), &table()).expect_err("unresolved");
    assert_eq!(error.code, Code::WorkflowRefUnresolved);
}

#[test]
fn what_could_explode_is_not_let_in() {
    for source in [
        "{{",
        "{{ a",
        "{% if %}",
        "{% for x in y %}",
        "{% set x = 1 %}",
        "{% macro m() %}{% endmacro %}",
        "{% include 'x' %}",
        "{{ input ~ input }}",
        "{{ 'a' * 1000000 }}",
        "{{ range(10) }}",
        "{{ input.upper() }}",
        "{{ input|nope }}",
        "{{ input|replace('a', input) }}",
        "{{ input is even }}",
        "{% for x in y recursive %}{{ loop(x) }}{% endfor %}",
    ] {
        assert!(free_names(source).is_err(), "{source}");
    }
    let chains = [
        format!("{{{{ a{} }}}}", ".b".repeat(30_000)),
        format!("{{{{ a{} }}}}", "|upper".repeat(15_000)),
        format!("{{{{ {}a{} }}}}", "(".repeat(30_000), ")".repeat(30_000)),
        format!("{{{{ {}a }}}}", "not ".repeat(25_000)),
        format!("{{{{ a{} }}}}", " and a".repeat(15_000)),
        "{% if a %}".repeat(5_000),
        format!("{{% if a %}}{}{{% endif %}}", "{% elif a %}".repeat(5_000)),
        "x".repeat(TEMPLATE_BYTES_MAX + 1),
    ];
    for source in chains {
        assert!(free_names(&source).is_err(), "{}", &source[..20]);
    }
}

#[test]
fn long_work_ends() {
    let list: Vec<_> = (0..2_000).collect();
    let names = Table(vec![("x", Named::Value(json!(list)))]);
    let nested =
        "{% for a in x %}{% for b in x %}{% for c in x %}.{% endfor %}{% endfor %}{% endfor %}";
    let error = render(nested, &names).expect_err("too long");
    assert_eq!(error.code, Code::WorkflowTemplate);
    let wide = format!("{{% for a in x %}}{}{{% endfor %}}", "y".repeat(100_000));
    let error = render(&wide, &names).expect_err("too long");
    assert_eq!(error.code, Code::WorkflowTemplate);
    assert!(error.message.contains("bytes"), "{error:?}");
    let quotes = Table(vec![("x", Named::Value(json!("\"\"\"\"")))]);
    let grown = format!("{{{{ x{} }}}}", "|tojson".repeat(50));
    assert!(render(&grown, &quotes).is_err());
}

#[test]
fn names_are_those_from_outside() {
    let source =
        "{{a.b}} {% for x in c %}{{x}}{{loop.index}}{{d}}{% endfor %}{{x}} {{e|default(f)}}";
    let names = free_names(source).expect("reads");
    assert_eq!(names, ["a", "c", "d", "e", "f", "x"]);
}
