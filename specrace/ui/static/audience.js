// The audience votes: phones that follow a link or its QR code say who wins. The stage opens the poll, closes each round
// as the first lane finishes, and shows how many voted and who was right.
import { make, svg, write } from "./dom.js";

const PERIOD_MS = 1000;
const QUIET = 4;
const LOOPBACK = new Set(["localhost", "127.0.0.1", "[::1]"]);

// Where phones find this server, given its address on the network; "" where they do not.
export function originFor({ hostname, origin }, reach) {
  return LOOPBACK.has(hostname) ? reach : origin;
}

// Dark modules on light ground with a quiet zone around them, as scanners want them in dark mode, too.
export function drawCode(rows) {
  const size = rows.length + 2 * QUIET;
  const picture = svg("svg", { viewBox: `0 0 ${size} ${size}`, role: "img", "aria-label": "QR code of the link" });
  const dark = rows.flatMap((row, y) =>
    [...row].map((cell, x) => (cell === "1" ? `M${x + QUIET} ${y + QUIET}h1v1h-1z` : "")),
  );
  picture.append(svg("rect", { width: size, height: size, fill: "#fff" }));
  picture.append(svg("path", { d: dark.join(""), fill: "#000", "shape-rendering": "crispEdges" }));
  return picture;
}

// What the stage says of a round. Who leads stays a secret until the votes are closed.
export function tell({ lanes, open, counts, winner }) {
  const all = counts.reduce((sum, count) => sum + count, 0);
  if (!all) return open ? "Audience: no votes yet." : "";
  const votes = `${all} ${all === 1 ? "vote" : "votes"}`;
  if (open) return `Audience: ${votes}.`;
  const places = lanes.map((title, place) => ({ title, count: counts[place] })).filter(({ count }) => count);
  places.sort((a, b) => b.count - a.count);
  const split = places.map(({ title, count }) => `${title} ${count}`).join(", ");
  return `Audience: ${split}.${winner === null ? "" : ` ${counts[winner]} of ${all} guessed right.`}`;
}

async function ask(path, body) {
  const sent = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const answer = await fetch(path, body && sent);
  const given = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(given.error), { gone: answer.status < 500 });
  return given;
}

export class Audience {
  // `reach` is the server's address on its network.
  constructor(stage, reach) {
    this.stage = stage;
    this.origin = originFor(location, reach);
    this.dialog = stage.find(".audience");
    this.line = stage.find(".room");
    this.dialog.querySelector("[data-do=close]").addEventListener("click", () => this.dialog.close());
    const { node } = stage;
    node.addEventListener("opened", () => this.steer(true));
    node.addEventListener("lanes", () => node.dataset.mode === "idle" && this.steer(true));
    node.addEventListener("moved", ({ detail }) => detail.end && this.state?.open && this.steer(false));
    node.addEventListener("result", ({ detail }) => this.conclude(detail));
    node.addEventListener("lost", () => this.state?.open && this.steer(false));
  }

  async show() {
    if (!this.origin) {
      this.stage.warn(
        "Phones cannot reach this server here; start it with --host 0.0.0.0, and open this page under the address that phones use.",
      );
      return;
    }
    try {
      if (!this.poll) await this.begin();
      this.dialog.showModal();
    } catch (error) {
      this.stage.warn(error.message);
    }
  }

  async begin() {
    this.poll = await ask("audience", { origin: this.origin });
    this.dialog.querySelector(".code").replaceChildren(drawCode(this.poll.qr));
    this.dialog.querySelector(".link").replaceChildren(make("b", "", this.poll.link.replace(/^https?:\/\//, "")));
    await this.steer(true);
    this.looking = setInterval(() => this.look(), PERIOD_MS);
  }

  // Opens a round for the lanes on the stage, or closes it; one after the other.
  async steer(open, winner = null) {
    if (!this.poll) return;
    const lanes = this.stage.panes.map((pane) => pane.method.title);
    const given = { key: this.poll.key, lanes, open, winner };
    await this.steered;
    this.steered = ask(`audience/${this.poll.code}`, given).catch((error) => this.lose(error));
    this.take(await this.steered);
  }

  // The stage's race is over; nobody is right where its figures do not count.
  conclude(rows) {
    const winner = rows.length ? (this.stage.track.winner ?? null) : null;
    if (this.state && this.state.winner === null) this.steer(false, winner);
  }

  async look() {
    if (!this.state?.open) return;
    this.take(await ask(`audience/${this.poll.code}/state`).catch((error) => this.lose(error)));
  }

  // A server that was started again has no poll of before: its code leads nowhere. Any other failure may pass.
  lose({ gone }) {
    if (!gone || !this.poll) return;
    clearInterval(this.looking);
    this.poll = this.state = undefined;
    this.line.hidden = true;
    this.dialog.close();
    this.stage.warn("The server no longer has the audience's poll; open it again for a new code.");
  }

  take(state) {
    if (!state) return;
    this.state = state;
    const words = tell(state);
    for (const node of [this.line, this.dialog.querySelector(".votes")]) write(node, words);
    this.line.hidden = !words;
  }
}
