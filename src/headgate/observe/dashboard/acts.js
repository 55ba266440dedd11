// What an operator does: look up, hold, release, mode, drain. The token stays in the memory of this page.

import { byId, make } from "./dom.js";

const NOTES = {
  off: "Off. With [admin] control = true and admin.token, this page explains refused requests, and holds and releases clients.",
  "no token":
    "Off in browsers, since a token is missing: set admin.token to a file with one. On this machine, headgate ctl works without.",
  insecure:
    "Off: browsers allow this over HTTPS or at a loopback address only. Forward the port: ssh -L 8090:127.0.0.1:8090 HOST.",
};
const TIMES = new Set(["received", "held_until", "until"]);
let token = "";

/** Whether this page may act; `acts` is what the server says. */
export const allowed = (acts) => acts === "token" && isSecureContext;

/** Show what can be done at a server. */
export function start(acts, kind) {
  const hasClients = ["gate", "master"].includes(kind);
  byId("acts").hidden = !hasClients && !allowed(acts);
  byId("acts-note").textContent = NOTES[acts] ?? (allowed(acts) ? "" : NOTES.insecure);
  byId("client").hidden = !hasClients || !allowed(acts);
  byId("server-acts").hidden = !allowed(acts);
}

export const why = (id) => run("GET", "why", { request: id }, `Request ${id}`);

const ENDS = "Its hold ends, and its requests so far are forgotten.";
const BEGINS = "All its requests are delayed or rejected until then, in all domains.";
const hold = (identifier, seconds) =>
  confirmed("hold", { identifier, seconds }, `Hold ${identifier} for ${seconds} s?`, BEGINS);
export const release = (identifier) => confirmed("release", { identifier }, `Release ${identifier}?`, ENDS);

export function mode(domain, wanted) {
  const effect = wanted === "shadow" ? "Its rules only count: no client is held." : "Its rules hold clients again.";
  const title = `Set domain ${domain} to ${wanted}?`;
  return confirmed("mode", { domain, mode: wanted }, title, `${effect} Until the next reload or restart.`);
}

async function confirmed(name, parameters, title, text) {
  if (await ask({ title, text, ok: title.split(" ")[0] })) await run("POST", name, parameters, title.slice(0, -1));
}

/** Send a command, after the token was typed; show the answer. */
async function run(method, name, parameters, title, refused = "") {
  const text = `${refused}It stays in the memory of this page, and is forgotten when the page is closed.`;
  token ||= await ask({ title: "The token is needed", text, ok: "Go on", asksToken: true });
  if (!token) return;
  const headers = { "X-Headgate-Control": "1", Authorization: `Bearer ${token}` };
  const target = `/control/${name}?${new URLSearchParams(parameters)}`;
  const response = await fetch(target, { method, headers }).catch(() => null);
  if (response?.status === 401) {
    token = "";
    return run(method, name, parameters, title, "The server does not accept this token. ");
  }
  byId("forget").hidden = false;
  return show(title, response ? await response.text() : "The server did not answer.");
}

function show(title, text) {
  let answer = { error: text.trim() };
  try {
    answer = JSON.parse(text);
  } catch {
    // A text says why the command is refused.
  }
  const said = answer.error ?? answer.done;
  return ask({ title, text: said ?? "", content: said ? [] : [record(answer)] });
}

/** Show the dialog; return whether it was confirmed, or the token that was typed; empty if it was not. */
function ask({ title, text, ok = "", content = [], asksToken = false }) {
  const dialog = byId("dialog");
  const input = dialog.querySelector("input");
  byId("dialog-title").textContent = title;
  byId("dialog-text").textContent = text;
  byId("dialog-content").replaceChildren(...content);
  byId("dialog-token").hidden = !asksToken;
  byId("dialog-ok").hidden = !ok;
  byId("dialog-ok").textContent = ok;
  input.required = asksToken;
  dialog.returnValue = "";
  dialog.showModal();
  if (asksToken) input.focus();
  return new Promise((resolve) => {
    dialog.onclose = () => {
      if (dialog.open) return; // the event is of the dialog before this one
      const typed = input.value.trim();
      input.value = "";
      resolve(dialog.returnValue === "ok" && (asksToken ? typed : "confirmed"));
    };
  });
}

/** The record that `headgate ctl why` prints: names and values, in nested lists. */
function record(value) {
  const items = Object.entries(value).flatMap(([name, member]) => {
    const members = Array.isArray(member) ? member : [member];
    const shown = (members.length ? members : ["none"]).map((one) => {
      if (one && typeof one === "object") return record(one);
      return TIMES.has(name) ? new Date(one * 1000).toISOString() : String(one);
    });
    return [make("dt", {}, name), ...shown.map((one) => make("dd", {}, one))];
  });
  return make("dl", {}, ...items);
}

// Enter goes on, where the first button of the form would close the dialog.
byId("dialog").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.target.tagName !== "INPUT") return;
  event.preventDefault();
  byId("dialog-ok").click();
});

byId("client").addEventListener("submit", (event) => {
  event.preventDefault();
  const { identifier, seconds } = event.target.elements;
  const client = identifier.value.trim();
  const act = event.submitter?.value;
  if (act === "release") release(client);
  else if (act === "hold") hold(client, seconds.value);
  else run("GET", "why", { identifier: client }, `Client ${client}`);
});

byId("drain").addEventListener("click", () => {
  confirmed("drain", {}, "Drain this server?", "It accepts no more clients, answers those that it has, and ends.");
});

byId("forget").addEventListener("click", () => {
  token = "";
  byId("forget").hidden = true;
});
