//! Trees of `/proc`, `/sys` and cgroups with VMs in them, for tests.
//!
//! Every test builds the tree that it needs, in a folder of its own:
//!
//! ```text
//! let tree = Tree::new(folder.path());
//! tree.machine(2, 4);
//! tree.cgroups(Cgroups::Unified);
//! tree.process(&Process::libvirt(4711, "web", 2));
//! ```
//!
//! [`Process`] has the command lines that managers write, without the parts that no code reads, with names of
//! threads and cgroups as they are on such hosts.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// The files of a machine that does not exist.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
}

/// The version of cgroups on a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cgroups {
    /// Version 2 alone.
    Unified,
    /// Version 1 alone.
    Separate,
    /// Version 1 with the controllers, and version 2 without any.
    Hybrid,
}

/// A thread of a process.
#[derive(Clone, Debug)]
pub struct ThreadFiles {
    /// Its number.
    pub tid: u32,
    /// Its name.
    pub name: String,
    /// The CPU on which it ran last.
    pub cpu: u32,
    /// Time on CPUs, ns.
    pub run_ns: u64,
    /// Time in which it waited for a CPU, ns.
    pub wait_ns: u64,
    /// Time in which it ran a guest, in ticks.
    pub guest_ticks: u64,
    /// The CPUs that it may use, as a list such as `0-3`.
    pub cpus: String,
}

/// A process.
#[derive(Clone, Debug)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Start time, in ticks since the machine booted.
    pub start_ticks: u64,
    /// The file that it runs; `None` if only root may read the link.
    pub program: Option<String>,
    /// Its arguments, beginning with its own name.
    pub arguments: Vec<String>,
    /// Its threads; the first one's number is the process's.
    pub threads: Vec<ThreadFiles>,
    /// The path of its cgroup, in every hierarchy.
    pub cgroup: String,
    /// The text of its `numa_maps`; `None` if it may not be read.
    pub numa_maps: Option<String>,
    /// Resident memory, without huge pages.
    pub resident_kib: u64,
    /// Resident memory in huge pages.
    pub huge_kib: u64,
    /// The kernel's flags in its `stat`.
    pub flags: u64,
    /// Whether it has a VM of KVM's; `None` if only root may read that.
    pub has_vm: Option<bool>,
}

/// `PF_KTHREAD` of the kernel's `include/linux/sched.h`.
const KERNEL_THREAD: u64 = 0x0020_0000;

impl Process {
    /// A process of one thread, which runs this program with these arguments.
    pub fn new(pid: u32, program: &str, arguments: &[&str]) -> Self {
        let file = program.rsplit('/').next().unwrap_or_default();
        let name = file.chars().take(15).collect::<String>();
        let process = Self {
            pid,
            start_ticks: 1_000 + u64::from(pid),
            program: Some(program.into()),
            arguments: [program].iter().chain(arguments).map(|&argument| argument.to_owned()).collect(),
            threads: Vec::new(),
            cgroup: "/".into(),
            numa_maps: None,
            resident_kib: 1 << 20,
            huge_kib: 0,
            flags: 0,
            has_vm: Some(
                ["qemu-system-", "qemu-kvm", "kvm", "cloud-hypervisor", "firecracker"]
                    .iter()
                    .any(|start| file.starts_with(start)),
            ),
        };
        process.thread(&name)
    }

    /// A thread of the kernel.
    pub fn of_kernel(pid: u32, name: &str) -> Self {
        let mut process = Self::new(pid, name, &[]);
        (process.program, process.arguments, process.flags) = (None, Vec::new(), KERNEL_THREAD);
        process
    }

    /// Adds a thread with the next number.
    pub fn thread(mut self, name: &str) -> Self {
        let tid = self.pid + self.threads.len() as u32;
        let name = name.to_owned();
        self.threads.push(ThreadFiles {
            tid,
            name,
            cpu: 0,
            run_ns: 0,
            wait_ns: 0,
            guest_ticks: 0,
            cpus: "0-7".into(),
        });
        self
    }

    /// Adds this many threads, named by `name`.
    pub fn threads(self, count: u32, name: impl Fn(u32) -> String) -> Self {
        (0..count).fold(self, |process, number| process.thread(&name(number)))
    }

    /// Puts it into a cgroup.
    pub fn in_cgroup(mut self, path: &str) -> Self {
        self.cgroup = path.into();
        self
    }

