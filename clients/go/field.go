package requeue

import (
	"reflect"
	"time"
)

// Field is a field of a change, or of a [Filter]. The zero Field leaves it as it is.
type Field[T any] struct {
	set   bool
	value *T
}

// Set returns a field that is changed to a value.
func Set[T any](value T) Field[T] { return Field[T]{set: true, value: &value} }

// Unset returns a field that is reset to its default, or to none, such as no limit.
func Unset[T any]() Field[T] { return Field[T]{set: true} }

// changes is the body of a request that changes fields: a field that is missing stays as it is, and
// null resets it.
type changes map[string]any

// add adds a field, unless it stays as it is. encode returns its value in JSON.
func add[T any](to changes, name string, field Field[T], encode func(T) any) {
	switch {
	case !field.set:
	case field.value == nil:
		to[name] = nil
	default:
		to[name] = encode(*field.value)
	}
}

// addGiven adds a field, unless its value is zero, and so not set.
func addGiven[T any](to changes, name string, value T, encode func(T) any) {
	if !reflect.ValueOf(&value).Elem().IsZero() {
		to[name] = encode(value)
	}
}

// bodyField returns a body, unless it is nil, and so not set.
func bodyField(body any) Field[any] {
	if body == nil {
		return Field[any]{}
	}
	return Set(body)
}

// addBody adds a body in the form that it has, unless it stays as it is. An unset body is empty.
func addBody(to changes, field Field[any], codec Codec) error {
	if !field.set {
		return nil
	}
	if field.value == nil || *field.value == nil {
		// A missing body would be the one that there is.
		to["body_base64"] = ""
		return nil
	}
	wire, err := encodeBody(codec, *field.value)
	if err != nil {
		return err
	}
	if wire.JSON != nil {
		to["body"] = wire.JSON
	}
	if wire.Text != nil {
		to["body_text"] = *wire.Text
	}
	if wire.Base64 != nil {
		to["body_base64"] = *wire.Base64
	}
	if wire.ContentType != "" {
		to["content_type"] = wire.ContentType
	}
	return nil
}

// checkNoneIsUnset fails if a field is unset, where that has no meaning.
func (c changes) checkNoneIsUnset() error {
	for name, value := range c {
		if value == nil {
			return invalid(name, "it cannot be unset; leave it out")
		}
	}
	return nil
}

func asIs[T any](value T) any { return value }

func asDuration(d time.Duration) any { return formatDuration(d) }

func asTime(t time.Time) any { return formatTime(t) }

// asObject returns the fields that are set of an object.
func asObject[T interface{ addTo(changes) }](object T) any {
	fields := changes{}
	object.addTo(fields)
	return fields
}
