//! The pages that the memory of VMs and processes is in.

use schemars::JsonSchema;
use serde::Deserialize;
use tandem_file::file_error::FileError;
use tandem_file::located::{Located, SourceFile};
use tandem_sim::scenario::Pages;

/// Huge pages of 2 MiB: "transparent" ones for all of the memory, none ("none"), reserved ones ("hugetlb"), or
/// { transparent_pct = 80 }, transparent ones for so many percent of it.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "expected \"transparent\", \"none\", \"hugetlb\", or a table such as { transparent_pct = 80 }"
)]
pub enum HugePagesForm {
    /// All of the memory alike.
    Named(HugePagesName),
    /// Some of it.
    Partly(TransparentPart),
}

/// Pages that all of the memory is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HugePagesName {
    /// Pages of 4 KiB.
    None,
    /// Transparent huge pages.
    Transparent,
    /// Reserved huge pages, which stay where they are.
    Hugetlb,
}

/// Memory of which a part is in transparent huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TransparentPart {
    /// How much of it, in percent, 0 to 100; the rest is in pages of 4 KiB.
    pub transparent_pct: u8,
}

/// The engine's form of a key, or what holds without one.
pub(super) fn pages(
    form: Option<&Located<HugePagesForm>>,
    if_absent: Pages,
    source: &SourceFile,
) -> Result<Pages, FileError> {
    let Some(form) = form else { return Ok(if_absent) };
    Ok(match **form {
        HugePagesForm::Named(HugePagesName::None) => Pages::Small,
        HugePagesForm::Named(HugePagesName::Transparent) => Pages::Transparent(100),
        HugePagesForm::Named(HugePagesName::Hugetlb) => Pages::Hugetlb,
        HugePagesForm::Partly(TransparentPart { transparent_pct: pct @ 0..=100 }) => Pages::Transparent(pct),
        HugePagesForm::Partly(TransparentPart { transparent_pct }) => {
            let message = format!("`transparent_pct` is {transparent_pct}; allowed are 0 to 100");
            return Err(source.error(form.span(), message));
        }
    })
}
