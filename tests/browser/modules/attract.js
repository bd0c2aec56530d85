import { Attract } from "../../../specrace/ui/static/gallery/attract.js";
import { put } from "./fixtures.js";

// Attract mode on two recordings: it plays them in turn until the visitor acts. `played` lists its calls of the
// gallery.
function makeAttract() {
  const played = [];
  const node = put();
  const gallery = {
    play: async (name, { automatic }) => played.push(`${name} ${automatic}`),
    cancelAutomatic: () => played.push("cancelled"),
  };
  return { played, node, attract: new Attract({ node, gallery }, [{ name: "a" }, { name: "b" }]) };
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "races play in turn": async () => {
    const { attract, played } = makeAttract();
    await attract.play();
    await attract.play();
    await attract.play();
    attract.stop();
    return [played, ["a true", "b true", "a true"]];
  },
  "no race plays after the visitor has pressed a key": async () => {
    const { attract, played } = makeAttract();
    await attract.play();
    document.dispatchEvent(new KeyboardEvent("keydown", { key: "x" }));
    await attract.play();
    return [played, ["a true"]];
  },
  "no race plays if the address is refused": async () => {
    const { attract, played, node } = makeAttract();
    node.dispatchEvent(new CustomEvent("refused"));
    await attract.play();
    return [played, []];
  },
  "no race plays after the address has changed": async () => {
    const { attract, played } = makeAttract();
    window.dispatchEvent(new HashChangeEvent("hashchange"));
    await attract.play();
    return [played, []];
  },
  "on a page that can race, a stop cancels the recording that is loading": () => {
    const { attract, played } = makeAttract();
    const race = put(["button", { id: "race" }]);
    attract.stop();
    race.remove();
    return [played, ["cancelled"]];
  },
};