    /// A VM of libvirt: `qemu-system-x86_64` with systemd and cgroups of version 2.
    pub fn libvirt(pid: u32, name: &str, vcpus: u32) -> Self {
        let guest = format!("guest={name},debug-threads=on");
        let scope = name.replace('-', "\\x2d");
        let arguments = [
            "-name",
            &guest,
            "-S",
            "-object",
            r#"{"qom-type":"secret","id":"masterKey0","format":"raw","file":"/var/lib/libvirt/qemu/domain-1-web/master-key.aes"}"#,
            "-machine",
            "pc-q35-7.2,usb=off,dump-guest-core=off,memory-backend=pc.ram",
            "-accel",
            "kvm",
            "-m",
            "size=4194304k",
            "-object",
            r#"{"qom-type":"memory-backend-ram","id":"pc.ram","size":4294967296}"#,
            "-smp",
            "2,sockets=2,cores=1,threads=1",
            "-uuid",
            "d091ea82-29e6-2e34-3005-f02617b36e87",
            "-no-user-config",
            "-nodefaults",
            "-chardev",
            "socket,id=charmonitor,fd=24,server=on,wait=off",
            "-mon",
            "chardev=charmonitor,id=monitor,mode=control",
        ];
        Self::new(pid, "/usr/bin/qemu-system-x86_64", &arguments)
            .thread("IO mon_iothread")
            .threads(vcpus, |vcpu| format!("CPU {vcpu}/KVM"))
            .in_cgroup(&format!("/machine.slice/machine-qemu\\x2d1\\x2d{scope}.scope/libvirt/emulator"))
    }

    /// A VM of Proxmox, where `kvm` is a link to QEMU.
    pub fn proxmox(pid: u32, id: u32, name: &str, vcpus: u32) -> Self {
        let (id, guest) = (id.to_string(), format!("{name},debug-threads=on"));
        let arguments = ["-id", &id, "-name", &guest, "-no-shutdown", "-daemonize", "-m", "4096"];
        let mut process = Self::new(pid, "/usr/bin/qemu-system-x86_64", &arguments)
            .threads(vcpus, |vcpu| format!("CPU {vcpu}/KVM"))
            .in_cgroup(&format!("/qemu.slice/{id}.scope"));
        "/usr/bin/kvm".clone_into(&mut process.arguments[0]);
        "kvm".clone_into(&mut process.threads[0].name);
        process
    }

    /// A VM of LXD or Incus: unnamed threads, and its configuration in a file.
    pub fn lxd_or_incus(pid: u32, name: &str, file: &str, vcpus: u32) -> Self {
        let arguments =
            ["-S", "-name", name, "-daemonize", "-cpu", "host", "-nographic", "-readconfig", file];
        let program = "/snap/lxd/24322/bin/qemu-system-x86_64";
        let mut process =
            Self::new(pid, program, &arguments).threads(2 + vcpus, |_| "qemu-system-x86".into());
        for vcpu in process.threads.iter_mut().skip(3) {
            vcpu.guest_ticks = 5;
        }
        process.in_cgroup("/system.slice/snap.lxd.daemon.service")
    }
}

impl Tree {
    /// An empty tree; nothing is mounted, and there are no processes.
    pub fn new(root: &Path) -> Self {
        let tree = Self { root: root.to_owned() };
        tree.write("proc/self/mountinfo", "");
        tree
    }

    /// Its root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Writes `/sys` of a machine with this many nodes of this many CPUs each.
    pub fn machine(&self, nodes: u32, cpus_per_node: u32) {
        let devices = "sys/devices/system";
        self.write(&format!("{devices}/cpu/online"), &format!("0-{}", nodes * cpus_per_node - 1));
        self.write(&format!("{devices}/node/online"), &format!("0-{}", nodes - 1));
        for cpu in 0..nodes * cpus_per_node {
            self.write(&format!("{devices}/cpu/cpu{cpu}/topology/core_cpus_list"), &cpu.to_string());
        }
        for node in 0..nodes {
            let first = node * cpus_per_node;
            let cpus = format!("{first}-{}", first + cpus_per_node - 1);
            self.write(&format!("{devices}/node/node{node}/cpulist"), &cpus);
        }
    }

    /// Mounts cgroups.
    pub fn cgroups(&self, cgroups: Cgroups) {
        let unified = |at: &str| format!("30 23 0:26 / {at} rw - cgroup2 cgroup2 rw\n");
        let separate = ["memory", "cpuset"].map(|controller| {
            format!("31 23 0:27 / /sys/fs/cgroup/{controller} rw - cgroup cgroup rw,{controller}\n")
        });
        let text = match cgroups {
            Cgroups::Unified => unified("/sys/fs/cgroup"),
            Cgroups::Separate => separate.concat(),
            Cgroups::Hybrid => separate.concat() + &unified("/sys/fs/cgroup/unified"),
        };
        self.write("proc/self/mountinfo", &text);
    }

