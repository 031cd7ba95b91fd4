//! A scenario as the search draws and shrinks it, and its form as a file.
//!
//! The search runs the text of such a file, read like any other, so `tandem sim` repeats exactly what the
//! search found.

use crate::scenario::policy::scheduler::SchedulerName;
use std::fmt::{self, Display, Write};

/// A scenario to be tried.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The machine that it runs on.
    pub machine: MachinePlan,
    /// Measured time, ms.
    pub length_ms: u64,
    /// Whether the cost models are on.
    pub costs: bool,
    /// How often the host's kernel has no memory to start a timer, percent.
    pub timer_failure_pct: u32,
    /// Cgroups besides those of VMs.
    pub cgroups: Vec<CgroupPlan>,
    /// VMs and processes.
    pub groups: Vec<Group>,
    /// Events of the host, each with its time, ms.
    pub happenings: Vec<(u64, Happening)>,
}

/// A cgroup.
#[derive(Clone, Debug, PartialEq)]
pub struct CgroupPlan {
    /// Path from the root.
    pub path: String,
    /// `cpu.weight`.
    pub weight: u32,
    /// `cpu.max`, in percent of a CPU.
    pub limit_pct: Option<u32>,
}

/// An event of the host.
#[derive(Clone, Debug, PartialEq)]
pub enum Happening {
    /// A cgroup gets another weight.
    SetWeight {
        /// Its path.
        cgroup: String,
        /// The weight.
        weight: u32,
    },
    /// The tasks of a group get another nice value.
    SetNice {
        /// Which group.
        group: usize,
        /// The value.
        nice: i32,
    },
    /// CPUs go offline, and come back after a time, ms.
    Offline {
        /// The CPUs.
        cpus: Vec<u32>,
        /// For how long, ms.
        length_ms: u64,
    },
    /// A higher class takes CPUs again and again.
    Intrude {
        /// The CPUs.
        cpus: Vec<u32>,
        /// For how long, ms.
        length_ms: u64,
        /// Time between two starts, ms.
        every_ms: u64,
    },
    /// The scheduler is loaded again.
    Reload,
}

/// A machine: last-level caches with cores.
#[derive(Clone, Debug, PartialEq)]
pub struct MachinePlan {
    /// Node and number of cores of each last-level cache; nodes follow each other from 0 on.
    pub llcs: Vec<(u32, u32)>,
    /// Threads of each core.
    pub threads: u32,
    /// CPUs whose tick stops while one task runs.
    pub tickless: Vec<u32>,
}

impl MachinePlan {
    /// CPUs of the machine.
    pub fn cpus(&self) -> u32 {
        self.llcs.iter().map(|(_, cores)| cores * self.threads).sum()
    }

    /// The first CPU of a last-level cache, and how many it has; they follow each other.
    pub fn cpus_of_llc(&self, llc: usize) -> (u32, u32) {
        let before: u32 = self.llcs[..llc].iter().map(|(_, cores)| cores * self.threads).sum();
        (before, self.llcs[llc].1 * self.threads)
    }
}

/// VMs, or sets of processes, with equal settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// What they are.
    pub kind: Kind,
    /// How many of them.
    pub count: u32,
    /// The path of their cgroup, parts of which may have no table; the root if `None`.
    pub cgroup: Option<String>,
    /// Nice value of processes.
    pub nice: i32,
    /// Weight of each VM, or of each process.
    pub weight: u32,
    /// CPUs on which they may run; all if `None`.
    pub hard: Option<Vec<u32>>,
    /// CPUs that they prefer, of those.
    pub soft: Option<Vec<u32>>,
    /// Affinities that an administrator gives them, and when, ms.
    pub changes: Vec<(u64, Option<Vec<u32>>)>,
    /// Latest start and life span, ms.
    pub life: Option<(u64, u64)>,
    /// What the tasks of each do, and how many do it.
    pub work: Vec<(Work, u32)>,
}

/// What tasks are to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// vCPUs that run programs.
    Vm,
    /// vCPUs of a guest kernel, as many as it has tasks.
    Guest,
    /// Processes.
    Processes,
    /// Threads of a process.
    Threads,
}

