//! Tool lists in the manner of popular public servers: their names, the ways in which their
//! libraries write schemas, and their sizes. Every list is offered whole.

use serde_json::json;

use super::script::{Out, Scripted, error, handshake, result};
use super::*;

/// How the library of a server writes schemas.
#[derive(Debug, Clone, Copy)]
enum Style {
    /// Zod by way of zod-to-json-schema: a dialect, and no other members.
    Zod,
    /// Pydantic: titles everywhere, `anyOf` with null, definitions.
    Pydantic,
    /// Go's reflection: references into definitions, `type` arrays.
    Go,
    /// A bridge from OpenAPI: names of parameters as they are in URLs, formats, examples.
    OpenApi,
    /// By hand: as little as possible, and sometimes nothing.
    Bare,
    /// By hand: alternatives at the top.
    Either,
    /// Java and C# generators: everything required, `$id`, long descriptions.
    Enterprise,
}

/// Tools of further servers, each schema written out, with arguments that fit it: what providers are told of them is
/// tested where schemas are cut.
const SERVERS: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../worker/providers/src/schema/servers.json"
));

/// The further servers: their names and tools.
fn servers() -> Vec<(String, Vec<Value>)> {
    let servers: Vec<Value> = serde_json::from_str(SERVERS).expect("JSON");
    let tools = |server: Value| {
        let name = server["server"].as_str().expect("a name").to_owned();
        let tools = server["tools"].as_array().expect("tools").clone();
        (name, tools)
    };
    servers.into_iter().map(tools).collect()
}

struct List {
    server: &'static str,
    style: Style,
    /// `name: argument argument…`, where `!` marks what is required.
    tools: &'static [&'static str],
    /// How many more of the last tool there are, numbered.
    more: usize,
}

