import { readStatus, showStatus } from "../../../specrace/ui/static/stage/status.js";
import { HOSTILE, put } from "./fixtures.js";

export const cases = {
  "a page without a status element": () => [readStatus(), "failed"],
  "the status that the server sends": () => {
    const host = put(["span", {}]);
    host.className = "status";
    showStatus(host, undefined);
    const before = host.dataset.state;
    showStatus(host, JSON.stringify({ state: "ready", text: HOSTILE }));
    const read = readStatus();
    host.remove();
    return [
      [before, read, host.textContent, host.querySelectorAll("img").length],
      [undefined, "ready", HOSTILE, 0],
    ];
  },
};
