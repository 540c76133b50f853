/**
 * Checks of what a program passes, before anything is sent: in plain JavaScript, no compiler has done it. An error
 * names the field, its value, and what it must be.
 */

/** All names of the fields of `T`: the compiler accepts no other object. */
export type Names<T> = { readonly [K in keyof T]-?: true };

/** Returns a kind or an id. */
export function checkName(what: string, value: unknown): string {
  if (typeof value !== "string") {
    const hint = typeof value === "number" || typeof value === "bigint" ? `, such as "${value}"` : "";
    throw new TypeError(`${what} is ${show(value)}; it must be a string${hint}`);
  }
  if (value === "") throw new TypeError(`${what} is empty`);
  if (!value.isWellFormed()) {
    throw new TypeError(`${what} is ${show(value)}; it contains half of a surrogate pair, which is not a character`);
  }
  return value;
}

/** Returns kinds or ids. */
export function checkNames(what: string, values: unknown): string[] {
  return checkList(what, values, "strings").map((value, n) => checkName(`${what}[${n}]`, value));
}

/** Returns a list. */
export function checkList<T>(what: string, values: T, of: string): T & readonly unknown[] {
  if (Array.isArray(values)) return values;
  throw new TypeError(`${what} is ${show(values)}; it must be an array of ${of}`);
}

/** Checks that a value is an object that has only known fields. */
export function checkFields(what: string, values: unknown, known: readonly string[]): void {
  checkObject(what, values, () => known);
  for (const name of Object.keys(values)) {
    if (!known.includes(name)) throw unknownField(what, name, known);
  }
}

/** Checks that a value is an object. */
export function checkObject(what: string, values: unknown, known: () => readonly string[]): asserts values is object {
  if (typeof values === "object" && values !== null && !Array.isArray(values)) return;
  throw new TypeError(`${what} is ${show(values)}; it must be an object with any of ${known().join(", ")}`);
}

/** Returns the error for a field that does not exist. */
export function unknownField(what: string, name: string, known: readonly string[]): TypeError {
  const similar = nearest(name, known);
  const hint = similar === undefined ? `known are ${known.join(", ")}` : `did you mean ${JSON.stringify(similar)}?`;
  return new TypeError(`${what} has no field ${JSON.stringify(name)}; ${hint}`);
}

/** Checks that a value is a function. */
export function checkFunction(what: string, value: unknown): void {
  if (typeof value !== "function") throw new TypeError(`${what} is ${show(value)}; it must be a function`);
}

