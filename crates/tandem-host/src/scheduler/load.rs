//! Loading the object, and the loaded scheduler.

use super::instance::{COUNTERS, Instance, PREFER, PREFERENCE_OF, READ_ONLY_DATA};
use super::{Counters, Exit, Places, SchedulerError, Settings, messages};
use libbpf_rs::btf::types::Struct;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Btf, Link, MapCore, MapFlags, OpenObject};
use std::fs;
use std::mem::MaybeUninit;
use std::ptr;
use tandem_bpf::types::sched_ext_ops;
use tandem_bpf::{OpenTandemSkel, TandemSkel, TandemSkelBuilder};

/// Room for the object, which libbpf wants to be outside of what refers to it.
pub type ObjectStorage = MaybeUninit<OpenObject>;

/// Maps that stay when the scheduler is loaded again: their pins are taken up.
const KEPT_MAPS: [&str; 4] = [COUNTERS, "preference_sets", "preferences_of_tasks", "preferences_of_cgroups"];

/// The loaded scheduler. Dropping it unloads it.
pub struct Scheduler<'storage> {
    skel: TandemSkel<'storage>,
    link: Link,
}

impl<'storage> Scheduler<'storage> {
    /// Loads the scheduler into the kernel, which runs it from then on.
    ///
    /// `hotplug_seq` is the kernel's [`hotplug_seq`](super::Kernel::hotplug_seq) from before the places were read. If
    /// CPUs came or went since, the scheduler has ended by the time this returns, with an exit that asks to load it
    /// again.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn load(
        storage: &'storage mut ObjectStorage,
        instance: &Instance,
        settings: &Settings,
        places: &Places,
        hotplug_seq: u64,
    ) -> Result<Self, SchedulerError> {
        messages::begin();
        let mut skel =
            TandemSkelBuilder::default().open(storage).map_err(SchedulerError::refused("open the object"))?;
        // The probe is of a library in the headers, which is not used here.
        skel.progs.scx_lib_init_probe.set_autoload(false);
        if let Some(rodata) = skel.maps.rodata_data.as_deref_mut() {
            places.write(rodata);
            settings.write(&mut rodata.settings);
        }
        let ops = skel.struct_ops.tandem_mut();
        leave_out_unknown(ops, &kernels_members()?);
        // At most 30 s: `Settings` are checked.
        ops.timeout_ms = (settings.watchdog.ns / 1_000_000) as u32;
        ops.hotplug_seq = hotplug_seq;
        take_up_kept_maps(&mut skel, instance)?;

        let mut skel = skel.load().map_err(|cause| SchedulerError::Refused {
            action: "load the scheduler".into(),
            cause: messages::reason().unwrap_or_else(|| cause.to_string()),
        })?;
        pin_all(&mut skel, instance)?;
        let link = skel.maps.tandem.attach_struct_ops().map_err(|cause| SchedulerError::Refused {
            action: "start the scheduler".into(),
            cause: messages::reason().unwrap_or_else(|| cause.to_string()),
        })?;
        Ok(Self { skel, link })
    }

    /// Why it ended; `None` while it runs.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn exit(&self) -> Result<Option<Exit>, SchedulerError> {
        exit(&self.skel)
    }

    /// What it has counted.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn counters(&self) -> Result<Counters, SchedulerError> {
        Counters::read(&self.skel.maps.counters)
    }

    /// Unloads it, unless the kernel has, and says why it ended.
    ///
    /// # Errors
    /// If the kernel does not tell.
    pub fn unload(self) -> Result<Option<Exit>, SchedulerError> {
        drop(self.link);
        exit(&self.skel)
    }
}

fn exit(skel: &TandemSkel<'_>) -> Result<Option<Exit>, SchedulerError> {
    // The kernel writes there at any time: a copy, and not the mapped memory, is what one may look at.
    let data = skel.maps.data.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
    let data = data.map_err(SchedulerError::refused("tell how the scheduler does"))?;
    Ok(data.and_then(|data| Exit::in_data(&data)))
}

/// The members of the running kernel's `struct sched_ext_ops`.
fn kernels_members() -> Result<Vec<String>, SchedulerError> {
    let refused = SchedulerError::refused("tell its types");
    let types = Btf::from_vmlinux().map_err(refused)?;
    let Some(ops) = types.type_by_name::<Struct<'_>>("sched_ext_ops") else {
        let cause = "there is no struct sched_ext_ops among them".into();
        return Err(SchedulerError::Refused { action: "tell its types".into(), cause });
    };
    Ok(ops.iter().filter_map(|member| Some(member.name?.to_str()?.to_owned())).collect())
}

/// Leaves out callbacks that the running kernel does not have, without which the scheduler does with less: those of
/// cgroups need CONFIG_EXT_GROUP_SCHED.
fn leave_out_unknown(ops: &mut sched_ext_ops, known: &[String]) {
    let optional = [
        ("cgroup_init", &mut ops.cgroup_init),
        ("cgroup_exit", &mut ops.cgroup_exit),
        ("cgroup_move", &mut ops.cgroup_move),
        ("cgroup_set_weight", &mut ops.cgroup_set_weight),
    ];
    for (name, callback) in optional {
        if !known.iter().any(|known| known == name) {
            *callback = ptr::null_mut();
        }
    }
}

fn take_up_kept_maps(skel: &mut OpenTandemSkel<'_>, instance: &Instance) -> Result<(), SchedulerError> {
    for mut map in skel.open_object_mut().maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let pin = instance.pin(&name);
        if KEPT_MAPS.contains(&name.as_str()) && pin.exists() {
            let taken_up = map.reuse_pinned_map(&pin);
            taken_up.map_err(SchedulerError::refused(format!("use the map {name} again")))?;
        }
    }
    Ok(())
}

/// Pins what other processes use, in the place of what an earlier loading pinned.
fn pin_all(skel: &mut TandemSkel<'_>, instance: &Instance) -> Result<(), SchedulerError> {
    let failed = |name: &str| SchedulerError::refused(format!("pin {name}"));
    for mut map in skel.object_mut().maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let pin = instance.pin(&name);
        if KEPT_MAPS.contains(&name.as_str()) && !pin.exists() {
            map.pin(&pin).map_err(failed(&name))?;
        }
    }
    let remove = |name: &str| match fs::remove_file(instance.pin(name)) {
        Err(cause) if cause.kind() != std::io::ErrorKind::NotFound => {
            Err(SchedulerError::File { file: instance.pin(name), cause })
        }
        _ => Ok(()),
    };
    remove(READ_ONLY_DATA)?;
    skel.maps.rodata.pin(instance.pin(READ_ONLY_DATA)).map_err(failed(READ_ONLY_DATA))?;
    for (name, program) in [(PREFER, &mut skel.progs.prefer), (PREFERENCE_OF, &mut skel.progs.preference_of)]
    {
        remove(name)?;
        program.pin(instance.pin(name)).map_err(failed(name))?;
    }
    Ok(())
}
