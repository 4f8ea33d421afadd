// A hand of cards: the players, their trick, the user's cards, and beliefs as tables of percent.

import { $, element } from "/dom.js";
import { RAMPS } from "/draw.js";

const card = (text) => element("span", { class: text.endsWith("♦") ? "card red" : "card" }, text);

function seat({ name, bid, won, deals, points }, { turn, trick }) {
  const played = trick.find(([who]) => who === name);
  const told = bid === null ? "no bid yet" : `bid ${bid}, ${won} won`;
  return element("div", { class: "seat", "aria-current": turn === name && "true" },
    element("b", {}, name), element("span", {}, points === null ? told : `${told}: ${points} points`, deals ? ", deals" : ""),
    played ? card(played[1]) : element("span", { class: "card none" }, "–"));
}

// The game, with a button for each card and bid; `act` does what one is for.
export function showGame(marks, act) {
  const cards = marks.hand.map(([action, text, legal]) => element("button", {
    type: "button", "data-action": action, class: text.endsWith("♦") && "red", disabled: !legal, onclick: () => act(action) }, text));
  const bids = marks.bids.map(([action, bid]) => element("button", { type: "button", "data-action": action, onclick: () => act(action) }, `bid ${bid}`));
  $("cards").replaceChildren(
    element("div", { class: "seats" }, ...marks.players.map((player) => seat(player, marks))),
    element("div", { class: "row" }, element("span", {}, "Trump is the suit of "), card(marks.up), element("span", { class: "gap" }, "Your hand"), ...cards, ...bids));
  $("auto").textContent = marks.turn === null ? "The hand is over" : marks.turn === "You" ? "Play for me" : `${marks.turn} acts`;
  $("auto").disabled = marks.turn === null;
}

// Put the focus on the next thing that the user can choose, or on the one before.
export function choose(by) {
  const open = [...$("cards").querySelectorAll("button:not(:disabled)")], now = open.indexOf(document.activeElement);
  if (open.length) open[now < 0 ? (by > 0 ? 0 : open.length - 1) : (now + by + open.length) % open.length].focus();
}

function luminance(colour) {
  const [red, green, blue] = colour.map((part) => (part <= 10 ? part / 3295 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function shaded(cell, share, theme) {
  const colour = RAMPS[theme][Math.round(255 * share)];
  cell.style.backgroundColor = `rgb(${colour.join(",")})`;
  cell.style.color = luminance(colour) > 0.179 ? "#000" : "#fff"; // a contrast of 4.58 at least
}

// A belief: a row for each card, in percent; a dot for a card that was played.
export function fillTable(table, rows, marks, revealed, theme) {
  const head = element("tr", {}, element("th", { scope: "col" }, "Card"), ...marks.owners.map((owner) => element("th", { scope: "col" }, owner[0], element("span", {}, owner.slice(1)))));
  const body = rows.map((shares, row) => element("tr", { class: marks.played[row] && "played" },
    element("th", { scope: "row", class: marks.cards[row].endsWith("♦") && "red" }, marks.cards[row]),
    ...marks.owners.map((owner, column) => {
      const here = marks.truth[row] === column, cell = element("td", { class: revealed && here && !marks.played[row] && "truth" });
      if (shares === null) {
        cell.textContent = here ? "●" : "";
        if (here) cell.setAttribute("aria-label", `played by ${owner}`);
      } else {
        cell.textContent = shares[column] ? String(Math.round(100 * shares[column])) : "";
        shaded(cell, shares[column], theme);
      }
      return cell;
    })));
  table.replaceChildren(element("thead", {}, head), element("tbody", {}, ...body));
}
