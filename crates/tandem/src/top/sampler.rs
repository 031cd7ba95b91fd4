//! Samples the machine periodically, on a thread of its own: keys are answered at once, however long a sample
//! takes.

use super::sample::{MachineSample, Sample, SchedulerSample};
use std::cell::LazyCell;
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};
use tandem_host::agent::free_bytes;
use tandem_host::cpu_time::{CpuTimes, read_cpu_times};
use tandem_host::scheduler::Status;
use tandem_host::topology::read_sysfs;
use tandem_host::vms::{Finder, Identity, Limits, Memory, ThreadKind, Vm};
use tandem_machine::Machine;
use tandem_settings::Held;
use tandemd::access::{Access, Who};
use tandemd::observe::{self, ObservedVm, Reports, SAMPLE, Window, note_of_monitors, online, with_reports};

/// The first sample is short: the user waits for it.
const FIRST: Duration = Duration::from_millis(500);
/// How often in an interval the positions of threads are read, but not more often than every [`SAMPLE`].
const SAMPLES: u32 = 5;
/// What a VM may use, and where its memory is, is read for one part in so many of the time: for a large VM it
/// may take seconds.
const SLOW_SHARE: u32 = 50;
/// After a refusal, or without a scheduler, it asks again after this time: the service logs refusals.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// After this many scans all processes are read again: a process that runs another program now is no VM any
/// longer.
const FORGET_SCANS: u32 = 30;

/// The other end of the thread that samples.
pub struct Sampler {
    /// What was seen, or why nothing can be seen any more.
    pub samples: Receiver<anyhow::Result<Sample>>,
    detail: Arc<Mutex<Option<Identity>>>,
}

impl Sampler {
    /// Starts to sample the machine under `root`, which is `/` for this one, every `interval`.
    ///
    /// # Errors
    /// If the machine cannot be read.
    pub fn start(root: &Path, interval: Duration, with_emulated: bool) -> anyhow::Result<Self> {
        let detail = Arc::default();
        let mut collector = Collector::open(root, with_emulated, Arc::clone(&detail))?;
        let (sender, samples) = sync_channel(1);
        thread::Builder::new().name("sampler".into()).spawn(move || collector.watch(interval, &sender))?;
        Ok(Self { samples, detail })
    }

    /// From the next sample on, samples have the preferences of this VM's threads.
    pub fn detail(&self, vm: Option<Identity>) {
        *self.detail.lock().unwrap_or_else(PoisonError::into_inner) = vm;
    }
}

/// What the thread remembers from sample to sample.
struct Collector {
    root: PathBuf,
    machine: Machine,
    finder: Finder,
    cpu_times: Vec<CpuTimes>,
    slow: Slow,
    scans: u32,
    migrations: Migrations,
    /// The scheduler, or why it cannot be asked and when to try again.
    access: Result<Access, (String, Instant)>,
    /// With the time since the beginning.
    status: Option<(Status, Duration)>,
    begin: Instant,
    detail: Arc<Mutex<Option<Identity>>>,
}

impl Collector {
    fn open(root: &Path, with_emulated: bool, detail: Arc<Mutex<Option<Identity>>>) -> anyhow::Result<Self> {
        Ok(Self {
            root: root.to_owned(),
            machine: read_sysfs(root)?,
            finder: Finder::new(root).with_emulated(with_emulated),
            cpu_times: read_cpu_times(root)?,
            slow: Slow::default(),
            scans: 0,
            migrations: Migrations::default(),
            access: Err((String::new(), Instant::now())),
            status: None,
            begin: Instant::now(),
            detail,
        })
    }

    fn watch(&mut self, interval: Duration, samples: &SyncSender<anyhow::Result<Sample>>) {
        let mut next = FIRST.min(interval);
        loop {
            let sample = self.sample(next);
            let is_last = sample.is_err();
            if samples.send(sample).is_err() || is_last {
                return;
            }
            next = interval;
        }
    }

    fn sample(&mut self, interval: Duration) -> anyhow::Result<Sample> {
        self.scans += 1;
        if self.scans.is_multiple_of(FORGET_SCANS) {
            self.finder.forget();
        }
        self.finder.scan()?;
        let mut window = Window::open(self.finder.vms());
        let pause = SAMPLE.max(interval / SAMPLES).min(interval);
        let begin = Instant::now();
        while begin.elapsed() < interval {
            sleep(pause.min(interval.saturating_sub(begin.elapsed())));
            window.sample(&self.machine);
        }
        self.slow.begin(interval, self.finder.vms());
        let (slow, online) = (&mut self.slow, online(&self.machine));
        let access = self.access.as_ref().ok();
        let reports = LazyCell::new(|| access.map_or_else(Reports::new, observe::reports));
        let mut vms = window.close(&self.root, &self.machine, |vm| {
            let (limits, memory) = slow.read(vm, &online);
            (limits, with_reports(memory, vm, &reports))
        });
        vms.notes.extend(note_of_monitors(self.finder.monitors_without_vcpus().collect()));
        let machine = self.sample_machine()?;
        let scheduler = self.sample_scheduler();
        let (vm_migrations, thread_migrations) = self.migrations.rates(&vms.vms);
        let detail = *self.detail.lock().unwrap_or_else(PoisonError::into_inner);
        let shown = vms.vms.iter_mut().find(|vm| Some(vm.vm.identity) == detail);
        let preferences = shown.map_or_else(HashMap::new, |vm| {
            vm.read_allowed();
            self.preferences_of(vm)
        });
        Ok(Sample { machine, scheduler, vms, vm_migrations, thread_migrations, preferences })
    }

