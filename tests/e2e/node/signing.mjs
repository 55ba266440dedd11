// Signs bundles and checks signatures with the package wbn-sign, for tests that compare.
//
// node signing.mjs PATH_OF_WBN_SIGN
// Each line of its input is a task in JSON, each line of its output the answer; it ends with its input.
import { readFileSync } from "node:fs";
import { createPublicKey } from "node:crypto";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const wbnSign = createRequire(import.meta.url)(process.argv[2]);
const bytes = (hex) => Uint8Array.from(Buffer.from(hex, "hex"));
const hex = (content) => Buffer.from(content).toString("hex");

// Signs a bundle with keys in files, as whoever uses the package does.
async function sign({ bundle, keys, id }) {
  const parsed = keys.map((path) => wbnSign.parsePemKey(readFileSync(path)));
  const strategies = parsed.map((key) => new wbnSign.NodeCryptoSigningStrategy(key));
  const name = id ?? new wbnSign.WebBundleId(parsed[0]).serialize();
  const signer = new wbnSign.IntegrityBlockSigner(Uint8Array.from(readFileSync(bundle)), name, strategies);
  return hex((await signer.sign()).signedWebBundle);
}

function id({ key }) {
  return new wbnSign.WebBundleId(wbnSign.parsePemKey(readFileSync(key))).serialize();
}

function bundleId({ signed }) {
  return wbnSign.getBundleId(readFileSync(signed));
}

// Holds each signature against what the package would have signed; gives the block that the package makes of them.
function check({ bundle, id, signatures }) {
  const signer = new wbnSign.IntegrityBlockSigner(Uint8Array.from(readFileSync(bundle)), id, []);
  const block = new wbnSign.IntegrityBlock();
  block.setWebBundleId(id);
  const unsigned = block.toCBOR();
  for (const { key, attribute, attributes, signature } of signatures) {
    const publicKey = createPublicKey(wbnSign.parsePemKey(readFileSync(key)));
    const signed = signer.generateDataToBeSigned(signer.calcWebBundleHash(), unsigned, bytes(attributes));
    signer.verifySignature(signed, bytes(signature), publicKey);
    block.addIntegritySignature({
      signature: bytes(signature),
      signatureAttributes: { [attribute]: wbnSign.getRawPublicKey(publicKey) },
    });
  }
  return hex(block.toCBOR());
}

for await (const line of createInterface({ input: process.stdin })) {
  const { task, ...rest } = JSON.parse(line);
  try {
    console.log(JSON.stringify({ answer: await { sign, id, bundleId, check }[task](rest) }));
  } catch (error) {
    console.log(JSON.stringify({ error: error.message }));
  }
}
