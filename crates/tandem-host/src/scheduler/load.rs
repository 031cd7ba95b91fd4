//! Loads the object, and controls the loaded scheduler.

use super::faults::Fault;
use super::instance::{COUNTERS, Instance, PREFER, PREFERENCE_OF, READ_ONLY_DATA};
use super::kernel_types::{KernelTypes, OPS};
use super::loaded::read_counters;
use super::{Exit, SchedulerError, messages};
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, OpenObject};
use std::fs;
use std::mem::MaybeUninit;
use std::ptr;
use tandem_bpf::types::sched_ext_ops;
use tandem_bpf::{OpenTandemSkel, TandemSkel, TandemSkelBuilder};
use tandem_settings::{Counters, Places, Settings};

/// Memory for the object, which libbpf requires to be outside of what refers to it.
pub type ObjectStorage = MaybeUninit<OpenObject>;

/// Longest dump that the kernel may write when it ejects the scheduler, bytes: its default,
/// `SCX_EXIT_DUMP_DFL_LEN`.
const DUMP_BYTES: u32 = 32_768;

/// `SCX_OPS_SWITCH_PARTIAL` of the kernel's `kernel/sched/ext.c`: the scheduler has only the tasks with the
/// policy `SCHED_EXT`.
const SWITCH_PARTIAL: u64 = 1 << 3;

/// The callback by which the kernel passes on the limits of cgroups.
const LIMITS_CALLBACK: &str = "cgroup_set_bandwidth";

/// Maps that stay when the scheduler is loaded again, which reuses their pins.
const KEPT_MAPS: [&str; 4] = [COUNTERS, "preference_sets", "preferences_of_tasks", "preferences_of_cgroups"];

/// The loaded scheduler. Dropping it unloads it.
pub struct Scheduler<'storage> {
    skel: TandemSkel<'storage>,
    link: Link,
}

impl<'storage> Scheduler<'storage> {
    /// Loads the scheduler into the kernel, which runs it from then on.
    ///
    /// `hotplug_seq` is the kernel's [`hotplug_seq`](super::RunningKernel::hotplug_seq) from before the
    /// places were read. If CPUs came or went since, the scheduler has ended by the time this returns, with
    /// an exit that asks to load it again.
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
        // The probe belongs to a library in the headers, which is not used here.
        skel.progs.scx_lib_init_probe.set_autoload(false);
        if let Some(rodata) = skel.maps.rodata_data.as_deref_mut() {
            tandem_settings::write(settings, places, rodata);
            rodata.exit_info_dump_len = DUMP_BYTES;
        }
        let room = skel.maps.data_exit_info_dump.set_value_size(DUMP_BYTES);
        room.map_err(SchedulerError::refused("reserve memory for a dump"))?;
        let ops = skel.struct_ops.tandem_mut();
        ops.exit_dump_len = DUMP_BYTES;
        let types = KernelTypes::read(instance.kernel())?;
        leave_out_unknown(ops, &types);
        // These kernels invert the callback's answer; without it they choose the task that became runnable
        // first.
        if Fault::CoreScheduling.is_in(&instance.kernel().release(), Some(&types)) {
            ops.core_sched_before = ptr::null_mut();
        }
        if settings.partial.is_on() {
            ops.flags |= SWITCH_PARTIAL;
        }
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
    /// If the kernel does not report it.
    pub fn exit(&self) -> Result<Option<Exit>, SchedulerError> {
        exit(&self.skel)
    }

    /// Its counters.
    ///
    /// # Errors
    /// If the kernel does not report them.
    pub fn counters(&self) -> Result<Counters, SchedulerError> {
        read_counters(&self.skel.maps.counters)
    }

    /// Unloads it, unless the kernel has done so, and returns why it ended.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn unload(self) -> Result<Option<Exit>, SchedulerError> {
        drop(self.link);
        exit(&self.skel)
    }
}

fn exit(skel: &TandemSkel<'_>) -> Result<Option<Exit>, SchedulerError> {
    // The kernel writes there at any time: this reads a copy, not the mapped memory.
    let data = skel.maps.data.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
    let data = data.map_err(SchedulerError::refused("report the scheduler's state"))?;
    let Some(mut exit) = data.and_then(|data| Exit::in_data(&data)) else { return Ok(None) };
    let dump = skel.maps.data_exit_info_dump.lookup(&0u32.to_ne_bytes(), MapFlags::ANY);
    exit.set_dump(
        &dump.map_err(SchedulerError::refused("report how the scheduler ended"))?.unwrap_or_default(),
    );
    Ok(Some(exit))
}

