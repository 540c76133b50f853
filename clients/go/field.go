package requeue

import "time"

// Field is a field of a change to settings or to a schedule. The zero Field leaves it as it is.
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

func asIs[T any](value T) any { return value }

func asDuration(d time.Duration) any { return formatDuration(d) }

func asTime(t time.Time) any { return formatTime(t) }
