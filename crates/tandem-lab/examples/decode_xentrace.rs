//! Makes the compact files of `tests/xen/` from raw Xen traces.
//!
//! ```text
//! cargo run -p tandem-lab --example decode_xentrace -- OUT_DIR TRACE.bin...
//! ```
//!
//! For each trace it writes `TRACE.csv` (bursts) and `TRACE.toml` (summary) into `OUT_DIR`.

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use tandem_lab::xentrace::{Bursts, History, Summary, read_trace, write_bursts};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [out_dir, traces @ ..] = &arguments[..] else {
        eprintln!("usage: decode_xentrace OUT_DIR TRACE.bin...");
        return ExitCode::from(2);
    };
    for path in traces {
        if let Err(error) = decode(Path::new(path), Path::new(out_dir)) {
            eprintln!("{path}: {error}");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn decode(path: &Path, out_dir: &Path) -> Result<(), Box<dyn Error>> {
    let trace = read_trace(&fs::read(path)?);
    if trace.events.is_empty() {
        return Err("no scheduler events found; is this an uncompressed raw trace of xentrace?".into());
    }
    let history = History::of(&trace);
    let summary = toml::to_string(&Summary::of(&trace, &history))?;
    let name = path.file_stem().ok_or("a file name is needed")?.to_string_lossy();
    let bursts = fs::File::create(out_dir.join(format!("{name}.csv")))?;
    write_bursts(&Bursts::from(&history), bursts)?;
    fs::write(out_dir.join(format!("{name}.toml")), &summary)?;
    println!("# {name}: {} incomplete bytes\n{summary}", trace.incomplete_bytes);
    Ok(())
}
