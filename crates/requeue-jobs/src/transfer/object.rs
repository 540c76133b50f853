//! JSON objects that are written and read field by field, so that an error can name the field that
//! is wrong.

use super::error::TransferError;
use crate::error::Invalid;
use crate::json::{quote, shorten};
use crate::time::Timestamp;
use serde::de::{Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fmt;

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

/// Maximum fields of an object, and maximum entries of a list. No object or list of an export has that
/// many. They limit the memory for a line to a small multiple of its length.
const MAX_PARTS: usize = 100;

/// The fields of an object.
struct Fields<'a>(BTreeMap<String, &'a RawValue>);

/// The entries of a list.
struct Entries<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input
            .deserialize_map(PartsVisitor("a map"))
            .map(|fields| Fields(fields.into_iter().collect()))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let entries = input.deserialize_seq(PartsVisitor("a sequence"))?;
        Ok(Entries(entries.into_iter().map(|(_, entry)| entry).collect()))
    }
}

/// Reads an object, or a list, whose entries get no name. Contains what is expected.
struct PartsVisitor(&'static str);

impl<'de> Visitor<'de> for PartsVisitor {
    type Value = Vec<(String, &'de RawValue)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = map.next_entry()? {
            if fields.len() == MAX_PARTS {
                return Err(A::Error::custom(format!("more than {MAX_PARTS} fields")));
            }
            fields.push(field);
        }
        Ok(fields)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = list.next_element()? {
            if entries.len() == MAX_PARTS {
                return Err(A::Error::custom(format!("more than {MAX_PARTS} entries")));
            }
            entries.push((String::new(), entry));
        }
        Ok(entries)
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
        let Fields(fields) =
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
        let Fields(fields) = self.deserialize(&path, raw)?;
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
        let Entries(all) = self.take(name)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_many_fields_or_entries_is_rejected_before_it_takes_memory() {
        let object = |count: usize| {
            let fields: Vec<String> = (0..count).map(|n| format!(r#""{n}":1"#)).collect();
            format!("{{{}}}", fields.join(","))
        };
        assert!(ObjectReader::of_line(1, 0, &object(100)).is_ok());
        // The rest is not read: it is not even JSON.
        let text = object(101) + "nonsense";
        let error = ObjectReader::of_line(1, 0, &text).err().expect("there are too many");
        assert!(error.to_string().contains("more than 100 fields"), "{error}");
        for (count, allowed) in [(100, true), (101, false)] {
            let line = format!(r#"{{"list":[{}]}}"#, vec!["{}"; count].join(","));
            let mut line = ObjectReader::of_line(1, 0, &line).expect("it is an object");
            assert_eq!(line.objects("list").is_ok(), allowed);
        }
    }
}
