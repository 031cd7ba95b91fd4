//! QEMU's monitor, which reports the state of a guest's CPUs when the guest no longer reports anything.
//!
//! It is reached through a socket that QEMU inherits, in QMP
//! (<https://www.qemu.org/docs/master/interop/qmp-spec.html>). Only the readable text has the registers; the
//! format here is that of QEMU 10.0.

use anyhow::{Context, Result, ensure};
use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use serde_json::{Value, json};
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// How long an answer may take. It is immediate; on a busy machine it has taken a second.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Number of samples after which a CPU counts as sleeping through an interrupt, and the time between two. A
/// CPU that gets the interrupt falls asleep again within milliseconds after its thread has got a CPU of the
/// machine, which has taken a second.
const LOOKS: usize = 20;
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);

/// A connection to the monitor of one QEMU.
pub struct Monitor {
    stream: BufReader<UnixStream>,
    /// Commands are taken only after that.
    has_negotiated: bool,
}

/// The state of a CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuState {
    /// Where its code stands.
    rip: String,
    /// It waits for an interrupt.
    is_halted: bool,
    /// It would take one.
    takes_interrupts: bool,
    /// The vectors that its APIC has for it.
    requested: Vec<u8>,
    /// Those of this priority and below must wait, the upper four bits of a vector.
    priority: u8,
}

impl CpuState {
    /// Whether it waits for an interrupt although there is one for it. No guest can bring that about for
    /// longer than an instant: the emulator has lost a wake-up.
    pub fn sleeps_through_interrupt(&self) -> bool {
        self.is_halted
            && self.takes_interrupts
            && self.requested.iter().any(|vector| vector >> 4 > self.priority >> 4)
    }
}

impl fmt::Display for CpuState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rip, is_halted, takes_interrupts, requested, priority } = self;
        write!(f, "at {rip}, {}", if *is_halted { "halted" } else { "running" })?;
        write!(f, ", interrupts {}", if *takes_interrupts { "on" } else { "off" })?;
        write!(f, ", requested {requested:?}, priority {priority:#x}")
    }
}

impl Monitor {
    /// A connection, whose other end QEMU inherits. That end is to be dropped once QEMU runs.
    pub fn new(qemu: &mut Command) -> Result<(Self, UnixStream)> {
        let (ours, theirs) = UnixStream::pair().context("cannot make a socket for QEMU's monitor")?;
        ours.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        ours.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        fcntl_setfd(&theirs, fcntl_getfd(&theirs)? - FdFlags::CLOEXEC)?;
        qemu.arg("-chardev").arg(format!("socket,id=monitor,fd={}", theirs.as_raw_fd()));
        qemu.args(["-mon", "chardev=monitor,mode=control"]);
        Ok((Self { stream: BufReader::new(ours), has_negotiated: false }, theirs))
    }

    /// Whether one of this many CPUs sleeps through an interrupt. Takes as long as a few checks.
    pub fn has_lost_wake_up(&mut self, cpus: u32) -> Result<bool> {
        let mut asleep = vec![true; cpus as usize];
        for _ in 0..LOOKS {
            for (asleep, state) in asleep.iter_mut().zip(self.cpus(cpus)?) {
                *asleep &= state.sleeps_through_interrupt();
            }
            if !asleep.contains(&true) {
                return Ok(false);
            }
            thread::sleep(BETWEEN_LOOKS);
        }
        Ok(true)
    }

    /// The state of each of this many CPUs.
    pub fn cpus(&mut self, cpus: u32) -> Result<Vec<CpuState>> {
        let registers = self.ask("info registers -a")?;
        let registers: Vec<&str> = registers.split("CPU#").skip(1).collect();
        ensure!(registers.len() == cpus as usize, "QEMU reports {} CPUs, not {cpus}", registers.len());
        let with_apic = registers.iter().enumerate().map(|(cpu, registers)| {
            let apic = self.ask(&format!("info lapic {cpu}"))?;
            parse(registers, &apic).with_context(|| format!("cannot make out the state of CPU {cpu}"))
        });
        with_apic.collect()
    }

    /// Makes the guest's kernel panic, if it was started with `unknown_nmi_panic`, and so print its state.
    pub fn interrupt_unmaskably(&mut self) -> Result<()> {
        self.execute(&json!({ "execute": "inject-nmi" })).map(drop)
    }

    /// The answer to a command of the monitor for people.
    fn ask(&mut self, command: &str) -> Result<String> {
        let request = json!({ "execute": "human-monitor-command", "arguments": { "command-line": command } });
        let answer = self.execute(&request)?;
        Ok(answer.as_str().context("QEMU's monitor answered with something that is no text")?.into())
    }

