import {
  Charts,
  plotTau,
  readFailures,
  readPositions,
  readTau,
  describeInterval,
} from "../../../specrace/ui/static/plots/charts.js";
import { HOSTILE, put } from "./fixtures.js";

// For each tenth of the outputs: steps, those whose draft was rejected at once, and those without a draft.
const TENTHS = [[2, 1, 0], ...Array.from({ length: 8 }, () => [0, 0, 0]), [1, 0, 1]];
// `emitted`[i]: steps that wrote i tokens; `drafted`[i] and `accepted`[i]: steps that drafted and that accepted more
// than i tokens; `tau_low` to `tau_high`: the interval of the tokens per step.
const LANES = [
  {
    lane: "trie",
    number: 0,
    title: HOSTILE,
    emitted: [0, 2, 0, 1],
    drafted: [3, 2],
    accepted: [2, 1],
    tau_low: 1.1,
    tau_high: 1.9,
    tenths: TENTHS,
  },
  {
    lane: "suffix",
    number: 1,
    title: "Suffix",
    emitted: [0, 4],
    drafted: [],
    accepted: [],
    tau_low: null,
    tau_high: null,
    tenths: TENTHS,
  },
];
const row = (lane, category, tau) => ({ lane, category, tau });
const SCORES = { groups: [row("trie", "qa", 9), row("trie", "all", 1.5), row("suffix", "all", 1.25)] };

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "tokens per step over all requests, with the interval if there is one": () => [
    readTau(SCORES, LANES).map((tau) => [tau.lane, tau.tau, tau.low, tau.high, describeInterval(tau)]),
    [
      ["trie", 1.5, 1.1, 1.9, "1.10–1.90"],
      ["suffix", 1.25, null, null, ""],
    ],
  ],
  "each lane's dot is between the ends of its interval, right of vanilla": () => {
    const host = put();
    const plot = plotTau(SCORES, LANES);
    host.append(plot.node);
    plot.canvas.style.width = "600px";
    plot.draw();
    const x = (name) => [...plot.node.querySelectorAll("circle")].map((dot) => Number(dot.getAttribute(name)));
    const [trie, suffix] = x("cx");
    const [, from, to] = /M([\d.]+) .*H([\d.]+)/.exec(plot.node.querySelector(".stairs").getAttribute("d")).map(Number);
    const vanilla = Number(plot.node.querySelector(".vanilla").getAttribute("x1"));
    return [
      [vanilla < from && from < trie && trie < to, vanilla < suffix && suffix < trie, plot.rows[1]],
      [true, true, ["Suffix", 1.25, "", ""]],
    ];
  },
  "acceptance by position": () => [
    readPositions(LANES).map(({ position, steps, accepted }) => [position, steps, accepted]),
    [
      [1, 3, 2],
      [2, 2, 1],
    ],
  ],
  "failures by tenth of the output, for tenths that have steps": () => [
    readFailures(LANES[0]).map(({ tenth, steps, rejected, none }) => [tenth, steps, rejected, none]),
    [
      [1, 2, 1, 0],
      [10, 1, 0, 1],
    ],
  ],
  "every plot can be saved as three kinds of files, and names are text": () => {
    const charts = new Charts();
    put().append(charts.node);
    charts.load(SCORES, LANES);
    charts.draw();
    const buttons = [...charts.node.querySelectorAll("figure:first-child button")].map((node) => node.textContent);
    return [
      [buttons, charts.node.querySelectorAll("figure").length, charts.node.querySelectorAll("img, script").length],
      [["PNG", "SVG", "CSV"], 4, 0],
    ];
  },
  "a file needs no style sheet": () => {
    const charts = new Charts();
    put().append(charts.node);
    charts.load(SCORES, LANES, "a.jsonl");
    charts.draw();
    const file = new DOMParser().parseFromString(charts.plots[0].toSvgText(""), "image/svg+xml");
    const unstyled = [...file.querySelectorAll("text, circle, path")].filter(
      (node) => !node.style.fill && !node.getAttribute("fill"),
    );
    const texts = [...file.querySelectorAll("text")].map((node) => node.textContent).join(" ");
    return [
      [
        file.querySelector("parsererror"),
        file.documentElement.children[1].tagName,
        unstyled.length,
        texts.includes("1.10–1.90"),
        texts.includes("a.jsonl: "),
      ],
      [null, "rect", 0, true, true],
    ];
  },
};
