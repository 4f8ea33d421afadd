// What is said and set in each problem. A tool: its name, its title, a hint. A setting: its name, its title, its choices
// or [least, most, step].

export const SIGNS = { up: "↑", down: "↓", left: "←", right: "→", scan: "scan", stay: "stay" };
export const TOOLS = {
  gridworld: [["none", "Steer only", "Choose a tool to redraw the map."],
    ["walls", "Draw walls", "Click or drag over cells; or arrows, then Enter."],
    ["goal", "Move the goal", "Click a cell; or arrows, then Enter. The filters are told."]],
  triangulation: [["none", "Steer only", "Choose the tool to move beacons."],
    ["beacons", "Move beacons", "Drag a beacon; or arrows to move it, Enter for the next one."]],
  lake: [["none", "Steer only", "The filters are told where the boat is. The transponder never moves."]],
  cards: [["none", "Hide the deal", "Each row says who may hold a card: the probability in percent."],
    ["deal", "Reveal the deal", "An outline marks who was dealt each card. No filter sees it."]],
};
const PLAYS = { rule: "by a rule", roughly: "roughly by it", random: "at random", contrary: "against it" };
export const SETTINGS = {
  gridworld: [["walks", "The agent walks to its goal", { straight: "straight", roughly: "roughly", anywhere: "does not care" }],
    ["error", "Wrong observations", [0.01, 0.6, 0.01]]],
  triangulation: [["error", "Noise of a reading", [0.1, 1.5, 0.05]], ["motion", "Noise of a move", [0.02, 0.5, 0.02]]],
  cards: [["plays", "Left and Right play", PLAYS], ["believed", "The filters think they play", { same: "as they do", ...PLAYS }]],
  lake: [["reach", "Reach of the receiver", [2, 6, 0.25]], ["error", "Rings for nothing", [0.02, 0.25, 0.01]]],
};
export const AUTO = { gridworld: "Agent acts", triangulation: "Agent acts", lake: "Boat sails on", cards: "Next" };
// What the counts of a filter count, where it is not particles.
export const UNITS = { cards: { neural: "calls" } };
