// Verifies a recorded webhook with the published library of Go.
//
// Reads JSON from stdin: {"secret": …, "headers": {…}, "body": base64}. Exits with 0 if the library accepts the
// request, with 1 if it rejects it, and with 3 on other errors.
package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

func main() {
	var request struct {
		Secret  string
		Headers map[string]string
		Body    []byte
	}
	if err := json.NewDecoder(os.Stdin).Decode(&request); err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	headers := http.Header{}
	for name, value := range request.Headers {
		headers.Set(name, value)
	}
	webhook, err := standardwebhooks.NewWebhook(request.Secret)
	if err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	if err := webhook.Verify(request.Body, headers); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
