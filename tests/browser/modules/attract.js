import { Attract } from "../../../specrace/ui/static/attract.js";
import { put } from "./given.js";

function attract() {
  const played = [];
  const node = put();
  const gallery = {
    play: async (name, offered) => played.push(`${name} ${offered}`),
    cancelOffered: () => played.push("withdrawn"),
  };
  return { played, node, attract: new Attract({ node, gallery }, [{ name: "a" }, { name: "b" }]) };
}

export const cases = {
  "races play in turn": async () => {
    const { attract: each, played } = attract();
    await each.play();
    await each.play();
    await each.play();
    each.stop();
    return [played, ["a true", "b true", "a true"]];
  },
  "until somebody acts": async () => {
    const { attract: each, played } = attract();
    await each.play();
    document.dispatchEvent(new KeyboardEvent("keydown", { key: "x" }));
    await each.play();
    return [played, ["a true"]];
  },
  "or the address asks for what cannot be": async () => {
    const { attract: each, played, node } = attract();
    node.dispatchEvent(new CustomEvent("refused"));
    await each.play();
    return [played, []];
  },
  "or opens a link": async () => {
    const { attract: each, played } = attract();
    window.dispatchEvent(new HashChangeEvent("hashchange"));
    await each.play();
    return [played, []];
  },
  "what has not come yet is withdrawn where somebody may race": () => {
    const { attract: each, played } = attract();
    const race = put(["button", { id: "race" }]);
    each.stop();
    race.remove();
    return [played, ["withdrawn"]];
  },
};
