//! The fields of a content: the body of a job, and what a put attaches to it.
//!
//! They are part of several objects. serde's `flatten` would buffer these, which changes the bytes of a
//! body and keeps unknown fields in memory. So the macro [`with_content!`] declares the fields, here and
//! nowhere else, and converts them.

use crate::problem::{AtField, Problem, ProblemType};
use requeue_jobs::json::{BodyJson, FieldErrorReason, HeadJson, check_portable};
use requeue_jobs::{Body, Content, Head};
use serde::Deserialize;
use serde::de::Deserializer;
use serde_json::value::RawValue;

/// Declares a struct with the fields of a content among its own, where it says so:
///
/// - `..content: Option<String>,` is a content in a request, whose content type has a default;
/// - `..body: Option<String>,` is a body alone;
/// - `..version,` is a content in a response, with due time, priority and generation.
///
/// The struct must implement `Default`. It can be made from [`ContentJson`], `BodyJson` or `&Version`
/// respectively, and these can be taken from it.
macro_rules! with_content {
    (
        $(#[$meta:meta])* pub struct $name:ident {
            $($(#[$b_meta:meta])* pub $b:ident: $b_type:ty,)*
            ..body: $content_type:ty,
            $($(#[$a_meta:meta])* pub $a:ident: $a_type:ty,)*
        }
    ) => {
        with_content! {
            @declare $content_type, [$(#[$meta])*] $name
            [$($(#[$b_meta])* pub $b: $b_type,)*] [$($(#[$a_meta])* pub $a: $a_type,)*]
        }
    };
    (
        $(#[$meta:meta])* pub struct $name:ident {
            $($(#[$b_meta:meta])* pub $b:ident: $b_type:ty,)*
            ..content: $content_type:ty,
            $($(#[$a_meta:meta])* pub $a:ident: $a_type:ty,)*
        }
    ) => {
        with_content! {
            @declare $content_type, [$(#[$meta])*] $name
            [$($(#[$b_meta])* pub $b: $b_type,)*]
            [
                /// What a protocol has attached to the message: bytes with a type, of at most 1 MiB + 16 KiB
                /// together with the body. It is only returned if the request asks for it.
                #[serde(default, deserialize_with = "crate::wire::parse::optional_object")]
                #[cfg_attr(
                    feature = "openapi",
                    schema(value_type = Option<crate::wire::content::EnvelopeSchema>)
                )]
                pub envelope: Option<requeue_jobs::json::EnvelopeJson>,
                $($(#[$a_meta])* pub $a: $a_type,)*
            ]
        }

        impl $name {
            /// Returns name and text of each optional field that is set, for people.
            pub fn head_entries(&self) -> Vec<(&'static str, String)> {
                let head = requeue_jobs::json::HeadJson { envelope: self.envelope.clone() };
                head.into_head().map(|head| head.entries()).unwrap_or_default()
            }

            /// Takes the content, and leaves an empty one.
            fn take_content(&mut self) -> $crate::wire::content::ContentJson {
                let head = requeue_jobs::json::HeadJson { envelope: self.envelope.take() };
                $crate::wire::content::ContentJson { body: self.take_body(), head }
            }
        }

        impl From<$crate::wire::content::ContentJson> for $name {
            fn from(content: $crate::wire::content::ContentJson) -> Self {
                let $crate::wire::content::ContentJson { body, head } = content;
                let requeue_jobs::json::HeadJson { envelope } = head;
                Self { envelope, ..body.into() }
            }
        }
    };
    (
        $(#[$meta:meta])* pub struct $name:ident {
            $($(#[$b_meta:meta])* pub $b:ident: $b_type:ty,)*
            ..version,
            $($(#[$a_meta:meta])* pub $a:ident: $a_type:ty,)*
        }
    ) => {
        with_content! {
            $(#[$meta])* pub struct $name {
                $($(#[$b_meta])* pub $b: $b_type,)*
                ..content: String,
                /// The due time, in RFC 3339 (UTC, milliseconds). A successor becomes due at this time,
                /// but not before the lease ends.
                pub due: $crate::wire::TimeText,
                /// The priority, 0 to 9; left out if it is 0.
                #[serde(default, skip_serializing_if = "is_zero")]
                #[cfg_attr(feature = "openapi", schema(maximum = 9))]
                pub priority: u8,
                /// The generation: the number of the put that created this version of the job.
                pub generation: u64,
                $($(#[$a_meta])* pub $a: $a_type,)*
            }
        }

        impl $name {
            /// Takes the version, and leaves an empty one.
            fn take_version(&mut self, context: &ParseContext) -> Result<Version, Problem> {
                Ok(Version {
                    content: self.take_content().read()?,
                    due: self.due.read("due", context)?,
                    priority: Priority::new(self.priority).at("priority")?,
                    generation: Generation(self.generation),
                })
            }
        }

        impl From<&Version> for $name {
            fn from(version: &Version) -> Self {
                let Version { content, due, priority, generation } = version;
                $name {
                    due: (*due).into(),
                    priority: priority.get(),
                    generation: generation.0,
                    ..$crate::wire::content::ContentJson::new(content).into()
                }
            }
        }
    };
    (@declare $content_type:ty, [$($meta:tt)*] $name:ident [$($before:tt)*] [$($after:tt)*]) => {
        $($meta)*
        pub struct $name {
            $($before)*
            /// The body as any JSON value, byte for byte as it was put, at most 1 MiB.
            #[serde(default, deserialize_with = "crate::wire::content::any_json")]
            #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
            pub body: Option<Box<serde_json::value::RawValue>>,
            /// The body as text in UTF-8, instead of `body`.
            pub body_text: Option<String>,
            /// The body as any bytes, in base64 with padding, instead of `body`.
            pub body_base64: Option<String>,
            /// The content type of the body, at most 128 bytes. Default in requests: `application/json`
            /// for `body`, `text/plain; charset=utf-8` for `body_text`, otherwise
            /// `application/octet-stream`.
            #[cfg_attr(feature = "openapi", schema(max_length = 128))]
            pub content_type: $content_type,
            $($after)*
        }

        impl $name {
            /// Returns the body as it is written here.
            pub fn body_fields(&self) -> $crate::wire::BodyFields<'_> {
                $crate::wire::BodyFields {
                    json: self.body.as_ref().map(|json| json.get()),
                    text: self.body_text.as_deref(),
                    base64: self.body_base64.as_deref(),
                    content_type: Option::<&String>::from(&self.content_type).map_or("", |text| text),
                }
            }

            /// Takes the body, and leaves an empty one.
            fn take_body(&mut self) -> requeue_jobs::json::BodyJson {
                requeue_jobs::json::BodyJson {
                    body: self.body.take(),
                    body_text: self.body_text.take(),
                    body_base64: self.body_base64.take(),
                    content_type: std::mem::take(&mut self.content_type).into(),
                }
            }
        }

        impl From<requeue_jobs::json::BodyJson> for $name {
            #[allow(clippy::needless_update, reason = "some have no other fields")]
            fn from(fields: requeue_jobs::json::BodyJson) -> Self {
                let requeue_jobs::json::BodyJson { body, body_text, body_base64, content_type } = fields;
                let content_type = content_type.map(Into::into).unwrap_or_default();
                $name { body, body_text, body_base64, content_type, ..$name::default() }
            }
        }
    };
}
pub(super) use with_content;

/// The fields of a content, apart from the other fields of their object.
#[derive(Debug, Default)]
pub(super) struct ContentJson {
    pub(super) body: BodyJson,
    pub(super) head: HeadJson,
}

impl ContentJson {
    pub(super) fn new(content: &Content) -> Self {
        let Content { body, head } = content;
        ContentJson { body: BodyJson::new(body), head: head.into() }
    }

    /// Converts the fields of a response, or of a job to restore.
    pub(super) fn read(self) -> Result<Content, Problem> {
        let ContentJson { body, head } = self;
        Ok(Content { body: read_body(body)?, head: read_head(head)? })
    }

    /// Converts the fields of a put. A body of JSON must be JSON that all clients can read.
    pub(super) fn read_new(self) -> Result<Content, Problem> {
        let ContentJson { body, head } = self;
        let content = Content { body: read_new_body(body)?, head: read_head(head)? };
        content.check().at("envelope")?;
        Ok(content)
    }
}

/// What a protocol has attached to a message: bytes with a type.
#[cfg(feature = "openapi")]
#[derive(utoipa::ToSchema)]
#[schema(as = Envelope)]
#[allow(dead_code, reason = "only its schema is used")]
pub(super) struct EnvelopeSchema {
    /// The content type that names the protocol, at most 128 bytes.
    #[schema(rename = "type", max_length = 128)]
    of_type: String,
    /// The bytes in base64, with padding.
    base64: String,
}

/// A body as an object contains it: in at most one of three fields.
#[derive(Debug, Clone, Copy)]
pub struct BodyFields<'a> {
    /// The field `body`: JSON.
    pub json: Option<&'a str>,
    /// The field `body_text`.
    pub text: Option<&'a str>,
    /// The field `body_base64`.
    pub base64: Option<&'a str>,
    /// The content type. Empty if a request has none.
    pub content_type: &'a str,
}

impl BodyFields<'_> {
    /// Returns the length of the body as it is written in the request, in bytes. Converting the JSON
    /// takes that much work and memory.
    pub fn len(&self) -> usize {
        [self.json, self.text, self.base64].into_iter().flatten().map(str::len).sum()
    }

    /// Returns whether the object has none of the three fields, or an empty text.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Converts the fields of a body.
pub(super) fn read_body(body: BodyJson) -> Result<Body, Problem> {
    body.into_body().map_err(|error| problem(error.reason).at(error.field))
}

/// Converts the other fields of a content.
pub(super) fn read_head(head: HeadJson) -> Result<Head, Problem> {
    head.into_head().map_err(|error| problem(error.reason).at(error.field))
}

/// Converts the body of a request. It must be JSON that all clients can read, or text or base64.
pub(super) fn read_new_body(body: BodyJson) -> Result<Body, Problem> {
    if let Some(json) = &body.body {
        check_portable(json).map_err(|reason| {
            let mut problem = problem(reason);
            problem.detail += "; send such a body as body_text or body_base64";
            problem.at("body")
        })?;
    }
    read_body(body)
}

fn problem(reason: FieldErrorReason) -> Problem {
    match reason {
        FieldErrorReason::Invalid(invalid) => invalid.into(),
        reason => Problem::new(ProblemType::Invalid, reason.to_string()),
    }
}

/// Deserializes a field that can be any JSON, also `null`.
pub(super) fn any_json<'de, D: Deserializer<'de>>(
    input: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(input).map(Some)
}
