// Small charts of a number by step: one line for each filter, told apart by colour and by dashes.

import { sharp } from "/draw.js";

const DASHES = { exact: [2, 3], particle: [6, 3], neural: [] };

function style(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function stroke(pen, role) {
  pen.strokeStyle = style(`--${role}`); pen.lineWidth = role === "exact" ? 2 : 2.2; pen.setLineDash(DASHES[role]);
}

export function sample(canvas, role) {
  const [pen, width, height] = sharp(canvas);
  stroke(pen, role);
  pen.beginPath(); pen.moveTo(0, height / 2); pen.lineTo(width, height / 2); pen.stroke();
}

function nice(low, high) {
  const step = 10 ** Math.floor(Math.log10((high - low) / 2 || 1));
  return [1, 2, 5, 10].map((k) => k * step).find((k) => (high - low) / k <= 3.5);
}

// lines: [role, numbers by step or null], with a gap where only others have a number; `limit` is a dashed level; `least` the least range of the axis.
export function chart(canvas, lines, now, { least, limit }) {
  const [pen, width, height] = sharp(canvas);
  const told = lines.flatMap(([, values]) => values).filter((value) => value !== null);
  let low = Math.min(least[0], ...told), high = Math.max(least[1], ...told);
  if (limit !== undefined && high > limit / 2) high = Math.max(high, 1.1 * limit);
  const left = 34, right = width - 8, top = 6, bottom = height - 16;
  const steps = Math.max(10, ...lines.map(([, values]) => values.length - 1));
  const x = (step) => left + ((right - left) * step) / steps, y = (v) => bottom - ((bottom - top) * (v - low)) / (high - low || 1);
  pen.font = "11px system-ui, sans-serif"; pen.fillStyle = style("--faint"); pen.strokeStyle = style("--line"); pen.lineWidth = 1;
  pen.textAlign = "right"; pen.textBaseline = "middle";
  const gap = nice(low, high);
  for (let tick = Math.ceil(low / gap) * gap; tick <= high + 1e-9; tick += gap) {
    pen.beginPath(); pen.moveTo(left, y(tick)); pen.lineTo(right, y(tick)); pen.stroke();
    pen.fillText(String(Number(tick.toFixed(6))), left - 5, y(tick));
  }
  pen.textAlign = "center"; pen.textBaseline = "top";
  pen.fillText("0", x(0), bottom + 4); pen.fillText(String(steps), Math.min(x(steps), width - 10), bottom + 4);
  if (limit !== undefined && limit <= high) {
    pen.setLineDash([5, 4]); pen.strokeStyle = style("--agent"); pen.lineWidth = 1.5;
    pen.beginPath(); pen.moveTo(left, y(limit)); pen.lineTo(right, y(limit)); pen.stroke();
  }
  pen.setLineDash([]); pen.strokeStyle = style("--faint"); pen.lineWidth = 1; pen.globalAlpha = 0.6;
  pen.beginPath(); pen.moveTo(x(now), top); pen.lineTo(x(now), bottom); pen.stroke();
  pen.globalAlpha = 1;
  for (const [role, values] of lines) {
    stroke(pen, role);
    pen.beginPath();
    let down = false;
    values.forEach((value, step) => {
      if (value === null) { down &&= lines.every(([, others]) => others[step] === null); return; }
      if (down) pen.lineTo(x(step), y(value)); else pen.moveTo(x(step), y(value));
      down = true;
    });
    pen.stroke(); pen.setLineDash([]);
    if (values[now] !== null && values[now] !== undefined) {
      pen.beginPath(); pen.arc(x(now), y(values[now]), 3, 0, 2 * Math.PI); pen.fillStyle = style(`--${role}`); pen.fill();
    }
  }
}
