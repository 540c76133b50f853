//! Enums whose values are words in JSON.

/// An enum whose values are words in JSON.
///
/// ```
/// use requeue_http::wire::{StateJson, Word};
///
/// assert_eq!(StateJson::Dead.name(), "dead");
/// assert_eq!(StateJson::by_name("dead"), Some(StateJson::Dead));
/// ```
pub trait Word: Copy + PartialEq + 'static {
    /// Each value, its word, and what it means.
    const ALL: &'static [(Self, &'static str, &'static str)];

    /// Returns the word of this value.
    fn name(self) -> &'static str {
        let this = Self::ALL.iter().find(|(value, ..)| *value == self);
        this.map(|(_, word, _)| *word).expect("all values are there")
    }

    /// Returns the value with this word, or `None` if there is none.
    fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, word, _)| *word == name).map(|(value, ..)| *value)
    }
}

/// Declares an enum with the word of each value, and its OpenAPI schema, which explains the words.
/// After `default` is its default, and after `from` an enum with the same values, from and to which it is
/// converted.
macro_rules! words {
    (
        $(#[doc = $doc:literal])+
        pub enum $name:ident as $schema:ident $(, default $default:ident)?, from $of:ident {
            $($(#[doc = $value_doc:literal])+ $value:ident = $word:tt,)+
        }
    ) => {
        words! {
            $(#[doc = $doc])+
            pub enum $name as $schema $(, default $default)? {
                $($(#[doc = $value_doc])+ $value = $word,)+
            }
        }

        impl From<$of> for $name {
            fn from(value: $of) -> Self {
                match value {
                    $($of::$value => $name::$value,)+
                }
            }
        }

        impl From<$name> for $of {
            fn from(value: $name) -> Self {
                match value {
                    $($name::$value => $of::$value,)+
                }
            }
        }
    };
    (
        $(#[doc = $doc:literal])+
        pub enum $name:ident as $schema:ident $(, default $default:ident)? {
            $($(#[doc = $value_doc:literal])+ $value:ident = $word:tt,)+
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[cfg_attr(feature = "openapi", schema(
            as = $schema,
            description = concat!($($doc,)+ $(" `", $word, "`:", $($value_doc,)+)+)
        ))]
        pub enum $name {
            $($(#[doc = $value_doc])+ #[serde(rename = $word)] $value,)+
        }

        $(impl Default for $name {
            fn default() -> Self {
                $name::$default
            }
        })?

        impl $crate::wire::Word for $name {
            const ALL: &'static [(Self, &'static str, &'static str)] =
                &[$(($name::$value, $word, concat!($($value_doc),+))),+];
        }
    };
}
pub(super) use words;
