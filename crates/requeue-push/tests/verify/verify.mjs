// Verifies a recorded webhook with the published library of Node.
//
// Reads JSON from stdin: {"secret": …, "headers": {…}, "body": base64}. Exits with 0 if the library accepts the
// request and with 1 if it rejects it. REQUEUE_NODE_MODULES is the folder in which the library is installed.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const { Webhook, WebhookVerificationError } = createRequire(
  `${process.env.REQUEUE_NODE_MODULES}/`,
)("standardwebhooks");

const request = JSON.parse(readFileSync(0, "utf8"));
try {
  new Webhook(request.secret).verify(Buffer.from(request.body, "base64"), request.headers);
} catch (error) {
  if (!(error instanceof WebhookVerificationError)) throw error;
  console.log(error.message);
  process.exit(1);
}
