//! Compiled schedulers for sched_ext as policies: Tandem's own object, or another one.
//!
//! Objects are linked and compiled once, however many runs there are: what differs between runs, settings and
//! topology, is data.

use super::scheduler::SchedulerName;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use tandem_ebpf::{Code, Engine, Image, Variable};
use tandem_file::file_error::FileError;
use tandem_file::named_file::{OBJECT_MAX, read_bytes};
use tandem_machine::Machine;
use tandem_machine::cpumask::CpuMask;
use tandem_settings::{Counters, Mode, Place, Places, Preference, Settings, Subject, request_bytes, rodata};
use tandem_sim::policy::sched_ext::{KernelVersion, OwnCounters, Preferences, SchedExtSettings, environment};

/// Settings of Tandem's scheduler, as in the file that `tandem run` reads.
pub type TandemSettings = Settings;

/// The value of a setting of a scheduler from a file: a read-only variable, or each element of one.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected true, false, a whole number or an array of whole numbers")]
pub enum SettingValue {
    /// Yes or no.
    Switch(bool),
    /// A number.
    Number(i64),
    /// The elements of an array, from the first one on.
    Numbers(Vec<i64>),
}

/// A compiled scheduler, and what its user sets.
pub enum Program<'a> {
    /// Tandem's own.
    Tandem(Option<&'a TandemSettings>),
    /// One in an object file, with values of its read-only variables.
    Object(&'a Path, Option<&'a BTreeMap<String, SettingValue>>),
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
        preferences: None,
        counters: None,
        tick_period_ns: SchedExtSettings::TICK_PERIOD_NS,
        tick_delay_max_ns: 0,
        timer_delay_max_ns: 0,
        watchdog_timeout_ns: None,
        timer_failure_pct: 0,
        storage_failure_pct: 0,
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
        Program::Object(path, variables) => {
            let code = file_code(path, kernel).map_err(|error| format!("the scheduler {error}"))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let variables = variables.into_iter().flatten();
            let data = variables.map(|(name, value)| variable(code.image(), path, name, value));
            let data: Vec<_> = data.collect::<Result<_, _>>()?;
            if !is_tandem(code.image()) {
                return Ok(loaded(name, code, data));
            }
            let settings = Settings::default();
            let own = own_code(kernel)?;
            let mut all = other_build_data(code.image(), own.image(), &settings, is_guest, machine)?;
            all.extend(data);
            Ok(tandem(name, code, all, &settings))
        }
    }
}

/// Checks that a scheduler can be used, if it is one in an object file.
///
/// # Errors
/// Names its file.
pub fn check(name: &SchedulerName) -> Result<(), FileError> {
    match name {
        SchedulerName::Object(path) => file_code(path, KernelVersion::default()).map(drop),
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

fn compile(object: &[u8], kernel: KernelVersion) -> Result<Arc<Code>, String> {
    let image = Image::link(object, &environment(kernel)).map_err(|error| error.to_string())?;
    Ok(Arc::new(Code::new(image, Engine::default()).map_err(|error| error.to_string())?))
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

/// The bytes of a variable of the object, and where they belong.
fn variable(image: &Image, path: &Path, name: &str, value: &SettingValue) -> Result<(u64, Vec<u8>), String> {
    // Names that begin with underscores are those of the kernel's constants, which are filled in anyway.
    let is_setting = |name: &str, variable: &Variable| variable.is_setting && !name.starts_with("__");
    let all = || {
        let settings = image
            .variables
            .iter()
            .filter(|(name, variable)| is_setting(name, variable) && variable.number_size.is_some());
        let names: Vec<_> = settings.map(|(name, _)| format!("`{name}`")).collect();
        names.join(", ")
    };
    let found = image.variables.get(name).filter(|variable| is_setting(name, variable));
    let Some(variable) = found else {
        return Err(format!("{} has no setting `{name}`; it has {}", path.display(), all()));
    };
    let Some(size) = variable.number_size else {
        return Err(format!(
            "the setting `{name}` of {} is no number; those that are: {}",
            path.display(),
            all()
        ));
    };
    let numbers = match value {
        SettingValue::Switch(on) => vec![i64::from(*on)],
        SettingValue::Number(number) => vec![*number],
        SettingValue::Numbers(numbers) => numbers.clone(),
    };
    let room = variable.size / size;
    if numbers.len() > room {
        return Err(format!(
            "the setting `{name}` of {} has room for {room} numbers, not {}",
            path.display(),
            numbers.len()
        ));
    }
    let bits = size * 8;
    let fits = |number: i64| bits == 64 || (-(1 << (bits - 1))..1 << bits).contains(&number);
    if let Some(number) = numbers.iter().find(|&&number| !fits(number)) {
        return Err(format!(
            "{number} does not fit into the setting `{name}` of {}, which has {bits} bits",
            path.display()
        ));
    }
    let bytes = numbers.iter().flat_map(|number| number.to_le_bytes()[..size].to_vec()).collect();
    Ok((variable.address, bytes))
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
