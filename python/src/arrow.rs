//! Tables in Arrow's C data interface, which Polars, pandas, PyArrow and DuckDB read in place.
//!
//! **Approach.** The columns are laid out once as Arrow has them. Every hand-over is a few structures that point into
//! these, share their ownership, and let go of it when their consumer calls `release`.
//!
//! **Limits.** One batch. The texts of a column have at most 2 GiB, as their offsets have 32 bits; types are text,
//! unsigned 64-bit and floating-point numbers. There is no library for it that this project could use: `arrow` is under
//! Apache-2.0 alone.
//!
//! Source: Apache Arrow, "The Arrow C data interface", "The Arrow C stream interface", "The Arrow PyCapsule Interface".
#![allow(unsafe_code)]

use pyo3::prelude::*;
use pyo3::types::PyCapsule;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use tandem_recording::parquet::{Table, Values};

/// `ARROW_FLAG_NULLABLE`.
const NULLABLE: i64 = 2;
/// What a callback returns when it succeeds.
const OK: c_int = 0;

/// A table as Arrow lays it out.
pub struct Batch {
    rows: usize,
    columns: Vec<BatchColumn>,
}

struct BatchColumn {
    name: CString,
    format: &'static CStr,
    is_nullable: bool,
    nulls: usize,
    /// Which values there are, a bit each; `None`: all.
    validity: Option<Vec<u8>>,
    values: BatchValues,
}

enum BatchValues {
    Texts { offsets: Vec<i32>, bytes: Vec<u8> },
    Counts(Vec<u64>),
    Numbers(Vec<f64>),
}

impl Batch {
    /// Lays a table out.
    ///
    /// # Errors
    /// A sentence, if the texts of a column are too long.
    pub fn new(table: &Table) -> Result<Self, String> {
        let columns = table.columns().iter().map(|column| BatchColumn::new(&column.name, &column.values));
        Ok(Self { rows: table.rows(), columns: columns.collect::<Result<_, _>>()? })
    }
}

impl BatchColumn {
    fn new(name: &str, values: &Values) -> Result<Self, String> {
        let is_there: Option<Vec<bool>> = match values {
            Values::Texts(words) => Some(words.iter().map(|text| text.is_some()).collect()),
            Values::Counts(_) => None,
            Values::Numbers(numbers) => Some(numbers.iter().map(Option::is_some).collect()),
        };
        let nulls = is_there.iter().flatten().filter(|&&is_there| !is_there).count();
        let validity = is_there.as_ref().filter(|_| nulls > 0).map(|is_there| bits(is_there));
        let (format, laid_out) = match values {
            Values::Texts(words) => {
                let (mut offsets, mut bytes) = (vec![0], Vec::new());
                for text in words.iter() {
                    bytes.extend_from_slice(text.unwrap_or_default().as_bytes());
                    offsets.push(i32::try_from(bytes.len()).map_err(|_| {
                        format!("the texts of column `{name}` have more than 2 GiB; write the table as Parquet instead")
                    })?);
                }
                (c"u", BatchValues::Texts { offsets, bytes })
            }
            Values::Counts(counts) => (c"L", BatchValues::Counts(counts.clone())),
            Values::Numbers(numbers) => {
                (c"g", BatchValues::Numbers(numbers.iter().map(|number| number.unwrap_or(0.0)).collect()))
            }
        };
        let name = CString::new(name).map_err(|_| format!("the column name {name:?} has a zero"))?;
        Ok(Self { name, format, is_nullable: is_there.is_some(), nulls, validity, values: laid_out })
    }

    /// Where its parts are, in the order of the specification.
    fn buffers(&self) -> Vec<*const c_void> {
        let validity = self.validity.as_ref().map_or(null(), |bits| bits.as_ptr().cast());
        match &self.values {
            BatchValues::Texts { offsets, bytes } => {
                vec![validity, offsets.as_ptr().cast(), bytes.as_ptr().cast()]
            }
            BatchValues::Counts(counts) => vec![validity, counts.as_ptr().cast()],
            BatchValues::Numbers(numbers) => vec![validity, numbers.as_ptr().cast()],
        }
    }
}