impl Kind {
    /// Whether they are VMs, with at most as many vCPUs as the machine has CPUs.
    pub fn is_vm(self) -> bool {
        matches!(self, Self::Vm | Self::Guest)
    }
}

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Sleeps for a time, ms, then computes for ever.
    Computes {
        /// When it begins, ms.
        after_ms: u64,
    },
    /// Computes and sleeps in turn.
    Sleeps {
        /// Computing, us.
        work_us: u64,
        /// Sleeping, us.
        pause_us: u64,
        /// Whether both are means of exponential distributions.
        varies: bool,
    },
    /// Computes, and yields after each time.
    Yields {
        /// Computing, us.
        work_us: u64,
    },
    /// Two tasks: one computes, wakes the other, which computes as well, and continues.
    Wakes {
        /// Computing before it writes, us.
        before_us: u64,
        /// Computing after that, us.
        after_us: u64,
        /// Computing of the other, us.
        other_us: u64,
        /// Whether it then waits for an answer.
        waits: bool,
    },
    /// Several tasks: each waits for the one before it.
    Ring {
        /// Computing, us.
        work_us: u64,
    },
    /// Answers interrupts; for VMs.
    Serves {
        /// Computing for each, us.
        work_us: u64,
        /// Interrupts a second.
        per_second: u64,
    },
    /// Starts a task that computes and ends, and waits for it, over and over; in a guest.
    Forks {
        /// Computing of each, us.
        work_us: u64,
    },
}

impl Work {
    /// How many tasks it takes.
    pub fn tasks(self) -> u32 {
        match self {
            Self::Wakes { .. } => 2,
            _ => 1,
        }
    }
}

impl Group {
    /// Tasks of each of them: its vCPUs or processes.
    pub fn tasks(&self) -> u32 {
        self.work.iter().map(|(work, copies)| work.tasks() * copies).sum()
    }
}

/// A list of CPUs in the notation of scenarios: "0-3,8".
struct CpuList<'a>(&'a [u32]);

impl Display for CpuList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut at = 0;
        while at < self.0.len() {
            let first = self.0[at];
            let mut last = first;
            while self.0.get(at + 1) == Some(&(last + 1)) {
                last += 1;
                at += 1;
            }
            let comma = if at + 1 < self.0.len() { "," } else { "" };
            match last - first {
                0 => write!(f, "{first}{comma}")?,
                _ => write!(f, "{first}-{last}{comma}")?,
            }
            at += 1;
        }
        Ok(())
    }
}

/// A time in the largest unit that gives a whole number.
fn us(us: u64) -> String {
    match us {
        us if us > 0 && us.is_multiple_of(1_000_000) => format!("\"{}s\"", us / 1_000_000),
        us if us > 0 && us.is_multiple_of(1_000) => format!("\"{}ms\"", us / 1_000),
        us => format!("\"{us}us\""),
    }
}

fn ms(ms: u64) -> String {
    us(ms * 1_000)
}

/// Time before measuring starts, ms.
const WARMUP_MS: u64 = 500;
/// Length of one computing operation of tasks that always compute: shorter ones cost events and change
/// nothing.
const CHUNK: &str = "\"10ms\"";

impl Plan {
    /// The scenario file with this scheduler of the host. Only a compiled one has the plan's faults.
    pub fn to_toml(&self, host: &SchedulerName) -> String {
        let mut text = String::new();
        self.write(host, &mut text).expect("a string takes any text");
        text
    }

    fn write(&self, host: &SchedulerName, text: &mut String) -> fmt::Result {
        writeln!(text, "length = {}", ms(self.length_ms))?;
        writeln!(text, "warmup = {}\n", ms(WARMUP_MS))?;
        writeln!(text, "[policy]\nhost = {}\n", self.host(host))?;
        if !self.costs {
            writeln!(text, "[costs]\nall = false\n")?;
        }
        self.machine.write(text)?;
        for (group, table) in self.groups.iter().enumerate() {
            table.write_programs(group, text)?;
        }
        for cgroup in &self.cgroups {
            writeln!(text, "[[cgroup]]\npath = \"{}\"\nweight = {}", cgroup.path, cgroup.weight)?;
            if let Some(pct) = cgroup.limit_pct {
                writeln!(text, "limit = \"{pct}%\"")?;
            }
            writeln!(text)?;
        }
        for (group, table) in self.groups.iter().enumerate() {
            table.write(group, text)?;
        }
        self.happenings.iter().try_for_each(|(at_ms, what)| self.write_happening(*at_ms, what, text))
    }

