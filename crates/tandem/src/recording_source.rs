//! Where a verb gets its recording from, and how it looks at that.

use crate::bar::Bar;
use std::path::{Path, PathBuf};
use tandem_lab::twin::grouping::GroupBy;
use tandem_lab::twin::plan::Plan;
use tandem_lab::twin::replay::Twin;
use tandem_lab::twin::together::Together;
use tandemd::error::{BadInput, one_line};

/// What the names of plans end in, which tells them from recordings.
pub const PLAN: &str = "toml";

/// The recording that a verb is about.
#[derive(clap::Args)]
pub struct RecordingSource {
    /// The recording: a file of `tandem record`, perf.data, trace.dat, or a Perfetto trace
    recording: PathBuf,
    /// What tasks of a group have in common
    #[arg(long, value_enum, default_value_t = By::Vm)]
    by: By,
    /// The recording of a VM's guest, made at the same time: its tasks run in a kernel of their own on the VM's
    /// vCPUs, in groups NAME/PROCESS; may be given several times
    #[arg(long = "guest", value_name = "NAME=FILE", value_parser = parse_guest)]
    guests: Vec<(String, PathBuf)>,
}

fn parse_guest(text: &str) -> Result<(String, PathBuf), String> {
    let form = "write NAME=FILE, the name of a VM and the recording of its guest, such as web=guest.parquet";
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => Ok((name.to_owned(), file.into())),
        _ => Err(form.into()),
    }
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

    /// Its path, and those of its guests.
    pub fn paths(&self) -> Vec<&Path> {
        let guests = self.guests.iter().map(|(_, path)| path.as_path());
        std::iter::once(self.recording.as_path()).chain(guests).collect()
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.recording
    }

    /// Reads it, with the recordings of its guests.
    pub fn read(&self) -> Result<Together, BadInput> {
        if self.is_plan() {
            let message = "is a plan of a replay; name the recording, which is in its first lines";
            return Err(BadInput::new(format!("{}: {message}", self.name())));
        }
        self.read_files(&self.recording, self.guests.clone())
    }

    /// Reads that recording instead, and those of guests, to which a plan has led.
    pub fn read_files(&self, host: &Path, guests: Vec<(String, PathBuf)>) -> Result<Together, BadInput> {
        let open = |path: &Path| tandem_recording::open(path).map_err(BadInput::new);
        let twice = |(at, (name, _)): (usize, &(String, PathBuf))| {
            self.guests[..at].iter().any(|(known, _)| known == name).then(|| one_line(name))
        };
        if let Some(name) = self.guests.iter().enumerate().find_map(twice) {
            return Err(BadInput::new(format!("--guest names two recordings of the guest of VM '{name}'")));
        }
        let _busy = Bar::busy(&one_line(&host.display().to_string()), "reading the recording");
        let recording = open(host)?;
        let guests: Result<Vec<_>, BadInput> =
            guests.into_iter().map(|(name, path)| Ok((name, open(&path)?))).collect();
        let host = one_line(&host.display().to_string());
        Together::new(recording, guests?).map_err(|problem| BadInput::new(format!("{host}: {problem}")))
    }

    /// The recordings of guests that the command line names.
    pub fn guests(&self) -> &[(String, PathBuf)] {
        &self.guests
    }

    fn is_plan(&self) -> bool {
        self.recording.extension().is_some_and(|extension| extension == PLAN)
    }

    /// The plan that it is, or one that changes nothing.
    pub fn plan(&self) -> Result<Plan, BadInput> {
        match self.is_plan() {
            true => Plan::read(&self.recording).map_err(BadInput::new),
            false => Ok(Plan { recording: self.recording.clone(), ..Plan::default() }),
        }
    }

    /// The model of a recording with that path.
    pub fn understand<'a>(&self, together: &'a Together, path: &Path) -> Result<Twin<'a>, BadInput> {
        let wrong = |problem| BadInput::new(format!("{}: {problem}", one_line(&path.display().to_string())));
        let _busy = Bar::busy(&one_line(&path.display().to_string()), "finding what the recorded tasks do");
        let twin = Twin::of(together, self.by.into()).map_err(wrong)?;
        twin.check().map_err(wrong)?;
        Ok(twin)
    }
}
