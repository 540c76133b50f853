"""Verifies a recorded webhook with the published library of Python.

Reads JSON from stdin: {"secret": …, "headers": {…}, "body": base64}. Exits with 0 if the library accepts the
request and with 1 if it rejects it.
"""

import base64
import json
import sys

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

request = json.load(sys.stdin)
try:
    Webhook(request["secret"]).verify(base64.b64decode(request["body"]), request["headers"])
except WebhookVerificationError as error:
    print(error)
    sys.exit(1)
