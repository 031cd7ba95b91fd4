//! Manual pages: one for each verb, from its help, and one for the file of settings.

use super::settings::{Setting, tables};
use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};
use std::io;

/// The name of the manual, in the head of each page.
const MANUAL: &str = "Tandem";
/// How the help of a verb begins its examples.
const EXAMPLES: &str = "Examples:\n";

/// A manual page.
pub struct Page {
    /// Its name with its section, such as `tandem-run.1`.
    pub file: String,
    /// The page in roff.
    pub text: Vec<u8>,
}

/// The pages of a built command's verbs, and of the verbs of these.
///
/// # Errors
/// None arises from writing into memory.
pub fn pages_of_verbs(command: &Command, date: &str) -> io::Result<Vec<Page>> {
    let mut pages = Vec::new();
    for verb in command.get_subcommands() {
        pages.push(page_of_verb(verb, command, date)?);
        pages.extend(pages_of_verbs(verb, date)?);
    }
    Ok(pages)
}

fn page_of_verb(verb: &Command, parent: &Command, date: &str) -> io::Result<Page> {
    let man = Man::new(verb.clone()).date(date).source(source()).manual(MANUAL);
    let mut text = Vec::new();
    man.render_title(&mut text)?;
    man.render_name_section(&mut text)?;
    man.render_synopsis_section(&mut text)?;
    man.render_description_section(&mut text)?;

    let help = verb.get_after_help().map(ToString::to_string).unwrap_or_default();
    let (examples, paragraphs): (Vec<_>, Vec<_>) =
        help.split("\n\n").filter(|part| !part.is_empty()).partition(|part| part.starts_with(EXAMPLES));
    let mut roff = Roff::new();
    for paragraph in paragraphs {
        roff.control("PP", []).text([roman(paragraph)]);
    }
    roff.to_writer(&mut text)?;

    man.render_options_section(&mut text)?;
    if verb.get_subcommands().next().is_some() {
        man.render_subcommands_section(&mut text)?;
    }
    let mut roff = Roff::new();
    if !examples.is_empty() {
        roff.control("SH", ["EXAMPLES"]);
    }
    for (position, line) in examples.iter().flat_map(|part| part.lines().skip(1)).enumerate() {
        if position > 0 {
            roff.control("PP", []);
        }
        roff.control("nf", []).text([roman(line.trim_start())]).control("fi", []);
    }
    roff.control("SH", ["EXIT STATUS"]);
    roff.text([roman("As for all verbs: "), bold("tandem"), roman("(1).")]);
    let parent = parent.get_display_name().unwrap_or_else(|| parent.get_name());
    let mut pages = vec![(parent, "1")];
    if parent != "tandem" {
        pages.push(("tandem", "1"));
    }
    if verb.get_arguments().any(|argument| argument.get_id() == "config") {
        pages.push(("tandem.toml", "5"));
    }
    see_also(&mut roff, &pages);
    roff.to_writer(&mut text)?;
    Ok(Page { file: man.get_filename(), text })
}

/// The page of the file of settings.
pub fn page_of_settings(date: &str) -> Page {
    let mut roff = Roff::new();
    roff.control("TH", ["tandem.toml", "5", date, &source(), MANUAL]);
    roff.control("SH", ["NAME"]).text([roman("tandem.toml - settings of the scheduler of tandem")]);
    roff.control("SH", ["SYNOPSIS"]).text([italic("/etc/tandem/tandem.toml")]);
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([
        bold("tandem run --config"),
        roman(" reads this file, as does the service "),
        italic("tandem.service"),
        roman(". It is TOML, with the settings below, all of which may be left out. Without "),
        bold("--config"),
        roman(", all have their defaults."),
    ]);
    roff.control("PP", []);
    roff.text([roman(
        "Times are strings of a number and a unit, which is ns, us, ms, s or min, as in \"1.5 ms\". An unknown key, or a \
         value that is not allowed, is an error that names its line, and nothing is loaded.",
    )]);
    for table in tables() {
        match table.heading().as_str() {
            "" => roff.control("SH", ["GENERAL SETTINGS"]),
            heading => {
                roff.control("SH", [format!("TABLE {heading}").as_str()]).text([sentence(&table.description)])
            }
        };
        if table.is_repeated {
            roff.text([roman("This table may be repeated; the values here are examples.")]);
        }
        for setting in &table.settings {
            describe(&mut roff, setting);
        }
    }
    roff.control("SH", ["EXAMPLES"]);
    roff.text([roman("Shorter slices, and homes that have no effect:")]);
    roff.control("PP", []).control("nf", []).control("RS", ["4"]);
    for line in ["[fairness]", "slice = \"5 ms\"", "", "[numa_homes]", "enabled = false"] {
        roff.text([roman(line)]);
    }
    roff.control("RE", []).control("fi", []).control("PP", []);
    roff.text([bold("tandem run --config FILE --print-config"), roman(" prints what a file comes to.")]);
    see_also(&mut roff, &[("tandem-run", "1"), ("tandem-schema", "1"), ("tandem", "1")]);
    Page { file: "tandem.toml.5".into(), text: roff.to_roff().into_bytes() }
}

fn describe(roff: &mut Roff, setting: &Setting) {
    roff.control("TP", []);
    roff.text([bold(setting.key.as_str()), roman(format!(" = {}", setting.default))]);
    roff.text([sentence(&setting.description)]);
    for (word, meaning) in &setting.words {
        roff.control("RS", []).control("TP", []);
        roff.text([bold(format!("\"{word}\""))]);
        roff.text([sentence(meaning)]).control("RE", []);
    }
}

/// A line of the schema, whose descriptions have no full stop at their end.
fn sentence(text: &str) -> Inline {
    roman(format!("{}.", text.trim_end_matches('.').replace('\n', " ")))
}

fn see_also(roff: &mut Roff, pages: &[(&str, &str)]) {
    roff.control("SH", ["SEE ALSO"]);
    let mut line = Vec::new();
    for (position, (name, section)) in pages.iter().enumerate() {
        if position > 0 {
            line.push(roman(", "));
        }
        line.extend([bold(*name), roman(format!("({section})"))]);
    }
    roff.text(line);
}

fn source() -> String {
    format!("tandem {}", env!("CARGO_PKG_VERSION"))
}
