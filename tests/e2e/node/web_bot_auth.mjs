// Signs and verifies requests with the packages web-bot-auth and http-message-sig, for tests that compare.
// web-bot-auth 0.1.3 takes a whole field for a member of it; http-message-sig 0.3.0 is right.
//
// node web_bot_auth.mjs PATH_OF_WEB_BOT_AUTH
// Each line of its input is a task in JSON, each line of its output the answer; it ends with its input.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const require = createRequire(import.meta.url);
const library = require(process.argv[2]);
const { signerFromJWK, verifierFromJWK } = require(`${process.argv[2]}/dist/crypto.js`);

const core = require(`${process.argv[2]}/../http-message-sig`);

const message = (url, headers) => ({ method: "GET", url, headers });

async function sign({ jwk, url, agent }) {
  const created = new Date();
  const headers = { "Signature-Agent": agent };
  const signer = await signerFromJWK(jwk);
  const fields = await library.signatureHeaders(message(url, headers), signer, {
    created,
    expires: new Date(created.getTime() + 300_000),
    key: "sig1",
  });
  return { ...headers, ...fields };
}

async function verify({ jwk, url, headers }) {
  await library.verify(message(url, headers), await verifierFromJWK(jwk));
  return true;
}

const cryptoKey = (jwk, use) => {
  const { kty, crv, x, d } = jwk;
  return crypto.subtle.importKey("jwk", use === "sign" ? { kty, crv, x, d } : { kty, crv, x }, "Ed25519", false, [use]);
};
const member = core.component("signature-agent", { key: "sig1" });
const descriptor = (url, headers) => ({
  kind: "request",
  method: "GET",
  targetUri: url,
  fields: Object.entries(headers).map(([name, value]) => ({ name, value })),
});

async function signMember({ jwk, url, agent, components }) {
  const headers = { "Signature-Agent": agent };
  const created = Math.floor(Date.now() / 1000);
  const fields = await core.createSignature(descriptor(url, headers), {
    label: "sig1",
    components: [...components, member],
    parameters: { created, expires: created + 300, keyid: jwk.kid, alg: "ed25519", tag: "web-bot-auth" },
    signer: core.webcrypto.signer(await cryptoKey(jwk, "sign")),
  });
  return { ...headers, Signature: fields.signature, "Signature-Input": fields.signatureInput };
}

async function verifyMember({ jwk, url, headers }) {
  const verifier = core.webcrypto.verifier(await cryptoKey(jwk, "verify"));
  const policy = {
    algorithms: ["ed25519"],
    requiredComponents: ["@authority", member],
    requiredParameters: ["created", "expires", "keyid", "tag", "nonce"],
    maxAge: 300,
  };
  const found = await core.verifySignature(descriptor(url, headers), { policy, resolveVerifier: () => verifier });
  return found.parameters.keyid === jwk.kid;
}

async function directory({ jwks, url, headers, body }) {
  const signers = await Promise.all(jwks.map(signerFromJWK));
  const created = new Date();
  const pair = { request: message(url, {}), response: { status: 200, headers } };
  const expires = new Date(created.getTime() + 300_000);
  return library.directoryResponseHeaders(pair, signers, { created, expires });
}

async function keyId({ jwk }) {
  return library.jwkToKeyID(jwk, library.helpers.WEBCRYPTO_SHA256, library.helpers.BASE64URL_DECODE);
}

for await (const line of createInterface({ input: process.stdin })) {
  const { task, ...rest } = JSON.parse(line);
  try {
    console.log(JSON.stringify({ answer: await { sign, verify, signMember, verifyMember, directory, keyId }[task](rest) }));
  } catch (error) {
    console.log(JSON.stringify({ error: error.message }));
  }
}