/// A bit each, the first one the lowest.
fn bits(values: &[bool]) -> Vec<u8> {
    let byte = |eight: &[bool]| eight.iter().rev().fold(0, |byte, &bit| byte << 1 | u8::from(bit));
    values.chunks(8).map(byte).collect()
}

/// `struct ArrowSchema`.
#[repr(C)]
struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

/// `struct ArrowArray`.
#[repr(C)]
struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

/// `struct ArrowArrayStream`.
#[repr(C)]
struct ArrowArrayStream {
    get_schema: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    private_data: *mut c_void,
}

/// What a structure keeps alive: the batch, and the lists that its pointers lead to.
struct Kept<T> {
    _batch: Arc<Batch>,
    children: Vec<*mut T>,
    buffers: Vec<*const c_void>,
}

/// A structure of the interface, whose owner calls `release` once unless somebody else has.
trait Released: Sized {
    fn release_once(&mut self);
}

macro_rules! released {
    ($($structure:ty),*) => {$(
        // SAFETY: what the pointers lead to is the batch, which nothing changes, and lists that only this owns; the
        // specification lets any thread release it.
        unsafe impl Send for $structure {}

        impl Released for $structure {
            fn release_once(&mut self) {
                if let Some(release) = self.release {
                    // SAFETY: it has not been released, as `release` would be null then.
                    unsafe { release(self) };
                }
            }
        }

        // A capsule that nobody has taken the structure out of releases it, as the specification says.
        impl Drop for $structure {
            fn drop(&mut self) {
                self.release_once();
            }
        }
    )*};
}
released!(ArrowSchema, ArrowArray, ArrowArrayStream);

/// Frees what a structure kept.
///
/// # Safety
/// `private_data` is a `Kept` of [`keep`], and this is called once for it.
unsafe fn free<T: Released>(private_data: *mut c_void) {
    // SAFETY: as above; a child that its consumer has moved elsewhere is marked as released, so that freeing it frees
    // the structure alone.
    unsafe {
        let kept = Box::from_raw(private_data.cast::<Kept<T>>());
        kept.children.into_iter().for_each(|child| drop(Box::from_raw(child)));
    }
}

/// Where the children and the buffers of a structure are, and what keeps them alive.
fn keep<T>(
    batch: &Arc<Batch>,
    children: Vec<T>,
    buffers: Vec<*const c_void>,
) -> (*mut *mut T, *mut *const c_void, *mut c_void) {
    let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
    let mut kept = Box::new(Kept { _batch: batch.clone(), children, buffers });
    (kept.children.as_mut_ptr(), kept.buffers.as_mut_ptr(), Box::into_raw(kept).cast())
}

unsafe extern "C" fn release_schema(schema: *mut ArrowSchema) {
    // SAFETY: the caller gives a structure that `Batch::schema` or `BatchColumn::schema` made, and that is not released.
    unsafe {
        free::<ArrowSchema>((*schema).private_data);
        (*schema).release = None;
    }
}

unsafe extern "C" fn release_array(array: *mut ArrowArray) {
    // SAFETY: as for `release_schema`.
    unsafe {
        free::<ArrowArray>((*array).private_data);
        (*array).release = None;
    }
}

impl ArrowSchema {
    fn new(batch: &Arc<Batch>, format: &CStr, name: &CStr, flags: i64, children: Vec<Self>) -> Self {
        let n_children = children.len() as i64;
        let (children, _, private_data) = keep(batch, children, Vec::new());
        Self {
            format: format.as_ptr(),
            name: name.as_ptr(),
            metadata: null(),
            flags,
            n_children,
            children,
            dictionary: null_mut(),
            release: Some(release_schema),
            private_data,
        }
    }

