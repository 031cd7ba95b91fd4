//! Schedulers that take part in a comparison: cases of its leg, and object files, with what the guest needs to load them.

use super::agreement;
use super::cpio::Archive;
use super::initramfs::{add_program, read};
use crate::guest::object::CONFIGURATION;
use crate::guest::parameters::Parameters;
use crate::leg::{ARENA_PROGRAMS, Case, Leg, OBJECT, OBJECTS_FOLDER};
use anyhow::{Context, Result, bail, ensure};
use scheduler_tests::preparation::{self, Preparation};
use scheduler_tests::{EXAMPLES, WITH_RECIPES, recipe};
use std::path::{Path, PathBuf};
use tandem_file::located::SourceFile;
use tandem_lab::scenario::policy::scheduler::HostScheduler;
use tandem_sim::policy::sched_ext::{Call, CpuSetUse, Element, Preparation as Prepared, SchedExtSettings};
use tandem_sim::scenario::PolicySettings;

/// The program that loads them, which cargo builds beside this one.
const LOADER: &str = "load-scheduler";
const ENDING: &str = ".bpf.o";

/// A scheduler's object file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// The file's name without its ending.
    pub name: String,
    pub file: PathBuf,
}

impl Object {
    /// That of a file NAME.bpf.o.
    fn new(file: &Path) -> Result<Self> {
        let name = file.file_name().and_then(|name| name.to_str()?.strip_suffix(ENDING));
        let name = name.with_context(|| format!("{} is not called NAME{ENDING}", file.display()))?;
        // It becomes a word of the kernel's command line.
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        ensure!(
            !name.is_empty() && name.chars().all(is_plain),
            "{}: the name has other characters than letters, digits and ._-; rename the file",
            file.display()
        );
        ensure!(file.is_file(), "there is no file {}", file.display());
        Ok(Self { name: name.to_owned(), file: file.to_owned() })
    }

    /// Those of these files.
    pub fn all(files: &[PathBuf]) -> Result<Vec<Self>> {
        let objects = files.iter().map(|file| Self::new(file)).collect::<Result<Vec<_>>>()?;
        for (number, object) in objects.iter().enumerate() {
            let before = objects[..number].iter().any(|other| other.name == object.name);
            ensure!(!before, "two object files have the name {}; rename one", object.name);
        }
        Ok(objects)
    }

    /// Those that the tests of compiled schedulers compile: examples, and published ones.
    pub fn compiled() -> Result<Vec<Self>> {
        Self::all(
            &[&EXAMPLES[..], &WITH_RECIPES]
                .concat()
                .into_iter()
                .map(scheduler_tests::object)
                .collect::<Vec<_>>(),
        )
    }
}

impl Object {
    /// As the scheduler of a simulated host, with what its user space tells it.
    pub fn scheduler(&self) -> Result<HostScheduler> {
        let is_known = WITH_RECIPES.contains(&self.name.as_str());
        let recipe = if is_known { recipe(&self.name)? } else { String::new() };
        let text = format!("object = {:?}\n{recipe}", self.file);
        Ok(SourceFile::new(&self.file, text).parse()?)
    }

    /// What its user space does on the machine of the arena, besides loading it.
    fn preparation(&self) -> Result<Preparation> {
        // The machine is the same for all programs, and the release says nothing of a loaded scheduler.
        let scenario = agreement::scenario(ARENA_PROGRAMS[0], self.scheduler()?, "")?;
        let PolicySettings::SchedExt(settings) = &scenario.policy else {
            bail!("{} is no sched_ext scheduler", self.name)
        };
        prepared(settings).with_context(|| format!("{} cannot be prepared for a real kernel", self.name))
    }
}

