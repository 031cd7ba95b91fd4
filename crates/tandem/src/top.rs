//! `tandem top`: the machine, the scheduler and the VMs, live in the terminal.
//!
//! One thread samples ([`sampler`]), the other one has the terminal: it takes keys ([`state`]) and draws
//! ([`draw`]) the last sample ([`sample`]). It changes nothing, and needs neither root nor the scheduler;
//! notes say what cannot be read.

mod column;
mod draw;
mod sample;
mod sampler;
mod state;
#[cfg(test)]
mod tests;

use anyhow::Context;
use column::Column;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, raise};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use sampler::Sampler;
use state::{KeyAction, State};
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::TryRecvError;
use std::time::Duration;
use tandemd::error::BadInput;
use tandemd::observe;

/// How long to wait for a key before asking for a new sample.
const PAUSE: Duration = Duration::from_millis(100);
/// Below, times that the kernel counts in ticks of 10 ms say little, and sampling costs more than it shows.
const SHORTEST: Duration = Duration::from_millis(200);

pub const HELP: &str = "Keys:
  up, down    select a VM; page up, page down, home, end
  enter       show it with its threads; escape goes back
  < >         sort by another column; r reverses the order
  /           show VMs with a text in their name or manager; escape shows all
  space       pause
  ?           what the columns and lines mean
  q           quit

For scripts there are `tandem vms --json` and `tandem stat --json`.

Examples:
  tandem top
  tandem top --interval 5s --sort steal
  tandem top --filter web";

/// Arguments of `tandem top`.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub struct Args {
    /// Time between two samples
    #[arg(long, value_name = "TIME", default_value = "2 s", value_parser = parse_interval)]
    interval: Duration,
    /// Column by which VMs are sorted at the start
    #[arg(long, value_enum, value_name = "COLUMN", default_value = "cpu")]
    sort: Column,
    /// Show the VMs with this in their name or manager at first
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    filter: String,
    /// Include VMs that run without KVM, which any process can imitate
    #[arg(long)]
    emulated: bool,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    observe::parse_interval(text, SHORTEST)
}

/// Shows what is seen until somebody quits.
pub fn run(args: &Args) -> anyhow::Result<()> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(BadInput::new(
            "`top` needs a terminal; for files and pipes there are `tandem vms --json` and `tandem stat --json`",
        )
        .into());
    }
    let sampler = Sampler::start(Path::new("/"), args.interval, args.emulated)?;
    let is_ended = Arc::new(AtomicBool::new(false));
    let ended = Arc::clone(&is_ended);
    ctrlc::set_handler(move || ended.store(true, Ordering::Relaxed)).context("cannot catch signals")?;
    let mut state = State::new(args.sort, args.filter.clone());
    let mut terminal = ratatui::try_init().context("cannot use the terminal")?;
    let shown = show(&mut terminal, &mut state, &sampler, &is_ended);
    ratatui::restore();
    shown
}

fn show(
    terminal: &mut DefaultTerminal,
    state: &mut State,
    sampler: &Sampler,
    is_ended: &AtomicBool,
) -> anyhow::Result<()> {
    let mut is_other = true;
    while !is_ended.load(Ordering::Relaxed) {
        if std::mem::take(&mut is_other) {
            terminal.draw(|frame| draw::draw(frame, state))?;
        }
        if is_hung_up(PAUSE) {
            break;
        }
        while event::poll(Duration::ZERO)? {
            is_other = true;
            let Event::Key(key) = event::read()? else { continue };
            if key.kind != KeyEventKind::Press {
                continue;
            }
            match state.press(key) {
                KeyAction::Draw => sampler.detail(state.wanted_detail()),
                KeyAction::Quit => return Ok(()),
                KeyAction::Suspend => {
                    ratatui::restore();
                    raise(Signal::SIGTSTP)?;
                    *terminal = ratatui::try_init().context("cannot use the terminal again")?;
                }
            }
        }
        match sampler.samples.try_recv() {
            Ok(sample) => {
                state.take(sample?);
                is_other = true;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => anyhow::bail!("the sampling thread has ended"),
        }
    }
    Ok(())
}

/// Waits for a key, but no longer than that; whether the terminal is gone, at which crossterm would read for
/// ever.
fn is_hung_up(timeout: Duration) -> bool {
    let stdin = io::stdin();
    let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    // A signal ends the wait as well.
    let _ = poll(&mut fds, PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX));
    fds[0].revents().is_some_and(|events| events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR))
}
