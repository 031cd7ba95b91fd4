//! Names of the kernel's functions.

use std::collections::BTreeMap;

/// Names of functions by their address.
#[derive(Clone, Debug, Default)]
pub struct Symbols(BTreeMap<u64, String>);

impl Symbols {
    /// Reads what `/proc/kallsyms` gives. Lines of another form are left out, as are addresses that the
    /// kernel hides from ordinary users, which it shows as 0.
    pub fn from_kallsyms(text: &str) -> Self {
        let functions = text.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok().filter(|&address| address != 0)?;
            let kind = words.next()?;
            let name = words.next()?;
            kind.eq_ignore_ascii_case("t").then(|| (address, name.to_owned()))
        });
        Self(functions.collect())
    }

    /// The name of the function at an address, or the address.
    pub fn name(&self, address: u64) -> String {
        match self.0.get(&address) {
            Some(name) => name.clone(),
            None => format!("{address:#x}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_names() {
        let symbols = Symbols::from_kallsyms(
            "ffffffff81000000 T _text\nffffffff81000010 t hrtimer_wakeup\nffffffff81000010 D data\n\
             0000000000000000 T hidden\nffffffffc0000000 t timer_fn\t[module]\nnonsense\n",
        );
        assert_eq!(symbols.name(0xffff_ffff_8100_0010), "hrtimer_wakeup");
        assert_eq!(symbols.name(0xffff_ffff_c000_0000), "timer_fn");
        assert_eq!(symbols.name(0), "0x0");
    }
}
