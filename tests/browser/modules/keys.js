import { isTaken, nameOf } from "../../../specrace/ui/static/keys.js";
import { put } from "./given.js";

const host = put(["input", {}], ["input", { type: "range" }], ["input", { type: "radio" }], ["button", {}], ["p", {}]);
const [field, slider, choice, button, words] = host.children;
const player = put(["input", { type: "range" }]);
player.className = "player";
const time = player.firstChild;
const wide = scroller("200px");
const narrow = scroller("50px");

// A region of 100 pixels with something in it.
function scroller(width) {
  const box = put(["p", {}]);
  box.className = "scroller";
  Object.assign(box.style, { width: "100px", overflowX: "auto" });
  box.firstChild.style.width = width;
  return box;
}

function whoTakes(key) {
  return Object.entries({ field, slider, choice, button, words, time, wide, narrow }).flatMap(([name, target]) =>
    isTaken({ target, key }) ? [name] : [],
  );
}

export const cases = {
  "letters are taken while somebody types": () => [whoTakes("r"), ["field"]],
  "Esc by nobody": () => [whoTakes("Escape"), []],
  "space by what it presses, too": () => [whoTakes(" "), ["field", "choice", "button"]],
  "arrows by choices, settings' sliders, and what is too wide": () => [
    whoTakes("ArrowLeft"),
    ["field", "slider", "choice", "wide"],
  ],
  "lanes have one entry": () => [["1", "6", "7", "r"].map(nameOf), ["1", "1", "7", "r"]],
};