    /// That of a batch: a structure of its columns.
    fn of(batch: &Arc<Batch>) -> Self {
        let column = |column: &BatchColumn| {
            let flags = if column.is_nullable { NULLABLE } else { 0 };
            Self::new(batch, column.format, &column.name, flags, Vec::new())
        };
        Self::new(batch, c"+s", c"", 0, batch.columns.iter().map(column).collect())
    }
}

impl ArrowArray {
    fn new(batch: &Arc<Batch>, nulls: usize, buffers: Vec<*const c_void>, children: Vec<Self>) -> Self {
        let (n_buffers, n_children) = (buffers.len() as i64, children.len() as i64);
        let (children, buffers, private_data) = keep(batch, children, buffers);
        Self {
            length: batch.rows as i64,
            null_count: nulls as i64,
            offset: 0,
            n_buffers,
            n_children,
            buffers,
            children,
            dictionary: null_mut(),
            release: Some(release_array),
            private_data,
        }
    }

    /// That of a batch.
    fn of(batch: &Arc<Batch>) -> Self {
        let column = |column: &BatchColumn| Self::new(batch, column.nulls, column.buffers(), Vec::new());
        Self::new(batch, 0, vec![null()], batch.columns.iter().map(column).collect())
    }

    /// The end of a stream.
    fn end() -> Self {
        Self {
            length: 0,
            null_count: 0,
            offset: 0,
            n_buffers: 0,
            n_children: 0,
            buffers: null_mut(),
            children: null_mut(),
            dictionary: null_mut(),
            release: None,
            private_data: null_mut(),
        }
    }
}

/// A stream that has yet to give its batch, or has given it.
struct Stream {
    batch: Arc<Batch>,
    is_given: bool,
}

unsafe extern "C" fn stream_schema(stream: *mut ArrowArrayStream, out: *mut ArrowSchema) -> c_int {
    // SAFETY: the caller gives a stream of `ArrowArrayStream::of` that is not released, and a place to write to.
    unsafe {
        let stream = &*(*stream).private_data.cast::<Stream>();
        out.write(ArrowSchema::of(&stream.batch));
    }
    OK
}

unsafe extern "C" fn stream_next(stream: *mut ArrowArrayStream, out: *mut ArrowArray) -> c_int {
    // SAFETY: as for `stream_schema`; a stream is used by one thread at a time.
    unsafe {
        let stream = &mut *(*stream).private_data.cast::<Stream>();
        let is_given = std::mem::replace(&mut stream.is_given, true);
        out.write(if is_given { ArrowArray::end() } else { ArrowArray::of(&stream.batch) });
    }
    OK
}

unsafe extern "C" fn stream_error(_: *mut ArrowArrayStream) -> *const c_char {
    null()
}

unsafe extern "C" fn release_stream(stream: *mut ArrowArrayStream) {
    // SAFETY: as for `release_schema`.
    unsafe {
        drop(Box::from_raw((*stream).private_data.cast::<Stream>()));
        (*stream).release = None;
    }
}

impl ArrowArrayStream {
    fn of(batch: &Arc<Batch>) -> Self {
        let stream = Box::new(Stream { batch: batch.clone(), is_given: false });
        Self {
            get_schema: Some(stream_schema),
            get_next: Some(stream_next),
            get_last_error: Some(stream_error),
            release: Some(release_stream),
            private_data: Box::into_raw(stream).cast(),
        }
    }
}

/// The capsule with the schema of a batch.
pub fn schema<'py>(py: Python<'py>, batch: &Arc<Batch>) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, ArrowSchema::of(batch), c"arrow_schema")
}

/// The capsule with a batch.
pub fn array<'py>(py: Python<'py>, batch: &Arc<Batch>) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, ArrowArray::of(batch), c"arrow_array")
}

/// The capsule with a stream of one batch.
pub fn stream<'py>(py: Python<'py>, batch: &Arc<Batch>) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, ArrowArrayStream::of(batch), c"arrow_array_stream")
}
