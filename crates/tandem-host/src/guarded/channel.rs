//! How two processes of Tandem communicate: a question is a line of JSON, an answer its length and that many
//! bytes.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// How often `ask` calls `wait` while there is no answer.
pub const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// The length that stands for no answer.
const NOTHING: u64 = u64::MAX;
/// Longest question, bytes: some thousand addresses of pages, or a path.
const QUESTION_MAX_BYTES: u64 = 1 << 20;

/// The asking side of a process that answers.
#[derive(Debug)]
pub struct Channel {
    /// The process.
    pub child: Child,
    input: ChildStdin,
    output: ChildStdout,
}

impl Channel {
    /// Starts the process.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn start(mut command: Command) -> io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        match (child.stdin.take(), child.stdout.take()) {
            (Some(input), Some(output)) => Ok(Self { child, input, output }),
            _ => Err(ErrorKind::BrokenPipe.into()),
        }
    }

    /// The answer, of at most this many bytes. Calls `wait` once per [`LOOK_INTERVAL`] while there is none.
    ///
    /// # Errors
    /// If the process has ended or gives a malformed answer, and those of `wait`. The process cannot be asked
    /// again then.
    pub fn ask(
        &mut self,
        question: &impl Serialize,
        max_bytes: u64,
        mut wait: impl FnMut(&Child) -> io::Result<()>,
    ) -> io::Result<Option<Vec<u8>>> {
        let mut line = serde_json::to_vec(question)?;
        line.push(b'\n');
        if line.len() as u64 > QUESTION_MAX_BYTES {
            return Ok(None);
        }
        // It reads questions one at a time, each to its end.
        self.input.write_all(&line)?;
        let mut length = [0; 8];
        self.read(&mut length, &mut wait)?;
        let length = match u64::from_ne_bytes(length) {
            NOTHING => return Ok(None),
            length if length <= max_bytes => length,
            _ => return Err(ErrorKind::InvalidData.into()),
        };
        let mut bytes = vec![0; length as usize];
        self.read(&mut bytes, &mut wait)?;
        Ok(Some(bytes))
    }

    fn read(
        &mut self,
        mut bytes: &mut [u8],
        wait: &mut impl FnMut(&Child) -> io::Result<()>,
    ) -> io::Result<()> {
        let timeout = Timespec::try_from(LOOK_INTERVAL).map_err(|_| ErrorKind::InvalidInput)?;
        while !bytes.is_empty() {
            match poll(&mut [PollFd::new(&self.output, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => wait(&self.child)?,
                Ok(_) => match self.output.read(bytes)? {
                    0 => return Err(ErrorKind::UnexpectedEof.into()),
                    length => bytes = &mut bytes[length..],
                },
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Answers questions on standard input until it is closed. A malformed or overlong question gets no answer.
///
/// # Errors
/// If the asking process is gone.
pub fn answer_all<Question: DeserializeOwned>(
    mut answer: impl FnMut(Question) -> Option<Vec<u8>>,
) -> io::Result<()> {
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.by_ref().take(QUESTION_MAX_BYTES).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if !line.ends_with(b"\n") {
            input.skip_until(b'\n')?;
        }
        match serde_json::from_slice(&line).ok().and_then(&mut answer) {
            Some(bytes) => {
                output.write_all(&(bytes.len() as u64).to_ne_bytes())?;
                output.write_all(&bytes)?;
            }
            None => output.write_all(&NOTHING.to_ne_bytes())?,
        }
        output.flush()?;
    }
}
