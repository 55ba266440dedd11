// The page: it follows the event stream, and draws what that says.

import * as acts from "./acts.js";
import { Chart } from "./charts.js";
import { KINDS } from "./kinds.js";
import { clock, Series } from "./series.js";
import { Table } from "./tables.js";

const STALE = 3500; // milliseconds without an event after which the connection counts as lost
const RETRY = 2000;
const WORDS = { ok: "normal", warn: "look here", bad: "trouble", idle: "no data" };
const byId = (id) => document.getElementById(id);

let source = null;
let series = null;
let view = null; // what is shown for the kind of server: charts, tables, and the functions that fill them
let now = null;
let lastEvent = 0;
let lostSince = 0;
let paused = false;

function open() {
  source?.close();
  source = new EventSource("/events");
  source.addEventListener("history", (event) => begin(JSON.parse(event.data)));
  source.addEventListener("second", (event) => advance(JSON.parse(event.data)));
  source.addEventListener("error", () => {
    lose();
    // A server that answers with an error is not asked again by the browser.
    if (source.readyState === EventSource.CLOSED) setTimeout(open, RETRY);
  });
}

function begin(about) {
  heard();
  series = new Series(about);
  byId("kind").textContent = about.kind;
  byId("about").textContent = `${about.instance}, version ${about.version}`;
  document.title = `headgate ${about.kind}: ${about.instance}`;
  const kind = KINDS[about.kind];
  if (!kind) {
    answer("idle", "This server has no dashboard: see /api/state and /metrics");
    return;
  }
  if (view?.name !== about.kind) {
    byId("charts").replaceChildren();
    byId("tables").replaceChildren();
    view = {
      name: about.kind,
      kind,
      charts: kind.charts.map((spec) => new Chart(spec, byId("charts"))),
      tables: Object.fromEntries(kind.tables.map((spec) => [spec.id, new Table(spec, byId("tables"))])),
    };
  }
  view.acts = acts.allowed(about.acts) ? acts : null;
  acts.start(about.acts, about.kind);
  for (const chart of view.charts) chart.reset(series);
  if (series.length) show();
  else answer("idle", "No data yet: the first second is being counted");
}

function advance(event) {
  heard();
  if (!series || !view) return;
  series.add(event.row);
  now = event.now ?? now;
  if (paused) return;
  for (const chart of view.charts) chart.add(series);
  show();
}

function show() {
  const cards = view.kind.cards(series, now);
  showCards(cards);
  answer(...summary(cards, view.kind));
  if (now) view.kind.show(view.tables, now, series, view.acts);
}

/** The sentence at the top: which of the cards to look at, and why. */
function summary(cards, kind) {
  const trouble = ["bad", "warn"].flatMap((state) => cards.filter((card) => card.state === state));
  if (trouble.length) {
    const [first, ...others] = trouble;
    const also = others.length ? ` Also: ${others.map((card) => card.title.toLowerCase()).join(", ")}.` : "";
    return [first.state, `${first.blame}: ${first.reasons[0]}.${also}`];
  }
  if (cards.every((card) => card.state === "idle")) return ["idle", kind.idle];
  return ["ok", "Nothing stands out"];
}

function answer(state, text) {
  const element = byId("answer");
  element.dataset.state = state;
  if (element.textContent !== text) element.textContent = text;
}

function showCards(cards) {
  const parent = byId("cards");
  cards.forEach((card, index) => {
    let article = parent.children[index];
    if (!article) {
      article = document.createElement("article");
      article.append(...["h3", "p", "dl", "p"].map((name) => document.createElement(name)));
      article.children[1].className = "state";
      article.children[3].className = "reasons";
      parent.append(article);
    }
    const [title, state, list, reasons] = article.children;
    article.dataset.state = card.state;
    write(title, card.title);
    write(state, WORDS[card.state]);
    write(reasons, card.reasons.length ? `${card.reasons.join("; ")}.` : "");
    card.facts.forEach(([name, value], at) => {
      let fact = list.children[at];
      if (!fact) {
        fact = document.createElement("div");
        fact.append(document.createElement("dt"), document.createElement("dd"));
        list.append(fact);
      }
      write(fact.children[0], name);
      write(fact.children[1], value);
    });
  });
}

function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// -- the connection ----------------------------------------------------------------------------------------------

function heard() {
  lastEvent = Date.now();
  lostSince = 0;
  connection(paused ? "paused" : "live", paused ? "paused" : "live");
}

function lose() {
  lostSince ||= lastEvent || Date.now();
  const what = lastEvent ? "connection lost since" : "no connection since";
  connection("lost", `${what} ${clock(lostSince / 1000)}, trying again`);
}

function connection(state, text) {
  const element = byId("connection");
  element.dataset.state = state;
  document.body.dataset.connection = state;
  write(element, text);
}

setInterval(() => {
  if (!lastEvent || Date.now() - lastEvent < STALE) return;
  lose();
  if (Date.now() - lastEvent > 5 * STALE) {
    // The network may have swallowed the connection without an error.
    lastEvent = Date.now() - STALE;
    open();
  }
}, 1000);

byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  byId("pause").textContent = paused ? "Go on" : "Pause";
  if (lostSince) return;
  connection(paused ? "paused" : "live", paused ? "paused" : "live");
  if (!paused && view && series) {
    for (const chart of view.charts) chart.reset(series);
    show();
  }
});

const redraw = () => view?.charts.forEach((chart) => chart.redraw());
let resizing = 0;
addEventListener("theme", redraw);
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(redraw, 100);
});

open();