    fn sample_machine(&mut self) -> anyhow::Result<MachineSample> {
        let times = read_cpu_times(&self.root)?;
        let are_known = times.iter().map(|times| times.cpu);
        if !are_known.eq(self.machine.cpus().iter().map(|cpu| cpu.os_index)) {
            // CPUs have come or gone.
            self.machine = read_sysfs(&self.root)?;
        }
        let free_bytes = free_bytes(&self.root, &self.machine);
        let sample = MachineSample::between(&self.machine, &free_bytes, &self.cpu_times, &times);
        self.cpu_times = times;
        Ok(sample)
    }

    fn sample_scheduler(&mut self) -> Result<SchedulerSample, String> {
        let now = self.begin.elapsed();
        match self.status() {
            Ok(status) => {
                let sample = SchedulerSample::between(self.status.as_ref(), &status, now);
                self.status = Some((status, now));
                Ok(sample)
            }
            Err(why) => {
                self.status = None;
                Err(why)
            }
        }
    }

    /// Asks the scheduler, and searches for it if it was not loaded before or has gone.
    fn status(&mut self) -> Result<Status, String> {
        match &self.access {
            Ok(access) => {
                if let Ok(status) = access.status() {
                    return Ok(status);
                }
            }
            Err((why, again)) if Instant::now() < *again => return Err(why.clone()),
            Err(_) => {}
        }
        let found = Access::find().and_then(|access| Ok((access.status()?, access)));
        match found {
            Ok((status, access)) => {
                self.access = Ok(access);
                Ok(status)
            }
            Err(error) => {
                let why = format!("{error:#}");
                self.access = Err((why.clone(), Instant::now() + ASK_AGAIN));
                Err(why)
            }
        }
    }

    fn preferences_of(&self, vm: &ObservedVm) -> HashMap<u32, Held> {
        let Ok(access) = &self.access else { return HashMap::new() };
        let tids = vm.threads.iter().map(|observed| observed.thread.tid);
        tids.filter_map(|tid| Some((tid, access.preference_of(Who::Task(tid)).ok()??))).collect()
    }
}

/// What is slow to read of VMs, as it was when it was last read.
#[derive(Default)]
struct Slow {
    known: HashMap<Identity, (Limits, Memory, Instant)>,
    /// What is left of the time for reading in this sample.
    left: Duration,
    vms: u32,
}

impl Slow {
    /// A sample begins, at these VMs.
    fn begin<'a>(&mut self, interval: Duration, vms: impl Iterator<Item = &'a Vm>) {
        let vms: HashSet<Identity> = vms.map(|vm| vm.identity).collect();
        self.known.retain(|vm, _| vms.contains(vm));
        self.vms = u32::try_from(vms.len()).unwrap_or(u32::MAX);
        self.left = interval / 5;
    }

    /// Reads it if it is due and there is time; a VM that is new has nothing known of its memory without.
    fn read(&mut self, vm: &Vm, online: &[u32]) -> (Limits, Memory) {
        let begin = Instant::now();
        if let Some((limits, memory, due)) = self.known.get(&vm.identity)
            && (begin < *due || self.left.is_zero())
        {
            return (limits.clone(), memory.clone());
        }
        let limits = vm.read_limits(&vm.read_threads(), online);
        if self.left.is_zero() {
            return (limits, Memory { resident_bytes: None, by_node: None });
        }
        let memory = vm.read_memory(&limits);
        let cost = begin.elapsed();
        self.left = self.left.saturating_sub(cost);
        let due = begin + cost.saturating_mul(SLOW_SHARE).saturating_mul(self.vms);
        self.known.insert(vm.identity, (limits.clone(), memory.clone(), due));
        (limits, memory)
    }
}

/// How often threads had changed their CPUs at the previous sample.
#[derive(Default)]
struct Migrations {
    known: HashMap<u32, u64>,
    read: Option<Instant>,
}

impl Migrations {
    /// Changes a second since the previous sample: of the vCPUs of each VM, and of each thread.
    fn rates(&mut self, vms: &[ObservedVm]) -> (HashMap<Identity, f64>, HashMap<u32, f64>) {
        let elapsed = self.read.replace(Instant::now()).map(|read| read.elapsed().as_secs_f64());
        let earlier = std::mem::take(&mut self.known);
        let (mut of_vms, mut of_threads) = (HashMap::new(), HashMap::new());
        for vm in vms {
            for observed in &vm.threads {
                let (tid, Some(now)) = (observed.thread.tid, observed.migrations) else { continue };
                self.known.insert(tid, now);
                let (Some(elapsed), Some(then)) = (elapsed, earlier.get(&tid)) else { continue };
                let rate = now.saturating_sub(*then) as f64 / elapsed;
                of_threads.insert(tid, rate);
                if observed.thread.kind == ThreadKind::Vcpu {
                    *of_vms.entry(vm.vm.identity).or_insert(0.0) += rate;
                }
            }
        }
        (of_vms, of_threads)
    }
}
