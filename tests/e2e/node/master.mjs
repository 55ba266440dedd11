// A master that behaves on the wire as the original one does: SUB and PUB, both bound; it takes at least five frames,
// strips the domain's NUL, reads timestamps as numbers, and sends a control of four frames once a burst has passed.
//
// node master.mjs PATH_OF_ZEROMQ ACCOUNTING CONTROL BURST
// It prints "ready", then each message as a line of JSON, and ends with its input.
import { createRequire } from "node:module";

const [library, accountingAddress, controlAddress, burst] = process.argv.slice(2);
const zmq = createRequire(import.meta.url)(library);

const accounting = new zmq.Subscriber({ linger: 0 });
const control = new zmq.Publisher({ linger: 0 });
await accounting.bind(accountingAddress);
await control.bind(controlAddress);
accounting.subscribe("");
console.log("ready");
process.stdin.on("end", () => process.exit(0)).resume();

const counts = new Map();
for await (const frames of accounting) {
  const [topic, status, name, received, delayed, log] = frames.map((frame) => frame.toString());
  console.log(JSON.stringify({ size: frames.length, topic, status, name, received, delayed, log }));
  if (frames.length < 5 || status === "REJECTED") continue;
  const domain = topic.replace(/\0$/, "");
  counts.set(name, (counts.get(name) ?? 0) + 1);
  if (counts.get(name) >= Number(burst)) {
    await control.send([domain + "\0", "DELAY_UNTIL", name, String(Math.floor(parseFloat(received)) + 60_000)]);
  }
}
