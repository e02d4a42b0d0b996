use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::{
    Code, Failure, Named, Names, NodeText, RENDERING_WORK, TEMPLATE_BYTES_MAX, Work, free_names,
};

struct Table(Vec<(&'static str, Named<'static>)>);

impl Names for Table {
    fn named(&self, name: &str) -> Result<Named<'_>, Failure> {
        let found = self.0.iter().find(|(known, _)| *known == name);
        Ok(found.map_or(value(Value::Null), |(_, named)| named.clone()))
    }
}

fn table() -> Table {
    let plan = NodeText::new(
        "the plan".to_owned(),
        Some(json!({"title": "Tea", "items": ["a", "b"], "n": 3, "deep": {"x": true}})),
    );
    let lost = NodeText::notice("[node \"lost\" failed: away]".to_owned());
    Table(vec![
        ("input", value(json!("tea ceremony"))),
        ("t", value(json!({"k": [1, null, true]}))),
        ("plan", Named::Node(Arc::new(plan))),
        ("lost", Named::Node(Arc::new(lost))),
    ])
}

fn value(value: Value) -> Named<'static> {
    Named::Value(Cow::Owned(value))
}

fn render(source: &str, names: &Table) -> Result<String, Failure> {
    super::render(source, names, &Work::of_rendering())
}

fn render_value(value: &Value, names: &Table) -> Result<Value, Failure> {
    super::render_value(value, names, &Work::of_rendering())
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
    let names = Table(vec![("x", value(json!(list)))]);
    let nested =
        "{% for a in x %}{% for b in x %}{% for c in x %}.{% endfor %}{% endfor %}{% endfor %}";
    let error = render(nested, &names).expect_err("too long");
    assert_eq!(error.code, Code::WorkflowTemplate);
    let wide = format!("{{% for a in x %}}{}{{% endfor %}}", "y".repeat(100_000));
    let error = render(&wide, &names).expect_err("too long");
    assert_eq!(error.code, Code::WorkflowTemplate);
    assert!(error.message.contains("bytes"), "{error:?}");
    let quotes = Table(vec![("x", value(json!("\"\"\"\"")))]);
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

/// Renders, and says what it cost.
fn cost(source: &str, names: &Table) -> (Result<String, Failure>, u64) {
    let work = Work::of_rendering();
    let rendered = super::render(source, names, &work);
    (rendered, RENDERING_WORK - work.left())
}

#[test]
fn whatever_goes_through_a_large_value_is_charged_for_all_of_it() {
    let bytes = 1 << 20;
    let text = "x".repeat(bytes);
    let list = vec!["x".repeat(1 << 10); 1 << 10];
    let names = Table(vec![
        ("t", value(json!(text))),
        ("u", value(json!(text))),
        ("l", value(json!(list))),
        ("m", value(json!({"k": list, text.clone(): 1}))),
    ]);
    for (once, reads) in [
        ("t|upper|length", 9),
        ("t|lower|length", 9),
        ("t|trim|length", 1),
        ("t|truncate(9)", 1),
        ("t|length", 1),
        ("t|first", 1),
        ("t|last", 1),
        ("t|tojson|length", 1),
        ("t == u", 1),
        ("t < u", 1),
        ("'y' in t", 1),
        ("t in u", 1),
        ("t[0]", 1),
        ("m[t]", 1),
        ("t in m", 1),
        ("l == m.k", 1),
        ("t in l", 1),
        ("l|join|length", 1),
        ("l|tojson|length", 4),
        ("m.k|tojson|length", 4),
    ] {
        let twice = format!("{{{{ {once} }}}}{{{{ {once} }}}}");
        let (first, one) = cost(&format!("{{{{ {once} }}}}"), &names);
        let (second, two) = cost(&twice, &names);
        assert!(
            first.is_ok() && second.is_ok(),
            "{once}: {first:?} {second:?}"
        );
        let each = two - one;
        assert!(each >= reads * bytes as u64, "{once} costs {each}");
    }
}

#[test]
fn no_template_costs_more_than_a_rendering_may() {
    let long = "é".repeat(1 << 20);
    let names = Table(vec![
        ("t", value(json!(long))),
        ("u", value(json!(format!("{long}.")))),
        ("l", value(json!(vec![0; 300]))),
        ("s", value(json!("é".repeat(1 << 18)))),
        ("d", value(json!({"a": vec![long.clone(); 4]}))),
    ]);
    let looped =
        |inner: &str| format!("{{% for x in l %}}{{% if {inner} %}}{{% endif %}}{{% endfor %}}");
    for source in [
        looped(&format!("t{}|length == 0", "|upper|lower".repeat(27))),
        looped(&vec!["t == u"; 25].join(" or ")),
        looped(&vec!["u in t"; 25].join(" or ")),
        looped(&vec!["t <= u"; 25].join(" and ")),
        looped(&format!("s{}", "|tojson".repeat(2))),
        looped("d == d.a"),
        looped("t in d.a"),
        looped("d[t] is defined"),
        looped("t[9] is defined"),
        "{% for x in t %}{% for y in t %}{% if x == y %}{% endif %}{% endfor %}{% endfor %}".to_owned(),
        format!("{{{{ t{} }}}}", "|trim|upper".repeat(25)),
        "{% for a in l %}{% for b in l %}{% for c in l %}{{ loop.index }}{% endfor %}{% endfor %}{% endfor %}"
            .to_owned(),
    ] {
        let (rendered, spent) = cost(&source, &names);
        let error = rendered.expect_err(&source);
        assert_eq!(error.code, Code::WorkflowTemplate, "{error:?}");
        assert!(
            error.message.contains("too much work"),
            "{source}: {error:?}"
        );
        assert!(spent <= RENDERING_WORK);
    }
}

#[test]
fn the_work_of_several_renderings_adds_up() {
    let names = Table(vec![("t", value(json!("x".repeat(1 << 20))))]);
    let whole = AtomicU64::new(0);
    for n in 1..=3 {
        let work = Work::counted(&whole, RENDERING_WORK);
        super::render("{{ t|length }}", &names, &work).expect("renders");
        let so_far = whole.load(Ordering::Relaxed);
        assert!(so_far >= n * 2 * (1 << 20), "{so_far}");
    }
    let work = Work::counted(&whole, 1 << 20);
    assert!(super::render("{{ t|length }}", &names, &work).is_err());
}

/// Expressions of every kind of value.
const VALUES: &[&str] = &[
    "none",
    "true",
    "false",
    "0",
    "1",
    "-1",
    "1.0",
    "2.5",
    "''",
    "'a'",
    "'ab'",
    "n",
    "s",
    "l",
    "m",
    "f",
    "l[0]",
    "l[-1]",
    "l[9]",
    "m.k",
    "m.z",
    "m['k']",
    "s[0]",
    "x",
    "[1, 'a']",
    "not n",
    "n is none",
    "x is defined",
    "m.z is defined",
    "(1 if n)",
    "('a' if n else 'b')",
    "-n",
    "1 < n < 9",
    "n < 2 < n",
];

const OPERATORS: &[&str] = &[
    "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or",
];

/// Whole templates.
const SOURCES: &[&str] = &[
    "{% for a in l %}{{ loop.index }}/{{ loop.length }}{% if loop.last %}!{% endif %} {% else %}none{% endfor %}",
    "{% for a in [] %}.{% else %}none{% endfor %}",
    "{% for a in none %}.{% else %}none{% endfor %}",
    "{% for a in m %}{{ a }} {% endfor %}{{ s }}",
    "{% for a in s %}{{ a }}-{{ loop.index }}{% if loop.first %}!{% endif %} {% endfor %}",
    "{% for a in s %}{{ a }}{% if loop.last %}!{% endif %}{% endfor %}",
    "{% for a in s %}{{ loop.revindex }}{% endfor %}",
    "{% for a in l %}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.index0 }}{% endfor %}",
    "{% for a, b in [['x', 1], ['y', 2]] %}{{ a }}={{ b }} {% endfor %}",
    "{% for a, b in [['x', 1], ['y']] %}{{ a }}{% endfor %}",
    "{% for a, b in ['xy'] %}{{ a }}{% endfor %}",
    "{% for a in n %}.{% endfor %}",
    "{% for s in l %}{% for l in [1] %}{{ l }}{{ loop.depth }}{% endfor %}{% endfor %}{{ s }}",
    "{% for a in [1, 2] -%} {{ a }} {%- endfor %}\n",
    "{{ n }}\n",
    "{# c #}b\n\n",
    "{% if n > 5 and (s == 'ab' or m.z) %}{{ s }}{% elif x %}{% endif %}",
    "{{ m.z }}",
    "{{ m.z.y }}",
    "{{ 'a' if x }}",
    "{% if m.z %}{% endif %}",
    "{{ -s }}",
];

struct Of<'a>(&'a dyn Fn(&str) -> Option<Value>);
impl Names for Of<'_> {
    fn named(&self, name: &str) -> Result<Named<'_>, Failure> {
        Ok(value((self.0)(name).unwrap_or_default()))
    }
}

