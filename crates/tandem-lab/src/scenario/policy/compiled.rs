//! Compiled schedulers for sched_ext as policies: Tandem's own object, or another one.
//!
//! Objects are linked and compiled once, however many runs there are: what differs between runs, settings and
//! topology, is data.

use super::scheduler::SchedulerName;
use super::user_space::UserSpace;
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use tandem_ebpf::{Code, Engine, Image};
use tandem_file::file_error::FileError;
use tandem_file::named_file::{OBJECT_MAX, read_bytes};
use tandem_file::shown::readable;
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_settings::{Counters, Mode, Place, Places, Preference, Settings, Subject, request_bytes, rodata};
use tandem_sim::policy::sched_ext::{
    KernelVersion, OwnCounters, Preferences, Preparation, SchedExtSettings, environment,
};

/// Settings of Tandem's scheduler, as in the file that `tandem run` reads.
pub type TandemSettings = Settings;

/// A compiled scheduler, and what its user sets.
pub enum Program<'a> {
    /// Tandem's own.
    Tandem(Option<&'a TandemSettings>),
    /// One in an object file, and what its user space would do.
    Object(&'a Path, UserSpace<'a>),
    /// One that was compiled, with its name in reports.
    Loaded {
        /// The name.
        name: String,
        /// Its code, from [`load`].
        code: Arc<Code>,
        /// What its user space would do.
        user_space: UserSpace<'a>,
    },
}

/// The scheduler on a kernel that does nothing late and never fails, for a machine as that kernel sees it.
///
/// # Errors
/// A sentence: the object cannot be read or linked, the machine is too large for it, or it has no such
/// setting.
pub fn settings(
    program: Program<'_>,
    kernel: KernelVersion,
    is_guest: bool,
    machine: &Machine,
) -> Result<SchedExtSettings, String> {
    let loaded = |name, code: Arc<Code>, data| SchedExtSettings {
        name,
        code,
        kernel,
        data,
        preparation: Preparation::default(),
        preferences: None,
        counters: None,
        tick_period_ns: SchedExtSettings::TICK_PERIOD_NS,
        tick_delay_max_ns: 0,
        timer_delay_max_ns: 0,
        watchdog_timeout_ns: None,
        timer_failure_pct: 0,
        storage_failure_pct: 0,
        paravirt_locks: true,
        put_back_ns: 0,
    };
    // `tandem run` sets Tandem's watchdog; other schedulers ask for one in their objects.
    let tandem = |name, code, data, settings: &Settings| SchedExtSettings {
        preferences: Some(PREFERENCES),
        watchdog_timeout_ns: Some(settings.watchdog.ns),
        ..loaded(name, code, data)
    };
    match program {
        Program::Tandem(settings) => {
            let settings = settings.cloned().unwrap_or_default();
            let code = own_code(kernel)?;
            let data = tandem_data(code.image(), &settings, is_guest, machine)?;
            let counters = OwnCounters { map: "counters", names: Counters::names().collect() };
            Ok(SchedExtSettings {
                counters: Some(counters),
                ..tandem("tandem".into(), code, data, &settings)
            })
        }
        Program::Object(path, user_space) => {
            let code = file_code(path, kernel).map_err(|error| format!("the scheduler {error}"))?;
            let name = readable(&path.file_name().unwrap_or_default().to_string_lossy(), &[]);
            settings(Program::Loaded { name, code, user_space }, kernel, is_guest, machine)
                .map_err(|error| format!("{}: {error}", path.display()))
        }
        Program::Loaded { name, code, user_space } => {
            let (data, preparation) = user_space.resolve(code.image(), kernel, machine)?;
            if !is_tandem(code.image()) {
                return Ok(SchedExtSettings { preparation, ..loaded(name, code, data) });
            }
            let settings = Settings::default();
            let own = own_code(kernel)?;
            let mut all = other_build_data(code.image(), own.image(), &settings, is_guest, machine)?;
            all.extend(data);
            Ok(SchedExtSettings { preparation, ..tandem(name, code, all, &settings) })
        }
    }
}

/// Checks that a scheduler can be used, if it is one in an object file.
///
/// # Errors
/// Names its file.
pub fn check(name: &SchedulerName) -> Result<(), FileError> {
    match name {
        SchedulerName::Object(path) => {
            let code = file_code(path, KernelVersion::default())?;
            match code.image().struct_ops.is_empty() {
                true => Err(FileError::whole(&path.display().to_string(), NO_SCHEDULER)),
                false => Ok(()),
            }
        }
        SchedulerName::XenCredit
        | SchedulerName::XenCredit2
        | SchedulerName::Linux
        | SchedulerName::Tandem => Ok(()),
    }
}

/// The code of Tandem's own object.
fn own_code(kernel: KernelVersion) -> Result<Arc<Code>, String> {
    type Own = LazyLock<Result<Arc<Code>, String>>;
    fn own(kernel: KernelVersion) -> Result<Arc<Code>, String> {
        compile(tandem_settings::OBJECT, kernel).map_err(|message| format!("the scheduler tandem: {message}"))
    }
    static ON_6_12: Own = LazyLock::new(|| own(KernelVersion::V6_12));
    static ON_7_3: Own = LazyLock::new(|| own(KernelVersion::V7_3));
    match kernel {
        KernelVersion::V6_12 => ON_6_12.clone(),
        KernelVersion::V7_3 => ON_7_3.clone(),
    }
}

