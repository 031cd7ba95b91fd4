//! One block of a trial: loads an arm, waits until it has settled, measures, and unloads it.

use super::metric;
use super::progress::Progress;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime};
use tandem_host::scheduler::RunningKernel;
use tandem_host::trial::{
    Arm, ArmError, InvokingUser, Keeping, Kept, MeasuredValue, Measures, Subject, Window, shell,
};
use tandem_host::vms::Finder;
use tandem_lab::statistics::switchback::Better;
use tandem_lab::switchback::record::{BlockRecord, Trial, Value};
use tandem_machine::Machine;

/// Time between two checks of the arm, the metric's command and signals.
const POLL: Duration = Duration::from_millis(50);
/// How often a block is repeated that something else has disturbed.
const ATTEMPTS_MAX: u32 = 3;

/// What blocks need.
pub struct Bench<'a> {
    /// The kernel under test.
    pub kernel: &'a RunningKernel,
    /// The machine.
    pub machine: &'a Machine,
    /// Finds its VMs.
    pub finder: RefCell<Finder>,
    /// How processes are kept.
    pub keeping: Keeping,
    /// The trial.
    pub trial: &'a Trial,
    /// Its arms.
    pub arms: &'a [super::arms::Arm],
    /// Who runs the metric's command.
    pub user: Option<InvokingUser>,
    /// How long loading a scheduler may take.
    pub load_limit: Duration,
    /// Set by a signal that asks for the end.
    pub cancel: &'a AtomicBool,
    /// Where progress is shown.
    pub progress: &'a Progress,
    /// What this kernel does not measure.
    pub missing: RefCell<BTreeSet<&'static str>>,
}

/// What was measured in a block.
struct Measured {
    began_unix_s: u64,
    measures: Measures,
    /// The metric's values, or why there are none.
    metric: Option<Result<Vec<Value>, String>>,
    refused_tasks: u64,
}