/** Returns the URL of a server, without a slash at its end. */
export function checkServer(server: unknown): string {
  // Before all errors that contain the URL.
  if (typeof server === "string" && server.includes("@")) {
    throw new TypeError("the URL of the server contains a user name or a password; pass a token instead");
  }
  const what = `the URL of the server is ${show(server)}`;
  if (typeof server !== "string") throw new TypeError(`${what}; it must be a string`);
  // `localhost:7654` is a URL, too, with the scheme `localhost`.
  if (!/^https?:\/\/[^/]/i.test(server)) {
    const host = server.replace(/^[a-z][a-z0-9+.-]*:\/\/+|^https?:\/*/i, "");
    const example = `http://${host || "127.0.0.1:7654"}`;
    throw new TypeError(`${what}; it must begin with http:// or https:// and a host, such as "${example}"`);
  }
  if (!URL.canParse(server)) throw new TypeError(`${what}, which is not a valid URL`);
  const { search, hash } = new URL(server);
  if (search !== "" || hash !== "") throw new TypeError(`${what}; it must end before "?" and "#"`);
  return server.replace(/\/+$/, "");
}

/** Checks a token. The error does not contain it. */
export function checkToken(token: unknown): void {
  if (typeof token !== "string") throw new TypeError(`the token is ${typeof token}; it must be a string`);
  if (!/^[\x21-\x7e]+$/.test(token)) {
    throw new TypeError("the token contains white space or a character that a token cannot have");
  }
}

const MAX_DEPTH = 1000;
/** The place of what is wrong is shown up to this length, from its end. */
const MAX_PATH = 200;

/** Checks that JSON has the same content as a body: for example, `JSON.stringify` writes a `Map` as `{}`. */
export function checkJson(what: string, value: unknown): void {
  if (typeof value === "function" || typeof value === "symbol") {
    throw new TypeError(`${what} is ${show(value)}, which has no JSON`);
  }
  const problem = jsonProblem(value, 0);
  if (problem !== undefined) throw new TypeError(`${what}${problem.path} ${problem.is}`);
}

interface JsonProblem {
  readonly path: string;
  readonly is: string;
}

function jsonProblem(value: unknown, depth: number): JsonProblem | undefined {
  if (typeof value === "number" && !Number.isFinite(value)) return { path: "", is: `is ${value}, which has no JSON` };
  if (typeof value === "bigint" && !("toJSON" in BigInt.prototype)) {
    return { path: "", is: `is ${value}n, which has no JSON; write it as a string` };
  }
  if (typeof value !== "object" || value === null) return undefined;
  if (value instanceof Date && Number.isNaN(value.getTime())) return { path: "", is: "is an invalid Date" };
  if (typeof (value as { toJSON?: unknown }).toJSON === "function") return undefined;
  const lost = lostInJson(value);
  if (lost !== undefined) return { path: "", is: `is ${show(value)}, whose content is lost in JSON; ${lost}` };
  if (depth === MAX_DEPTH) return { path: "", is: "contains itself, or is nested too deeply" };
  const isArray = Array.isArray(value);
  for (const key of Object.keys(value)) {
    const problem = jsonProblem((value as Record<string, unknown>)[key], depth + 1);
    if (problem === undefined) continue;
    if (problem.path.length > MAX_PATH) return problem;
    return { ...problem, path: (isArray ? `[${key}]` : `.${key}`) + problem.path };
  }
  return undefined;
}

/** Returns what to write instead of an object of whose content `JSON.stringify` writes nothing, or not as data. */
function lostInJson(value: object): string | undefined {
  if (typeof (value as { then?: unknown }).then === "function") return "await it";
  if (value instanceof Map) return "write Object.fromEntries(map)";
  if (value instanceof Set) return "write [...set]";
  if (ArrayBuffer.isView(value)) return "write it as base64, or make a Uint8Array the whole body";
  if (value instanceof ArrayBuffer) return "write new Uint8Array(buffer) as the whole body, or write it as base64";
  return undefined;
}

const MAX_SHOWN = 60;

/** Returns a value as it is shown in an error. */
export function show(value: unknown): string {
  const text = describe(value);
  return text.length <= MAX_SHOWN ? text : `${text.slice(0, MAX_SHOWN - 1)}…`;
}

function describe(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "function") return value.name === "" ? "a function" : `the function ${value.name}`;
  if (typeof value !== "object" || value === null) return String(value);
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? "an invalid Date" : value.toISOString();
  if (value instanceof Promise) return "a Promise, without await";
  const name = (value as { constructor?: { name?: unknown } }).constructor?.name;
  if (typeof name === "string" && name !== "Object" && name !== "Array") return `of the class ${name}`;
  try {
    return JSON.stringify(value);
  } catch {
    return Array.isArray(value) ? "an array" : "an object";
  }
}

/** Returns the known name that a program most likely means: at most a third of its letters differ. */
function nearest(name: string, known: readonly string[]): string | undefined {
  // `max_attempts`, as in the HTTP API, differs in its case only.
  const plain = (text: string) => text.replaceAll("_", "").toLowerCase();
  const ranked = known
    .map((other) => ({ other, distance: distance(plain(name), plain(other)) }))
    .sort((a, b) => a.distance - b.distance);
  const [best] = ranked;
  return best !== undefined && best.distance <= Math.max(name.length, best.other.length) / 3 ? best.other : undefined;
}

/** The number of letters to insert, to remove, to replace, or to swap with the next one. */
function distance(a: string, b: string): number {
  const rows = [Array.from({ length: b.length + 1 }, (_, m) => m)];
  for (let n = 1; n <= a.length; n++) {
    const [previous, row] = [rows[n - 1]!, [n]];
    for (let m = 1; m <= b.length; m++) {
      const replaced = previous[m - 1]! + (a[n - 1] === b[m - 1] ? 0 : 1);
      const isSwapped = n > 1 && m > 1 && a[n - 1] === b[m - 2] && a[n - 2] === b[m - 1];
      const swapped = isSwapped ? rows[n - 2]![m - 2]! + 1 : Infinity;
      row.push(Math.min(row[m - 1]! + 1, previous[m]! + 1, replaced, swapped));
    }
    rows.push(row);
  }
  return rows[a.length]![b.length]!;
}
