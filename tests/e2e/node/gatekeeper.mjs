// A gatekeeper that behaves on the wire as the original one does: PUB and SUB, both connecting; the domain goes
// without its NUL, in frame 0 and as the topic; every request is accounted for as accepted.
//
// node gatekeeper.mjs PATH_OF_ZEROMQ ACCOUNTING CONTROL DOMAIN IDENTIFIER
// It accounts for a request every 20 ms, prints each control as a line of JSON, and ends with its input.
import { createRequire } from "node:module";

const [library, accountingAddress, controlAddress, domain, identifier] = process.argv.slice(2);
const zmq = createRequire(import.meta.url)(library);

const accounting = new zmq.Publisher({ linger: 0 });
const control = new zmq.Subscriber({ linger: 0 });
accounting.connect(accountingAddress);
control.connect(controlAddress);
control.subscribe(domain);

setInterval(() => accounting.send([domain, "ACCEPTED", identifier, String(Date.now()), "", ""]), 20);
process.stdin.on("end", () => process.exit(0)).resume();

for await (const frames of control) {
  const [topic, command, name, ...rest] = frames.map((frame) => frame.toString());
  console.log(JSON.stringify({ topic, command, name, rest, until: parseFloat(rest[0]) }));
}
