//! JSON objects, as lines are made of: written field by field, and read field by field, so that
//! an error can name the one that is wrong.

use super::error::TransferError;
use crate::error::Invalid;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// How much of a value an error shows.
const SHOWN: usize = 100;

/// An object in the making: its text, without the last brace.
pub(super) struct Object(Vec<u8>);

impl Object {
    pub(super) fn new() -> Self {
        Object(vec![b'{'])
    }

    pub(super) fn of_type(name: &str) -> Self {
        Object::new().with("type", name)
    }

    fn named(mut self, name: &str) -> Self {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        self.0.extend([b"\"", name.as_bytes(), b"\":"].concat());
        self
    }

    pub(super) fn with(self, name: &str, value: impl Serialize) -> Self {
        let mut object = self.named(name);
        serde_json::to_writer(&mut object.0, &value)
            .expect("numbers, texts and what was JSON before can be written");
        object
    }

    pub(super) fn at(self, name: &str, at: Timestamp) -> Self {
        self.with(name, at.as_millis())
    }

    pub(super) fn object(self, name: &str, value: Object) -> Self {
        let mut object = self.named(name);
        object.0.extend(value.into_text());
        object
    }

    pub(super) fn objects(self, name: &str, values: impl Iterator<Item = Object>) -> Self {
        let values: Vec<Vec<u8>> = values.map(Object::into_text).collect();
        let mut object = self.named(name);
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
        debug_assert!(!line.contains(&b'\n'), "a line is one line");
        line.push(b'\n');
        line
    }
}

/// An object that is read: the fields that nobody has taken yet.
pub(super) struct Fields<'a> {
    line: u64,
    /// Up to the end of this line.
    bytes: u64,
    /// Of which field of the line this is, with a dot behind it.
    path: String,
    fields: BTreeMap<String, &'a RawValue>,
}

impl<'a> Fields<'a> {
    pub(super) fn of_line(line: u64, bytes: u64, text: &'a str) -> Result<Self, TransferError> {
        let fields = serde_json::from_str(text);
        let fields =
            fields.map_err(|error| TransferError::NotJson { line, reason: error.to_string() })?;
        Ok(Fields { line, bytes, path: String::new(), fields })
    }

    pub(super) fn line(&self) -> u64 {
        self.line
    }

    pub(super) fn bytes_so_far(&self) -> u64 {
        self.bytes
    }

    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    /// An error about a field.
    pub(super) fn error(&self, name: &str, value: String, reason: String) -> TransferError {
        TransferError::Field { line: self.line, field: self.name(name), value, reason }
    }

    /// An error about a text that should be another.
    pub(super) fn wrong(&self, name: &str, value: &str, expected: &str) -> TransferError {
        self.error(name, quoted(value), format!("expected {expected}"))
    }

    pub(super) fn expect_type(&mut self, expected: &str) -> Result<(), TransferError> {
        match self.take::<String>("type")? {
            found if found == expected => Ok(()),
            found => Err(self.wrong("type", &found, &format!("{expected:?}"))),
        }
    }

    fn parsed<T: Deserialize<'a>>(
        &self,
        name: &str,
        raw: &'a RawValue,
    ) -> Result<T, TransferError> {
        serde_json::from_str(raw.get()).map_err(|error| {
            // Where in the value it is: our lines are others.
            let reason = error.to_string();
            let reason = reason.rsplit_once(" at line ").map_or(&*reason, |(reason, _)| reason);
            self.error(name, cut(raw.get()), reason.to_owned())
        })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.fields.contains_key(name)
    }

    /// A field that need not be there, and may be `null`.
    pub(super) fn find<T: Deserialize<'a>>(
        &mut self,
        name: &str,
    ) -> Result<Option<T>, TransferError> {
        self.fields.remove(name).map_or(Ok(None), |raw| self.parsed(name, raw))
    }

    pub(super) fn take<T: Deserialize<'a>>(&mut self, name: &str) -> Result<T, TransferError> {
        match self.fields.remove(name) {
            Some(raw) => self.parsed(name, raw),
            None => Err(TransferError::Missing { line: self.line, field: self.name(name) }),
        }
    }

    pub(super) fn at(&mut self, name: &str) -> Result<Timestamp, TransferError> {
        self.take(name).map(Timestamp::from_millis)
    }

    /// A text that is made into something, if it can be.
    pub(super) fn made<T>(
        &mut self,
        name: &str,
        make: impl FnOnce(String) -> Result<T, Invalid>,
    ) -> Result<T, TransferError> {
        let text: String = self.take(name)?;
        let shown = quoted(&text);
        make(text).map_err(|invalid| self.error(name, shown, invalid.to_string()))
    }

    fn within(&self, path: String, raw: &'a RawValue) -> Result<Fields<'a>, TransferError> {
        let fields = self.parsed(&path, raw)?;
        let path = format!("{}{path}.", self.path);
        Ok(Fields { line: self.line, bytes: self.bytes, path, fields })
    }

    pub(super) fn object(&mut self, name: &str) -> Result<Fields<'a>, TransferError> {
        let raw = self.take(name)?;
        self.within(name.to_owned(), raw)
    }

    pub(super) fn find_object(&mut self, name: &str) -> Result<Option<Fields<'a>>, TransferError> {
        let raw: Option<&RawValue> = self.find(name)?;
        raw.map(|raw| self.within(name.to_owned(), raw)).transpose()
    }

    pub(super) fn objects(&mut self, name: &str) -> Result<Vec<Fields<'a>>, TransferError> {
        let all: Vec<&RawValue> = self.take(name)?;
        let numbered = all.into_iter().enumerate();
        numbered.map(|(n, raw)| self.within(format!("{name}[{n}]"), raw)).collect()
    }

    /// All is taken: what is left would be lost.
    pub(super) fn finish(self) -> Result<(), TransferError> {
        let Some((name, raw)) = self.fields.first_key_value() else { return Ok(()) };
        let (field, value) = (self.name(name), cut(raw.get()));
        Err(TransferError::Unknown { line: self.line, field, value })
    }
}

fn cut(value: &str) -> String {
    match value.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.to_owned(),
    }
}

/// A text, as JSON shows it.
pub(super) fn quoted(text: &str) -> String {
    format!("{:?}", cut(text))
}
