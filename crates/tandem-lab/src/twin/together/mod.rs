//! Recordings of a host and of its guests, brought to one clock and to the time that all of them have.

mod clocks;
mod cut;
mod turns;

pub use clocks::Clocks;
pub use turns::Turns;

use super::plan::Plan;
use super::situation::Situation;
use tandem_file::shown::readable;
use tandem_recording::Recording;

/// Least time that all recordings must have in common, ns.
const COMMON_MIN_NS: u64 = 100_000_000;
/// Most VMs that an error lists.
const VMS_LISTED: usize = 20;

/// A host, and guests of it.
#[derive(Clone, Debug)]
pub struct Together {
    /// The recording of the host, cut to the time that all have.
    pub host: Recording,
    /// Those guests that were recorded, too.
    pub guests: Vec<GuestRecording>,
    /// What tells the host's recording, before it was cut, from others; see [`Plan::made_of`].
    pub made_of: String,
}

/// The recording of a guest, by the clock of its host.
#[derive(Clone, Debug)]
pub struct GuestRecording {
    /// The name of its VM.
    pub name: String,
    /// The recording, cut to the time that all have.
    pub recording: Recording,
    /// How its clock was matched.
    pub clocks: Clocks,
    /// The thread of the host that each of its CPUs is, by position in the host's recording, in the order of the
    /// CPUs of its machine.
    pub vcpus: Vec<usize>,
    /// When they ran, by the kernel's number of the CPU.
    pub turns: Vec<Turns>,
}

impl Together {
    /// A host without recordings of guests.
    pub fn alone(host: Recording) -> Self {
        Self { made_of: Plan::made_of(&host), host, guests: Vec::new() }
    }

    /// A host with recordings of these VMs.
    ///
    /// # Errors
    /// A sentence, if there is no such VM, its recording is not that of its guest, or the recordings have no time in
    /// common.
    pub fn new(host: Recording, guests: Vec<(String, Recording)>) -> Result<Self, String> {
        let mut found: Vec<GuestRecording> = Vec::new();
        for (name, recording) in guests {
            if found.iter().any(|guest| guest.name == name) {
                return Err(format!(
                    "VM '{}' has two recordings of its guest; name one",
                    readable(&name, &[])
                ));
            }
            found.push(GuestRecording::new(&host, name, recording)?);
        }
        if found.is_empty() {
            return Ok(Self::alone(host));
        }
        let (mut from_ns, mut to_ns) = (0, host.about.length_ns);
        for GuestRecording { recording, clocks, .. } in &found {
            from_ns = from_ns.max(clocks.host_ns(0).max(0) as u64);
            to_ns = to_ns.min(clocks.host_ns(recording.about.length_ns).max(0) as u64);
        }
        if to_ns < from_ns + COMMON_MIN_NS {
            let common_ms = to_ns.saturating_sub(from_ns) / 1_000_000;
            return Err(format!(
                "the recordings of the host and its guests have {common_ms} ms in common, and {} ms are needed; record \
                 them at the same time",
                COMMON_MIN_NS / 1_000_000
            ));
        }
        for guest in &mut found {
            let clocks = guest.clocks;
            guest.recording = cut::cut(&guest.recording, from_ns, to_ns, |at_ns| clocks.host_ns(at_ns));
            guest.turns = guest.turns.iter().map(|turns| turns.since(from_ns)).collect();
        }
        Ok(Self {
            made_of: Plan::made_of(&host),
            host: cut::cut(&host, from_ns, to_ns, |at_ns| at_ns as i64),
            guests: found,
        })
    }
}

impl GuestRecording {
    /// By its own clock as yet.
    fn new(host: &Recording, name: String, recording: Recording) -> Result<Self, String> {
        let shown = readable(&name, &[]).to_string();
        let about = &host.about;
        let mut vms = (0..about.vms.len()).filter(|vm| about.vms[*vm].name == name);
        let Some(vm) = vms.next() else {
            let known: Vec<String> = about
                .vms
                .iter()
                .take(VMS_LISTED)
                .map(|vm| format!("'{}'", readable(&vm.name, &[])))
                .collect();
            return Err(match known.is_empty() {
                true => format!("there is no VM '{shown}' in the recording, which has no VMs"),
                false => format!("there is no VM '{shown}' in the recording; VMs: {}", known.join(", ")),
            });
        };
        if vms.next().is_some() {
            return Err(format!(
                "several VMs in the recording are called '{shown}', so that none can be chosen"
            ));
        }
        let vcpu = |number: u32| {
            about.tasks.iter().position(|task| task.vm == Some(vm) && task.vcpu == Some(number))
        };
        if !about.tasks.iter().any(|task| task.vm == Some(vm) && task.vcpu.is_some()) {
            return Err(format!("the recording does not say which threads of VM '{shown}' are its vCPUs"));
        }
        let machine = Situation::recorded(&recording)
            .map_err(|error| format!("the guest of VM '{shown}': {error}"))?
            .machine;
        let mut vcpus = Vec::with_capacity(machine.cpu_count());
        for cpu in machine.cpus() {
            vcpus.push(vcpu(cpu.os_index).ok_or_else(|| {
                format!(
                    "the guest's recording has CPU {0}, but VM '{shown}' has no vCPU {0} in the host's; is it of another \
                     machine?",
                    cpu.os_index
                )
            })?);
        }
        let turns = |cpu: u32| vcpu(cpu).map_or_else(Turns::default, |task| Turns::of(host, task as u32));
        let turns: Vec<Turns> = (0..recording.about.cpus).map(turns).collect();
        let clocks = clocks::matched(host, &turns, &recording)
            .map_err(|problem| format!("the guest of VM '{shown}' {problem}"))?;
        Ok(Self { name, recording, clocks, vcpus, turns })
    }
}
