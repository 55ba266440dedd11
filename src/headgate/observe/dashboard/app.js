// The page: it follows the event stream, and draws what that says.

import * as acts from "./acts.js";
import { Chart } from "./charts.js";
import { byId, make, write } from "./dom.js";
import { gate } from "./gate.js";
import { master, proxy, router } from "./others.js";
import { clock, Series } from "./series.js";
import { Table } from "./tables.js";

const KINDS = { gate, master, router, proxy };
const STALE = 3500; // milliseconds without an event after which the connection counts as lost
const WORDS = { ok: "normal", warn: "look here", bad: "trouble", idle: "no data" };

let source = null;
let series = null;
let view = null; // what is shown: the kind of server, its charts and tables, and the acts that are allowed
let now = null;
let [lastEvent, lostSince, paused] = [0, 0, false];

function open() {
  source?.close();
  source = new EventSource("/events");
  source.addEventListener("history", (event) => begin(JSON.parse(event.data)));
  source.addEventListener("second", (event) => advance(JSON.parse(event.data)));
  source.addEventListener("error", () => {
    lose();
    // A server that answers with an error is not asked again by the browser.
    if (source.readyState === EventSource.CLOSED) setTimeout(open, 2000);
  });
}

function begin(about) {
  hear();
  series = new Series(about);
  write(byId("kind"), about.kind);
  write(byId("about"), `${about.instance}, version ${about.version}`);
  document.title = `headgate ${about.kind}: ${about.instance}`;
  const kind = KINDS[about.kind];
  if (!kind) return answer("idle", "This server is without a dashboard: see /api/state and /metrics");
  if (view?.kind !== kind) {
    for (const id of ["charts", "tables", "cards"]) byId(id).replaceChildren();
    const tables = kind.tables.map((spec) => [spec.id, new Table(spec, byId("tables"))]);
    const charts = kind.charts.map((spec) => new Chart(spec, byId("charts")));
    view = { kind, charts, tables: Object.fromEntries(tables) };
  }
  view.acts = acts.allowed(about.acts) ? acts : null;
  acts.start(about.acts, about.kind);
  showAll();
}

function advance(event) {
  hear();
  if (!view) return;
  series.add(event.row);
  now = event.now ?? now;
  if (paused) return;
  for (const chart of view.charts) chart.add(series);
  show();
}

function showAll() {
  for (const chart of view.charts) chart.reset(series);
  if (series.length) show();
  else answer("idle", "No data yet: the first second is being counted");
}

function show() {
  const cards = view.kind.cards(series, now);
  cards.forEach(showCard);
  answer(...summary(cards));
  if (now) view.kind.show(view.tables, now, series, view.acts);
}

/** The sentence at the top: which of the cards to look at, and why. */
function summary(cards) {
  const [first, ...others] = ["bad", "warn"].flatMap((state) => cards.filter((card) => card.state === state));
  if (first) {
    const also = others.length ? ` Also: ${others.map((card) => card.name).join(", ")}.` : "";
    return [first.state, `Look at ${first.name}: ${first.reasons[0]}.${also}`];
  }
  return cards.some((card) => card.state === "idle") ? ["idle", view.kind.idle] : ["ok", "Nothing stands out"];
}

function answer(state, text) {
  // Its numbers change each second: it is read aloud only when something else is the matter.
  if (byId("answer").dataset.state !== state) write(byId("news"), text);
  byId("answer").dataset.state = state;
  write(byId("answer"), text);
}

function showCard(card, index) {
  if (!byId("cards").children[index]) {
    const facts = Object.keys(card.facts).map((name) => make("div", {}, make("dt", {}, name), make("dd")));
    const parts = [
      make("h3", {}, card.name.replace("the ", "")),
      make("p", { className: "state" }),
      make("dl", {}, ...facts),
    ];
    byId("cards").append(make("article", {}, ...parts, make("p", { className: "reasons" })));
  }
  const article = byId("cards").children[index];
  const [, state, facts, reasons] = article.children;
  article.dataset.state = card.state;
  write(state, WORDS[card.state]);
  write(reasons, card.reasons.length ? `${card.reasons.join("; ")}.` : "");
  Object.values(card.facts).forEach((value, at) => write(facts.children[at].lastChild, value));
}

// -- the connection ----------------------------------------------------------------------------------------------

function hear() {
  lastEvent = Date.now();
  lostSince = 0;
  connection(paused ? "paused" : "live");
}

function lose() {
  lostSince ||= lastEvent || Date.now();
  const what = lastEvent ? "connection lost since" : "no connection since";
  connection("lost", `${what} ${clock(lostSince / 1000)}, trying again`);
}

function connection(state, text = state) {
  byId("connection").dataset.state = state;
  document.body.dataset.connection = state;
  write(byId("connection"), text);
}

setInterval(() => {
  if (!lastEvent || Date.now() - lastEvent < STALE) return;
  lose();
  // A network may swallow a connection without an error.
  if (Math.floor((Date.now() - lastEvent) / 1000) % 15 === 14) open();
}, 1000);

byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").ariaPressed = String(paused);
  if (lostSince) return;
  connection(paused ? "paused" : "live");
  if (!paused && view) showAll();
});

const redraw = () => view?.charts.forEach((chart) => chart.redraw());
let resizing = 0;
addEventListener("theme", redraw);
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(redraw, 100);
});

open();