#[test]
fn expressions_mean_what_they_mean_in_minijinja() {
    let json = json!({"n": 7, "s": "ab", "l": [1, "a", [2]], "m": {"k": 1, "ab": [1]}, "f": 1.0});
    let named = json.as_object().expect("an object");
    let table = |name: &str| named.get(name).cloned();
    let mut theirs = minijinja::Environment::empty();
    theirs.set_undefined_behavior(minijinja::UndefinedBehavior::Strict);
    theirs.set_formatter(|out, state, value| {
        if value.is_undefined() {
            return Err(minijinja::ErrorKind::UndefinedError.into());
        }
        minijinja::escape_formatter(out, state, value)
    });
    theirs.add_test("none", |value: minijinja::Value| value.is_none());
    theirs.add_test("defined", |value: minijinja::Value| !value.is_undefined());
    let mut compared = 0;
    let mut check = |source: &str| {
        // A name that is not there is null here, because every name is declared.
        let mut context = named.clone();
        context.insert("x".to_owned(), Value::Null);
        let work = Work::of_rendering();
        let shown = |json: Value| value(json).into_shown(&work).expect("is small");
        let context = context.into_iter().map(|(name, json)| (name, shown(json)));
        let context = minijinja::Value::from_pairs(context);
        let theirs = theirs.render_str(source, context).ok();
        let ours = super::render(source, &Of(&table), &Work::of_rendering()).ok();
        assert_eq!(ours, theirs, "{source}");
        compared += 1;
    };
    for left in VALUES {
        check(&format!("{{% if {left} %}}y{{% else %}}n{{% endif %}}"));
        for right in VALUES {
            for operator in OPERATORS {
                check(&format!(
                    "{{{{ 'y' if {left} {operator} {right} else 'n' }}}}"
                ));
            }
        }
    }
    for source in SOURCES {
        check(source);
    }
    assert!(compared > 10_000, "{compared}");
}