/// The same as the simulator does, in terms of the object.
fn prepared(settings: &SchedExtSettings) -> Result<Preparation> {
    let image = settings.code.image();
    let patch = |(address, bytes): &(u64, Vec<u8>)| {
        let mut variables = image.variables.iter();
        let variable = variables.find(|(_, it)| (it.address..it.address + it.size as u64).contains(address));
        let (name, variable) = variable.context("a setting is of no variable")?;
        let offset = (address - variable.address) as usize;
        Ok(preparation::Patch { variable: name.clone(), offset, bytes: bytes.clone() })
    };
    let Prepared { operations, sizes, elements, inner_maps, calls, calls_after_start } =
        &settings.preparation;
    ensure!(inner_maps.is_empty(), "only the simulator makes maps in maps");
    let map = |number: usize| image.maps[number].name.clone();
    let element = |of: &Element| {
        let Element { map: number, cpu, key, value } = of.clone();
        preparation::Element { map: map(number), cpu, key, value }
    };
    let call = |of: &Call| {
        let Call { program, argument, set } = of.clone();
        let set = set.map(|set| match set {
            CpuSetUse::Fill { at, words } => preparation::CpuSetUse::Fill(at, words),
            CpuSetUse::Pass { at } => preparation::CpuSetUse::Pass(at),
        });
        preparation::Call { program, argument, set }
    };
    Ok(Preparation {
        variables: settings.data.iter().map(patch).collect::<Result<_>>()?,
        operations: operations.clone(),
        sizes: sizes
            .iter()
            .map(|&(number, size)| Ok((map(number), size.try_into()?)))
            .collect::<Result<_>>()?,
        elements: elements.iter().map(element).collect(),
        calls: calls.iter().map(call).collect(),
        calls_after_start: calls_after_start.iter().map(call).collect(),
    })
}

/// A scheduler that takes part.
#[derive(Clone)]
pub struct Contender {
    pub name: String,
    pub case: &'static Case,
    pub object: Option<Object>,
}

impl Contender {
    /// Those that are cases of the leg, in its order, and then those from object files.
    pub fn all(leg: &'static Leg, objects: &[Object]) -> Result<Vec<Self>> {
        let (of_objects, own): (Vec<&Case>, Vec<&Case>) =
            leg.cases.iter().partition(|case| case.name == OBJECT);
        let case = of_objects.first().with_context(|| format!("the leg {} takes no object", leg.name))?;
        for Object { name, file } in objects {
            let is_taken = own.iter().any(|case| case.name == name);
            ensure!(!is_taken, "{}: there is a scheduler {name}; rename the file", file.display());
        }
        let own = own.into_iter().map(|case| Self { name: case.name.to_owned(), case, object: None });
        let objects = objects.iter().map(|it| Self { name: it.name.clone(), case, object: Some(it.clone()) });
        Ok(own.chain(objects).collect())
    }

    /// What tells a guest of the leg to run under it.
    pub fn parameters(&self, leg: &Leg) -> Parameters {
        Parameters {
            leg: leg.name.into(),
            cases: vec![self.case.name.into()],
            churn_s: 0,
            object: self.object.as_ref().map(|object| object.name.clone()),
        }
    }
}

/// Adds them, the program that loads them, and the configuration of the kernel in this folder.
pub fn add(archive: &mut Archive, objects: &[Object], programs: &Path, kernel: &Path) -> Result<()> {
    archive.file(Path::new(CONFIGURATION), &read(&kernel.join("config"))?);
    let loader = programs.join(LOADER);
    ensure!(loader.is_file(), "there is no {}; `make bench-vm` builds it", loader.display());
    add_program(archive, LOADER, &loader)?;
    for object in objects {
        let place = Path::new(OBJECTS_FOLDER).join(format!("{}{ENDING}", object.name));
        archive.file(&place, &read(&object.file)?);
        match object.preparation() {
            Ok(preparation) => {
                archive.file(&place.with_extension("json"), &serde_json::to_vec(&preparation)?)
            }
            Err(error) => eprintln!("{error:#}; it is loaded as it is"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn names_are_words_and_each_is_there_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let file = folder.path().join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, "").unwrap();
            file
        };
        let good = [file("a-1.bpf.o"), file("b/b_2.bpf.o")];
        assert_eq!(Object::all(&good).unwrap()[1].name, "b_2");
        for bad in [".bpf.o", "a.o", "a b.bpf.o", "a,b.bpf.o", "ä.bpf.o"] {
            assert!(Object::all(&[file(bad)]).is_err(), "{bad}");
        }
        assert!(Object::all(&[folder.path().join("missing.bpf.o")]).is_err());
        assert!(Object::all(&[file("a.bpf.o"), file("c/a.bpf.o")]).is_err());
    }
}
