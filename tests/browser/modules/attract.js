import { Attract } from "../../../specrace/ui/static/gallery/attract.js";
import { put } from "./fixtures.js";

function makeAttract() {
  const played = [];
  const node = put();
  const gallery = {
    play: async (name, { automatic }) => played.push(`${name} ${automatic}`),
    cancelAutomatic: () => played.push("cancelled"),
  };
  return { played, node, player: new Attract({ node, gallery }, [{ name: "a" }, { name: "b" }]) };
}

// Each case returns [actual, expected], which test_modules.py compares.
export const cases = {
  "races play in turn": async () => {
    const { player, played } = makeAttract();
    await player.play();
    await player.play();
    await player.play();
    player.stop();
    return [played, ["a true", "b true", "a true"]];
  },
  "no race plays after the visitor has pressed a key": async () => {
    const { player, played } = makeAttract();
    await player.play();
    document.dispatchEvent(new KeyboardEvent("keydown", { key: "x" }));
    await player.play();
    return [played, ["a true"]];
  },
  "no race plays if the address is refused": async () => {
    const { player, played, node } = makeAttract();
    node.dispatchEvent(new CustomEvent("refused"));
    await player.play();
    return [played, []];
  },
  "no race plays after the address has changed": async () => {
    const { player, played } = makeAttract();
    window.dispatchEvent(new HashChangeEvent("hashchange"));
    await player.play();
    return [played, []];
  },
  "on a page that can race, a stop cancels the recording that is loading": () => {
    const { player, played } = makeAttract();
    const race = put(["button", { id: "race" }]);
    player.stop();
    race.remove();
    return [played, ["cancelled"]];
  },
};
