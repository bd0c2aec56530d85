import { isTaken, nameOf } from "../../../specrace/ui/static/keys.js";
import { put } from "./given.js";

const host = put(["input", {}], ["input", { type: "range" }], ["input", { type: "radio" }], ["button", {}], ["p", {}]);
const [field, slider, choice, button, words] = host.children;

function whoTakes(key) {
  return Object.entries({ field, slider, choice, button, words }).flatMap(([name, target]) =>
    isTaken({ target, key }) ? [name] : [],
  );
}

export const cases = {
  "letters are taken while somebody types": () => [whoTakes("r"), ["field"]],
  "Esc by nobody": () => [whoTakes("Escape"), []],
  "space by what it presses, too": () => [whoTakes(" "), ["field", "choice", "button"]],
  "arrows by choices": () => [whoTakes("ArrowLeft"), ["field", "choice"]],
  "lanes have one entry": () => [["1", "6", "7", "r"].map(nameOf), ["1", "1", "7", "r"]],
};
