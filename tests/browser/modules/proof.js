import { describeCount, describeOthers, Proof, compareTexts } from "../../../specrace/ui/static/explanations/proof.js";
import { CHUNK, put, SERVED, UNTOKENIZED } from "./fixtures.js";
import { differ, REEL } from "./small_race.js";

// Two of three lanes sample their own texts under rejection sampling (badge "law"), so that only vanilla's is left.
const nothingToCompare = structuredClone(REEL);
for (const row of nothingToCompare.results.slice(1)) row.badge = ["law", "sampled from vanilla's distribution"];

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "one text, with all lanes at each token": () => {
    const { tokens, splits } = compareTexts(REEL);
    return [
      [
        tokens.map(({ text }) => text).join(""),
        tokens.every(({ lanes }) => lanes.length === 3 && lanes.every(Boolean)),
        splits,
      ],
      ["The cat sat on", true, []],
    ];
  },
  "the number of equal tokens in words": () => [
    [describeCount(compareTexts(REEL)), describeCount(compareTexts(REEL), 2)],
    ["4 of 4 tokens the same in all 3 lanes", "2 of 2 tokens the same in all 3 lanes so far"],
  ],
  "a difference splits the text": () => {
    const proof = compareTexts(differ());
    return [
      [describeCount(proof), proof.splits, proof.tokens.map(({ lanes }) => lanes)],
      [
        "2 of 4 tokens the same in all 3 lanes",
        [
          {
            at: 2,
            branches: [
              { titles: ["Vanilla", "Trie"], text: "sat on", words: "" },
              { titles: ["Lookahead"], text: "ran off", words: "differs at token 2: near tie, gap 0.004" },
            ],
          },
        ],
        [
          [true, true, true],
          [true, true, true],
          [true, true, false],
          [true, true, false],
        ],
      ],
    ];
  },
  "a lane that samples from the distribution is named but not compared": () => {
    const reel = differ();
    reel.results[2].badge = ["law", "sampled from vanilla's distribution"];
    const proof = compareTexts(reel);
    return [
      [proof.others, proof.lanes.length, describeCount(proof)],
      [["Lookahead"], 2, "4 of 4 tokens the same in all 2 lanes"],
    ];
  },
  "the text of a server that sends no token ids is not compared token by token": () => {
    const reel = structuredClone(REEL);
    reel.head.lanes.push({ lane: "ollama", title: "ollama", served: UNTOKENIZED });
    reel.results.push({ ...reel.results[1], lane: "ollama", badge: ["differs", "differs at character 7"] });
    reel.steps.push({ lane: 3, index: 0, at: 9, event: { ...CHUNK, lane: "ollama" } });
    const proof = compareTexts(reel);
    return [
      [describeCount(proof), describeOthers(proof)],
      [
        "4 of 4 tokens the same in all 3 lanes",
        "Compared as texts, for their servers send no token ids: ollama (differs at character 7).",
      ],
    ];
  },
  "servers that are compared with a server are named": () => {
    const reel = structuredClone(REEL);
    for (const lane of ["plain", "fast"]) {
      reel.head.lanes.push({ lane, title: lane, served: SERVED, reference: "plain" });
      reel.results.push({ ...reel.results[1], lane, badge: ["identical", `identical to ${lane}`] });
    }
    const proof = compareTexts(reel);
    return [
      [proof.lanes.length, describeOthers(proof)],
      [3, "Compared with a server, not with vanilla: plain (identical to plain), fast (identical to fast)."],
    ];
  },
  "a stopped race is compared as far as all lanes have come": () => {
    // Without the last token of the last lane.
    const reel = { ...REEL, phase: "stopped", steps: REEL.steps.slice(0, -1) };
    const proof = compareTexts(reel);
    return [
      [describeCount(proof), proof.splits],
      ["3 of 3 tokens the same in all 3 lanes", []],
    ];
  },
  "a lane that ends early differs": () => [
    compareTexts({ ...REEL, steps: REEL.steps.slice(0, -1) }).splits[0].branches[1],
    { titles: ["Lookahead"], text: "", words: "identical to vanilla" },
  ],
  "without two texts to compare the page shows a sentence": () => {
    const sentences = [];
    const proof = new Proof(put(), (text) => sentences.push(text));
    proof.open(undefined);
    proof.open(nothingToCompare);
    return [
      [proof.node.open, sentences.length],
      [false, 2],
    ];
  },
  "at the end of a race it shows no sentence": () => {
    const sentences = [];
    const proof = new Proof(put(), (text) => sentences.push(text));
    proof.flash(nothingToCompare);
    return [
      [proof.node.open, sentences],
      [false, []],
    ];
  },
  "without motion the proof is shown immediately": () => {
    const proof = new Proof(put(), () => {});
    proof.open(differ());
    const seen = [
      proof.node.querySelectorAll(".away").length,
      proof.node.querySelectorAll(".fork p").length,
      proof.count.textContent,
    ];
    proof.node.close();
    return [seen, [0, 2, "2 of 4 tokens the same in all 3 lanes"]];
  },
};
