package requeue

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Body is the content of a job or of a result: bytes with a content type.
//
// The zero Body is empty. Use [Text] and [Bytes] to send content as it is; any other value is encoded
// by the [Codec] of the client.
type Body struct {
	// Data is the content.
	Data []byte
	// ContentType is its content type, such as application/json.
	ContentType string
}

// Text returns a body of plain text.
func Text(text string) Body {
	return Body{Data: []byte(text), ContentType: "text/plain; charset=utf-8"}
}

// Bytes returns a body of any bytes.
func Bytes(data []byte) Body {
	return Body{Data: data, ContentType: "application/octet-stream"}
}

// Codec encodes the bodies and results of jobs, and decodes bodies. The default is [JSON].
type Codec interface {
	// Encode returns the value as bytes.
	Encode(value any) ([]byte, error)
	// Decode stores the bytes in the value that target points to.
	Decode(data []byte, target any) error
	// ContentType returns the content type of encoded values.
	ContentType() string
}

// JSON is the default codec. It uses [encoding/json] and does not escape HTML.
type JSON struct{}

// Encode returns the value as JSON.
func (JSON) Encode(value any) ([]byte, error) {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(buffer.Bytes(), []byte("\n")), nil
}

// Decode parses JSON.
func (JSON) Decode(data []byte, target any) error { return json.Unmarshal(data, target) }

// ContentType returns application/json.
func (JSON) ContentType() string { return jsonType }

const jsonType = "application/json"

// wireBody is a body in one of the three forms of the API.
type wireBody struct {
	JSON        json.RawMessage `json:"body,omitempty"`
	Text        *string         `json:"body_text,omitempty"`
	Base64      *string         `json:"body_base64,omitempty"`
	ContentType string          `json:"content_type,omitempty"`
}

// encodeBody returns a body or a result as the API expects it. Nil is an empty body.
func encodeBody(codec Codec, value any) (wireBody, error) {
	switch value := value.(type) {
	case nil:
		return wireBody{}, nil
	case Body:
		// JSON, too, is sent as text: the field body would not keep it byte for byte.
		return rawBody(value), nil
	case []byte:
		// encoding/json would send these bytes as a string in base64.
		return wireBody{}, invalid("body", "the content type of a []byte is unknown: use requeue.Bytes, or json.RawMessage if it contains JSON")
	}
	data, err := codec.Encode(value)
	if err != nil {
		return wireBody{}, fmt.Errorf("requeue: encode a body: %w", err)
	}
	if codec.ContentType() == jsonType {
		return wireBody{JSON: data}, nil
	}
	return rawBody(Body{Data: data, ContentType: codec.ContentType()}), nil
}

func rawBody(body Body) wireBody {
	wire := wireBody{ContentType: body.ContentType}
	if utf8.Valid(body.Data) {
		text := string(body.Data)
		wire.Text = &text
	} else {
		text := base64.StdEncoding.EncodeToString(body.Data)
		wire.Base64 = &text
	}
	return wire
}

// size returns the number of bytes of the body.
func (w wireBody) size() int {
	switch {
	case w.Text != nil:
		return len(*w.Text)
	case w.Base64 != nil:
		return base64.StdEncoding.DecodedLen(len(*w.Base64))
	}
	return len(w.JSON)
}

// decode returns the bytes of a body, whatever its form.
func (w wireBody) decode() (Body, error) {
	body := Body{ContentType: w.ContentType}
	switch {
	case w.JSON != nil:
		body.Data = w.JSON
	case w.Text != nil:
		body.Data = []byte(*w.Text)
	case w.Base64 != nil:
		data, err := base64.StdEncoding.DecodeString(*w.Base64)
		if err != nil {
			return Body{}, fmt.Errorf("requeue: decode a body in base64: %w", err)
		}
		body.Data = data
	}
	return body, nil
}

// Decode decodes the body with a codec, for example [JSON]{}. [Job].Decode uses the codec of the client.
func (b Body) Decode(codec Codec, target any) error {
	if err := codec.Decode(b.Data, target); err != nil {
		if len(b.Data) == 0 {
			return fmt.Errorf("the body is empty: %w", err)
		}
		return fmt.Errorf("the body (%s, %d bytes) cannot be decoded: %w", strings.TrimSpace(b.ContentType), len(b.Data), err)
	}
	return nil
}
