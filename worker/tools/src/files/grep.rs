//! `grep`: searches files for lines that match a pattern.

mod sink;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder};
use mainspring_shared::time::Clock;
use mainspring_shared::tool::Repeat;
use serde::Deserialize;
use serde_json::json;

use self::sink::Hits;
use crate::files::list_dir::here;
use crate::files::walk::{self, CutShort, Scope, WalkLimits};
use crate::files::work::{arguments, blocking, invalid, stopped};
use crate::files::workspace::{SessionDir, Workspace, open_regular};
use mainspring_worker::tool::{Invocation, Output, Tool, ToolError, ToolSpec, Traits};

/// Matching lines shown unless the call sets a limit.
const RESULTS_DEFAULT: usize = 50;

/// Maximum number of matching lines shown.
const RESULTS_MAX: usize = 500;

/// Maximum number of context lines around each match.
const CONTEXT_MAX: usize = 10;

/// Maximum size in bytes of a compiled pattern; anything larger is not a reasonable search.
const PATTERN_BYTES_MAX: usize = 8 << 20;

#[derive(Debug)]
pub(crate) struct Grep {
    pub(crate) workspace: Arc<Workspace>,
    pub(crate) clock: Arc<dyn Clock>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "models say yes or no to each"
)]
struct Arguments {
    pattern: String,
    #[serde(default = "here")]
    path: String,
    #[serde(default)]
    include: Option<String>,
    #[serde(default)]
    max_results: Option<usize>,
    #[serde(default)]
    context: usize,
    #[serde(default)]
    literal: bool,
    #[serde(default = "yes")]
    case_sensitive: bool,
    #[serde(default)]
    include_hidden: bool,
    #[serde(default)]
    include_ignored: bool,
}

fn yes() -> bool {
    true
}

#[async_trait]
impl Tool for Grep {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "grep".into(),
            description: "Searches files in the workspace with a regular expression (RE2 syntax, \
                          line by line). Returns matches as path:line:text. Skips binary and large \
                          files, hidden files, files ignored by .gitignore, and directories like \
                          node_modules and target, unless they are named or included."
                .into(),
            parameters: json!({
                "type": "object",
                "required": ["pattern"],
                "additionalProperties": false,
                "properties": {
                    "pattern": {"type": "string", "minLength": 1},
                    "path": {
                        "type": "string",
                        "description": "File or directory to search; the workspace by default.",
                    },
                    "include": {
                        "type": "string",
                        "minLength": 1,
                        "description": "Glob of the paths to search, like *.rs or src/**/*.{ts,tsx}.",
                    },
                    "max_results": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": RESULTS_MAX,
                        "description": format!("Maximum number of matching lines, {RESULTS_DEFAULT} by default."),
                    },
                    "context": {
                        "type": "integer",
                        "minimum": 0,
                        "maximum": CONTEXT_MAX,
                        "description": "Lines of context around each match, 0 by default.",
                    },
                    "literal": {
                        "type": "boolean",
                        "description": "Treat the pattern as plain text, false by default.",
                    },
                    "case_sensitive": {"type": "boolean", "description": "true by default"},
                    "include_hidden": {"type": "boolean", "description": "false by default"},
                    "include_ignored": {"type": "boolean", "description": "false by default"},
                },
            }),
        }
    }

    fn traits(&self) -> Traits {
        Traits::new(Repeat::Safe)
    }

    async fn call(&self, invocation: Invocation) -> Result<Output, ToolError> {
        let arguments: Arguments = arguments(invocation.arguments)?;
        let (workspace, clock) = (self.workspace.clone(), self.clock.clone());
        blocking(&invocation.stop, move |stop| {
            let session_dir = workspace.session_dir(invocation.session)?;
            let mut limits = WalkLimits::new(&workspace.limits, clock, stop.clone());
            let bytes_max = workspace.limits.file_bytes_max;
            let mut search = Search::new(&arguments, bytes_max)?;
            let said = search.run(&session_dir, &arguments, &mut limits)?;
            let digest = search.hits.counted(&arguments.pattern);
            Ok(Output::text(said).with_digest(digest))
        })
        .await
    }
}

struct Search {
    matcher: RegexMatcher,
    searcher: Searcher,
    file_bytes_max: u64,
    hits: Hits,
    /// Number of files skipped as too large.
    large: usize,
}

impl Search {
    fn new(wanted: &Arguments, file_bytes_max: u64) -> Result<Self, ToolError> {
        let matcher = RegexMatcherBuilder::new()
            .fixed_strings(wanted.literal)
            .case_insensitive(!wanted.case_sensitive)
            .line_terminator(Some(b'\n'))
            .size_limit(PATTERN_BYTES_MAX)
            .dfa_size_limit(PATTERN_BYTES_MAX)
            .build(&wanted.pattern)
            .map_err(|error| invalid(format!("{} is not a pattern: {error}", wanted.pattern)))?;
        let context = wanted.context.min(CONTEXT_MAX);
        let searcher = SearcherBuilder::new()
            .line_number(true)
            .before_context(context)
            .after_context(context)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(file_bytes_max as usize + (1 << 20)))
            .build();
        let max = wanted.max_results.unwrap_or(RESULTS_DEFAULT);
        Ok(Self {
            matcher,
            searcher,
            file_bytes_max,
            hits: Hits::new(max.min(RESULTS_MAX)),
            large: 0,
        })
    }

    fn run(
        &mut self,
        session_dir: &SessionDir,
        wanted: &Arguments,
        limits: &mut WalkLimits,
    ) -> Result<String, ToolError> {
        let only = wanted.include.as_deref().map(walk::pattern).transpose()?;
        let mut scope = Scope::new(wanted.include_hidden, wanted.include_ignored);
        scope.name(wanted.include.as_deref().unwrap_or_default());
        let mut cut_short = None;
        if session_dir.directory(&wanted.path).is_ok() {
            cut_short = walk::walk(
                session_dir,
                &wanted.path,
                &scope,
                limits,
                &mut |limits, entry| {
                    let meant = only.as_ref().is_none_or(|only| only.is_match(entry.below));
                    // A symbolic link is skipped: its target is searched at its own path.
                    if meant
                        && !entry.is_link
                        && let Ok(file) = open_regular(entry.dir, entry.name)
                    {
                        self.file(entry.path, &file, limits);
                    }
                    if self.hits.full() {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                },
            )?;
        } else {
            let found = session_dir.file(&wanted.path)?;
            self.file(&found.real, &found.open, limits);
        }
        // A stop in the middle of a file shows only here.
        match cut_short.or_else(|| limits.reached()) {
            Some(CutShort::Stopped) => Err(stopped()),
            cut_short => Ok(self.hits.said(&wanted.pattern, self.large, cut_short)),
        }
    }

    fn file(&mut self, path: &Path, file: &cap_std::fs::File, limits: &WalkLimits) {
        if file
            .metadata()
            .is_ok_and(|kind| kind.len() > self.file_bytes_max)
        {
            self.large += 1;
            return;
        }
        let path = path.to_string_lossy();
        let sink = self.hits.in_file(&path, limits);
        // A file that cannot be read to its end is searched as far as possible.
        let searched = self.searcher.search_reader(&self.matcher, file, sink);
        if let Err(error) = searched {
            tracing::debug!(%error, "a file was not searched to its end");
        }
        self.hits.end_file();
    }
}