/// Removes callbacks that the running kernel does not have, and that the scheduler can do without: those of
/// cgroups need CONFIG_EXT_GROUP_SCHED, limits Linux 6.17, and that of core scheduling CONFIG_SCHED_CORE.
fn leave_out_unknown(ops: &mut sched_ext_ops, kernel: &KernelTypes) {
    let optional = [
        ("cgroup_init", &mut ops.cgroup_init),
        ("cgroup_exit", &mut ops.cgroup_exit),
        ("cgroup_move", &mut ops.cgroup_move),
        ("cgroup_set_weight", &mut ops.cgroup_set_weight),
        ("core_sched_before", &mut ops.core_sched_before),
        (LIMITS_CALLBACK, &mut ops.cgroup_set_bandwidth),
    ];
    for (name, callback) in optional {
        if !kernel.has_member(OPS, name) {
            *callback = ptr::null_mut();
        }
    }
}

/// Whether the scheduler enforces the CPU limits of cgroups on a kernel with these types: the kernel passes
/// them on, and the object has a callback for them.
///
/// # Errors
/// If the object cannot be opened.
pub fn enforces_limits(kernel: &KernelTypes) -> Result<bool, SchedulerError> {
    if !kernel.has_member(OPS, LIMITS_CALLBACK) {
        return Ok(false);
    }
    let mut storage = MaybeUninit::uninit();
    let opened = TandemSkelBuilder::default().open(&mut storage);
    let skel = opened.map_err(SchedulerError::refused("open the object"))?;
    Ok(!skel.struct_ops.tandem().cgroup_set_bandwidth.is_null())
}

fn take_up_kept_maps(skel: &mut OpenTandemSkel<'_>, instance: &Instance) -> Result<(), SchedulerError> {
    for mut map in skel.open_object_mut().maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let pin = instance.pin(&name);
        if KEPT_MAPS.contains(&name.as_str()) && pin.exists() {
            let taken_up = map.reuse_pinned_map(&pin);
            taken_up.map_err(SchedulerError::refused(format!("reuse the map {name}")))?;
        }
    }
    Ok(())
}

