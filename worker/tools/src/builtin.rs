//! Tools that work in the session's workspace, and a clock.
//!
//! | tools | need |
//! |---|---|
//! | `apply_patch`, `edit_file`, `write_file` | a workspace; change only what the session has read as it now is |
//! | `glob`, `grep`, `list_dir`, `read_file` | a workspace |
//! | `shell` | a workspace and a way to run commands |
//! | `command_output`, `command_start`, `command_stop` | the same, and the database |
//! | `current_time`, `pass_turn` | nothing |
//! | `schedule_wakeup`, `list_wakeups`, `cancel_wakeup` | a store: [`register_wakeups`] |
//!
//! [`register`] enters those that the settings allow. No path that a model gives leads out of its
//! session's directory, whatever links say. Commands are another matter: what they can reach is what
//! the way in which they run lets them reach, see [`Shell`].

use std::sync::Arc;

use mainspring_shared::entropy::Entropy;
use mainspring_shared::store::Store;
use mainspring_shared::time::Clock;

pub use crate::sandbox::{Launcher, TASK, run_child};
pub use crate::settings::{
    ENVIRONMENT_DEFAULT, Limits, Settings, Shell, Template, WorkspaceSettings, allowed,
};
pub use crate::shell::commands::Background;
pub use crate::shell::{Launch, ShellBackend, ShellCommand};

use crate::agents::wakeups::{self, Wakeups};
use crate::catalogue::{insert_all, make_all};
use crate::current_time;
use crate::files::workspace::Workspace;
use crate::files::{self, FileTools};
use crate::pass_turn;
use crate::sandbox::{Isolated, Jail};
use crate::shell::commands::{self, Commands};
use crate::shell::{self, Local, Runs, Templated};
use crate::skills::{Beside, PlaceFiles, Shelf};
use mainspring_worker::tool::{Tool, Tools, ToolsError};

/// Enters the tools that the settings allow. What the settings name must be there: a worker that
/// cannot sandbox commands as it was told to does not start.
pub fn register(
    settings: Settings,
    clock: Arc<dyn Clock>,
    tools: &mut Tools,
) -> Result<(), ToolsError> {
    insert_all(&current_time::TOOLS, &clock, tools)?;
    insert_all(&pass_turn::TOOLS, &(), tools)?;
    let backend = backend(&settings)?;
    let Some(place) = settings.workspace else {
        return match backend {
            None => Ok(()),
            Some(_) => Err(refused("the shell needs a workspace")),
        };
    };
    let workspace = Workspace::open(&place, settings.limits);
    let workspace = workspace
        .map_err(|error| refused(format!("the workspace {}: {error}", place.root.display())))?;
    let workspace = Arc::new(workspace);
    let placing: Arc<dyn Tool> = Arc::new(PlaceFiles {
        workspace: workspace.clone(),
    });
    let skills = settings.skills;
    if let Some(launcher) = settings.launcher {
        let (shell, environment) = (&settings.shell, settings.environment);
        let jail = Jail::new(
            launcher,
            workspace.clone(),
            shell,
            environment,
            clock.clone(),
        );
        let jail = Arc::new(jail.map_err(refused)?);
        return confined(jail, (workspace, placing), backend, &clock, (tools, skills));
    }
    tools.insert_internal(placing.clone());
    let skills = placed(skills, placing);
    let mut insert = |tool| tools.insert(beside(skills.as_ref(), tool));
    let place = FileTools {
        workspace: workspace.clone(),
        clock: clock.clone(),
    };
    make_all(&files::TOOLS, &place).try_for_each(&mut insert)?;
    let Some(backend) = backend else {
        return Ok(());
    };
    if let Some(background) = settings.background {
        let (workspace, backend, clock) = (workspace.clone(), backend.clone(), clock.clone());
        let commands = Arc::new(Commands::new(background, workspace, backend, clock));
        make_all(&commands::TOOLS, &commands).try_for_each(&mut insert)?;
    }
    let runs = Runs {
        workspace,
        backend,
        clock,
    };
    make_all(&shell::TOOLS, &runs).try_for_each(&mut insert)
}

/// The skills, whose files this tool places from now on.
fn placed(skills: Option<Arc<Shelf>>, placing: Arc<dyn Tool>) -> Option<Arc<Shelf>> {
    skills.inspect(|skills| skills.place_with(placing))
}

/// A tool of the workspace that finds the files of its agent's skills there.
fn beside(skills: Option<&Arc<Shelf>>, inner: Arc<dyn Tool>) -> Arc<dyn Tool> {
    match skills {
        Some(shelf) => Arc::new(Beside {
            inner,
            shelf: shelf.clone(),
        }),
        None => inner,
    }
}

/// Enters the tools of a workspace that this worker never touches itself.
fn confined(
    jail: Arc<Jail>,
    (workspace, placing): (Arc<Workspace>, Arc<dyn Tool>),
    backend: Option<Arc<dyn ShellBackend>>,
    clock: &Arc<dyn Clock>,
    (tools, skills): (&mut Tools, Option<Arc<Shelf>>),
) -> Result<(), ToolsError> {
    let isolated = |inner| {
        let jail = jail.clone();
        Arc::new(Isolated { inner, jail }) as Arc<dyn Tool>
    };
    let skills = placed(skills, isolated(placing));
    let place = FileTools {
        workspace: workspace.clone(),
        clock: clock.clone(),
    };
    let files = make_all(&files::TOOLS, &place);
    let runs = backend.map(|backend| Runs {
        workspace,
        backend,
        clock: clock.clone(),
    });
    let shell = runs.iter();
    let shell = shell.flat_map(|runs| make_all(&shell::TOOLS, runs));
    for inner in files.chain(shell) {
        tools.insert(beside(skills.as_ref(), isolated(inner)))?;
    }
    // Commands in the background would run beside the child, not in it: there are none.
    tools.add_per_send(jail);
    Ok(())
}

/// Enters the tools with which agents set their own alarms, kept in this store.
pub fn register_wakeups(
    store: &Arc<dyn Store>,
    entropy: &Arc<dyn Entropy>,
    tools: &mut Tools,
) -> Result<(), ToolsError> {
    let wakeups = Wakeups {
        store: store.clone(),
        entropy: entropy.clone(),
    };
    insert_all(&wakeups::TOOLS, &wakeups, tools)
}

fn backend(settings: &Settings) -> Result<Option<Arc<dyn ShellBackend>>, ToolsError> {
    let environment = &settings.environment;
    let backend: Arc<dyn ShellBackend> = match &settings.shell {
        Shell::Off => return Ok(None),
        Shell::Local => Arc::new(Local::new(environment).map_err(refused)?),
        Shell::Template(template) => {
            Arc::new(Templated::new(template, environment).map_err(refused)?)
        }
        Shell::Backend(backend) => backend.clone(),
    };
    Ok(Some(backend))
}

fn refused(detail: impl Into<String>) -> ToolsError {
    ToolsError::Settings {
        detail: detail.into(),
    }
}
