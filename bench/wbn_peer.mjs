// The npm registry's wbn, told over standard input what to do: one line of JSON in, one line of JSON out. Times are in
// seconds and hold wbn's own calls alone; files are read and results are written outside of them.

import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const wbn = await import(pathToFileURL(join(process.argv[2], 'wbn', 'lib', 'wbn.js')));
const now = () => Number(process.hrtime.bigint()) / 1e9;
let site, buffer, bundle;

function parse() {
  const start = now();
  bundle = new wbn.Bundle(buffer);
  return { seconds: now() - start };
}

function create() {
  const start = now();
  const builder = new wbn.BundleBuilder('b1');
  builder.setPrimaryURL(site[0].url);
  builder.setManifestURL(site[0].url);
  for (const { url, headers, payload } of site) builder.addExchange(url, 200, headers, payload);
  const added = now();
  buffer = builder.createBundle();
  return { seconds: now() - start, create_bundle: now() - added };
}

const work = {
  load: ({ folder }) => {
    site = JSON.parse(readFileSync(join(folder, 'exchanges.json')));
    site.forEach((exchange, number) => { exchange.payload = readFileSync(join(folder, String(number))); });
    return { exchanges: site.length };
  },
  create,
  write: ({ path }) => { writeFileSync(path, buffer); return { bytes: buffer.length }; },
  forget: () => { site = buffer = bundle = undefined; return {}; },
  read: ({ path }) => { buffer = readFileSync(path); return { bytes: buffer.length }; },
  parse,
  load_all: () => {
    const { seconds } = parse();
    const start = now();
    for (const url of bundle.urls) bundle.getResponse(url);
    return { seconds: seconds + (now() - start) };
  },
  describe: () => ({
    primary_url: bundle.primaryURL,
    manifest_url: bundle.manifestURL,
    responses: bundle.urls.map((url) => {
      const { status, headers, body } = bundle.getResponse(url);
      return [url, status, headers, createHash('sha256').update(body).digest('hex')];
    }),
  }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  process.stdout.write(JSON.stringify(work[request.do](request)) + '\n');
}
