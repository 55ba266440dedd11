// What an operator does: look up, hold, release, mode, drain. The token stays in the memory of this page.

import { clock } from "./series.js";

const NOTES = {
  off: "Off. With [admin] control = true and admin.token, this page shows why requests were refused, and holds and releases clients.",
  "no token":
    "Off in browsers, since there is no token: set admin.token to a file with one. On this machine, headgate ctl works without.",
  token: "",
  insecure:
    "Off: browsers allow this over HTTPS or at a loopback address only. Forward the port: ssh -L 8090:127.0.0.1:8090 HOST.",
};
const TIMES = new Set(["received", "held_until", "until"]);
const byId = (id) => document.getElementById(id);
let token = "";

/** Whether this page may act; `acts` is what the server says. */
export function allowed(acts) {
  return acts === "token" && isSecureContext;
}

/** Show what can be done at a server. */
export function start(acts, kind) {
  const can = allowed(acts);
  const has = kind === "gate" || kind === "master";
  byId("acts").hidden = kind === "server";
  byId("acts-note").textContent = NOTES[acts === "token" && !can ? "insecure" : acts] ?? "";
  byId("client").hidden = !(can && has);
  byId("server-acts").hidden = !can;
}

export function why(requestId) {
  return run("GET", "why", { request: requestId }, `Request ${requestId}`);
}

export function release(identifier) {
  return confirmed(
    "release",
    { identifier },
    `Release ${identifier}?`,
    "Its hold ends, and its requests so far are forgotten.",
  );
}

export function mode(domain, wanted) {
  const effect = wanted === "shadow" ? "Its rules only count: no client is held." : "Its rules hold clients again.";
  return confirmed(
    "mode",
    { domain, mode: wanted },
    `Set domain ${domain} to ${wanted}?`,
    `${effect} Until the next reload or restart.`,
  );
}

async function confirmed(name, parameters, title, text) {
  if (await ask({ title, text, ok: title.split(" ")[0] })) await run("POST", name, parameters, title.replace("?", ""));
}

/** Send a command, after the token was typed; show the answer. */
async function run(method, name, parameters, title) {
  let refused = "";
  for (;;) {
    if (!token && !(await askToken(refused))) return;
    let response, text;
    try {
      const headers = { "X-Headgate-Control": "1", Authorization: `Bearer ${token}` };
      response = await fetch(`/control/${name}?${new URLSearchParams(parameters)}`, { method, headers });
      text = await response.text();
    } catch {
      await ask({ title, text: "The server did not answer." });
      return;
    }
    if (response.status === 401) {
      token = "";
      refused = "The server does not accept this token. ";
      continue;
    }
    byId("forget").hidden = false;
    let answer = { error: text.trim() };
    try {
      answer = JSON.parse(text);
    } catch {
      // A text says why the command is refused.
    }
    await ask({
      title,
      text: answer.error ?? answer.done ?? "",
      content: answer.error || answer.done ? null : record(answer),
    });
    return;
  }
}

async function askToken(refused) {
  const text = `${refused}It stays in the memory of this page, and is forgotten when the page is closed.`;
  token = (await ask({ title: "The token is needed", text, ok: "Go on", asksToken: true })) || "";
  return token;
}

/** Show the dialog; return whether it was confirmed, or the token that was typed. */
function ask({ title, text, ok = "", content = null, asksToken = false }) {
  const dialog = byId("dialog");
  const input = dialog.querySelector("input");
  byId("dialog-title").textContent = title;
  byId("dialog-text").textContent = text;
  byId("dialog-content").replaceChildren(...(content ? [content] : []));
  byId("dialog-token").hidden = !asksToken;
  input.required = asksToken;
  input.value = "";
  byId("dialog-ok").hidden = !ok;
  byId("dialog-ok").textContent = ok;
  dialog.returnValue = "";
  dialog.showModal();
  if (asksToken) input.focus();
  return new Promise((resolve) => {
    dialog.addEventListener(
      "close",
      () => {
        const isOk = dialog.returnValue === "ok";
        resolve(asksToken ? isOk && input.value.trim() : isOk);
        input.value = "";
      },
      { once: true },
    );
  });
}

/** The record that `headgate ctl why` prints: names and values, in nested lists. */
function record(value) {
  const list = document.createElement("dl");
  for (const [name, member] of Object.entries(value)) {
    const term = document.createElement("dt");
    term.textContent = name;
    list.append(term);
    const members = Array.isArray(member) ? member : [member];
    for (const one of members.length ? members : ["none"]) {
      const shown = document.createElement("dd");
      if (typeof one === "object" && one) shown.append(record(one));
      else
        shown.textContent = TIMES.has(name)
          ? `${new Date(one * 1000).toISOString()} (${clock(one)} here)`
          : String(one);
      list.append(shown);
    }
  }
  return list;
}

// Enter confirms, as the first button of a form would: that one is Close.
byId("dialog").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.target.tagName !== "INPUT") return;
  event.preventDefault();
  byId("dialog-ok").click();
});

byId("client").addEventListener("submit", (event) => {
  event.preventDefault();
  const form = event.currentTarget;
  const identifier = form.identifier.value.trim();
  const act = event.submitter?.value ?? "why";
  if (act === "why") run("GET", "why", { identifier }, `Client ${identifier}`);
  else if (act === "release") release(identifier);
  else {
    const seconds = form.seconds.value;
    const text = "All its requests are delayed or rejected until then, in all domains.";
    confirmed("hold", { identifier, seconds }, `Hold ${identifier} for ${seconds} s?`, text);
  }
});

byId("drain").addEventListener("click", () =>
  confirmed("drain", {}, "Drain this server?", "It accepts no more clients, answers those that it has, and ends."),
);

byId("forget").addEventListener("click", () => {
  token = "";
  byId("forget").hidden = true;
});
