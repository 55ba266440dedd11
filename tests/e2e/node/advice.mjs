// What a JavaScript engine makes of texts and bytes: one JSON object on standard input, one on standard output.
//
// texts: base64 of UTF-16LE, for JSON.parse. bytes: base64, for TextDecoder. types: base64 of Latin-1, for MIMEType.
// A value is told by its sort and its exact content, so that nothing depends on how either side prints it.

import { readFileSync } from "node:fs";
import { MIMEType } from "node:util";

const asked = JSON.parse(readFileSync(0, "utf8"));

const units = (text) => Buffer.from(text, "utf16le").toString("base64");

function told(value) {
  if (typeof value === "string") return ["text", units(value)];
  if (typeof value === "number") {
    const bits = Buffer.alloc(8);
    bits.writeDoubleBE(value);
    return ["number", bits.toString("hex")];
  }
  if (Array.isArray(value)) return ["list", value.map(told)];
  if (value !== null && typeof value === "object") {
    const members = Object.entries(value).map(([name, member]) => [units(name), told(member)]);
    return ["map", members.sort(([a], [b]) => (a < b ? -1 : 1))];
  }
  return ["constant", String(value)];
}

function attempted(make) {
  try {
    return make();
  } catch {
    return null;
  }
}

const answers = {
  texts: asked.texts.map((text) => attempted(() => told(JSON.parse(Buffer.from(text, "base64").toString("utf16le"))))),
  bytes: asked.bytes.map((data) => units(new TextDecoder().decode(Buffer.from(data, "base64")))),
  types: asked.types.map((type) => attempted(() => new MIMEType(Buffer.from(type, "base64").toString("latin1")).essence)),
};
process.stdout.write(JSON.stringify(answers));
