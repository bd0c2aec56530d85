// What the inspector shows before a race's first step: what its parts will say, and how tokens and times are drawn.
import { make } from "../lib/dom.js";
import { TIME_PARTS } from "../lib/tooltips.js";
import { chip } from "./notes.js";
import { NODE_WORDS } from "./tree.js";

/**
 * A sign and what it stands for.
 * @typedef {[HTMLElement, string]} Sign
 */

// The names of the kinds of nodes, with the kinds.
/** @type {[string, keyof NODE_WORDS][]} */
const KINDS = [
  ["accepted", "accepted"],
  ["rejected", "rejected"],
  ["never reached", "unverified"],
  ["model's own", "bonus"],
];

/** @param {Sign[]} signs */
function drawSigns(signs) {
  const list = make("dl", "signs");
  for (const [sign, words] of signs) {
    const name = make("dt");
    name.append(sign);
    list.append(name, make("dd", "", words));
  }
  return list;
}

function drawTimeSign(part, name) {
  const sign = make("span", "split-keys");
  sign.append(make("i", part), name);
  return sign;
}

// The parts of a step, under the headings that they will have.
export function drawPreview() {
  /** @type {Sign[]} */
  const kinds = KINDS.map(([name, kind]) => [chip(name, kind, "", ""), `${NODE_WORDS[kind]}.`]);
  /** @type {Sign[]} */
  const times = TIME_PARTS.map(([part, name, words]) => [drawTimeSign(part, name), words]);
  /** @type {[string, string, Sign[]][]} */
  const parts = [
    ["Draft tree", "The tokens that the drafter proposed, each with what became of it:", kinds],
    ["Time of this step", "On the lane's own clock:", times],
    [
      "Attention mask",
      "Which draft tokens each token of the draft sees, so that one forward verifies all of them.",
      [],
    ],
    ["Drafter details", "What the drafter looked up, and what it found.", []],
  ];
  return parts.map(([title, words, signs]) => {
    const node = make("div", "part");
    node.append(make("h3", "", title), make("p", "", words), ...(signs.length ? [drawSigns(signs)] : []));
    return node;
  });
}