/// The code of an object file.
fn file_code(path: &Path, kernel: KernelVersion) -> Result<Arc<Code>, FileError> {
    type Compiled = HashMap<(Vec<u8>, u64), Arc<Code>>;
    static COMPILED: LazyLock<Mutex<Compiled>> = LazyLock::new(Mutex::default);
    let wrong = |message: String| FileError::whole(&path.display().to_string(), message);
    let object = read_bytes(path, OBJECT_MAX).map_err(|error| wrong(format!("cannot be read: {error}")))?;
    // A panic inside would leave nothing half done.
    let mut all = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    let key = (object, kernel.code());
    if let Some(code) = all.get(&key) {
        return Ok(Arc::clone(code));
    }
    let code = compile(&key.0, kernel).map_err(wrong)?;
    all.insert(key, Arc::clone(&code));
    Ok(code)
}

/// The code of a scheduler in an object file's bytes, which nothing keeps but the caller. A run of it executes at most so many
/// [instructions](Code::bounded).
///
/// # Errors
/// A sentence: it cannot be linked, or defines no scheduler.
pub fn load(
    object: &[u8],
    kernel: KernelVersion,
    engine: Engine,
    instructions: u64,
) -> Result<Arc<Code>, String> {
    let code = code(object, kernel, engine)?;
    match code.image().struct_ops.is_empty() {
        true => Err(NO_SCHEDULER.into()),
        false => Ok(Arc::new(code.bounded(instructions))),
    }
}

/// What is wrong with an object that is none of a scheduler.
const NO_SCHEDULER: &str = "defines no scheduler (no `.struct_ops`)";

fn compile(object: &[u8], kernel: KernelVersion) -> Result<Arc<Code>, String> {
    code(object, kernel, Engine::default()).map(Arc::new)
}

fn code(object: &[u8], kernel: KernelVersion, engine: Engine) -> Result<Code, String> {
    let image = Image::link(object, &environment(kernel)).map_err(|error| error.to_string())?;
    Code::new(image, engine).map_err(|error| error.to_string())
}

/// How preferences reach Tandem.
const PREFERENCES: Preferences = Preferences { program: "prefer", request: preference_request };

/// Whether the object is a build of Tandem's scheduler, such as an older one: it gets the same settings from
/// user space.
fn is_tandem(image: &Image) -> bool {
    image.struct_ops.iter().any(|ops| ops.texts.get("name").is_some_and(|name| name == "tandem"))
}

/// The settings of ours for another build of it, variable by variable: their order and their number may
/// differ, and only those that both have are set.
///
/// # Errors
///
/// A variable of another size means something else there; left out, it would leave the object without, say,
/// its topology.
fn other_build_data(
    image: &Image,
    own: &Image,
    settings: &Settings,
    is_guest: bool,
    machine: &Machine,
) -> Result<Vec<(u64, Vec<u8>)>, String> {
    let mut data = Vec::new();
    for (start, bytes) in tandem_data(own, settings, is_guest, machine)? {
        for (name, variable) in
            own.variables.iter().filter(|(name, it)| it.is_setting && !name.starts_with("__"))
        {
            let at = variable.address.checked_sub(start).map(|at| at as usize);
            if let (Some(theirs), Some(at)) = (image.variables.get(name), at)
                && let Some(bytes) = bytes.get(at..at + variable.size)
            {
                if theirs.size != variable.size {
                    return Err(format!(
                        "{name} has {} bytes in this build of tandem, and {} in that of this program; compile it with the \
                         bpf/settings.h of this program",
                        theirs.size, variable.size
                    ));
                }
                data.push((theirs.address, bytes.to_vec()));
            }
        }
    }
    Ok(data)
}

fn tandem_data(
    image: &Image,
    settings: &Settings,
    is_guest: bool,
    machine: &Machine,
) -> Result<Vec<(u64, Vec<u8>)>, String> {
    let mut settings = settings.clone();
    if is_guest {
        settings.mode = Mode::Guest;
    }
    settings.check()?;
    if settings.scheduler_only() != settings {
        return Err("agent and vm in the settings of `tandem` are for real hosts; leave them out".into());
    }
    let places = Places::of_simulated(machine, settings.mode).map_err(|error| error.to_string())?;
    let section = image.sections.iter().find(|section| section.name == ".rodata");
    let section = section.ok_or("the object has no read-only data")?;
    Ok(vec![(section.address, rodata(&section.bytes, &settings, &places))])
}

/// The request that sets the preferred CPUs of a task: whole nodes, isolated CPUs left aside, are its homes,
/// other sets of CPUs a soft affinity.
fn preference_request(pid: u64, preferred: Option<&CpuMask>, machine: &Machine) -> Vec<u8> {
    let place = preferred.map(|preferred| {
        let cpus = preferred.iter().map(|cpu| cpu.0).collect();
        let housekeeping = machine.housekeeping_cpus();
        let cpus_of = |node: u32| machine.node_cpus((node as usize).into()).and(housekeeping);
        let is_whole = |&node: &u32| !cpus_of(node).is_empty() && cpus_of(node).is_subset(preferred);
        let nodes: Vec<u32> = (0..machine.node_count() as u32).filter(is_whole).collect();
        let whole: usize = nodes.iter().map(|&node| cpus_of(node).count()).sum();
        match whole > 0 && whole == preferred.count_and(housekeeping) {
            true => Place::Nodes { nodes, cpus },
            false => Place::Cpus(cpus),
        }
    });
    request_bytes(Subject::Task(pid as u32), &Preference { place, latency_critical: false })
}
