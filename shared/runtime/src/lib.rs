#![doc = include_str!("../README.md")]

mod buggify;
mod clock;
mod config;
mod entropy;
mod fair;
mod group;
mod lifecycle;
mod metrics;
mod seal;
mod shares;
mod skills;
pub mod telemetry;

pub use buggify::{buggify, set_buggify};
pub use clock::SystemClock;
pub use config::{
    Choice, DEFAULTS, Environment, Key, Keys, Kind, Layers, Named, Problem, Problems, Secret,
    Setting, Settings, Sources, Values,
};
pub use entropy::OsEntropy;
pub use fair::FairQueue;
pub use group::{GROUP_MAX, Group, GroupEnded, Weight};
pub use lifecycle::Lifecycle;
pub use metrics::{Kind as MetricKind, METRICS, Metric, Metrics};
pub use seal::{KeyError, OpenError, Sealer};
pub use shares::{Share, Shares, may_take};
pub use skills::{MountedSkills, read_skill};
pub use telemetry::{LogFormat, Propagation, Telemetry, TelemetrySettings};
