/** Bodies of jobs and results: how values are converted to what the server stores, and back. */

import { checkJson } from "./check.js";
import { text } from "./fields.js";

/** A body or a result in JSON, in one of three forms. */
export interface WireContent {
  body?: unknown;
  body_text?: string | null;
  body_base64?: string | null;
  content_type?: string | null;
}

/** Stored data: JSON, text, or bytes. All of them undefined means empty. */
export interface Content {
  /** A JSON value. It is part of the request, and not encoded twice. */
  readonly json?: unknown;
  readonly text?: string;
  readonly bytes?: Uint8Array;
  /** The content type; default: `application/json`, `text/plain; charset=utf-8` or `application/octet-stream`. */
  readonly contentType?: string;
}

/** Converts the values of a program to the content that the server stores, and back. */
export interface Codec {
  /** Converts a body or a result. `undefined` is not passed: it means an empty body, or no result. */
  encode(value: unknown): Content;
  /** Converts content back. If this throws, a worker buries the job. Content without data is not passed. */
  decode(content: Content): unknown;
}

/**
 * The default codec: a `Uint8Array` is stored as bytes and every other value as JSON. It returns JSON as a value,
 * text as a `string`, and bytes as a `Uint8Array`. Integers above 2^53 lose digits, as with `JSON.parse`.
 */
export const jsonCodec: Codec = {
  encode: (value) => (value instanceof Uint8Array ? { bytes: value } : { json: value }),
  decode(content) {
    if ("json" in content) return content.json;
    const isJson = /^application\/json\b/i.test(content.contentType ?? "");
    if (isJson && content.text !== undefined) return JSON.parse(content.text);
    if (isJson) throw new SyntaxError("the body is not UTF-8");
    return content.text ?? content.bytes;
  },
};

/** @internal Converts a body for a request. Throws a TypeError if its JSON would not have its content. */
export function bodyToWire(codec: Codec, field: string, value: unknown, contentType?: string): WireContent {
  if (contentType !== undefined) {
    text("contentType", contentType);
    if (value === undefined) throw new TypeError(`contentType is ${contentType}, but ${field} is undefined`);
  }
  if (value === undefined) return {};
  const content = contentType === undefined ? codec.encode(value) : withType(value, contentType, codec);
  if ("json" in content) checkJson(field, content.json);
  return contentToWire(content);
}

function contentToWire(content: Content): WireContent {
  const type = content.contentType === undefined ? {} : { content_type: content.contentType };
  if (content.text !== undefined) return { body_text: content.text, ...type };
  if (content.bytes !== undefined) return { body_base64: toBase64(content.bytes), ...type };
  return { body: content.json, ...type };
}

/** A text or bytes with an explicit content type are stored as they are. */
function withType(value: unknown, contentType: string, codec: Codec): Content {
  if (typeof value === "string") return { text: value, contentType };
  if (value instanceof Uint8Array) return { bytes: value, contentType };
  return { ...codec.encode(value), contentType };
}

/**
 * @internal Converts a result. JSON is encoded here, so that a value that has no JSON fails alone, and not the
 * batch that contains it.
 */
export function resultToWire(codec: Codec, value: unknown): WireContent {
  const wire = contentToWire(codec.encode(value));
  if (!("body" in wire)) return wire;
  const text = JSON.stringify(wire.body) as string | undefined;
  if (text === undefined) throw new TypeError(`a result of type ${typeof wire.body} has no JSON`);
  return { body_text: text, content_type: wire.content_type ?? "application/json" };
}

/** @internal Converts the content of a response. Throws what the codec throws. */
export function fromWire(codec: Codec, wire: WireContent): unknown {
  const type = typeof wire.content_type === "string" ? { contentType: wire.content_type } : {};
  if ("body" in wire) return codec.decode({ json: wire.body, ...type });
  if (typeof wire.body_text === "string") return codec.decode({ text: wire.body_text, ...type });
  if (typeof wire.body_base64 === "string") return codec.decode({ bytes: fromBase64(wire.body_base64), ...type });
  return undefined;
}

function toBase64(bytes: Uint8Array): string {
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary);
}

function fromBase64(text: string): Uint8Array {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}
