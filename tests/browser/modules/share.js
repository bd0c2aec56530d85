import {
  addressOf,
  removeRaceFromAddress,
  containsRace,
  linkWithSettings,
  nameFile,
  linkWithRace,
  readShareCode,
  unpackRace,
} from "../../../specrace/ui/static/lib/share.js";
import { HOSTILE, LANES } from "./fixtures.js";

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "a file's name has letters and digits only": () => [
    ["What is <b>a trie?", undefined, "../../etc"].map((question) => nameFile(question)),
    ["race-what-is-b-a-trie.jsonl", "race.jsonl", "race-etc.jsonl"],
  ],
  "the address has only settings that differ from the defaults, and starts no race": () => {
    // The address has seed=3, which the last call leaves: without defaults it only removes autorun.
    const usual = { q: "", lanes: ["vanilla", "trie"], tokens: 160, seed: 0 };
    const start = "http://specrace.test/?own=1&tokens=40&autorun=1&seed=3";
    return [
      [
        addressOf(start, usual, ["Why & how?", ["vanilla", "fusion"], 160, 3]),
        addressOf(start, usual, ["", ["vanilla", "trie"], 40, 0]),
        addressOf(start, {}, []),
      ],
      [
        "http://specrace.test/?own=1&seed=3&q=Why+%26+how%3F&lanes=vanilla%2Cfusion",
        "http://specrace.test/?own=1&tokens=40",
        "http://specrace.test/?own=1&tokens=40&seed=3",
      ],
    ];
  },
  "a link asks for the same race": () => {
    const head = { question: HOSTILE, lanes: LANES, passages: [], settings: { seed: 0, num_draft: null } };
    const url = new URL(linkWithSettings({ head }));
    return [
      [url.origin === location.origin, Object.fromEntries(url.searchParams)],
      [true, { q: HOSTILE, lanes: "vanilla,trie", seed: "0", draft: "auto", passages: "0", autorun: "1" }],
    ];
  },
  "a short link has a code": () => [
    ["#shared=0a1b", "#shared=0A1b).", "#shared=", "#shared=../x", "#race=0a1b", ""].map((hash) => [
      readShareCode(hash),
      containsRace(hash),
    ]),
    [
      ["0a1b", true],
      ["0a1b", true],
      [undefined, true],
      [undefined, true],
      [undefined, true],
      [undefined, false],
    ],
  ],
  "an address holds a race until it is dropped": async () => {
    const reel = { head: {}, started: { question: HOSTILE }, steps: [{ event: { a: 1 } }], finished: { b: "é" } };
    const { hash } = new URL(await linkWithRace(reel));
    const rows = await (await unpackRace(hash)).text();
    location.hash = hash;
    const held = containsRace(location.hash);
    removeRaceFromAddress();
    const afterRemoval = location.hash;
    location.hash = "#other";
    removeRaceFromAddress();
    const other = location.hash;
    location.hash = "";
    return [
      [
        rows.trim().split("\n").map(JSON.parse),
        held,
        afterRemoval,
        other,
        await unpackRace("#race=%%%"),
        await unpackRace("#shared=x/y"),
      ],
      [[{ question: HOSTILE }, { a: 1 }, { b: "é" }], true, "", "#other", undefined, undefined],
    ];
  },
};
