// The page: keys, buttons and the websocket. What is believed comes from the server; nothing is computed here.

import { choose as chooseCard, fillTable, showGame } from "/cards.js";
import { chart, sample } from "/chart.js";
import { $, element } from "/dom.js";
import { belief, bytes } from "/draw.js";
import { AUTO, SETTINGS, SIGNS, TOOLS, UNITS } from "/problems.js";

const ARROWS = { ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right" };
const STEPS = { up: [-1, 0], down: [1, 0], left: [0, -1], right: [0, 1] };
const HALF = 5; // of Triangulation's square
const CHARTS = [
  ["js", "JS to the exact belief, nats", { least: [0, 0.1] }],
  ["evidence", "log p(y), nats", { least: [-1, 0] }],
  ["ess", "Effective sample size", { least: [0, 1] }],
  ["log_e", "Surprise: evidence against the predictions", { least: [-1, 1], limit: Math.log(1000) }],
];

const page = { hello: null, frame: null, busy: false, next: null, tool: "none", cursor: null, beacon: 0, stroke: null, socket: null, tries: 0, built: "" };

// ---- memory of this tab -------------------------------------------------------------------------------------------

function remembered(name) { try { return sessionStorage.getItem(`nbf-${name}`); } catch { return null; } }
function remember(name, text) { try { sessionStorage.setItem(`nbf-${name}`, text); } catch { /* the page works without */ } }

// ---- theme --------------------------------------------------------------------------------------------------------

const darkness = matchMedia("(prefers-color-scheme: dark)");
function theme() { return remembered("theme") || (darkness.matches ? "dark" : "light"); }
function dress() { document.documentElement.dataset.theme = theme(); if (page.frame) render(); }
function toggleTheme() { remember("theme", theme() === "dark" ? "light" : "dark"); dress(); }

// ---- the websocket ------------------------------------------------------------------------------------------------

function notice(text) { $("notice").textContent = text; $("notice").hidden = !text; }
function connection(text, on) { $("connection").textContent = text; $("connection").className = on ? "on" : ""; }

function connect() {
  const token = new URLSearchParams(location.search).get("token"), pass = token || remembered("pass");
  if (token) history.replaceState(null, "", "/");
  if (pass === null) {
    connection("not connected", false);
    notice("Open the address that `nbf play` printed in its terminal: it holds a token.");
    return;
  }
  connection(page.tries ? "connecting again" : "connecting", false);
  const socket = new WebSocket(`ws://${location.host}/socket`);
  page.socket = socket;
  socket.onopen = () => {
    const recipe = remembered("recipe");
    socket.send(JSON.stringify({ type: "hello", pass, recipe: recipe ? JSON.parse(recipe) : null }));
    page.busy = true;
  };
  socket.onmessage = (event) => receive(JSON.parse(event.data));
  socket.onclose = (event) => {
    page.busy = false; page.next = null;
    if (event.code === 4001 || event.code === 4002) { connection("not connected", false); return; }
    connection("connection lost", false);
    if (page.tries > 1) notice("The server does not answer. If it was stopped, start `nbf play` again: this page goes on by itself.");
    setTimeout(connect, Math.min(3000, 300 * 1.6 ** page.tries++));
  };
}

function send(message) {
  if (!page.socket || page.socket.readyState !== WebSocket.OPEN || !page.frame) return;
  if (page.busy) { page.next = message; return; } // the last wish counts
  page.busy = true;
  page.socket.send(JSON.stringify(message));
}

function receive(message) {
  if (message.type === "status") { notice(message.text); return; }
  if (message.type === "refused") { notice(message.text); remember("pass", ""); try { sessionStorage.removeItem("nbf-pass"); } catch { /* none */ } return; }
  if (message.type === "hello") {
    page.hello = message; page.tries = 0;
    remember("pass", message.pass);
    connection("connected", true); notice("");
    buildProblems();
    return;
  }
  if (message.type === "frame") {
    for (const filter of message.filters) if (filter.shades) filter.shades = bytes(filter.shades);
    page.frame = message;
    remember("recipe", JSON.stringify(message.recipe));
    notice("");
    render();
  } else if (message.type === "file") {
    save(message);
    notice("");
  } else if (message.type === "error") {
    notice(message.text);
    if (page.frame) render();
  }
  if (message.type === "error" && !page.frame) return;
  page.busy = false;
  if (page.next) { const next = page.next; page.next = null; send(next); }
}

function save({ name, media, data }) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([bytes(data)], { type: media }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// ---- what is asked ------------------------------------------------------------------------------------------------

const onMap = () => problem().picture === "map";
const problem = () => page.hello.problems.find((each) => each.name === page.frame.problem);
function act(action) { if (problem().actions.includes(action)) send({ type: "act", action }); }
function go(step) { if (step >= 0 && step <= page.frame.steps) send({ type: "go", step }); }
function change(settings) { send({ type: "change", settings }); }
function begin(name) { send({ type: "new", problem: name, seed: Math.floor(Math.random() * 2 ** 31) }); }

// ---- building -----------------------------------------------------------------------------------------------------

function buildProblems() {
  $("problems").replaceChildren(...page.hello.problems.map(({ name, title }, k) =>
    element("button", { type: "button", "data-problem": name, title: `${k + 1}`, onclick: () => begin(name) }, title)));
}

function buildFor(frame) {
  page.built = frame.problem; page.tool = "none"; page.cursor = null; page.beacon = 0;
  $("steer").firstElementChild.textContent = onMap() ? "Steer" : "Play";
  $("tools").firstElementChild.textContent = onMap() ? "On the map" : "The deal";
  $("cards").hidden = onMap();
  $("auto").disabled = false;
  $("pad").replaceChildren(...problem().actions.filter((each) => onMap() && each !== "auto").map((action) =>
    element("button", { type: "button", "data-action": action, "aria-label": action, onclick: () => act(action) }, SIGNS[action])));
  $("auto").textContent = AUTO[frame.problem];
  $("toolbox").replaceChildren(...TOOLS[frame.problem].map(([name, title]) =>
    element("button", { type: "button", "data-tool": name, onclick: () => choose(name) }, title)));
  $("panels").replaceChildren(...frame.filters.map(buildPanel));
  $("settings").replaceChildren($("settings").querySelector("legend"), ...SETTINGS[frame.problem].map(buildSetting),
    ...["particle", "neural"].map((role) => buildSetting([role, `${capital(unit(role))}, ${role} filter`, Object.fromEntries(page.hello.counts[role].map((n) => [n, String(n)]))])));
  $("charts").replaceChildren(element("div", { id: "legend" }, ...frame.filters.map(({ role, label }) => {
    const line = element("canvas", { "data-role": role });
    return element("span", {}, line, label);
  })), ...CHARTS.map(([name, title]) => element("div", { class: "chart" }, element("h2", {}, title), element("canvas", { "data-chart": name, role: "img", "aria-label": title }))));
}

function buildPanel(filter) {
  const shown = onMap() ? buildMap(filter) : element("table", { class: "belief", "aria-label": `Belief of: ${filter.label}` });
  const numbers = [["js", "JS"], ["ess", "ESS"], ["evidence", "log p(y)"], ["p", "p"], ["microseconds", "µs"]].map(([name, title]) =>
    element("div", {}, element("dt", {}, title), element("dd", { "data-number": name })));
  return element("figure", { class: "panel", "data-role": filter.role },
    element("figcaption", {}, filter.label, element("span", {}), element("em", {})), shown, element("dl", {}, ...numbers));
}

function buildMap(filter) {
  const canvas = element("canvas", { class: "belief", role: "img", "aria-label": `Belief of: ${filter.label}` });
  canvas.addEventListener("pointerdown", (event) => pressed(event, canvas));
  canvas.addEventListener("pointermove", (event) => dragged(event, canvas));
  canvas.addEventListener("pointerup", released);
  canvas.addEventListener("pointercancel", () => { page.stroke = null; render(); });
  return canvas;
}

function buildSetting([name, title, kind]) {
  if (!Array.isArray(kind)) {
    const options = Object.entries(kind).map(([value, text]) => element("option", { value }, text));
    const number = name === "particle" || name === "neural";
    return element("label", {}, title, element("select", { "data-setting": name, onchange: (event) => change({ [name]: number ? Number(event.target.value) : event.target.value }) }, ...options));
  }
  const [min, max, step] = kind, told = element("output", {});
  return element("label", {}, title, told, element("input", {
    type: "range", min, max, step, "data-setting": name,
    oninput: (event) => { told.textContent = event.target.value; },
    onchange: (event) => change({ [name]: Number(event.target.value) }),
  }));
}

// ---- showing ------------------------------------------------------------------------------------------------------

const unit = (role) => UNITS[page.frame.problem]?.[role] || "particles";
const capital = (text) => text[0].toUpperCase() + text.slice(1);
const NUMBER = { js: 3, ess: 1, evidence: 2, p: 2, microseconds: 0 };

function render() {
  const frame = page.frame;
  if (page.built !== frame.problem) buildFor(frame);
  for (const button of $("problems").children) button.toggleAttribute("aria-current", false);
  $("problems").querySelector(`[data-problem="${frame.problem}"]`).setAttribute("aria-current", "page");
  $("said").replaceChildren(element("b", {}, `Step ${frame.step}: `), frame.said);
  $("step").textContent = `step ${frame.step} of ${frame.steps}`;
  $("slider").max = frame.steps; $("slider").value = frame.step;
  $("back").disabled = frame.step === 0; $("forward").disabled = frame.step === frame.steps;
  $("gif").disabled = $("python").disabled = frame.step === 0;
  for (const button of $("toolbox").children) button.setAttribute("aria-pressed", button.dataset.tool === page.tool);
  $("hint").textContent = TOOLS[frame.problem].find(([name]) => name === page.tool)[2];
  for (const input of $("settings").querySelectorAll("[data-setting]")) {
    input.value = frame.settings[input.dataset.setting];
    const told = input.parentElement.querySelector("output");
    if (told) told.textContent = Number(frame.settings[input.dataset.setting].toFixed(3));
  }
  const marks = page.stroke ? page.stroke.marks : frame.marks;
  if (!onMap()) showGame(marks, act);
  for (const filter of frame.filters) {
    const panel = $("panels").querySelector(`[data-role="${filter.role}"]`);
    panel.querySelector("span").textContent = filter.count ? `${filter.count} ${unit(filter.role)}` : "";
    panel.querySelector("em").textContent = filter.recovered ? "all weights were 0" : filter.alarm ? "surprised" : "";
    if (onMap()) belief(panel.querySelector("canvas"), problem().shape, filter, marks, frame.trail, theme(), cursor(marks));
    else fillTable(panel.querySelector("table"), filter.table, marks, page.tool === "deal", theme());
    for (const told of panel.querySelectorAll("[data-number]")) {
      const value = filter[told.dataset.number];
      told.textContent = value === null ? "–" : value.toFixed(NUMBER[told.dataset.number]);
    }
  }
  for (const [name, , options] of CHARTS) {
    const lines = frame.filters.map(({ role }) => [role, frame.history[role][name]]).filter(([, values]) => values.some((value) => value !== null));
    chart($("charts").querySelector(`[data-chart="${name}"]`), lines, frame.step, options);
  }
  for (const line of $("legend").querySelectorAll("canvas")) sample(line, line.dataset.role);
}

// ---- tools of the map ---------------------------------------------------------------------------------------------

function choose(name) {
  page.tool = name;
  page.cursor = name === "walls" || name === "goal" ? (page.cursor || [0, 0]) : null;
  render();
}

function cursor(marks) {
  if (page.tool === "beacons") return { place: marks.beacons[page.beacon], cell: false };
  return page.cursor ? { place: page.cursor.map((k) => k + 0.5), cell: true } : null;
}

const toggled = (walls, [row, column], cell) => walls.map((line, r) => (r === row ? line.slice(0, column) + cell + line.slice(column + 1) : line));
const other = (walls, [row, column]) => (walls[row][column] === "#" ? "." : "#");
// Where places of the picture are in Triangulation's square: the first number is to the right, the second up.
const outside = (place) => { const [rows] = problem().shape; return [(2 * HALF * place[1]) / rows - HALF, HALF - (2 * HALF * place[0]) / rows]; };

function place(event, canvas) {
  const box = canvas.getBoundingClientRect(), [rows, columns] = problem().shape;
  const inside = (value, size) => Math.min(Math.max(value, 0), size);
  return [inside(((event.clientY - box.top) / box.height) * rows, rows), inside(((event.clientX - box.left) / box.width) * columns, columns)];
}

function pressed(event, canvas) {
  if (page.tool === "none") return;
  event.preventDefault();
  canvas.setPointerCapture(event.pointerId);
  const at = place(event, canvas), marks = structuredClone(page.frame.marks);
  if (page.tool === "beacons") {
    const far = marks.beacons.map(([row, column]) => Math.hypot(row - at[0], column - at[1]));
    page.beacon = far.indexOf(Math.min(...far));
    page.stroke = { marks };
  } else {
    const cell = at.map((value) => Math.min(Math.floor(value), problem().shape[0] - 1));
    page.stroke = { marks, cell: page.tool === "walls" ? other(marks.walls, cell) : null };
  }
  dragged(event, canvas);
}

function dragged(event, canvas) {
  if (!page.stroke) return;
  const at = place(event, canvas), { marks } = page.stroke;
  const cell = at.map((value) => Math.min(Math.floor(value), problem().shape[0] - 1));
  if (page.tool === "beacons") marks.beacons[page.beacon] = at;
  else {
    page.cursor = cell;
    if (page.tool === "walls") marks.walls = toggled(marks.walls, cell, page.stroke.cell);
    else marks.goal = cell.map((k) => k + 0.5);
  }
  render();
}

function released() {
  if (!page.stroke) return;
  const { marks } = page.stroke;
  page.stroke = null;
  if (page.tool === "beacons") change({ beacons: marks.beacons.map((each) => outside(each)) });
  else if (page.tool === "walls") change({ walls: marks.walls });
  else change({ goal: marks.goal.map(Math.floor) });
}

function moveCursor(direction) {
  const [down, right] = STEPS[direction], [rows, columns] = problem().shape;
  if (page.tool === "beacons") {
    const by = rows / 20, beacons = page.frame.marks.beacons.map((each) => [...each]);
    const at = beacons[page.beacon];
    beacons[page.beacon] = [Math.min(Math.max(at[0] + by * down, 0), rows), Math.min(Math.max(at[1] + by * right, 0), columns)];
    change({ beacons: beacons.map((each) => outside(each)) });
    return;
  }
  page.cursor = [Math.min(Math.max(page.cursor[0] + down, 0), rows - 1), Math.min(Math.max(page.cursor[1] + right, 0), columns - 1)];
  render();
}

function useTool() {
  if (page.tool === "beacons") { page.beacon = (page.beacon + 1) % page.frame.marks.beacons.length; render(); }
  if (page.tool === "walls") change({ walls: toggled(page.frame.marks.walls, page.cursor, other(page.frame.marks.walls, page.cursor)) });
  if (page.tool === "goal") change({ goal: page.cursor });
}

// ---- keys ---------------------------------------------------------------------------------------------------------

function typed(event) {
  if (!page.frame || event.ctrlKey || event.metaKey || event.altKey) return;
  const on = event.target.closest("input, select, summary");
  const button = event.target.closest("button");
  if (on && (event.key in ARROWS || event.key === " " || event.key === "Enter")) return;
  if (button && (event.key === " " || event.key === "Enter")) return;
  const names = TOOLS[page.frame.problem].map(([name]) => name), key = event.key.toLowerCase();
  if (event.key in ARROWS && !onMap()) chooseCard(event.key === "ArrowLeft" || event.key === "ArrowUp" ? -1 : 1);
  else if (event.key in ARROWS) { if (page.tool === "none") act(ARROWS[event.key]); else moveCursor(ARROWS[event.key]); }
  else if (key === " " || key === "a") act("auto");
  else if (key === "s") { act("scan"); act("stay"); }
  else if (key === ",") go(page.frame.step - 1);
  else if (key === ".") go(page.frame.step + 1);
  else if (key === "t") choose(names[(names.indexOf(page.tool) + 1) % names.length]);
  else if (key === "enter") useTool();
  else if (key === "escape") choose("none");
  else if (key === "n") begin(page.frame.problem);
  else if (key === "g" && page.frame.step) send({ type: "export", kind: "gif" });
  else if (key === "p" && page.frame.step) send({ type: "export", kind: "python" });
  else if (key === "d") toggleTheme();
  else if (page.hello.problems[Number(key) - 1]) begin(page.hello.problems[Number(key) - 1].name);
  else return;
  event.preventDefault();
}

$("auto").onclick = () => act("auto");
$("back").onclick = () => go(page.frame.step - 1);
$("forward").onclick = () => go(page.frame.step + 1);
$("slider").oninput = (event) => go(Number(event.target.value));
$("new").onclick = () => begin(page.frame.problem);
$("gif").onclick = () => send({ type: "export", kind: "gif" });
$("python").onclick = () => send({ type: "export", kind: "python" });
$("theme").onclick = toggleTheme;
darkness.addEventListener("change", dress);
document.addEventListener("keydown", typed);
window.addEventListener("resize", () => page.frame && render());
dress();
connect();
