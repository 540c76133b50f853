package requeue

import (
	"fmt"
	"unicode/utf8"
)

// target is the path of a resource of the API, or the reason why there is none.
type target struct {
	path string
	err  error
}

// path returns a path that has no part from the caller.
func path(parts ...string) target { return target{path: joinPath(parts)} }

// kindPath returns the path of a kind, or of a resource below it.
func kindPath(kind string, below ...string) target {
	if err := checkName("kind", kind); err != nil {
		return target{err: err}
	}
	return path(append([]string{"kinds", kind}, below...)...)
}

// itemPath returns the path of a job or schedule of a kind, or of a resource below it.
func itemPath(kind, collection, id string, below ...string) target {
	in := kindPath(kind, append([]string{collection, id}, below...)...)
	if in.err == nil {
		in.err = checkName("id", id)
	}
	return in
}

// checkName fails if a kind or an id is empty, or cannot be sent as it is: encoding/json replaces bytes that
// are not UTF-8, and the request would be about another job. The server checks the rest.
func checkName(field, name string) error {
	if name == "" {
		return invalid(field, "it is empty")
	}
	if !utf8.ValidString(name) {
		return invalid(field, fmt.Sprintf("%q is not UTF-8", name))
	}
	return nil
}

// checkNames checks the names of a list.
func checkNames(field string, names []string) error {
	for i, name := range names {
		if err := checkName(fmt.Sprintf("%s[%d]", field, i), name); err != nil {
			return err
		}
	}
	return nil
}

// checkKinds checks the kinds of a claim. It needs at least one.
func checkKinds(kinds []string) error {
	if len(kinds) == 0 {
		return invalid("kinds", "specify at least one kind")
	}
	return checkNames("kinds", kinds)
}
