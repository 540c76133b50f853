// Compiles the package. npm runs this when it installs the package from a directory or packs it.
//
// `npm install PATH-OF-THIS-DIRECTORY` in another project links this directory, and then runs this script without
// having installed the compiler.
import { execSync } from "node:child_process";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";

process.chdir(fileURLToPath(new URL("..", import.meta.url)));
if (!existsSync("node_modules/typescript")) {
  execSync("npm ci --ignore-scripts", { stdio: "inherit" });
}
execSync("npm run build", { stdio: "inherit" });
