// Prints the OpenAPI document of a server.

import { Server } from "./server.js";

const server = new Server();
try {
  await server.start();
  const response = await fetch(`${server.url}/v1/openapi.json`);
  process.stdout.write(await response.text());
} finally {
  await server.remove();
}