    /// The result of a command.
    fn execute(&mut self, request: &Value) -> Result<Value> {
        if !self.has_negotiated {
            self.transact(&json!({ "execute": "qmp_capabilities" }))?;
            self.has_negotiated = true;
        }
        let mut answer = self.transact(request)?;
        ensure!(answer.get("return").is_some(), "QEMU's monitor refused {request}: {answer}");
        Ok(answer["return"].take())
    }

    /// Sends a request and waits for its answer; greetings and events in between are passed over.
    fn transact(&mut self, request: &Value) -> Result<Value> {
        writeln!(self.stream.get_mut(), "{request}").context("cannot write to QEMU's monitor")?;
        loop {
            let mut line = String::new();
            let length = self.stream.read_line(&mut line).context("QEMU's monitor does not answer")?;
            ensure!(length > 0, "QEMU has closed its monitor");
            let answer: Value = serde_json::from_str(&line).context("QEMU's monitor does not speak QMP")?;
            if answer.get("return").is_some() || answer.get("error").is_some() {
                return Ok(answer);
            }
        }
    }
}

/// Reads the state of a CPU from what `info registers` and `info lapic` print of it.
fn parse(registers: &str, apic: &str) -> Option<CpuState> {
    // `RIP=ffffffff97c9dc80 RFL=00000246 [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT=0`
    let register =
        |name: &str| registers.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    // `IRR     48 236`, `IRR   (none)`, with `(level)` behind some; `APR 0x00 TPR 0x10 DFR 0x0f LDR 0x00 PPR
    // 0x10`
    let requested = apic.lines().find_map(|line| line.strip_prefix("IRR"))?;
    let priority = apic.split_once("PPR 0x")?.1.split_whitespace().next()?;
    const INTERRUPT_FLAG: u64 = 1 << 9;
    Some(CpuState {
        rip: register("RIP")?.into(),
        is_halted: register("HLT")? == "1",
        takes_interrupts: u64::from_str_radix(register("RFL")?, 16).ok()? & INTERRUPT_FLAG != 0
            && register("II")? == "0",
        requested: requested.split(|c: char| !c.is_ascii_digit()).filter_map(|v| v.parse().ok()).collect(),
        priority: u8::from_str_radix(priority, 16).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What QEMU 10.0.2 printed, shortened.
    const REGISTERS: &str = "0\r\nRAX=0000000000000000 RBX=0000000000000001\r\n\
        RIP=ffffffff98953c9f RFL=00000202 [-------] CPL=0 II=0 A20=1 SMM=0 HLT=1\r\n\
        ES =0000 0000000000000000 ffffffff 00c00000\r\n";
    const APIC: &str = "dumping local APIC state for CPU 0 \r\n\r\n\
        LVTT\t 0x000000ec active-hi edge                 one-shot     Fixed  (vec 236)\r\n\
        ISR\t (none)\r\nIRR\t 236 \r\n\r\nAPR 0x00 TPR 0x10 DFR 0x0f LDR 0x00 PPR 0x10\r\n";

    #[test]
    fn a_halted_cpu_with_an_interrupt_sleeps_through_it() {
        let state = parse(REGISTERS, APIC).unwrap();
        assert!(state.sleeps_through_interrupt());
        assert_eq!(
            state.to_string(),
            "at ffffffff98953c9f, halted, interrupts on, requested [236], priority 0x10"
        );
    }

    #[test]
    fn others_do_not() {
        for (registers, apic) in [
            (REGISTERS.replace("HLT=1", "HLT=0"), APIC.to_owned()),
            (REGISTERS.replace("RFL=00000202", "RFL=00000002"), APIC.to_owned()),
            (REGISTERS.replace("II=0", "II=1"), APIC.to_owned()),
            (REGISTERS.to_owned(), APIC.replace("IRR\t 236", "IRR\t (none)")),
            (REGISTERS.to_owned(), APIC.replace("PPR 0x10", "PPR 0xe0")),
        ] {
            assert!(!parse(&registers, &apic).unwrap().sleeps_through_interrupt(), "{registers}{apic}");
        }
    }

    #[test]
    fn text_without_these_registers_is_refused() {
        assert_eq!(parse("0\r\nRAX=0", APIC), None);
        assert_eq!(parse(REGISTERS, "no local interrupt controller available"), None);
    }

    #[test]
    fn answers_are_found_among_events() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        for line in [
            r#"{"QMP": {"version": {}}}"#,
            r#"{"return": {}}"#,
            r#"{"event": "RTC_CHANGE"}"#,
            r#"{"return": "text"}"#,
            r#"{"error": {"desc": "no such command"}}"#,
        ] {
            writeln!(theirs, "{line}").unwrap();
        }
        let mut monitor = Monitor { stream: BufReader::new(ours), has_negotiated: false };
        assert_eq!(monitor.ask("info version").unwrap(), "text");
        assert!(monitor.ask("nonsense").unwrap_err().to_string().contains("no such command"));
        drop(theirs);
        assert!(monitor.ask("info version").is_err());
    }
}