/// Pins what other processes use, and replaces the pins of an earlier load.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::kernel_types::testing;
    use std::mem::offset_of;
    use tandem_bpf::types::{cpu_place, llc_place, node_place, rodata};
    use tandem_file::units::Duration;
    use tandem_machine::{MachineBuilder, preset};
    use tandem_settings::Mode;

    /// The object's read-only data after settings and places were written. Opening the object needs no
    /// sched_ext.
    fn written(settings: &Settings, places: &Places) -> Vec<u8> {
        let mut storage = MaybeUninit::uninit();
        let mut skel = TandemSkelBuilder::default().open(&mut storage).unwrap();
        let rodata = skel.maps.rodata_data.as_deref_mut().unwrap();
        tandem_settings::write(settings, places, rodata);
        skel.maps.rodata.initial_value().unwrap().to_vec()
    }

    fn number<const N: usize>(data: &[u8], offset: usize) -> u64 {
        let mut bytes = [0; 8];
        bytes[..N].copy_from_slice(&data[offset..offset + N]);
        u64::from_le_bytes(bytes)
    }

    #[test]
    fn every_setting_arrives_in_its_place() {
        let mut settings = Settings { mode: Mode::Guest, ..Settings::default() };
        let times = [
            (&mut settings.fairness.slice, offset_of!(rodata, settings.slice_ns)),
            (&mut settings.fairness.slice_min, offset_of!(rodata, settings.slice_min_ns)),
            (&mut settings.fairness.sleeper_credit, offset_of!(rodata, settings.sleeper_credit_ns)),
            (&mut settings.fairness.preempt_margin, offset_of!(rodata, settings.preempt_margin_ns)),
            (&mut settings.fairness.sync_run_max, offset_of!(rodata, settings.sync_run_max_ns)),
            (&mut settings.fairness.migration_margin, offset_of!(rodata, settings.migration_margin_ns)),
            (&mut settings.fairness.balance_interval, offset_of!(rodata, settings.balance_interval_ns)),
            (&mut settings.numa_homes.away_min, offset_of!(rodata, settings.away_min_ns)),
            (&mut settings.rate_control.window, offset_of!(rodata, settings.rate_window_ns)),
            (&mut settings.rate_control.ratelimit, offset_of!(rodata, settings.ratelimit_ns)),
            (&mut settings.guest.steal_memory, offset_of!(rodata, settings.steal_memory_ns)),
        ];
        let offsets = times.into_iter().zip(1..).map(|((time, offset), ns)| {
            *time = Duration { ns };
            offset
        });
        let offsets: Vec<_> = offsets.collect();
        (settings.soft_affinity.allowed, settings.soft_affinity.preferred) = (11, 12);
        settings.rate_control.threshold = 13;
        let places = Places::of_guest(&preset("xeon-e5620-2s").unwrap(), 32).unwrap();
        let data = written(&settings, &places);

        for (offset, ns) in offsets.into_iter().zip(1..) {
            assert_eq!(number::<8>(&data, offset), ns);
        }
        let small = [
            (offset_of!(rodata, settings.allowed), 11),
            (offset_of!(rodata, settings.preferred), 12),
            (offset_of!(rodata, settings.rate_threshold), 13),
            (offset_of!(rodata, settings.nr_cpus), 32),
            (offset_of!(rodata, settings.nr_online), 16),
            (offset_of!(rodata, settings.nr_llcs), 1),
            (offset_of!(rodata, settings.nr_nodes), 1),
        ];
        for (offset, expected) in small {
            assert_eq!(number::<4>(&data, offset), expected);
        }
    }

    #[test]
    fn every_switch_is_its_own() {
        let places = Places::of_host(&preset("xeon-e5620-2s").unwrap(), 16).unwrap();
        type Switch = fn(&mut Settings) -> &mut bool;
        let switches: [(Switch, usize); 6] = [
            (|all| &mut all.fairness.cgroup_weights, offset_of!(rodata, settings.cgroup_weights)),
            (|all| &mut all.soft_affinity.enabled, offset_of!(rodata, settings.soft_affinity)),
            (|all| &mut all.numa_homes.enabled, offset_of!(rodata, settings.numa_homes)),
            (|all| &mut all.rate_control.enabled, offset_of!(rodata, settings.rate_control)),
            (|all| &mut all.rate_control.latency_exempt, offset_of!(rodata, settings.latency_exempt)),
            (|all| &mut all.directed_yield.enabled, offset_of!(rodata, settings.directed_yield)),
        ];
        for (off, _) in switches {
            let mut settings = Settings::default();
            *off(&mut settings) = false;
            let data = written(&settings, &places);
            for (switch, offset) in switches {
                assert_eq!(data[offset] == 1, *switch(&mut settings));
            }
            assert_eq!(data[offset_of!(rodata, settings.guest)], 0);
            assert_eq!(data[offset_of!(rodata, settings.smt)], 1);
        }
    }

    #[test]
    fn places_arrive_in_the_tables() {
        let machine = MachineBuilder::symmetric(2, 4, 2).isolated([3]).tickless([3, 9]).build().unwrap();
        let data = written(&Settings::default(), &Places::of_host(&machine, 32).unwrap());
        let cpu =
            |cpu: usize, field: usize| offset_of!(rodata, cpu_places) + cpu * size_of::<cpu_place>() + field;
        assert_eq!(number::<2>(&data, cpu(8, offset_of!(cpu_place, llc))), 1);
        assert_eq!(number::<2>(&data, cpu(8, offset_of!(cpu_place, node))), 1);
        assert_eq!(data[cpu(15, offset_of!(cpu_place, online))], 1);
        assert_eq!(data[cpu(16, offset_of!(cpu_place, online))], 0);
        let set = |field: usize| (0..32).filter(|&at| data[cpu(at, field)] == 1).collect::<Vec<_>>();
        assert_eq!(set(offset_of!(cpu_place, isolated)), [3]);
        assert_eq!(set(offset_of!(cpu_place, tickless)), [3, 9]);
        let llc = offset_of!(rodata, llc_places) + size_of::<llc_place>();
        assert_eq!(number::<2>(&data, llc + offset_of!(llc_place, node)), 1);
        assert_eq!(number::<2>(&data, llc + offset_of!(llc_place, nr_cpus)), 8);
        let node = offset_of!(rodata, node_places) + size_of::<node_place>();
        assert_eq!(number::<2>(&data, node + offset_of!(node_place, first_llc)), 1);
        assert_eq!(number::<2>(&data, node + offset_of!(node_place, nr_llcs)), 1);
        assert_eq!(number::<4>(&data, node + offset_of!(node_place, id)), 1);
        assert_eq!(number::<2>(&data, node + offset_of!(node_place, by_distance)), 0x00_01, "itself, then 0");
    }

    #[test]
    fn callbacks_that_the_kernel_does_not_have_are_left_out() {
        let mut storage = MaybeUninit::uninit();
        let mut skel = TandemSkelBuilder::default().open(&mut storage).unwrap();
        let ops = skel.struct_ops.tandem_mut();
        let (cgroup_init, exit) = (ops.cgroup_init, ops.exit);
        assert!(!cgroup_init.is_null() && !exit.is_null());
        leave_out_unknown(ops, &testing::kernel_types(&[(OPS, &["cgroup_init"])]));
        assert_eq!((ops.cgroup_init, ops.exit), (cgroup_init, exit));
        assert!(ops.cgroup_exit.is_null() && ops.cgroup_move.is_null() && ops.cgroup_set_weight.is_null());
    }
}
