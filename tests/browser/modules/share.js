import { linkTo, nameFile } from "../../../specrace/ui/static/share.js";
import { HOSTILE, LANES } from "./given.js";

export const cases = {
  "a file's name has letters and digits only": () => [
    ["What is <b>a trie?", undefined, "../../etc"].map(nameFile),
    ["race-what-is-b-a-trie.jsonl", "race.jsonl", "race-etc.jsonl"],
  ],
  "a link asks for the same race": () => {
    const head = { question: HOSTILE, lanes: LANES, passages: [], settings: { seed: 0, temperature: null } };
    const url = new URL(linkTo({ head }));
    return [
      [url.origin === location.origin, Object.fromEntries(url.searchParams)],
      [true, { q: HOSTILE, lanes: "vanilla,trie", seed: "0", autorun: "1" }],
    ];
  },
};
