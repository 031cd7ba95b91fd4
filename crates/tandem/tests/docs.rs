//! Every example in the README and in the book runs as it stands there.
//!
//! What is done with a fenced block follows from the words after its fence:
//!
//! - `toml,scenario`: `tandem sim` runs it;
//! - `toml,machine`: `tandem topology --machine` draws it;
//! - `toml,experiment`: `tandem reproduce --quick` runs it;
//! - `toml,settings`: `tandem run --print-config` reads it, and runs nothing;
//! - `csv` and `toml,study`: a file for the blocks after it;
//! - `console`: its lines `$ tandem ...` run. Lines that follow a command are the output that it must print;
//!   a line `...` among them stands for any number of lines. Without such lines the output is not compared.
//!
//! The blocks of a page run in order, in a folder of the page's own. A block whose first line is a comment
//! with a path, such as `# cache.toml`, stays there under that name for what follows.

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin;
use std::fs;
use std::path::{Path, PathBuf};

/// A fenced block of a page.
struct Block {
    /// The words after the fence.
    kind: String,
    /// Page and line, for messages.
    place: String,
    lines: Vec<String>,
}

/// README.md and the pages of the book.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let chapters = fs::read_dir(root.join("docs/src")).expect("the book is in docs/src");
    let mut pages: Vec<_> = chapters.map(|entry| entry.expect("docs/src can be listed").path()).collect();
    pages.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.push(root.join("README.md"));
    pages.sort();
    pages
}

fn blocks(page: &Path) -> Vec<Block> {
    let text = fs::read_to_string(page).expect("pages are UTF-8");
    let name = page.file_name().expect("a page has a name").display();
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (index, line) in text.lines().enumerate() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(kind), None) => {
                let place = format!("{name}:{}", index + 1);
                open = Some(Block { kind: kind.to_owned(), place, lines: Vec::new() });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => block.lines.push(line.to_owned()),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{name}: a block is not closed");
    blocks
}

/// Runs `tandem` with these arguments and returns what it printed.
fn tandem(args: &[&str], dir: &Path, place: &str) -> String {
    let output =
        Command::new(cargo_bin!("tandem")).args(args).current_dir(dir).output().expect("the command starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{place}: `tandem {}`: {}\n{stderr}", args.join(" "), output.status);
    String::from_utf8(output.stdout).expect("output is UTF-8")
}

/// Writes a block to its file in `dir`; returns the file's path in there.
fn save(block: &Block, dir: &Path) -> String {
    let first = block.lines.first().map_or("", String::as_str);
    let is_path = |name: &&str| !name.contains(' ') && (name.ends_with(".toml") || name.ends_with(".csv"));
    let name = first.strip_prefix("# ").filter(is_path).unwrap_or("example.toml");
    let path = dir.join(name);
    fs::create_dir_all(path.parent().expect("a file is in a folder")).expect("a folder can be made");
    fs::write(path, block.lines.join("\n") + "\n").expect("an example can be written");
    name.to_owned()
}

/// Runs the experiment of a block, which is named `FOLDER/EXPERIMENT/experiment.toml`.
fn run_experiment(block: &Block, dir: &Path) {
    let file = save(block, dir);
    let parts: Vec<_> = file.split('/').collect();
    let [folder, experiment, "experiment.toml"] = parts[..] else {
        panic!("{}: begins with `# FOLDER/EXPERIMENT/experiment.toml`", block.place);
    };
    tandem(&["reproduce", "--quick", "--experiments", folder, experiment], dir, &block.place);
}

fn run_console(block: &Block, dir: &Path) {
    let mut rest = &block.lines[..];
    while let [line, tail @ ..] = rest {
        let command = line.strip_prefix("$ tandem ").unwrap_or_else(|| {
            panic!(
                "{}: `{line}`: a console block begins with `$ tandem ...` (other commands: sh)",
                block.place
            )
        });
        let args: Vec<_> = command.split_whitespace().collect();
        let shell_only = args.iter().any(|arg| arg.contains(['"', '\'', '|', '>', '$', '\\']));
        assert!(!shell_only, "{}: `{command}`: no quotes, pipes or variables here", block.place);
        let printed = tandem(&args, dir, &block.place);

        let end = tail.iter().position(|line| line.starts_with("$ ")).unwrap_or(tail.len());
        let expected: Vec<_> = tail[..end].iter().map(|line| line.trim_end()).collect();
        let actual: Vec<_> = printed.lines().map(str::trim_end).collect();
        assert!(
            expected.is_empty() || agrees(&expected, &actual),
            "{}: `tandem {command}` printed\n{printed}",
            block.place
        );
        rest = &tail[end..];
    }
}

/// Whether output is as expected, where a line `...` expects any number of lines.
fn agrees(expected: &[&str], actual: &[&str]) -> bool {
    match expected {
        [] => actual.is_empty(),
        ["...", rest @ ..] => (0..=actual.len()).any(|skipped| agrees(rest, &actual[skipped..])),
        [line, rest @ ..] => actual.first() == Some(line) && agrees(rest, &actual[1..]),
    }
}

#[test]
fn every_example_runs() {
    let mut examples = 0;
    for page in pages() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        for block in blocks(&page) {
            match block.kind.as_str() {
                "toml,scenario" => {
                    let file = save(&block, dir.path());
                    tandem(&["sim", &file], dir.path(), &block.place);
                }
                "toml,machine" => {
                    let file = save(&block, dir.path());
                    tandem(&["topology", "--machine", &file], dir.path(), &block.place);
                }
                "toml,settings" => {
                    let file = save(&block, dir.path());
                    tandem(&["run", "--config", &file, "--print-config"], dir.path(), &block.place);
                }
                "toml,experiment" => run_experiment(&block, dir.path()),
                "csv" | "toml,study" => {
                    save(&block, dir.path());
                    continue;
                }
                "console" => run_console(&block, dir.path()),
                // The wheel's tests run what is Python.
                "sh" | "text" | "python" => continue,
                kind => panic!("{}: `{kind}` is not a kind of block that this test knows", block.place),
            }
            examples += 1;
        }
    }
    assert!(examples > 0, "no example was found");
}

#[test]
fn three_dots_stand_for_any_lines() {
    let cases: [(&[&str], &[&str], bool); 7] = [
        (&["a", "b"], &["a", "b"], true),
        (&["a"], &["a", "b"], false),
        (&["a", "..."], &["a", "b", "c"], true),
        (&["...", "c"], &["a", "b", "c"], true),
        (&["a", "...", "c"], &["a", "c"], true),
        (&["a", "...", "d"], &["a", "b", "c"], false),
        (&["..."], &[], true),
    ];
    for (expected, actual, agree) in cases {
        assert_eq!(agrees(expected, actual), agree, "{expected:?} and {actual:?}");
    }
}
