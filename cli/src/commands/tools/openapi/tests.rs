use mainspring_shared::tool::{DeclaredTool, Repeat, ToolEntry, check};

use super::*;

fn document() -> Value {
    json!({
        "openapi": "3.0.3",
        "servers": [{ "url": "https://{region}.api.example/v1/", "variables": { "region": { "default": "eu" } } }],
        "security": [{ "token": [] }],
        "paths": {
            "/pets/{pet-id}": {
                "parameters": [{ "$ref": "#/components/parameters/Pet" }],
                "get": { "operationId": "pets/get", "summary": "A pet.", "description": "A pet.", "security": [] },
                "put": {
                    "operationId": "pets.put",
                    "parameters": [{ "name": "X-Mode", "in": "header", "schema": { "type": "string" } }],
                    "requestBody": { "required": true, "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Pet" } } } },
                },
                "delete": { "security": [{ "client": ["write"] }] },
            },
            "/pets": {
                "get": {
                    "operationId": "list",
                    "security": [{ "key": [] }],
                    "parameters": [
                        { "name": "filter[name]", "in": "query", "schema": { "type": "string", "nullable": true } },
                        { "name": "pet-id", "in": "query", "required": true, "schema": { "type": "integer", "minimum": 0, "exclusiveMinimum": true } },
                        { "name": "Accept", "in": "header", "schema": {} },
                        { "name": "session", "in": "cookie", "schema": {} },
                    ],
                },
                "post": {
                    "operationId": "many",
                    "security": [{ "login": [] }],
                    "requestBody": { "content": { "application/json": { "schema": { "type": "array", "items": { "$ref": "#/components/schemas/Pet" } } } } },
                },
            },
            "/upload": { "post": { "requestBody": { "content": { "multipart/form-data": {} } } } },
            "/form": { "post": { "operationId": "form", "requestBody": { "content": { "application/x-www-form-urlencoded": {
                "schema": { "type": "object", "properties": { "a": { "type": "string", "pattern": "^(?=x)", "example": "y" } } } } } } } },
            "/ping": { "post": { "operationId": "ping", "parameters": [{ "name": "in", "in": "cookie", "required": true }] } },
            "/poke": { "post": { "operationId": "poke" } },
        },
        "components": {
            "parameters": { "Pet": { "name": "pet-id", "in": "path", "required": true, "description": "Whose.", "schema": { "type": "string" } } },
            "schemas": { "Pet": {
                "type": "object",
                "required": ["id", "name"],
                "properties": {
                    "id": { "type": "integer", "readOnly": true },
                    "name": { "type": "string", "maxLength": 50, "xml": { "name": "n" } },
                    "parent": { "$ref": "#/components/schemas/Pet" },
                },
            } },
            "securitySchemes": {
                "token": { "type": "http", "scheme": "bearer" },
                "login": { "type": "http", "scheme": "basic" },
                "key": { "type": "apiKey", "in": "header", "name": "X-Key" },
                "client": { "type": "oauth2", "flows": { "clientCredentials": { "tokenUrl": "/oauth/token", "scopes": {} } } },
            },
        },
    })
}

fn imported(operations: &[&str]) -> Imported {
    let operations: Vec<String> = operations.iter().map(|&name| name.to_owned()).collect();
    import(&document(), &operations, None).expect("imports")
}

fn tool(operation: &str) -> Value {
    imported(&[operation]).tools.remove(0)
}

#[test]
fn every_operation_becomes_a_tool_that_an_agent_may_have_or_is_told_of() {
    let imported = imported(&[]);
    let names: Vec<&str> = imported
        .tools
        .iter()
        .map(|tool| text(tool, "name"))
        .collect();
    assert_eq!(
        names,
        [
            "pets_get",
            "pets_put",
            "delete_pets_pet-id",
            "list",
            "many",
            "form",
            "poke"
        ]
    );
    assert_eq!(
        imported.notes,
        [
            "POST /upload is left out: its body is neither JSON nor a form",
            "POST /ping is left out: it needs a cookie"
        ]
    );
    let entries: Vec<ToolEntry> =
        serde_json::from_value(json!(imported.tools)).expect("they are tools");
    assert_eq!(check(&entries), []);
    let repeats = entries.iter().map(|entry| match entry {
        ToolEntry::Declared(DeclaredTool::Http(tool)) => tool.repeat(),
        other => panic!("{other:?}"),
    });
    let (safe, keyed, once) = (Repeat::Safe, Repeat::Keyed, Repeat::Once);
    assert_eq!(
        repeats.collect::<Vec<_>>(),
        [safe, keyed, keyed, safe, once, once, once]
    );
    let hosts = |name: &str| imported.secrets[name].iter().cloned().collect::<Vec<_>>();
    for name in ["token", "login", "key", "client"] {
        assert_eq!(hosts(name), ["https://eu.api.example"], "{name}");
    }
}

