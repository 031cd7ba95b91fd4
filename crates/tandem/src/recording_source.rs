//! Where a verb gets its recording from, and how it looks at that.

use std::path::{Path, PathBuf};
use tandem_lab::twin::grouping::GroupBy;
use tandem_lab::twin::plan::Plan;
use tandem_lab::twin::replay::Twin;
use tandem_recording::Recording;
use tandemd::error::{BadInput, one_line};

/// The recording that a verb is about.
#[derive(clap::Args)]
pub struct RecordingSource {
    /// The recording: a file of `tandem record`, perf.data, trace.dat, or a Perfetto trace
    recording: PathBuf,
    /// What tasks of a group have in common
    #[arg(long, value_enum, default_value_t = By::Vm)]
    by: By,
}

/// What tasks of a group have in common.
#[derive(Clone, Copy, clap::ValueEnum)]
enum By {
    /// A virtual machine; for tasks of none, the name of their process
    Vm,
    /// The name of their process
    Process,
    /// Their cgroup
    Cgroup,
    /// Their own name
    Thread,
}

impl From<By> for GroupBy {
    fn from(by: By) -> Self {
        match by {
            By::Vm => Self::Vm,
            By::Process => Self::Process,
            By::Cgroup => Self::Cgroup,
            By::Thread => Self::Thread,
        }
    }
}

impl RecordingSource {
    /// Its name, to display.
    pub fn name(&self) -> String {
        one_line(&self.recording.display().to_string())
    }

    /// Reads it.
    pub fn read(&self) -> Result<Recording, BadInput> {
        self.read_file(&self.recording)
    }

    /// Reads that recording instead, to which a plan has led.
    pub fn read_file(&self, path: &Path) -> Result<Recording, BadInput> {
        tandem_recording::open(path).map_err(BadInput::new)
    }

    /// The plan that it is, or one that changes nothing.
    pub fn plan(&self) -> Result<Plan, BadInput> {
        match self.recording.extension().is_some_and(|extension| extension == "toml") {
            true => Plan::read(&self.recording).map_err(BadInput::new),
            false => Ok(Plan { recording: self.recording.clone(), ..Plan::default() }),
        }
    }

    /// The model of it.
    pub fn understand<'a>(&self, recording: &'a Recording) -> Result<Twin<'a>, BadInput> {
        let twin = Twin::new(recording, self.by.into());
        match twin.model.tasks.is_empty() {
            true => Err(BadInput::new(format!("{}: nothing ran while it was recorded", self.name()))),
            false => Ok(twin),
        }
    }
}
