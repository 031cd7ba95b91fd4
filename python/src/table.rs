//! A table of results for Python.

use crate::arrow::{self, Batch};
use crate::error::input;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict, PyList, PyTuple};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::BufWriter;
use std::path::PathBuf;
use std::sync::Arc;
use tandem_file::new_file::NewFile;
use tandem_recording::parquet::{Column, Table, Values, Words};

/// A table of results: named columns of texts, whole numbers and numbers, of which texts and numbers may be missing.
///
/// Polars, pandas, PyArrow and DuckDB take it without copies, by Arrow's PyCapsule interface: `polars.DataFrame(table)`,
/// `pandas.DataFrame.from_arrow(table)`, `pyarrow.table(table)`, or its name in a query of DuckDB.
#[pyclass(name = "Table", module = "tandem._tandem", frozen)]
pub struct PyTable {
    table: Table,
    batch: Arc<Batch>,
}

impl PyTable {
    /// Lays a table out for Arrow.
    pub fn new(py: Python<'_>, table: Table) -> PyResult<Self> {
        let batch = py.detach(|| Batch::new(&table)).map_err(|message| input(py, message))?;
        Ok(Self { table, batch: Arc::new(batch) })
    }
}

#[pymethods]
impl PyTable {
    /// The table of these columns: tuples of the name, the kind ("text", "count" or "number") and the list of values.
    #[staticmethod]
    fn _of(py: Python<'_>, columns: Vec<(String, String, Bound<'_, PyAny>)>) -> PyResult<Self> {
        let column = |(name, kind, values): (String, String, Bound<'_, PyAny>)| {
            let values = match kind.as_str() {
                "text" => {
                    let texts: Vec<Option<String>> = values.extract()?;
                    Values::Texts(texts.iter().map(Option::as_deref).collect::<Words>())
                }
                "count" => Values::Counts(values.extract()?),
                "number" => Values::Numbers(values.extract()?),
                other => return Err(input(py, format!("there is no kind of column `{other}`"))),
            };
            Ok(Column { name, values })
        };
        let columns: Vec<Column> = columns.into_iter().map(column).collect::<PyResult<_>>()?;
        if columns.windows(2).any(|pair| pair[0].values.len() != pair[1].values.len()) {
            return Err(input(py, "the columns of a table have equally many rows"));
        }
        Self::new(py, Table::new(columns))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, (Bound<'py, PyList>,))> {
        let py = slf.py();
        let columns = slf.get().table.columns().iter().map(|column| {
            let kind = match column.values {
                Values::Texts(_) => "text",
                Values::Counts(_) => "count",
                Values::Numbers(_) => "number",
            };
            (&*column.name, kind, values(py, &column.values)?).into_pyobject(py)
        });
        let columns = columns.collect::<PyResult<Vec<Bound<'py, PyTuple>>>>()?;
        Ok((py.get_type::<Self>().getattr("_of")?, (PyList::new(py, columns)?,)))
    }

    /// The names of the columns.
    #[getter]
    fn column_names(&self) -> Vec<&str> {
        self.table.columns().iter().map(|column| &*column.name).collect()
    }

    fn __len__(&self) -> usize {
        self.table.rows()
    }

    fn __repr__(&self) -> String {
        format!("<tandem.Table: {} rows of {}>", self.table.rows(), self.column_names().join(", "))
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<Self>().is_ok_and(|other| other.get().table == self.table)
    }

    fn __hash__(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        (self.table.rows(), self.column_names()).hash(&mut hash);
        hash.finish()
    }

    /// The columns by their names, each as a list; None where there is no value.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let columns = PyDict::new(py);
        for column in self.table.columns() {
            columns.set_item(&*column.name, values(py, &column.values)?)?;
        }
        Ok(columns)
    }

    /// Write it as a Parquet file, compressed by Zstandard. The file appears under its name when it is complete.
    fn to_parquet(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let write = || {
            let mut file = BufWriter::new(NewFile::create(&path)?);
            self.table.write_parquet(&mut file)?;
            file.into_inner()?.complete()
        };
        Ok(py.detach(write)?)
    }

    /// The schema, as a capsule of Arrow's C data interface.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::schema(py, &self.batch)
    }

    /// The schema and the columns, as capsules of Arrow's C data interface. No other schema can be requested.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_array__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
        // The interface lets a producer ignore the request.
        drop(requested_schema);
        Ok((arrow::schema(py, &self.batch)?, arrow::array(py, &self.batch)?))
    }

    /// The columns, as a capsule of Arrow's C stream interface. No other schema can be requested.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        drop(requested_schema);
        arrow::stream(py, &self.batch)
    }
}

fn values<'py>(py: Python<'py>, values: &Values) -> PyResult<Bound<'py, PyList>> {
    match values {
        Values::Texts(words) => PyList::new(py, words.iter()),
        Values::Counts(counts) => PyList::new(py, counts),
        Values::Numbers(numbers) => PyList::new(py, numbers),
    }
}