#[test]
fn parameters_go_where_the_document_says() {
    let put = tool("pets.put");
    assert_eq!(put["url"], "https://eu.api.example/v1/pets/{pet-id}");
    assert_eq!(
        put["request"],
        json!({ "method": "PUT", "body": "json", "headers": { "X-Mode": "{X-Mode}" },
                "auth": { "type": "bearer", "secret": "token" } })
    );
    let parameters = &put["parameters"];
    assert_eq!(parameters["required"], json!(["pet-id", "name"]));
    assert_eq!(
        parameters["properties"]["pet-id"],
        json!({ "type": "string", "description": "Whose." })
    );
    assert_eq!(
        parameters["properties"]["name"],
        json!({ "type": "string", "maxLength": 50 })
    );
    assert_eq!(
        parameters["properties"].get("id"),
        None,
        "only answers have it"
    );
    let get = tool("GET /pets/{pet-id}");
    assert_eq!(get["request"], json!({ "method": "GET" }));
    assert_eq!(get["description"], "A pet.");
    assert_eq!(get["parameters"]["additionalProperties"], false);
    let list = tool("list");
    assert_eq!(
        list["request"]["query"],
        json!({ "filter[name]": "{filter_name}", "pet-id": "{pet-id}" })
    );
    assert_eq!(
        list["request"]["headers"],
        json!({ "X-Key": { "secret": "key" } })
    );
    let properties = &list["parameters"]["properties"];
    assert_eq!(
        properties["filter_name"],
        json!({ "type": ["string", "null"] })
    );
    assert_eq!(
        properties["pet-id"],
        json!({ "type": "integer", "exclusiveMinimum": 0 })
    );
    let many = tool("many");
    assert_eq!(many["request"]["body_argument"], "body");
    assert_eq!(
        many["request"]["auth"],
        json!({ "type": "basic", "secret": "login" })
    );
    let form = tool("form");
    assert_eq!(form["request"]["body"], "form");
    assert_eq!(
        form["parameters"]["properties"]["a"],
        json!({ "type": "string" })
    );
    assert_eq!(tool("poke")["request"]["body"], "none");
    let auth = &tool("delete /pets/{pet-id}")["request"]["auth"];
    assert_eq!(
        *auth,
        json!({ "type": "oauth", "token_url": "https://eu.api.example/oauth/token", "secret": "client", "scopes": ["write"] })
    );
}

#[test]
fn schemas_end_however_they_refer_to_themselves() {
    let mut document = document();
    let node = json!({ "$ref": "#/components/schemas/Node" });
    let wide: Map<String, Value> = (0..20).map(|n| (format!("p{n}"), node.clone())).collect();
    document["components"]["schemas"]["Node"] = json!({ "type": "object", "properties": wide });
    document["components"]["schemas"]["Loop"] = json!({ "$ref": "#/components/schemas/Loop" });
    document["components"]["schemas"]["Gone"] = json!({ "$ref": "#/nowhere" });
    for (schema, bytes_max) in [("Node", 16 << 10), ("Loop", 200), ("Gone", 200)] {
        let body = json!({ "content": { "application/json": { "schema": { "$ref": format!("#/components/schemas/{schema}") } } } });
        document["paths"]["/poke"]["post"]["requestBody"] = body;
        let imported = import(&document, &["poke".to_owned()], None).expect("imports");
        let entries: Vec<ToolEntry> =
            serde_json::from_value(json!(imported.tools)).expect("a tool");
        assert_eq!(check(&entries), []);
        let size = imported.tools[0]["parameters"].to_string().len();
        assert!(size < bytes_max + 200, "{schema}: {size}");
    }
}

#[test]
fn what_cannot_be_imported_is_told() {
    let import = |document: &Value, operations: &[&str], server: Option<&str>| {
        let operations: Vec<String> = operations.iter().map(|&name| name.to_owned()).collect();
        import(document, &operations, server)
            .map(|imported| text(&imported.tools[0], "url").to_owned())
    };
    let swagger = import(&json!({ "swagger": "2.0" }), &[], None);
    assert_eq!(
        swagger.expect_err("old"),
        "it is no OpenAPI document of version 3"
    );
    assert!(
        import(&document(), &["none"], None)
            .expect_err("unknown")
            .contains("\"none\"")
    );
    let mut document = document();
    document["servers"] = json!([{ "url": "/v2" }]);
    assert!(
        import(&document, &["list"], None)
            .expect_err("no server")
            .contains("give --api-server")
    );
    let url = import(&document, &["list"], Some("http://10.0.0.1:8080/"));
    assert_eq!(url.as_deref(), Ok("http://10.0.0.1:8080/v2/pets"));
    document["paths"] = json!({ "/x": { "get": { "operationId": "long".repeat(40) } } });
    assert!(import(&document, &[], Some("https://a.example")).is_ok());
    for broken in [
        json!(null),
        json!([]),
        json!({ "openapi": "3.1.0" }),
        json!({ "openapi": "3.1.0", "paths": { "/{x}": { "get": {} } } }),
    ] {
        assert!(
            import(&broken, &[], Some("https://a.example")).is_err(),
            "{broken}"
        );
    }
}

#[test]
fn names_are_what_every_vendor_takes_and_differ() {
    let mut names = BTreeSet::new();
    let long = "a".repeat(80);
    for (from, expected) in [
        ("get /a/{b}", "get_a_b".to_owned()),
        ("get a b", "get_a_b_2".to_owned()),
        ("Ünïcode", "n_code".to_owned()),
        ("", "call".to_owned()),
        (&long, "a".repeat(64)),
        (&long, format!("{}_2", "a".repeat(62))),
    ] {
        assert_eq!(unique(&word(from), &mut names), expected);
    }
}