    /// The scheduler of the host, as a scenario file names it.
    fn host(&self, name: &SchedulerName) -> String {
        let fault =
            (self.timer_failure_pct > 0).then(|| format!("timer_failure_pct = {}", self.timer_failure_pct));
        match (name, fault) {
            (SchedulerName::XenCredit, _) => "\"xen-credit\"".into(),
            (SchedulerName::XenCredit2, _) => "\"xen-credit2\"".into(),
            (SchedulerName::Linux, _) => "\"linux\"".into(),
            (SchedulerName::Tandem, None) => "\"tandem\"".into(),
            (SchedulerName::Tandem, Some(fault)) => format!("{{ tandem = {{ {fault} }} }}"),
            (SchedulerName::Object(path), fault) => {
                let path = toml::Value::from(path.to_string_lossy().into_owned());
                let fault = fault.map(|fault| format!(", {fault}")).unwrap_or_default();
                format!("{{ object = {path}{fault} }}")
            }
        }
    }

    fn write_happening(&self, at_ms: u64, what: &Happening, text: &mut String) -> fmt::Result {
        let at = |at_ms| format!("[[event]]\nat = {}", ms(at_ms));
        match what {
            Happening::SetWeight { cgroup, weight } => {
                writeln!(text, "{}\nset_weight = {{ cgroup = \"{cgroup}\", weight = {weight} }}\n", at(at_ms))
            }
            Happening::SetNice { group, nice } => {
                let name = self.groups[*group].name(*group);
                writeln!(text, "{}\nset_nice = {{ group = \"{name}\", nice = {nice} }}\n", at(at_ms))
            }
            Happening::Offline { cpus, length_ms } => {
                let cpus = CpuList(cpus);
                writeln!(text, "{}\noffline = \"{cpus}\"\n", at(at_ms))?;
                writeln!(text, "{}\nonline = \"{cpus}\"\n", at(at_ms + length_ms))
            }
            Happening::Intrude { cpus, length_ms, every_ms } => writeln!(
                text,
                "{}\nevery = {}\nintrude = {{ cpus = \"{}\", length = {} }}\n",
                at(at_ms),
                ms(*every_ms),
                CpuList(cpus),
                ms(*length_ms)
            ),
            Happening::Reload => writeln!(text, "{}\nreload = true\n", at(at_ms)),
        }
    }
}

impl MachinePlan {
    fn write(&self, text: &mut String) -> fmt::Result {
        writeln!(text, "[machine]\nname = \"drawn\"")?;
        if !self.tickless.is_empty() {
            writeln!(text, "tickless = \"{}\"", CpuList(&self.tickless))?;
        }
        writeln!(text)?;
        let nodes = self.llcs.iter().map(|(node, _)| node + 1).max().unwrap_or(1);
        for node in 0..nodes {
            writeln!(
                text,
                "[[machine.node]]\nnumber = {node}\nmemory = \"64GiB\"\nbandwidth = \"40GB/s\"\n"
            )?;
        }
        for (llc, (node, cores)) in self.llcs.iter().enumerate() {
            writeln!(text, "[[machine.llc]]\nnumber = {llc}\nsize = \"16MiB\"\n")?;
            let (first, _) = self.cpus_of_llc(llc);
            let cpus: Vec<String> = (0..*cores)
                .map(|core| {
                    let threads: Vec<u32> =
                        (0..self.threads).map(|it| first + core * self.threads + it).collect();
                    format!("\"{}\"", CpuList(&threads))
                })
                .collect();
            let cpus = cpus.join(", ");
            writeln!(
                text,
                "[[machine.cores]]\npackage = {node}\nnode = {node}\nllc = {llc}\ncpus = [{cpus}]\n"
            )?;
        }
        Ok(())
    }
}

