/** Reads what the server returns: a table per object has its fields, each with how its JSON is converted. */

import { type Codec, fromWire } from "./content.js";

/** Converts a value of a response. `object` is the object that contains it. */
export type Read<T> = (value: any, codec: Codec, object: any) => T;

/** Returns how objects are read whose fields are read like this. The name of a field is that of the API, in camel case. */
export function reader<T extends object>(fields: { readonly [K in keyof T & string]-?: Read<any> }): Read<T> {
  const entries = Object.entries<Read<any>>(fields).map(([name, read]) => [name, snake(name), read] as const);
  return (json, codec) => {
    const object: Record<string, unknown> = {};
    for (const [name, key, read] of entries) {
      if (read === content || read === result) {
        // Decoding may throw: that must not affect the other fields.
        Object.defineProperty(object, name, { enumerable: true, get: () => read(json[key], codec, json) });
      } else {
        const value = read(json[key], codec, json);
        if (value !== LEFT_OUT) object[name] = value;
      }
    }
    return object as T;
  };
}

/** Returns the name of a field in the API. */
export function snake(name: string): string {
  return /[A-Z]/.test(name) ? name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`) : name;
}

/** The body, in one of its forms. */
export const content: Read<any> = (_, codec, object) => fromWire(codec, object);

/** A result, which has the forms of a body. */
export const result: Read<any> = (value, codec) => (value ? fromWire(codec, value) : undefined);

export const as: Read<any> = (value) => value;

export const date: Read<Date> = (value) => new Date(value);

/** A value that may be missing. */
export function maybe<T>(read: Read<T>): Read<T | undefined> {
  return (value, codec, object) => (value === undefined || value === null ? undefined : read(value, codec, object));
}

const LEFT_OUT = Symbol();

/** A value that may be missing: then the field is left out. */
export function optional<T>(read: Read<T>): Read<T | typeof LEFT_OUT> {
  return (value, codec, object) => (value === undefined || value === null ? LEFT_OUT : read(value, codec, object));
}

/** A value that may be missing, and is `null` in requests then. */
export function orNull<T>(read: Read<T>): Read<T | null> {
  return (value, codec, object) => (value === undefined || value === null ? null : read(value, codec, object));
}

/** A value that is left out if it is this one. */
export function or<T>(missing: T): Read<T> {
  return (value) => value ?? missing;
}

/** A list, which is left out if it is empty. */
export function list<T>(read: Read<T>): Read<T[]> {
  return (values, codec, object) => (values ?? []).map((value: any) => read(value, codec, object));
}
