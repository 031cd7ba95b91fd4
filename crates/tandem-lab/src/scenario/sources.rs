//! From the sources of interrupts of a scenario file to the engine's.

use super::amount::{AmountForm, count_in};
use super::build::Builder;
use super::compile::Compiler;
use super::file::{ArrivalsForm, SourceTable};
use tandem_file::file_error::FileError;
use tandem_file::located::Located;
use tandem_sim::program::Amount;
use tandem_sim::scenario::{Arrivals, Source};

impl Builder<'_> {
    /// A source of interrupts.
    pub(super) fn interrupts(
        &self,
        table: &SourceTable,
        compiler: &mut Compiler,
    ) -> Result<Source, FileError> {
        let source = self.source();
        let amount =
            |form: &Located<AmountForm>| form.amount().map_err(|message| source.error(form.span(), message));
        let arrivals = match &table.arrivals {
            ArrivalsForm::Every(interval) => match amount(interval)? {
                nothing if nothing.is_nothing() => {
                    let message =
                        "the time between two interrupts is nothing; it must be longer than \"0ns\"";
                    return Err(source.error(interval.span(), message));
                }
                interval => Arrivals::Open { interval },
            },
            ArrivalsForm::PerSecond(rate) => {
                let rate = count_in(rate, "`per_second`", 1..=1_000_000_000, source)?;
                Arrivals::Open { interval: Amount::Exponential(1_000_000_000 / u64::from(rate)) }
            }
            ArrivalsForm::Clients { number, think } => {
                if !compiler.responds() {
                    let message =
                        "no program of this VM has a \"respond\", so its clients would wait for ever";
                    return Err(source.error(number.span(), message));
                }
                if compiler.empties(&table.channel) {
                    let message = "clients would wait for ever, because `respond` answers only the first request of a \
                                   `wait_all`; take their requests with `wait`";
                    return Err(source.error(table.channel.span(), message));
                }
                Arrivals::Closed {
                    clients: count_in(number, "`number`", 0..=1_000_000, source)?,
                    think: amount(think)?,
                }
            }
        };
        Ok(Source { channel: compiler.source_channel(&table.channel)?, arrivals })
    }
}
