//! JSON objects that are written and read field by field, so that an error can name the field that
//! is wrong.

use super::error::TransferError;
use crate::error::Invalid;
use crate::json::{quote, shorten};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Writes a JSON object. Contains its text so far, without the closing brace.
pub(super) struct ObjectWriter(Vec<u8>);

impl ObjectWriter {
    pub(super) fn new() -> Self {
        ObjectWriter(vec![b'{'])
    }

    /// An object whose first field is `type`.
    pub(super) fn with_type(name: &str) -> Self {
        ObjectWriter::new().with("type", name)
    }

    fn name(mut self, name: &str) -> Self {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        self.0.extend([b"\"", name.as_bytes(), b"\":"].concat());
        self
    }

    pub(super) fn with(self, name: &str, value: impl Serialize) -> Self {
        let mut object = self.name(name);
        serde_json::to_writer(&mut object.0, &value)
            .expect("numbers, text and raw JSON can be serialized into a Vec");
        object
    }

    pub(super) fn time(self, name: &str, time: Timestamp) -> Self {
        self.with(name, time.as_millis())
    }

    pub(super) fn object(self, name: &str, value: ObjectWriter) -> Self {
        let mut object = self.name(name);
        object.0.extend(value.into_text());
        object
    }

    pub(super) fn objects(self, name: &str, values: impl Iterator<Item = ObjectWriter>) -> Self {
        let values: Vec<Vec<u8>> = values.map(ObjectWriter::into_text).collect();
        let mut object = self.name(name);
        object.0.push(b'[');
        object.0.extend(values.join(&b','));
        object.0.push(b']');
        object
    }

    fn into_text(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }

    pub(super) fn into_line(self) -> Vec<u8> {
        let mut line = self.into_text();
        debug_assert!(!line.contains(&b'\n'), "a line contains no line break");
        line.push(b'\n');
        line
    }
}

/// Reads a JSON object. Contains the fields that were not taken yet.
pub(super) struct ObjectReader<'a> {
    line: u64,
    /// Bytes of the input up to the end of this line.
    bytes: u64,
    /// The path of this object within the line, followed by a dot; empty for the line itself.
    path: String,
    fields: BTreeMap<String, &'a RawValue>,
}

impl<'a> ObjectReader<'a> {
    pub(super) fn of_line(line: u64, bytes: u64, text: &'a str) -> Result<Self, TransferError> {
        let fields = serde_json::from_str(text);
        let fields =
            fields.map_err(|error| TransferError::NotJson { line, reason: error.to_string() })?;
        Ok(ObjectReader { line, bytes, path: String::new(), fields })
    }

    pub(super) fn line(&self) -> u64 {
        self.line
    }

    pub(super) fn bytes_so_far(&self) -> u64 {
        self.bytes
    }

    fn path_of(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    /// Returns an error about the value of a field.
    pub(super) fn error(&self, name: &str, value: String, reason: String) -> TransferError {
        TransferError::Field { line: self.line, field: self.path_of(name), value, reason }
    }

    /// Returns an error about a text that should be one of a few others.
    pub(super) fn unexpected(&self, name: &str, value: &str, expected: &str) -> TransferError {
        self.error(name, quote(value), format!("expected {expected}"))
    }

    pub(super) fn expect_type(&mut self, expected: &str) -> Result<(), TransferError> {
        match self.take::<String>("type")? {
            found if found == expected => Ok(()),
            found => Err(self.unexpected("type", &found, &format!("{expected:?}"))),
        }
    }

    fn deserialize<T: Deserialize<'a>>(
        &self,
        name: &str,
        raw: &'a RawValue,
    ) -> Result<T, TransferError> {
        serde_json::from_str(raw.get()).map_err(|error| {
            // The position is relative to the value. Without it, only our line number is shown.
            let reason = error.to_string();
            let reason = reason.rsplit_once(" at line ").map_or(&*reason, |(reason, _)| reason);
            self.error(name, shorten(raw.get()), reason.to_owned())
        })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }

    /// Takes an optional field. Returns `None` if it is missing or `null`.
    pub(super) fn find<T: Deserialize<'a>>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>, TransferError> {
        self.fields.remove(name).map_or(Ok(None), |raw| self.deserialize(name, raw))
    }

    /// Takes a required field.
    pub(super) fn take<T: Deserialize<'a>>(&mut self, name: &str) -> Result<T, TransferError> {
        match self.fields.remove(name) {
            Some(raw) => self.deserialize(name, raw),
            None => Err(TransferError::Missing { line: self.line, field: self.path_of(name) }),
        }
    }

    pub(super) fn time(&mut self, name: &str) -> Result<Timestamp, TransferError> {
        self.take(name).map(Timestamp::from_millis)
    }

    /// Takes a required text and converts it.
    pub(super) fn parse<T>(
        &mut self,
        name: &str,
        convert: impl FnOnce(String) -> Result<T, Invalid>,
    ) -> Result<T, TransferError> {
        let text: String = self.take(name)?;
        let shown = quote(&text);
        convert(text).map_err(|invalid| self.error(name, shown, invalid.to_string()))
    }

    fn nested(&self, path: String, raw: &'a RawValue) -> Result<ObjectReader<'a>, TransferError> {
        let fields = self.deserialize(&path, raw)?;
        let path = format!("{}{path}.", self.path);
        Ok(ObjectReader { line: self.line, bytes: self.bytes, path, fields })
    }

    pub(super) fn object(&mut self, name: &str) -> Result<ObjectReader<'a>, TransferError> {
        let raw = self.take(name)?;
        self.nested(name.to_owned(), raw)
    }

    pub(super) fn find_object(
        &mut self,
        name: &str,
    ) -> Result<Option<ObjectReader<'a>>, TransferError> {
        let raw: Option<&RawValue> = self.find(name)?;
        raw.map(|raw| self.nested(name.to_owned(), raw)).transpose()
    }

    pub(super) fn objects(&mut self, name: &str) -> Result<Vec<ObjectReader<'a>>, TransferError> {
        let all: Vec<&RawValue> = self.take(name)?;
        let numbered = all.into_iter().enumerate();
        numbered.map(|(n, raw)| self.nested(format!("{name}[{n}]"), raw)).collect()
    }

    /// Fails if a field was not taken, because its value would be lost.
    pub(super) fn finish(self) -> Result<(), TransferError> {
        let Some((name, raw)) = self.fields.first_key_value() else { return Ok(()) };
        let (field, value) = (self.path_of(name), shorten(raw.get()));
        Err(TransferError::Unknown { line: self.line, field, value })
    }
}