impl Group {
    /// The name of the group with this number.
    pub fn name(&self, group: usize) -> String {
        let kind = match self.kind {
            Kind::Vm => "vm",
            Kind::Guest => "guest",
            Kind::Processes => "processes",
            Kind::Threads => "threads",
        };
        format!("{kind}{group}")
    }

    /// Names of the programs that a kind of work needs, and how often each for one copy.
    fn programs(&self, group: usize, work: usize, copies: u32) -> Vec<String> {
        let name = format!("{}-{work}", self.name(group));
        match self.work[work].0 {
            Work::Wakes { .. } => vec![name.clone(), format!("{name}-woken")],
            Work::Ring { .. } => (0..copies).map(|at| format!("{name}-{at}")).collect(),
            _ => vec![name],
        }
    }

    fn write_programs(&self, group: usize, text: &mut String) -> fmt::Result {
        for (at, &(work, copies)) in self.work.iter().enumerate() {
            let names = self.programs(group, at, copies);
            let channel = format!("c{at}");
            let amount = |varies: bool, it: u64| match varies {
                true => format!("{{ exponential = {} }}", us(it)),
                false => us(it),
            };
            let put = |channel: &str| format!("{{ send = {{ channel = \"{channel}\", capacity = 16 }} }}");
            let count = "{ count = \"rounds\" }";
            let mut program = |name: &str, first: &str, body: String| {
                writeln!(text, "[programs.{name}]\nops = [{first}{{ forever = [{body}] }}]\n")
            };
            match work {
                Work::Computes { after_ms: 0 } => {
                    program(&names[0], "", format!("{{ compute = {CHUNK} }}, {count}"))?
                }
                Work::Computes { after_ms } => {
                    let sleep = format!("{{ sleep = {} }}, ", ms(after_ms));
                    program(&names[0], &sleep, format!("{{ compute = {CHUNK} }}, {count}"))?;
                }
                Work::Sleeps { work_us, pause_us, varies } => {
                    let (work, pause) = (amount(varies, work_us), amount(varies, pause_us));
                    program(
                        &names[0],
                        "",
                        format!("{{ compute = {work} }}, {{ sleep = {pause} }}, {count}"),
                    )?;
                }
                Work::Yields { work_us } => {
                    program(&names[0], "", format!("{{ compute = {} }}, \"yield\", {count}", us(work_us)))?;
                }
                Work::Wakes { before_us, after_us, other_us, waits } => {
                    let answer = format!("{channel}-answer");
                    let (wait, respond) = match waits {
                        true => (format!(", {{ wait = \"{answer}\" }}"), format!("{}, ", put(&answer))),
                        false => Default::default(),
                    };
                    let (before, after, other) = (us(before_us), us(after_us), us(other_us));
                    let put = put(&channel);
                    program(
                        &names[0],
                        "",
                        format!("{{ compute = {before} }}, {put}, {{ compute = {after} }}{wait}, {count}"),
                    )?;
                    program(
                        &names[1],
                        "",
                        format!("{{ wait = \"{channel}\" }}, {{ compute = {other} }}, {respond}{count}"),
                    )?;
                }
                Work::Ring { work_us } => {
                    for (at, name) in names.iter().enumerate() {
                        let next = (at + 1) % names.len();
                        let first = if at == 0 {
                            format!("{}, ", put(&format!("{channel}-0")))
                        } else {
                            String::new()
                        };
                        let body = format!(
                            "{{ wait = \"{channel}-{at}\" }}, {{ compute = {} }}, {}, {count}",
                            us(work_us),
                            put(&format!("{channel}-{next}")),
                        );
                        program(name, &first, body)?;
                    }
                }
                Work::Serves { work_us, .. } => {
                    let work = amount(true, work_us);
                    program(
                        &names[0],
                        "",
                        format!("{{ wait = \"{channel}\" }}, {{ compute = {work} }}, {count}"),
                    )?;
                }
                Work::Forks { work_us } => {
                    let child = format!("{}-child", names[0]);
                    program(&names[0], "", format!("{{ fork = \"{child}\" }}, \"wait_child\", {count}"))?;
                    writeln!(text, "[programs.{child}]\nops = [{{ compute = {} }}]\n", us(work_us))?;
                }
            }
        }
        Ok(())
    }

