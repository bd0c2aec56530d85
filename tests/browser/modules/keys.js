import { leaveField, usesKey, entryKey } from "../../../specrace/ui/static/stage/keys.js";
import { put } from "./fixtures.js";

const host = put(["input", {}], ["input", { type: "range" }], ["input", { type: "radio" }], ["button", {}], ["p", {}]);
const [field, slider, choice, button, paragraph] = host.children;
const player = put(["input", { type: "range" }]);
player.className = "player";
const time = player.firstChild;
const wide = scroller("200px");
const narrow = scroller("50px");

// A region 100 px wide, with a paragraph of this width.
function scroller(width) {
  const box = put(["p", {}]);
  box.className = "scroller";
  Object.assign(box.style, { width: "100px", overflowX: "auto" });
  box.firstChild.style.width = width;
  return box;
}

// The elements that use a key themselves when they have the focus.
function usersOf(key) {
  return Object.entries({ field, slider, choice, button, paragraph, time, wide, narrow }).flatMap(([name, target]) =>
    usesKey({ target, key }) ? [name] : [],
  );
}

export const cases = {
  "text fields use letters": () => [usersOf("r"), ["field"]],
  "a text field gives the keys back to the stage": () => {
    const node = put();
    node.tabIndex = -1;
    const left = [field, button].map((target) => {
      target.focus();
      leaveField({ node }, target);
      return document.activeElement === node;
    });
    return [left, [true, false]];
  },
  "no element uses Escape": () => [usersOf("Escape"), []],
  "text fields, choices and buttons use the space bar": () => [usersOf(" "), ["field", "choice", "button"]],
  "text fields, choices, sliders of settings and wide regions use arrow keys": () => [
    usersOf("ArrowLeft"),
    ["field", "slider", "choice", "wide"],
  ],
  "the keys of all lanes have one name": () => [["1", "6", "7", "r"].map(entryKey), ["1", "1", "7", "r"]],
};
