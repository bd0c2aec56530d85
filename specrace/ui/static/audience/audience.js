// The audience's poll: phones that follow a link or its QR code guess who wins. The stage opens the poll, closes each
// round when the first lane finishes, and shows how many voted and how many were right.
/** @import { OpenedPoll, PollState } from "../lib/wire.d.ts" */
import { ROUTES } from "../lib/constants.js";
import { make, svg, setText } from "../lib/dom.js";
import { hueOf, isServed } from "../lib/lanes.js";
import { listen } from "../lib/stage_events.js";

const POLL_MS = 1000;
// Width of the light border that scanners need, in modules, the squares of the code.
const QUIET_ZONE = 4;
const LOOPBACK = new Set(["localhost", "127.0.0.1", "[::1]"]);

// The address under which phones reach this server, or "". `networkOrigin` is the server's address on its network.
export function originFor({ hostname, origin }, networkOrigin) {
  return LOOPBACK.has(hostname) ? networkOrigin : origin;
}

// Draws a QR code, dark on light with a quiet zone even in dark mode, because scanners need that.
export function drawCode(rows) {
  const size = rows.length + 2 * QUIET_ZONE;
  const picture = svg("svg", { viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": "QR code of the link" });
  const dark = rows.flatMap((row, y) =>
    [...row].map((cell, x) => (cell === "1" ? `M${x + QUIET_ZONE} ${y + QUIET_ZONE}h1v1h-1z` : "")),
  );
  picture.append(svg("rect", { width: size, height: size, fill: "#fff" }));
  picture.append(svg("path", { d: dark.join(""), fill: "#000", "shape-rendering": "crispEdges" }));
  return picture;
}

// What the stage says about a round. How the votes are split stays secret until the round is closed.
/** @param {Pick<PollState, "lanes" | "open" | "counts" | "winner">} state */
export function describeRound({ lanes, open, counts, winner }) {
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (!total) return open ? "Audience: no votes yet." : "";
  const votes = `${total} ${total === 1 ? "vote" : "votes"}`;
  if (open) return `Audience: ${votes}.`;
  const voted = lanes.map((title, index) => ({ title, count: counts[index] })).filter(({ count }) => count);
  voted.sort((a, b) => b.count - a.count);
  const split = voted.map(({ title, count }) => `${title} ${count}`).join(", ");
  return `Audience: ${split}.${winner === null ? "" : ` ${counts[winner]} of ${total} guessed right.`}`;
}

// Sends a request to the poll's route. The error that it throws has `gone`: whether the server no longer has the poll.
async function request(path, body) {
  const options = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const response = await fetch(path, body && options);
  const content = await response.json();
  if (!response.ok) throw Object.assign(new Error(content.error), { gone: response.status < 500 });
  return content;
}

export class Audience {
  constructor(stage, networkOrigin) {
    this.stage = stage;
    this.origin = originFor(location, networkOrigin);
    this.dialog = stage.find(".audience");
    this.line = stage.find(".audience-line");
    /** @type {OpenedPoll | undefined} */
    this.poll = undefined;
    /** @type {PollState | undefined} */
    this.state = undefined;
    this.dialog.querySelector("[data-do=close]").addEventListener("click", () => this.dialog.close());
    const { node } = stage;
    stage.start.isVoteOpen = () => Boolean(this.poll);
    // The phones of the next race must not show who won the last one.
    listen(node, "requested", () => this.setRound(true));
    listen(node, "opened", () => this.setRound(true));
    listen(node, "lanes", () => node.dataset.mode === "idle" && this.setRound(true));
    listen(node, "moved", ({ lane, end }) => {
      // A lane that another server decoded takes no part in the race for the first place.
      if (end && this.state?.open && !isServed(this.stage.panes[lane].method)) this.setRound(false);
    });
    listen(node, "result", (rows) => this.conclude(rows));
    listen(node, "lost", () => this.state?.open && this.setRound(false));
  }

  async show() {
    if (!this.origin) {
      // A line for the presenter, not a dialog, because the audience sees it too.
      this.stage.announce(
        "Phones cannot reach this server here; start it with --host 0.0.0.0, and open this page under the address that phones use.",
        "bad",
      );
      return;
    }
    try {
      if (!this.poll) await this.openPoll();
      this.dialog.showModal();
    } catch (error) {
      this.stage.showError(error.message);
    }
  }

  async openPoll() {
    this.poll = await request(ROUTES.audience, { origin: this.origin });
    this.dialog.querySelector(".code").replaceChildren(drawCode(this.poll.qr));
    this.dialog.querySelector(".link").replaceChildren(make("b", "", this.poll.link.replace(/^https?:\/\//, "")));
    await this.setRound(true);
    this.polling = setInterval(() => this.update(), POLL_MS);
  }

  // Opens or closes a round for the lanes on the stage, after the previous request has been answered. `winner`: the
  // index of a pane, or null.
  async setRound(open, winner = null) {
    if (!this.poll) return;
    const racing = this.stage.panes.filter((pane) => !isServed(pane.method));
    const lanes = racing.map((pane) => pane.method.title);
    const racingWinner = winner === null ? null : racing.indexOf(this.stage.panes[winner]);
    const hues = racing.map((pane) => Number(hueOf(pane.method)));
    const question = this.stage.reel?.head.question ?? "";
    const round = { key: this.poll.key, lanes, hues, question, open, winner: racingWinner };
    await this.pending;
    this.pending = request(`${ROUTES.audience}/${this.poll.code}`, round).catch((error) => this.handleFailure(error));
    this.showState(await this.pending);
  }

  // Closes the round, because the race is over. `rows` are its results; [] if they do not count, so nobody has won.
  conclude(rows) {
    const winner = rows.length ? (this.stage.track.winner ?? null) : null;
    if (this.state && this.state.winner === null) this.setRound(false, winner);
  }

  async update() {
    if (!this.state?.open) return;
    this.showState(
      await request(`${ROUTES.audience}/${this.poll.code}${ROUTES.poll_state}`).catch((error) =>
        this.handleFailure(error),
      ),
    );
  }

  // Ends a poll that the server no longer knows, because it was restarted. After any other failure the poll continues.
  handleFailure({ gone }) {
    if (!gone || !this.poll) return;
    clearInterval(this.polling);
    this.poll = this.state = undefined;
    this.line.hidden = true;
    this.dialog.close();
    this.stage.showError("The server no longer has the audience's poll; open it again for a new code.");
  }

  /** @param {PollState | undefined} state */
  showState(state) {
    if (!state) return;
    this.state = state;
    const sentence = describeRound(state);
    for (const node of [this.line, this.dialog.querySelector(".votes")]) setText(node, sentence);
    this.line.hidden = !sentence;
  }
}
