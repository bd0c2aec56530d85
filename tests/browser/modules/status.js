import { readStatus, showStatus } from "../../../specrace/ui/static/stage/status.js";
import { HOSTILE, put } from "./fixtures.js";

export const cases = {
  "a page without a status element": () => [readStatus(), "failed"],
  "the status that the server sends": () => {
    const host = put(["span", {}]);
    host.className = "status";
    showStatus(host, undefined);
    const before = host.dataset.state;
    showStatus(host, JSON.stringify({ state: "ready", text: HOSTILE, refused: [], reason: "" }));
    const read = readStatus();
    host.remove();
    return [
      [before, read, host.textContent, host.querySelectorAll("img").length],
      [undefined, "ready", HOSTILE, 0],
    ];
  },
  "lanes that the model refuses": () => {
    const [host, panel] = [put(["span", {}]), put(["div", {}])];
    panel.id = "settings";
    panel.firstElementChild.id = "refused-lanes";
    panel.firstElementChild.append(document.createElement("p"));
    const say = (refused, reason) => {
      showStatus(host, JSON.stringify({ state: "ready", text: "Ready", refused, reason }));
      return [panel.dataset.refused, panel.textContent];
    };
    const shown = [say(["medusa", "eagle"], HOSTILE), say([], "")];
    const images = panel.querySelectorAll("img").length;
    for (const node of [host, panel]) node.remove();
    return [
      [shown, images],
      [[["medusa eagle", HOSTILE], ["", ""]], 0],
    ];
  },
};