    /// Writes a process. Updates one that already has the number; [`Tree::remove`] ends it.
    pub fn process(&self, process: &Process) {
        let directory = format!("proc/{}", process.pid);
        self.write(
            &format!("{directory}/cmdline"),
            &process.arguments.iter().map(|one| format!("{one}\0")).collect::<String>(),
        );
        if let Some(program) = &process.program {
            let link = self.root.join(format!("{directory}/exe"));
            let _ = fs::remove_file(&link);
            symlink(program, link).expect("links can be made");
        }
        if let Some(has_vm) = process.has_vm {
            let link = self.root.join(format!("{directory}/fd/9"));
            fs::create_dir_all(link.parent().expect("it is in a folder")).expect("folders can be made");
            let _ = fs::remove_file(&link);
            let file = if has_vm { "anon_inode:kvm-vm" } else { "/dev/null" };
            symlink(file, link).expect("links can be made");
        }
        if let Some(maps) = &process.numa_maps {
            self.write(&format!("{directory}/numa_maps"), maps);
        }
        let path = &process.cgroup;
        let cgroup = format!("3:memory:{path}\n2:cpuset:{path}\n1:name=systemd:{path}\n0::{path}\n");
        self.write(&format!("{directory}/cgroup"), &cgroup);
        for thread in &process.threads {
            self.thread(process, thread);
        }
    }

    fn thread(&self, process: &Process, thread: &ThreadFiles) {
        let (pid, flags, start_ticks) = (process.pid, process.flags, process.start_ticks);
        let threads = process.threads.len();
        let ThreadFiles { tid, name, cpu, run_ns, wait_ns, guest_ticks, cpus } = thread;
        let stat = format!(
            "{tid} ({name}) S 1 {pid} {pid} 0 -1 {flags} 0 0 0 0 {} 0 0 0 20 0 {threads} 0 {start_ticks} 1440960512 9226 \
             18446744073709551615 1 1 0 0 0 0 0 4100 16451 0 0 0 17 {cpu} 0 0 0 {guest_ticks} 0 0 0 0 0 0 0 0 0\n",
            run_ns / 10_000_000
        );
        let (resident, huge) = (process.resident_kib, process.huge_kib);
        let status = format!(
            "Name:\t{name}\nState:\tS (sleeping)\nTgid:\t{pid}\nPid:\t{tid}\nUid:\t0\t0\t0\t0\nVmRSS:\t{resident:>8} kB\n\
             RssAnon:\t{resident:>8} kB\nRssFile:\t       0 kB\nHugetlbPages:\t{huge:>8} kB\n\
             Cpus_allowed_list:\t{cpus}\nMems_allowed_list:\t0-1\n"
        );
        let schedstat = format!("{run_ns} {wait_ns} 1\n");
        let own = format!("proc/{pid}/task/{tid}");
        // Every thread has a directory of its own, which the list of processes leaves out; here the list
        // would include it.
        let directories = if *tid == pid { vec![own, format!("proc/{pid}")] } else { vec![own] };
        for directory in directories {
            for (file, text) in [
                ("stat", &stat),
                ("status", &status),
                ("schedstat", &schedstat),
                ("comm", &format!("{name}\n")),
            ] {
                self.write(&format!("{directory}/{file}"), text);
            }
        }
    }

    /// Writes a file of a cgroup of version 2.
    pub fn cgroup(&self, path: &str, file: &str, text: &str) {
        self.write(&format!("sys/fs/cgroup{path}/{file}"), text);
    }

    /// Ends a process.
    pub fn remove(&self, pid: u32) {
        let _ = fs::remove_dir_all(self.root.join(format!("proc/{pid}")));
    }

    /// Writes a file.
    pub fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("folders can be made");
        fs::write(path, text).expect("files can be written");
    }
}

/// Writes a host with this many VMs of libvirt; the numbers of their processes are 1000, 1100 and so on.
pub fn host(root: &Path, vms: u32, vcpus: u32) -> Tree {
    let tree = Tree::new(root);
    tree.machine(2, 4);
    tree.cgroups(Cgroups::Unified);
    for number in 0..vms {
        let process = Process::libvirt(1_000 + 100 * number, &format!("vm{number}"), vcpus);
        tree.process(&process);
        tree.cgroup(&process.cgroup, "cgroup.procs", &format!("{}\n", process.pid));
    }
    tree
}
