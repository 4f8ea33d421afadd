// Pictures of beliefs on a canvas. Places are (row, column) in cells, from the upper left corner.

const LIGHT = ["#ffffff", "#bfdaee", "#6aaed6", "#1f6cb0", "#0a2f66"];
const DARK = ["#10151c", "#153655", "#1f6cb0", "#6aaed6", "#eaf6ff"];
const LOOK = {
  light: { wall: "#c9c9c9", hatch: "#a9a9a9", ink: "#222222", halo: "#ffffff", agent: "#d55e00", goal: "#f0c419", dot: "#b86e00" },
  dark: { wall: "#444c58", hatch: "#5d6776", ink: "#f2f4f8", halo: "#10151c", agent: "#f07c30", goal: "#f0c419", dot: "#ffc766" },
};

function ramp(colours) {
  const stops = colours.map((c) => [1, 3, 5].map((at) => parseInt(c.slice(at, at + 2), 16)));
  return Array.from({ length: 256 }, (_, shade) => {
    const at = (shade / 255) * (stops.length - 1), low = Math.min(Math.floor(at), stops.length - 2);
    return stops[low].map((value, k) => Math.round(value + (at - low) * (stops[low + 1][k] - value)));
  });
}
export const RAMPS = { light: ramp(LIGHT), dark: ramp(DARK) };

export function bytes(text) {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

// A canvas as sharp as the screen; its context, and its size in CSS pixels.
export function sharp(canvas) {
  const width = canvas.clientWidth, height = canvas.clientHeight, ratio = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return [pen, width, height];
}

function circle(pen, x, y, radius, fill, stroke, width = 1.5) {
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fillStyle = fill;
  pen.fill();
  if (stroke) { pen.lineWidth = width; pen.strokeStyle = stroke; pen.stroke(); }
}

function star(pen, x, y, radius, fill, stroke) {
  pen.beginPath();
  for (let point = 0; point < 10; point++) {
    const far = point % 2 ? 0.45 * radius : radius, angle = Math.PI * (point / 5 - 0.5);
    pen.lineTo(x + far * Math.cos(angle), y + far * Math.sin(angle));
  }
  pen.closePath();
  pen.fillStyle = fill; pen.fill();
  pen.lineWidth = 1; pen.strokeStyle = stroke; pen.stroke();
}

function shades(pen, size, [rows, columns], values, theme) {
  const image = new ImageData(columns, rows), colours = RAMPS[theme];
  for (let cell = 0; cell < values.length; cell++) {
    image.data.set(colours[values[cell]], 4 * cell);
    image.data[4 * cell + 3] = 255;
  }
  const small = new OffscreenCanvas(columns, rows);
  small.getContext("2d").putImageData(image, 0, 0);
  pen.imageSmoothingEnabled = rows > 30;
  pen.drawImage(small, 0, 0, size, size);
}

function walls(pen, unit, rows, look) {
  pen.save();
  pen.beginPath();
  rows.forEach((row, r) => [...row].forEach((cell, c) => cell === "#" && pen.rect(c * unit, r * unit, unit, unit)));
  pen.fillStyle = look.wall; pen.fill(); pen.clip();
  pen.strokeStyle = look.hatch; pen.lineWidth = 1;
  const size = rows.length * unit;
  pen.beginPath();
  for (let at = -size; at < size; at += 7) { pen.moveTo(at, size); pen.lineTo(at + size, 0); }
  pen.stroke();
  pen.restore();
}

function lines(pen, size, count, look) {
  pen.strokeStyle = look.ink; pen.globalAlpha = 0.1; pen.lineWidth = 1;
  pen.beginPath();
  for (let k = 1; k < count; k++) {
    const at = Math.round((k * size) / count) + 0.5;
    pen.moveTo(at, 0); pen.lineTo(at, size); pen.moveTo(0, at); pen.lineTo(size, at);
  }
  pen.stroke();
  pen.globalAlpha = 1;
}

// A belief with what stands in it. `cursor` is where a tool of the map is, or null.
export function belief(canvas, shape, filter, marks, trail, theme, cursor) {
  const [pen, size] = sharp(canvas), look = LOOK[theme], unit = size / shape[0];
  const xy = ([row, column]) => [column * unit, row * unit], mark = Math.max(4.5, size / 38);
  shades(pen, size, shape, filter.shades, theme);
  if (shape[0] < 30) lines(pen, size, shape[0], look);
  if (marks.walls) walls(pen, unit, marks.walls, look);
  if (shape[0] > 20) {
    for (const [row, column, share] of filter.dots) {
      pen.globalAlpha = 0.25 + 0.65 * share;
      circle(pen, ...xy([row, column]), 1.2 + 1.4 * Math.sqrt(share), look.dot);
    }
    pen.globalAlpha = 1;
  }
  pen.strokeStyle = look.ink; pen.lineWidth = 1.5; pen.globalAlpha = 0.55; pen.setLineDash([3, 3]);
  pen.beginPath();
  trail.forEach((place) => pen.lineTo(...xy(place)));
  pen.stroke();
  pen.globalAlpha = 1; pen.setLineDash([]);
  if (marks.goal) star(pen, ...xy(marks.goal), 1.35 * mark, look.goal, look.ink);
  (marks.beacons || []).forEach((place, k) => {
    const [x, y] = xy(place), on = k === marks.active;
    pen.beginPath();
    pen.moveTo(x, y - 1.3 * mark); pen.lineTo(x + 1.2 * mark, y + 0.9 * mark); pen.lineTo(x - 1.2 * mark, y + 0.9 * mark);
    pen.closePath();
    pen.fillStyle = on ? look.goal : look.halo; pen.fill();
    pen.lineWidth = 1.5; pen.strokeStyle = look.ink; pen.stroke();
    pen.fillStyle = on ? "#222222" : look.ink; pen.font = `600 ${Math.round(1.2 * mark)}px system-ui, sans-serif`;
    pen.textAlign = "center"; pen.textBaseline = "middle";
    pen.fillText(String(k + 1), x, y + 0.25 * mark);
  });
  if (marks.boat) {
    const [x, y] = xy(marks.boat);
    pen.beginPath(); pen.arc(x, y, marks.reach * unit, 0, 2 * Math.PI);
    pen.setLineDash([4, 4]); pen.lineWidth = 1; pen.strokeStyle = look.ink; pen.globalAlpha = 0.5; pen.stroke();
    pen.setLineDash([]); pen.globalAlpha = 1;
    pen.save(); pen.translate(x, y); pen.rotate((marks.heading * Math.PI) / 180);
    pen.beginPath(); pen.moveTo(1.7 * mark, 0); pen.lineTo(-1.2 * mark, 0.95 * mark); pen.lineTo(-0.7 * mark, 0);
    pen.lineTo(-1.2 * mark, -0.95 * mark); pen.closePath();
    pen.fillStyle = look.goal; pen.fill(); pen.lineWidth = 1.5; pen.strokeStyle = look.ink; pen.stroke();
    pen.restore();
  }
  circle(pen, ...xy(marks.agent), mark, look.agent, look.halo, 2);
  if (cursor) {
    pen.lineWidth = 3; pen.strokeStyle = look.agent;
    const [x, y] = xy(cursor.place);
    if (cursor.cell) pen.strokeRect(x - unit / 2 + 1.5, y - unit / 2 + 1.5, unit - 3, unit - 3);
    else { pen.beginPath(); pen.arc(x, y, 2 * mark, 0, 2 * Math.PI); pen.stroke(); }
  }
}