const fn list(server: &'static str, style: Style, tools: &'static [&'static str]) -> List {
    List {
        server,
        style,
        tools,
        more: 0,
    }
}

const LISTS: &[List] = &[
    List {
        more: 85,
        ..list(
            "github",
            Style::Go,
            &[
                "create_issue: owner! repo! title! body labels",
                "get_file_contents: owner! repo! path! ref",
                "search_code: q! page perPage",
                "merge_pull_request: owner! repo! pullNumber! merge_method",
                "get_me:",
                "list_workflow_runs: owner! repo! workflow_id! status",
            ],
        )
    },
    list(
        "notion",
        Style::OpenApi,
        &[
            "API-post-search: query filter sort start_cursor",
            "API-patch-page: page_id! properties in_trash icon",
            "API-post-database-query: database_id! filter sorts",
            "API-get-block-children: block_id! page_size",
        ],
    ),
    list(
        "notion-hosted",
        Style::Either,
        &[
            "notion-search: query! query_type",
            "notion-update-page: data!",
            "notion-fetch: id!",
        ],
    ),
    list(
        "slack",
        Style::Zod,
        &[
            "slack_post_message: channel_id! text!",
            "slack_list_channels: limit cursor",
            "slack_get_thread_replies: channel_id! thread_ts!",
            "conversations_history: channel_id! limit",
        ],
    ),
    List {
        more: 20,
        ..list(
            "linear",
            Style::Zod,
            &[
                "list_issues: teamId limit query",
                "create_issue: title! teamId! priority",
                "update_issue: id! stateId",
                "list_teams:",
            ],
        )
    },
    list(
        "filesystem",
        Style::Zod,
        &[
            "read_text_file: path! head tail",
            "write_file: path! content!",
            "edit_file: path! edits! dryRun",
            "directory_tree: path! excludePatterns",
            "list_allowed_directories:",
        ],
    ),
    list("postgres", Style::Bare, &["query: sql"]),
    list(
        "postgres-pro",
        Style::Pydantic,
        &[
            "execute_sql: sql!",
            "explain_query: sql! analyze hypothetical_indexes",
            "list_schemas:",
            "analyze_db_health: health_type",
        ],
    ),
    List {
        more: 10,
        ..list(
            "playwright",
            Style::Zod,
            &[
                "browser_navigate: url!",
                "browser_click: element! ref! doubleClick",
                "browser_snapshot:",
                "browser_fill_form: fields!",
                "browser_evaluate: function! element",
                "browser_close:",
            ],
        )
    },
    List {
        more: 30,
        ..list(
            "stripe",
            Style::OpenApi,
            &[
                "create_customer: name! email",
                "list_invoices: customer limit",
                "create_refund: payment_intent! amount reason",
                "search_stripe_documentation: question!",
            ],
        )
    },
    list(
        "fetch",
        Style::Pydantic,
        &["fetch: url! max_length start_index raw"],
    ),
    list(
        "memory",
        Style::Zod,
        &[
            "create_entities: entities!",
            "add_observations: observations!",
            "read_graph:",
            "open_nodes: names!",
        ],
    ),
    list(
        "sequential-thinking",
        Style::Zod,
        &["sequentialthinking: thought! nextThoughtNeeded! thoughtNumber! totalThoughts!"],
    ),
    list(
        "time",
        Style::Pydantic,
        &[
            "get_current_time: timezone!",
            "convert_time: source_timezone! time! target_timezone!",
        ],
    ),
    list(
        "git",
        Style::Pydantic,
        &[
            "git_status: repo_path!",
            "git_commit: repo_path! message!",
            "git_diff: repo_path! target! context_lines",
        ],
    ),
    List {
        more: 60,
        ..list(
            "gitlab",
            Style::Zod,
            &[
                "create_merge_request: project_id! title! source_branch! target_branch!",
                "get_file_contents: project_id! file_path! ref",
            ],
        )
    },
    list(
        "sentry",
        Style::Zod,
        &[
            "find_issues: organizationSlug! query",
            "get_issue_details: issueUrl",
            "analyze_issue_with_seer: issueUrl",
        ],
    ),
    List {
        more: 40,
        ..list(
            "atlassian",
            Style::Enterprise,
            &[
                "jira_search: jql! fields limit",
                "confluence_get_page: page_id",
                "jira_create_issue: project_key! summary! issue_type!",
            ],
        )
    },
    list(
        "brave-search",
        Style::Zod,
        &[
            "brave_web_search: query! count offset",
            "brave_local_search: query!",
        ],
    ),
    list(
        "puppeteer",
        Style::Bare,
        &[
            "puppeteer_navigate: url! launchOptions",
            "puppeteer_screenshot: name! selector width",
        ],
    ),
    list(
        "google-drive",
        Style::Bare,
        &["gdrive_search: query", "gdrive_read_file: fileId"],
    ),
    List {
        more: 50,
        ..list(
            "google-workspace",
            Style::Pydantic,
            &[
                "search_gmail_messages: query! user_google_email! page_size",
                "create_event: summary! start_time! end_time! attendees",
            ],
        )
    },
    list(
        "redis",
        Style::Pydantic,
        &[
            "hset: name! key! value! expire_seconds",
            "vector_search_hash: query_vector! index_name",
            "info: section",
        ],
    ),
    list(
        "mongodb",
        Style::Zod,
        &[
            "aggregate: database! collection! pipeline!",
            "find: database! collection! filter projection limit",
            "list-databases:",
        ],
    ),
    list(
        "sqlite",
        Style::Bare,
        &[
            "read_query: query!",
            "write_query: query!",
            "list_tables:",
            "append_insight: insight!",
        ],
    ),
    List {
        more: 25,
        ..list(
            "kubernetes",
            Style::Go,
            &[
                "pods_list_in_namespace: namespace! labelSelector",
                "resources_create_or_update: resource!",
                "pods_exec: name! command!",
            ],
        )
    },
    List {
        more: 15,
        ..list(
            "aws-api",
            Style::Pydantic,
            &[
                "call_aws: cli_command! max_results",
                "suggest_aws_commands: query!",
            ],
        )
    },
    List {
        more: 35,
        ..list(
            "azure",
            Style::Enterprise,
            &[
                "storage.blob.list: account! container! subscription",
                "cosmos/database/query: account! sql!",
            ],
        )
    },
    list(
        "cloudflare",
        Style::Zod,
        &[
            "worker_put: name! script!",
            "kv:get: namespaceId! key!",
            "zones.list: account",
        ],
    ),
    List {
        more: 20,
        ..list(
            "supabase",
            Style::Zod,
            &[
                "execute_sql: project_id! query!",
                "apply_migration: project_id! name! query!",
                "list_projects:",
            ],
        )
    },
    list(
        "figma",
        Style::Zod,
        &[
            "get_figma_data: fileKey! nodeId depth",
            "download_figma_images: fileKey! nodes! localPath!",
        ],
    ),
    list(
        "context7",
        Style::Zod,
        &[
            "resolve-library-id: libraryName!",
            "get-library-docs: context7CompatibleLibraryID! topic tokens",
        ],
    ),
    List {
        more: 12,
        ..list(
            "hubspot",
            Style::OpenApi,
            &[
                "hubspot-search-objects: objectType! filter[name] $top @type",
                "hubspot-get-user-details:",
            ],
        )
    },
    List {
        more: 300,
        ..list(
            "a bridge of everything",
            Style::OpenApi,
            &["get /v1/things/{id}: id! fields[]"],
        )
    },
    list(
        "everything",
        Style::Zod,
        &[
            "echo: message!",
            "get-sum: a! b!",
            "get-structured-content: location!",
        ],
    ),
];

fn property(style: Style, name: &str) -> Value {
    match style {
        Style::Zod => {
            json!({"type": "string", "description": format!("The {name}"), "minLength": 1})
        }
        Style::Pydantic => {
            json!({"anyOf": [{"type": "string"}, {"type": "null"}], "default": null, "title": name})
        }
        Style::Go => json!({"type": ["string", "null"], "description": name}),
        Style::OpenApi => {
            json!({"type": "string", "format": "uuid", "example": "x", "nullable": true, "x-of": "path"})
        }
        Style::Bare => json!({"type": "string"}),
        Style::Either => {
            json!({"oneOf": [{"type": "string", "const": "a"}, {"type": "object", "properties": {}}]})
        }
        Style::Enterprise => json!({"$ref": "#/$defs/Text", "description": "x".repeat(400)}),
    }
}

fn schema(style: Style, arguments: &str) -> Value {
    let (mut properties, mut required) = (json!({}), Vec::new());
    for argument in arguments.split_whitespace() {
        let name = argument.trim_end_matches('!');
        properties[name] = property(style, name);
        if argument.ends_with('!') {
            required.push(name);
        }
    }
    match style {
        Style::Zod => json!({"type": "object", "properties": properties, "required": required,
            "additionalProperties": false, "$schema": "http://json-schema.org/draft-07/schema#"}),
        Style::Pydantic => json!({"type": "object", "title": "Arguments", "properties": properties,
            "required": required, "$defs": {"Unused": {"enum": ["a", "b"], "title": "Unused"}}}),
        Style::Go | Style::OpenApi if arguments.is_empty() => json!({"type": "object"}),
        Style::Go => json!({"type": "object", "properties": properties, "required": required}),
        Style::OpenApi => json!({"type": "object", "properties": properties, "required": required,
            "description": "Error responses: 400, 404", "externalDocs": {"url": "https://docs.example"}}),
        Style::Bare if arguments.is_empty() => json!({}),
        Style::Bare => json!({"properties": properties}),
        Style::Either => json!({"type": "object", "properties": properties,
            "anyOf": required.iter().map(|name| json!({"required": [name]})).collect::<Vec<_>>()}),
        Style::Enterprise => {
            json!({"$id": "urn:arguments", "type": "object", "properties": properties,
            "required": required, "$defs": {"Text": {"type": "string"}}})
        }
    }
}

impl List {
    fn tools(&self) -> Vec<Value> {
        let style = self.style;
        let written = |name: &str, arguments: &str| {
            let mut tool = json!({
                "name": name, "title": name, "description": format!("Does {name} at {}.", self.server),
                "inputSchema": schema(style, arguments),
                "annotations": {"title": name, "readOnlyHint": false, "openWorldHint": true},
                "execution": {"taskSupport": "forbidden"},
                "icons": [{"src": "data:image/png;base64,AA==", "mimeType": "image/png", "sizes": ["any"]}],
                "_meta": {"_fastmcp": {"tags": []}},
            });
            if matches!(style, Style::Bare) {
                // Some leave out what others always write, or write null.
                tool["annotations"] = Value::Null;
                tool["title"] = Value::Null;
                tool["icons"] = Value::Null;
            }
            tool
        };
        let split = |line: &&'static str| line.rsplit_once(':').expect("a name and arguments");
        let mut tools: Vec<Value> = self
            .tools
            .iter()
            .map(|line| {
                let (name, rest) = split(line);
                written(name, rest)
            })
            .collect();
        let (name, rest) = split(self.tools.last().expect("a tool"));
        tools.extend((0..self.more).map(|n| written(&format!("{name}_{n}"), rest)));
        tools
    }
}

fn script(server: &str, request: &Value, _: usize) -> Vec<Out> {
    let list = LISTS.iter().find(|list| list.server == server);
    let written = || {
        let mut all = servers().into_iter();
        let (_, tools) = all.find(|(name, _)| name == server).expect("a list");
        let tools = tools.into_iter().map(|tool| {
            json!({"name": tool["name"], "description": format!("Does it at {server}."),
                "inputSchema": tool["schema"]})
        });
        tools.collect()
    };
    match request["method"].as_str().unwrap_or_default() {
        "initialize" => vec![result(request, handshake())],
        "tools/list" => {
            // In pages of thirty, as several of them do.
            let tools = list.map_or_else(written, List::tools);
            let from: usize = request["params"]["cursor"]
                .as_str()
                .map_or(0, |at| at.parse().expect("a number"));
            let page: Vec<&Value> = tools.iter().skip(from).take(30).collect();
            let mut said = json!({ "tools": page });
            if from + 30 < tools.len() {
                said["nextCursor"] = json!((from + 30).to_string());
            }
            vec![result(request, said)]
        }
        _ => vec![error(&request["id"], -32601, "no", Value::Null)],
    }
}

#[tokio::test]
async fn the_list_of_every_popular_server_is_offered_whole() {
    assert!(LISTS.len() + servers().len() >= 100);
    for list in LISTS {
        let server = Scripted::start(list.server, script, true).await;
        let pool = pool(server.transport(), LONG, LONG);
        let offered = tools(&pool).await.unwrap();
        let expected = list.tools().len();
        assert_eq!(offered.len(), expected, "{}", list.server);
        for (name, tool) in &offered {
            let spec = tool.spec();
            let of = format!("{}: {name}", list.server);
            assert!(spec.description.starts_with("Does "), "{of}");
            assert_eq!(spec.parameters["type"], "object", "{of}");
            let compiled = mainspring_shared::tool::schema::parameters(&spec.parameters);
            assert!(compiled.is_ok(), "{of}: {:?}", compiled.err());
        }
        // The same again, in the same order.
        let again: Vec<String> = tools(&pool).await.unwrap().into_keys().collect();
        assert!(offered.keys().eq(&again), "{}", list.server);
    }
}

#[tokio::test]
async fn the_tools_of_further_servers_are_offered_and_take_what_fits_them() {
    for (name, described) in servers() {
        let server = Scripted::start(&name, script, true).await;
        let pool = pool(server.transport(), LONG, LONG);
        let mut offered: Vec<_> = tools(&pool).await.unwrap().into_values().collect();
        assert_eq!(offered.len(), described.len(), "{name}");
        for tool in described {
            let of = format!("{name}: {}", tool["name"]);
            let found = offered
                .iter()
                .position(|it| it.spec().parameters["properties"] == tool["schema"]["properties"]);
            let found = found.or_else(|| {
                offered
                    .iter()
                    .position(|it| it.spec().parameters["properties"] == json!({}))
            });
            let spec = offered.remove(found.expect(&of)).spec();
            let compiled = mainspring_shared::tool::schema::parameters(&spec.parameters);
            let compiled = compiled.unwrap_or_else(|fault| panic!("{of}: {fault}"));
            for arguments in tool["accepts"].as_array().expect("arguments") {
                let faults = compiled.faults(arguments);
                assert!(faults.is_empty(), "{of}: {arguments}: {faults:?}");
            }
        }
    }
}
