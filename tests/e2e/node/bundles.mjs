// Writes and reads bundles with the package wbn, for tests that compare.
//
// node bundles.mjs PATH_OF_WBN
// Each line of its input is a task in JSON, each line of its output the answer; it ends with its input.
import { createHash } from "node:crypto";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const wbn = createRequire(import.meta.url)(process.argv[2]);
const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");

function write({ version, steps }) {
  const builder = new wbn.BundleBuilder(version);
  for (const [step, ...values] of steps) {
    if (step === "addExchange") values[3] = Buffer.from(values[3], "base64");
    builder[step](...values);
  }
  return Buffer.from(builder.createBundle()).toString("base64");
}

function read({ bundle }) {
  const parsed = new wbn.Bundle(Buffer.from(bundle, "base64"));
  const responses = {};
  for (const url of parsed.urls) {
    try {
      const { status, headers, body } = parsed.getResponse(url);
      responses[url] = { status, headers, length: body.length, sha256: sha256(body) };
    } catch (error) {
      responses[url] = error.message;
    }
  }
  return { version: parsed.version, primary: parsed.primaryURL, manifest: parsed.manifestURL, responses };
}

for await (const line of createInterface({ input: process.stdin })) {
  const { task, ...rest } = JSON.parse(line);
  try {
    console.log(JSON.stringify({ answer: { write, read }[task](rest) }));
  } catch (error) {
    console.log(JSON.stringify({ error: error.message }));
  }
}