impl Bench<'_> {
    /// Runs a block, and again if something else disturbs it.
    ///
    /// # Errors
    /// If the arm fails, a signal comes, or the trial cannot go on.
    pub fn run(&self, block: usize, arm: usize) -> Result<BlockRecord, ArmError> {
        let mut attempts = 1;
        loop {
            match self.attempt(block, arm) {
                Err(ArmError::Disturbed(why)) if attempts < ATTEMPTS_MAX => {
                    self.progress.say(&format!("block {} is repeated: {why}", block + 1));
                    attempts += 1;
                }
                Err(ArmError::Disturbed(why)) => {
                    return Err(ArmError::Failed(format!("{why} in {attempts} attempts of the block")));
                }
                done => return done,
            }
        }
    }

    /// Loads the arm, and keeps it until a signal comes.
    ///
    /// # Errors
    /// If it cannot be loaded, or does not stay.
    pub fn hold(&self, arm: usize) -> Result<(), ArmError> {
        let mut loaded = self.load(arm)?;
        self.progress.say(&format!("{} stays loaded until a signal", self.arms[arm].name));
        while !self.is_over() {
            loaded.check()?;
            sleep(POLL);
        }
        loaded.unload()
    }

    fn load(&self, arm: usize) -> Result<Arm<'_>, ArmError> {
        Arm::load(self.kernel, &self.arms[arm].scheduler, &self.keeping, self.load_limit, || self.is_over())
    }

    fn is_over(&self) -> bool {
        self.cancel.load(Ordering::Relaxed)
    }

    fn attempt(&self, block: usize, arm: usize) -> Result<BlockRecord, ArmError> {
        let name = &self.arms[arm].name;
        self.progress.block(block, name);
        let Measured { began_unix_s, measures, metric, refused_tasks } = self.measure(arm, name)?;
        self.missing.borrow_mut().extend(measures.missing);
        let mut errors = Vec::new();
        let mut values = metric.unwrap_or(Ok(Vec::new())).unwrap_or_else(|error| {
            errors.push(error);
            Vec::new()
        });
        if refused_tasks > 0 {
            errors.push(format!("the scheduler refused {refused_tasks} tasks"));
        }
        let decisive = decisive(&measures.values)
            .filter(|_| self.trial.metric.is_none())
            .map(|value| value.name.clone());
        values.extend(measures.values.into_iter().map(|value| Value {
            is_decisive: decisive.as_ref() == Some(&value.name),
            measure: value.name,
            unit: value.unit.to_owned(),
            better: value.is_less_better.then_some(Better::Lower),
            value: value.value,
            halves: Some(value.halves),
        }));
        Ok(BlockRecord { block, arm: name.clone(), began_unix_s, values, errors })
    }

    fn measure(&self, arm: usize, name: &str) -> Result<Measured, ArmError> {
        let mut loaded = self.load(arm)?;
        let began = Instant::now();
        let began_unix_s =
            SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let (settle, length) =
            (Duration::from_nanos(self.trial.settle_ns), Duration::from_nanos(self.trial.block_ns));
        self.progress.phase(name, "settling");
        self.wait(&mut loaded, began + settle, || ())?;

        self.progress.phase(name, "measuring");
        let mut window = Window::open(Path::new("/"), self.machine, &mut self.finder.borrow_mut());
        let mut metric = self.trial.metric.as_ref().map(|line| Metric::start(line, &self.keeping, self.user));
        let mut watch = || {
            if let Some(metric) = &mut metric {
                metric.watch();
            }
        };
        self.wait(&mut loaded, began + (settle + length) / 2, &mut watch)?;
        window.halve();
        self.wait(&mut loaded, began + length, &mut watch)?;
        let measures = window.close();
        let metric = metric.map(|metric| metric.values(self.trial.better));
        let refused_tasks = loaded.refused_tasks();
        self.progress.phase(name, "unloading");
        loaded.unload()?;
        Ok(Measured { began_unix_s, measures, metric, refused_tasks })
    }

    fn wait(&self, loaded: &mut Arm<'_>, until: Instant, mut watch: impl FnMut()) -> Result<(), ArmError> {
        loop {
            loaded.check()?;
            watch();
            if self.is_over() {
                return Err(ArmError::Interrupted);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            sleep(left.min(POLL));
        }
    }
}

/// The measure that decides a trial without a metric: how long VMs wait, or where there are none, all tasks.
fn decisive(values: &[MeasuredValue]) -> Option<&MeasuredValue> {
    let of = |subject| values.iter().filter(move |value| value.subject == subject && value.is_less_better);
    // Of the machine's, the last one counts how many wait, and the one before only whether any does.
    of(Subject::AllVms).next().or_else(|| of(Subject::Machine).next_back())
}

/// The metric's command, running or ended.
struct Metric(Result<Kept, String>);

impl Metric {
    fn start(line: &str, keeping: &Keeping, user: Option<InvokingUser>) -> Self {
        let started = Kept::start(keeping, &shell(line), user);
        Self(started.map_err(|error| format!("the metric's command cannot be started: {error}")))
    }

    /// Ends it if it has written too much.
    fn watch(&mut self) {
        if self.0.as_ref().is_ok_and(Kept::has_written_too_much) {
            self.0 = Err("the metric's command printed more than a megabyte".into());
        }
    }

    /// Its values; one that still runs is late.
    fn values(self, better: Better) -> Result<Vec<Value>, String> {
        let mut kept = self.0?;
        match kept.ended() {
            Ok(Some(status)) if status.success() => {
                let output = kept.output().map_err(|error| format!("the metric's command: {error}"))?;
                metric::parse(&output, better)
            }
            Ok(Some(status)) => {
                let line = kept.last_line();
                let said = if line.is_empty() { String::new() } else { format!(": {line}") };
                Err(format!("the metric's command failed ({status}){said}"))
            }
            Ok(None) => Err("the metric's command had not ended at the end of the block".into()),
            Err(error) => Err(format!("the metric's command: {error}")),
        }
    }
}
