import { Stage } from "../../../specrace/ui/static/stage/stage.js";
import { LANES, put } from "./fixtures.js";

const HTML = new URL("../../../specrace/ui/static/stage/stage.html", import.meta.url);
const BADGES = [
  ["reference", "reference"],
  ["identical", "identical to vanilla"],
];

function step(lane, at_ms, end) {
  const event = {
    lane,
    index: 0,
    at_ms,
    tree: { tokens: [5], parents: [-1] },
    verdict: { path: [0] },
    pieces: ["A"],
    emitted: [6],
    texts: ["A"],
    end,
  };
  const meters = { speedup: 1, tokens_per_s: 40, tau: 1, ms: at_ms };
  return { event, frame: { meters, badge: ["none", ""], sources: [1], loops: false } };
}

const row = (lane, speedup, tokens_per_s) => ({
  ...LANES[lane],
  speedup,
  tokens_per_s,
  tau: 1,
  tokens: 1,
  steps: 1,
  ms: 10,
  accepted: 0,
  drafted: 0,
  drafted_per_step: 0,
  end: "eos",
  loops: false,
  badge: BADGES[lane],
});

// Vanilla reached the finish first; over three runs the trie is faster.
const WIRE = {
  phase: "finished",
  head: { question: "Why?", lanes: LANES, passages: [], prompt_tokens: 3, prefill_ms: 1, settings: {} },
  steps: [step("vanilla", 10, "eos"), step("trie", 12, "eos")],
  headline: "N-gram trie is fastest.",
  results: [row(0, 1, 50), row(1, 2.5, 125)],
  pace: null,
  repeated: {
    runs: 3,
    lanes: [
      ["vanilla", 1, 1],
      ["trie", 2, 3],
    ],
  },
};

// Calls `act` with a stage, and removes it afterwards.
async function open(act, server = {}) {
  const html = await (await fetch(HTML)).text();
  const host = put();
  host.append(new DOMParser().parseFromString(html, "text/html").querySelector(".stage"));
  try {
    return await act(new Stage(host.firstChild, { lanes: LANES, cards: [], server }));
  } finally {
    host.remove();
  }
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a recording that arrives while a live race is awaited does not replace it": () => {
    let answer;
    const server = { play_recorded: () => new Promise((done) => (answer = done)) };
    return open(async (stage) => {
      const played = stage.gallery.play("a");
      stage.receiver.receive({ race: 7, kind: "note", phase: "waiting", message: "" });
      answer({ reel: JSON.stringify(WIRE) });
      await played;
      return [
        [stage.reel, stage.receiver.abandonedRace, stage.node.dataset.phase],
        // -1: the page has left no race.
        [undefined, -1, "waiting"],
      ];
    }, server);
  },
  "at the end the panes show the table's figures": () =>
    open((stage) => {
      stage.openReel(WIRE);
      const cells = [...stage.node.querySelectorAll(".results tbody td:nth-child(3)")];
      return [
        [stage.panes.map(({ rate }) => rate.textContent), cells.map((cell) => cell.textContent)],
        [
          ["50", "125"],
          ["50.0", "125.0"],
        ],
      ];
    }),
  "a click on words changes nothing while a live race is played": () =>
    open((stage) => {
      stage.startLiveRace(WIRE);
      stage.panes[0].writeRuns([["own", "A"]], undefined, 0);
      const events = [];
      for (const name of ["cursor", "lost"]) stage.node.addEventListener(name, () => events.push(name));
      stage.node.querySelector("[data-step]").click();
      return [
        [events, stage.player.live],
        [[], true],
      ];
    }),
  "the guess ends when a race fails": () =>
    open((stage) => {
      stage.startLiveRace(WIRE);
      stage.guess.ask(LANES);
      const events = [];
      stage.node.addEventListener("lost", () => events.push("lost"));
      stage.showPhase("failed", "Memory ran out.");
      const { hidden } = stage.find(".guess");
      return [
        [events, hidden, stage.guess.open, stage.find(".announcer").textContent],
        [["lost"], true, false, "Memory ran out."],
      ];
    }),
  "figures over several runs are sent as an event, too": () =>
    open((stage) => {
      stage.openReel(WIRE);
      const events = [];
      stage.node.addEventListener("figures", ({ detail }) => events.push(detail.map(({ speedup }) => speedup)));
      stage.updateFigures({ results: [row(0, 1, 50), row(1, 3, 150)] });
      return [events, [[1, 3]]];
    }),
  "a wrong address is explained, and nothing else plays": () =>
    open((stage) => {
      const events = [];
      stage.node.addEventListener("refused", () => events.push("refused"));
      stage.openReel(WIRE, true);
      stage.receiver.receive({ race: 0, kind: "note", phase: "failed", message: "There is no lane ghost." });
      return [
        [events, stage.find(".announcer").textContent],
        [["refused"], "There is no lane ghost."],
      ];
    }),
  "the lane that reaches the finish first decides whether a guess is right": () =>
    open((stage) => {
      sessionStorage.clear();
      stage.openReel(WIRE);
      const words = [0, 1].map((lane) => {
        stage.guess.ask(LANES);
        stage.guess.choose(lane);
        stage.judgeGuess(WIRE.results);
        return stage.find(".tally").textContent;
      });
      return [words, ["You guessed right: 1 of 1 so far.", "You guessed wrong: 1 of 2 so far."]];
    }),
  "in a stopped race each bar ends where its lane was stopped": () =>
    open(async (stage) => {
      const results = [row(0, 1, 50), row(1, 3, 150)].map((result, lane) => ({ ...result, tokens: [5, 20][lane] }));
      stage.openReel({ ...WIRE, phase: "stopped", results });
      await Promise.resolve();
      return [
        [stage.lengths, stage.track.totals, stage.find(".track").dataset.known, stage.find(".mode").textContent],
        [[20, 20], [20, 20], "false", "Stopped"],
      ];
    }),
};
