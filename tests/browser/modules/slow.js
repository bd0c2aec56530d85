import { SlowMotion } from "../../../specrace/ui/static/slow.js";
import { put } from "./given.js";
import { REEL } from "./race.js";

function open(reel) {
  const sentences = [];
  const host = put();
  const slow = new SlowMotion(host, (text) => sentences.push(text));
  Object.assign(slow.canvas.style, { width: "640px", height: "360px" });
  slow.open(reel);
  return { slow, sentences, host };
}

const where = ({ slow }) => [slow.node.dataset.scene, slow.node.dataset.phase].join(" ");

export const cases = {
  "no race, or none that drafted: a sentence": () => {
    const [none, bare] = [undefined, { ...REEL, results: REEL.results.slice(0, 1) }].map(open);
    return [
      [none.slow.node.open, bare.slow.node.open, none.sentences.length, bare.sentences.length],
      [false, false, 1, 1],
    ];
  },
  "without motion, each phase stands still until the next": () => {
    const shown = open(REEL);
    const seen = [where(shown)];
    for (let press = 0; press < 10; press++) {
      shown.slow.press(new KeyboardEvent("keydown", { key: "ArrowRight" }));
      seen.push(where(shown));
    }
    shown.slow.press(new KeyboardEvent("keydown", { key: "ArrowLeft" }));
    seen.push(where(shown));
    shown.slow.node.close();
    const phases = ["source", "draft", "verify", "accept", "cost"];
    const all = [0, 1].flatMap((scene) => phases.map((phase) => `${scene} ${phase}`));
    return [
      [seen, shown.slow.playing],
      [[...all, "1 cost", "1 accept"], 0],
    ];
  },
  "the file is named after its step": () => {
    const { slow } = open(REEL);
    slow.node.close();
    return [slow.nameFile("svg"), "specrace-trie-step-2.svg"];
  },
  "its key closes it": () => {
    const { slow } = open(REEL);
    slow.press(new KeyboardEvent("keydown", { key: "m" }));
    return [slow.node.open, false];
  },
};