    fn write(&self, group: usize, text: &mut String) -> fmt::Result {
        let is_vm = self.kind.is_vm();
        writeln!(text, "[[{}]]", if is_vm { "vm" } else { "processes" })?;
        writeln!(text, "group = \"{}\"", self.name(group))?;
        if self.count != 1 {
            writeln!(text, "count = {}", self.count)?;
        }
        writeln!(text, "memory = \"256MiB\"")?;
        if let Some(path) = &self.cgroup {
            writeln!(text, "cgroup = \"{path}\"")?;
        }
        if self.weight != 256 {
            writeln!(text, "weight = {}", self.weight)?;
        }
        if self.hard.is_some() || self.soft.is_some() {
            let mut parts = Vec::new();
            if let Some(cpus) = &self.hard {
                parts.push(format!("hard = \"{}\"", CpuList(cpus)));
            }
            if let Some(cpus) = &self.soft {
                parts.push(format!("soft = \"{}\"", CpuList(cpus)));
            }
            writeln!(text, "affinity = {{ {} }}", parts.join(", "))?;
        }
        if self.kind == Kind::Threads {
            writeln!(text, "threads = true")?;
        }
        if let Some((start_ms, life_ms)) = self.life
            && is_vm
        {
            writeln!(text, "start = {{ uniform = [\"0us\", {}] }}", ms(start_ms))?;
            if self.kind == Kind::Vm {
                writeln!(text, "life = {{ exponential = {} }}", ms(life_ms))?;
            }
        }
        let mut tasks: Vec<(String, u32)> = Vec::new();
        for (at, &(work, copies)) in self.work.iter().enumerate() {
            let copies_of_each = if matches!(work, Work::Ring { .. }) { 1 } else { copies };
            tasks.extend(self.programs(group, at, copies).into_iter().map(|name| (name, copies_of_each)));
        }
        match self.kind {
            Kind::Vm => {
                writeln!(text, "vcpus = {}", self.tasks())?;
                let each = |(name, copies): &(String, u32)| vec![format!("\"{name}\""); *copies as usize];
                let names = match &tasks[..] {
                    [(name, _)] => format!("\"{name}\""),
                    _ => tasks.iter().flat_map(each).collect::<Vec<_>>().join(", "),
                };
                writeln!(text, "programs = [{names}]")?;
            }
            Kind::Guest | Kind::Processes | Kind::Threads => {
                let nice = if self.nice == 0 { String::new() } else { format!(", nice = {}", self.nice) };
                let each = |(name, copies): &(String, u32)| match copies {
                    1 => format!("{{ program = \"{name}\"{nice} }}"),
                    _ => format!("{{ program = \"{name}\", copies = {copies}{nice} }}"),
                };
                let list = tasks.iter().map(each).collect::<Vec<_>>().join(", ");
                match self.kind {
                    Kind::Guest => {
                        writeln!(text, "vcpus = {}", self.tasks())?;
                        writeln!(text, "guest = {{ process = [{list}] }}")?;
                    }
                    _ => writeln!(text, "process = [{list}]")?,
                }
            }
        }
        for (at_ms, cpus) in &self.changes {
            let table = format!("[[{}.affinity_change]]", if is_vm { "vm" } else { "processes" });
            let list = cpus.as_deref().map_or("all".to_owned(), |cpus| CpuList(cpus).to_string());
            writeln!(text, "{table}\nat = {}\nhard = \"{list}\"", ms(*at_ms))?;
        }
        for (at, (work, _)) in self.work.iter().enumerate() {
            if let Work::Serves { per_second, .. } = work
                && is_vm
            {
                writeln!(
                    text,
                    "[[vm.source]]\nchannel = \"c{at}\"\narrivals = {{ per_second = {per_second} }}"
                )?;
            }
        }
        writeln!(text)
    }
}
